# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
# python/generate_signatures.py writes this file.
from collections.abc import Callable, Sequence
from typing import Any, List, Literal, Optional, Protocol, TypedDict, Union, overload

from numpy import int64
from numpy.typing import NDArray
from typing_extensions import Buffer, TypeAlias

from . import _core
from ._core import Plan, Workspace
from ._results import IdLogps, Result, SetDistillationResult, SoftCrossEntropyResult, TokenStats
from .lora import LoraWeight
from .packed import PackedWeight

__all__ = ['ArrayLike', 'Context', 'IdLogps', 'Plan', 'Result', 'SetDistillationResult', 'SoftCrossEntropyResult', 'TokenStats', 'WeightLike', 'Workspace', 'cross_entropy', 'distillation_loss', 'environment', 'id_logps', 'id_logps_backward', 'kto_loss', 'options', 'plan', 'policy_loss', 'preference_loss', 'sample', 'set_distillation_loss', 'soft_cross_entropy', 'token_stats', 'topk_overlap', 'topk_union']
__version__: str

class _SpeaksDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

ArrayLike: TypeAlias = Union[_SpeaksDLPack, Buffer]
"""An array argument: a NumPy, PyTorch or JAX array, or any object that supports DLPack or the buffer
protocol. It must be on the CPU with contiguous rows. Lists are not accepted.

help() of a function gives the type and the shape of each array, such as "floats [V, H]". The types are:

    floats: float32, bfloat16 or float16; or float64, if all floats of the call are float64. Never copied.
    numbers: float32, bfloat16, float16 or float64, independent of the other arrays.
    ids: integers of any type.
    flags: bools, or integers, float32 or float64 that are 0 or 1.
    float32, float64: exactly this type.
    output: an array to write, of the type of the argument whose gradient it receives, or float32.

Axes: N tokens, B sequences, T tokens per sequence, H columns of hidden states, V vocabulary entries, K
ids per token, E ids of all tokens, r the rank of a LoRA, G groups per row, each with its own scale."""
WeightLike: TypeAlias = Union[_SpeaksDLPack, Buffer, PackedWeight, LoraWeight]
"""The weight of a head: an ArrayLike [V, H], a PackedWeight (logitless.packed), or a LoraWeight
(logitless.lora) of either."""

class Option(TypedDict, total=False):
    type: str
    default: Any
    choices: List[str]
    optional: bool
    list: bool
    range: str
    meaning: str
    shape: str

class Context(_core.Context):
    """How calls run: immutable, and usable from several threads at once.

    Args:
        threads: size of the OpenMP team; 0 follows OMP_NUM_THREADS.
        workspace_bytes: upper bound of a call's workspace, 256 MiB by default.
        workspace: memory that calls reuse, one call at a time; by default each call allocates its own.
        plan: "auto", "one_pass", "two_pass", or "expected_row" (for a head without gradients).
        row_tile: rows of a logits tile; 0: chosen from the shape.
        vocab_tile: columns of a logits tile; 0: chosen from the shape.
        row_block: rows of finished logits that a thread processes at once; 0: chosen.
        gemm_backend: library for matrix products: "auto" or one of this build, such as "openblas" or
            "onednn".
        gradient_precision: "native", "split" or "float32", of dL/dlogits in bfloat16.
        simd_target: "auto", an instruction set of this CPU, such as "AVX2", or "plain".
        vocab_ranks: ranks that share the vocabulary (docs/parallel.md): an object with rank, size,
            all_gather(mine, all) and all_to_all(mine, theirs), which get NumPy arrays of bytes and fill the
            second.
        slices: sizes of the slices into which this rank's vocabulary entries are cut.
        own_d_hidden: each rank of vocab_ranks gets its own part of the sum of d_hidden.
        data_ranks: ranks that share the batch; an object like vocab_ranks.
        sum_d_weight: the gradients of the head are summed over data_ranks.

    Raises:
        ValueError: an option is invalid, or not available in this build or on this CPU.
        TypeError: an option is unknown or has the wrong type.

    Example:
        >>> import logitless
        >>> logitless.Context(threads=1, plan="two_pass").threads
        1
    """

    def __init__(self, *, threads: int=0, workspace_bytes: int=256 << 20, workspace: Workspace | None=None, plan: Literal['auto', 'one_pass', 'two_pass', 'expected_row']='auto', row_tile: int=0, vocab_tile: int=0, row_block: int=0, gemm_backend: Literal['auto', 'openblas', 'onednn', 'amx', 'bfmmla']='auto', gradient_precision: Literal['native', 'split', 'float32']='native', simd_target: Union[Literal['auto', 'plain', 'AVX2', 'AVX3', 'AVX3_ZEN4', 'AVX3_SPR', 'NEON', 'NEON_BF16', 'SVE', 'SVE2'], str]='auto', vocab_ranks: Any=None, slices: list[int] | None=None, own_d_hidden: bool=False, data_ranks: Any=None, sum_d_weight: bool=False) -> None:
        ...

    def __reduce__(self) -> Any:
        ...

def cross_entropy(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    token_weights: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    label_smoothing: float = 0.0, z_loss: float = 0.0, dft: bool = False,
    class_weights: Optional[ArrayLike] = None, loss_scale: float = 1.0,
    num_items_in_batch: Optional[float] = None, want_accuracy: bool = False, want_entropy: bool = False,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Result:
    """Cross-entropy of a head. Gradients are written to the arrays given as d_hidden=, d_weight= and d_bias=.

    hidden is [N, H] or [B, T, H], weight is [V, H], and targets are integers with hidden's leading axes. For
    a weight stored as [H, V], pass weight.T and d_weight.T. For finished logits, pass logits= and d_logits=
    instead of hidden and weight. Here and in every other function, weight may be a PackedWeight
    (logitless.packed), and so may the weight of a teacher or reference; vocab_ids= selects entries of the
    head. backward="sampled" (with noise= or theta=, and seed=) or "certified" (with tolerance=) computes
    gradients from the parts of the vocabulary that matter.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logits = softcap * np.tanh(logits / softcap) / temperature  # if softcap > 0
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        mask = targets != ignore_index
        logps = np.take_along_axis(logps, np.where(mask, targets, 0)[..., None], axis=-1)[..., 0]
        loss = -(token_weights * logps)[mask].mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [N] or [B, T]): token ids, one per row of hidden.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        token_weights (numbers [N] or [B, T]): multiplies each token's loss.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        label_smoothing: ε of PyTorch's label smoothing.
        z_loss: λ of λ · lse², added to each token's loss.
        dft: DFT: multiplies each token's loss by its target's probability (detached).
        class_weights (float32 [V]): as in PyTorch; empty: all 1.
        loss_scale: multiplies loss and gradients.
        num_items_in_batch: the divisor of the mean, e.g. the tokens of all micro-batches; unset: as mean_over says; only with reduction mean.
        want_accuracy: fills metrics.accuracy and per_token_argmax.
        want_entropy: fills metrics.mean_entropy.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        Result: see help(logitless.Result).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> d_hidden = np.empty_like(hidden)
        >>> result = logitless.cross_entropy(hidden, weight, np.arange(6), d_hidden=d_hidden)
        >>> round(result.loss, 3)
        2.659
    """

def policy_loss(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    chosen_ids: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    advantages: Optional[ArrayLike] = None, old_logps: Optional[ArrayLike] = None,
    ref_logps: Optional[ArrayLike] = None, sampling_logps: Optional[ArrayLike] = None,
    teacher_logps: Optional[ArrayLike] = None, scores: Optional[ArrayLike] = None,
    mask: Optional[ArrayLike] = None, advantages_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    kept_ids: Optional[ArrayLike] = None, kept_offsets: Optional[ArrayLike] = None,
    kept_counts: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False,
    loss_type: Literal['grpo', 'bnpo', 'dr_grpo', 'dapo', 'cispo', 'sapo', 'luspo', 'vespo', 'reinforce', 'rloo', 'ppo', 'importance_sampling', 'dppo', 'gmpo', 'dro', 'topr', 'clip_cov', 'kl_cov'] = 'grpo',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    importance_sampling_level: Literal['token', 'sequence'] = 'token',
    epsilon_low: Optional[float] = None, epsilon_high: Optional[float] = None,
    delta: Optional[float] = None, log_ratio_clamp: Optional[float] = 20.0, beta: float = 0.0,
    kl_estimator: Literal['k1', 'k2', 'k3', 'abs', 'k1_plus', 'k3_plus'] = 'k3',
    use_bias_correction_kl: bool = False, entropy_bonus: float = 0.0, top_entropy_quantile: float = 1.0,
    off_policy_mask_threshold: Optional[float] = None,
    sampler_correction: Literal['none', 'token_truncate', 'token_mask', 'sequence_truncate', 'sequence_mask', 'geometric_mask'] = 'none',
    sampler_clip_min: Optional[float] = None, sampler_clip_max: Optional[float] = 3.0,
    teacher_weight: float = 0.0, teacher_against: Literal['current', 'old', 'sampling'] = 'current',
    teacher_discount: float = 0.0,
    trust_region: Literal['default', 'none', 'tv', 'tv_both', 'kl'] = 'default',
    trust_region_low: Optional[float] = None, trust_region_high: Optional[float] = None,
    m2_threshold: Optional[float] = None, sampler_penalty: float = 0.0, positive_nll_weight: float = 0.0,
    aggregation: Literal['default', 'token_mean', 'token_sum', 'seq_mean_token_sum', 'seq_mean_token_mean', 'seq_mean_token_sum_norm'] = 'default',
    num_items_in_batch: Optional[float] = None, max_completion_length: Optional[int] = None,
    num_sequences: Optional[float] = None, count_empty_sequences: bool = True,
    sapo_temperature_pos: float = 1.0, sapo_temperature_neg: float = 1.05, vespo_k_pos: float = 2.0,
    vespo_lambda_pos: float = 3.0, vespo_k_neg: float = 3.0, vespo_lambda_neg: float = 2.0,
    dro_tau: float = 0.1, topr_weight_pos: float = 1.0, topr_weight_neg: float = 1.0,
    cov_share: float = 0.0002, cov_low: float = 1.0, cov_high: float = 5.0, cov_seed: int = 0,
    cov_kl_weight: float = 0.1, loss_scale: float = 1.0, want_entropy: bool = False,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Result:
    """Policy loss (loss_type="grpo", ...) of sampled tokens.

    kept_ids are the token ids that the sampler kept (top-k, top-p): [E] with kept_offsets, or [N, K] with or
    without kept_counts. Log-probabilities are then normalised over these ids.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        logps = np.take_along_axis(logps, chosen_ids[..., None], axis=-1)[..., 0]
        ratio, A = np.exp(logps - old_logps.reshape(logps.shape)), advantages[:, None]
        clipped = np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
        per_token = -np.minimum(ratio * A, clipped * A)  # loss_type="grpo"
        loss = ((per_token * mask).sum(-1) / mask.sum(-1)).mean()

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        chosen_ids (ids [N] or [B, T]): the sampled token ids.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        advantages (numbers [B] or [N]): one per sequence or per token.
        old_logps (numbers [N]): log-probabilities before the update; without them the ratio is 1.
        ref_logps (numbers [N]): the reference's log-probabilities; needs beta.
        sampling_logps (numbers [N]): the sampler's log-probabilities; NaN where unknown.
        teacher_logps (numbers [N]): the teacher's log-probabilities; needs teacher_weight.
        scores (numbers [B]): above 0 for a good sequence; for topr and positive_nll_weight.
        mask (flags [N] or [B, T]): 0 excludes a token.
        advantages_per: whether advantages are per sequence or per token.
        kept_ids (ids [N, K], or [E] with offsets): token ids that the sampler kept.
        kept_offsets (ids [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        kept_counts (ids [N]): how many of its K ids each row uses.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        loss_type: the per-token loss, which also sets the default aggregation and trust region.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        importance_sampling_level: one ratio per token, or one per sequence (GSPO).
        epsilon_low: ratios are clipped below at 1 − ε; at most 1, except for gmpo; unset: 0.2 (gmpo: 0.4; cispo, dppo: no bound).
        epsilon_high: ratios are clipped above at 1 + ε; unset: 0.3 (gmpo: 0.4); for cispo and dppo the bound itself, unset: 5 and 3.
        delta: two-sided clipping: the upper bound of the ratio for negative advantages.
        log_ratio_clamp: clamps log ratios to ± this; none: 300.
        beta: the weight of the KL penalty; needs ref_logps.
        kl_estimator: the estimator of the KL from one sample; needs beta.
        use_bias_correction_kl: multiplies the KL by the importance ratio (DeepSeek-V3.2); needs beta.
        entropy_bonus: the weight of the mean entropy, which is subtracted from the loss.
        top_entropy_quantile: the share of tokens, those with the highest entropies, that keep their loss.
        off_policy_mask_threshold: drops sequences with a negative advantage whose mean log-probability has fallen by more than this.
        sampler_correction: how exp(old − sampling) weights or masks a token's loss; needs sampling_logps.
        sampler_clip_min: the lower bound of the correction; needs sampler_correction.
        sampler_clip_max: the upper bound of the correction; any other than 3 needs sampler_correction.
        teacher_weight: the weight of the teacher's log ratio in a token's advantage; needs teacher_logps.
        teacher_against: the log-probability that the teacher's is compared with; needs teacher_weight.
        teacher_discount: the discount per position of later tokens' log ratios; needs teacher_weight.
        trust_region: which tokens keep their loss, by how far the policy has moved from old_logps; default: tv for dppo, none for all others.
        trust_region_low: the trust region's lower bound; unset: 0.2 (tv_both: 0.1).
        trust_region_high: the trust region's upper bound; unset: 0.2 (tv_both: 0.1).
        m2_threshold: M2PO: drops the tokens with the largest (old − sampling)² until the mean of the rest is below this.
        sampler_penalty: the weight of (logp − sampling)².
        positive_nll_weight: the weight of the negative log-likelihood of sequences with a score above 0; needs scores.
        aggregation: how per-token losses become one number; default: as the loss type does.
        num_items_in_batch: the divisor of token_mean; unset: the number of tokens.
        max_completion_length: the divisor of seq_mean_token_sum_norm (dr_grpo), which requires it.
        num_sequences: the divisor of a mean over sequences; unset: their number.
        count_empty_sequences: whether a mean over sequences counts sequences whose tokens are all masked.
        sapo_temperature_pos: sapo: the temperature where the advantage is positive.
        sapo_temperature_neg: sapo: the temperature where the advantage is negative.
        vespo_k_pos: vespo: k where the advantage is not negative.
        vespo_lambda_pos: vespo: λ where the advantage is not negative.
        vespo_k_neg: vespo: k where the advantage is negative.
        vespo_lambda_neg: vespo: λ where the advantage is negative.
        dro_tau: dro: twice the weight of (logp − old)².
        topr_weight_pos: topr: the weight of sequences with a score above 0.
        topr_weight_neg: topr: the weight of all other sequences.
        cov_share: clip_cov, kl_cov: the share of tokens to choose.
        cov_low: clip_cov chooses among tokens with a covariance above this.
        cov_high: clip_cov chooses among tokens with a covariance below this.
        cov_seed: the seed of clip_cov's choice.
        cov_kl_weight: kl_cov: the weight of abs(logp − old) at the chosen tokens.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills metrics.mean_entropy even if nothing else needs the entropy.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        Result: see help(logitless.Result).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> advantages = np.array([1.0, -1.0, 0.5, 1.0, -1.0, 2.0])
        >>> result = logitless.policy_loss(hidden, weight, np.arange(6), advantages=advantages, loss_type="dapo")
        >>> round(result.loss, 3)
        -0.417
    """

def preference_loss(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    ref_logps: Optional[ArrayLike] = None,
    ref_logps_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    ref_hidden: Optional[ArrayLike] = None, ref_weight: Optional[WeightLike] = None,
    ref_bias: Optional[ArrayLike] = None, ref_softcap: float = 0.0,
    ref_packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    ref_scales: Optional[ArrayLike] = None, ref_vocab_ids: Optional[ArrayLike] = None,
    ref_lora_a: Optional[ArrayLike] = None, ref_lora_b: Optional[ArrayLike] = None,
    ref_lora_scale: float = 1.0, ref_lora_states: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False,
    loss_type: Union[Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', 'apo_zero', 'apo_down', 'aot', 'aot_unpaired', 'discopop', 'sft', 'orpo', 'simpo', 'cpo', 'sigmoid_norm'], Sequence[Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', 'apo_zero', 'apo_down', 'aot', 'aot_unpaired', 'discopop', 'sft', 'orpo', 'simpo', 'cpo', 'sigmoid_norm']]] = ['sigmoid'],
    loss_weights: Union[float, Sequence[float]] = [], beta: float = 0.1, label_smoothing: float = 0.0,
    average_log_prob: bool = False, ref_logps_are: Literal['sums', 'averages'] = 'sums',
    discopop_tau: float = 0.05, simpo_gamma: float = 0.5,
    f_divergence: Literal['reverse_kl', 'forward_kl', 'js_divergence', 'alpha_divergence'] = 'reverse_kl',
    f_alpha: float = 0.5, ld_alpha: Optional[float] = None, use_weighting: bool = False,
    reward_alpha: float = 0.0, nll_weight: Optional[float] = None, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, loss_scale: float = 1.0,
    want_entropy: bool = False, backward: Literal['exact', 'sampled', 'certified'] = 'exact',
    noise: float = 0.01, theta: float = 0.0, tolerance: float = 0.001, seed: int = 0,
) -> Result:
    """Preference loss of pairs of sequences, such as DPO's: hidden holds the chosen sequences, then the
    rejected ones.

    loss_type is a name, or a list of names with loss_weights. The reference is given by ref_logps (one per
    sequence or per token), or by ref_hidden, ref_weight and ref_bias.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        mask = targets != ignore_index
        logps = np.take_along_axis(logps, np.where(mask, targets, 0)[..., None], axis=-1)[..., 0]
        logps = (logps * mask).sum(-1)
        chosen, rejected = np.split(logps - ref_logps, 2)
        loss = np.logaddexp(0, -beta * (chosen - rejected)).mean()  # loss_type="sigmoid"

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [N] or [B, T]): token ids, one per row of hidden.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        ref_logps (numbers [B] or [N]): the reference's log-probabilities, per sequence or per token.
        ref_logps_per: whether the reference's log-probabilities are per sequence or per token.
        ref_hidden (floats [N, H] or [B, T, H]): the reference: hidden states.
        ref_weight (floats [V, H]): the reference: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ref_bias (floats [V]): the reference: added to the logits.
        ref_softcap: the reference: c of c · tanh(logits / c); 0: none.
        ref_packing: the reference: how weight is packed.
        ref_scales (float32 [V, G]): the reference: the scales of a weight packed as int8 or nf4.
        ref_vocab_ids (ids [K]): the reference: the rows of weight that form the vocabulary; all by default.
        ref_lora_a (floats [r, H]): the reference: a LoRA's first matrix.
        ref_lora_b (floats [V, r]): the reference: a LoRA's second matrix.
        ref_lora_scale: the reference: multiplies the LoRA's term of the logits.
        ref_lora_states (floats [N, r]): the reference: hidden · lora_aᵀ, in place of lora_a.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        loss_type: the losses to sum, at least one.
        loss_weights: one weight per loss type; empty: all 1.
        beta: the scale of log ratios.
        label_smoothing: the share of flipped labels, for exo_pair, robust, aot, aot_unpaired, simpo and cpo.
        average_log_prob: uses a sequence's mean log-probability instead of its sum; ref_logps_are still describes the reference's.
        ref_logps_are: whether per-sequence reference log-probabilities are sums or averages.
        discopop_tau: τ of discopop.
        simpo_gamma: γ of simpo.
        f_divergence: f-DPO: the function applied to a pair's log ratios.
        f_alpha: α of alpha_divergence.
        ld_alpha: LD-DPO: the weight of tokens beyond the length of the pair's shorter answer.
        use_weighting: WPO: weights a pair's loss by the policy's probability of both answers.
        reward_alpha: AlphaPO: α of simpo's and cpo's reward.
        nll_weight: the weight of the chosen sequences' negative log-likelihood; unset: 1 with orpo or cpo, else 0.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills metrics.mean_entropy.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        Result: see help(logitless.Result).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> pairs = hidden.reshape(2, 3, 4)  # a chosen sequence and a rejected one
        >>> targets, ref_logps = np.arange(6).reshape(2, 3), np.array([-6.0, -7.0])
        >>> result = logitless.preference_loss(pairs, weight, targets, ref_logps=ref_logps, loss_type=["ipo"])
        >>> round(result.loss, 3)
        27.293
    """

def kto_loss(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    labels: Optional[ArrayLike] = None, ref_logps: Optional[ArrayLike] = None,
    ref_logps_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    kl_logps: Optional[ArrayLike] = None, kl_ref_logps: Optional[ArrayLike] = None,
    sequence_weights: Optional[ArrayLike] = None, reward_targets: Optional[ArrayLike] = None,
    ref_hidden: Optional[ArrayLike] = None, ref_weight: Optional[WeightLike] = None,
    ref_bias: Optional[ArrayLike] = None, ref_softcap: float = 0.0,
    ref_packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    ref_scales: Optional[ArrayLike] = None, ref_vocab_ids: Optional[ArrayLike] = None,
    ref_lora_a: Optional[ArrayLike] = None, ref_lora_b: Optional[ArrayLike] = None,
    ref_lora_scale: float = 1.0, ref_lora_states: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False, loss_type: Literal['kto', 'apo_zero_unpaired', 'bco', 'a2po'] = 'kto',
    beta: float = 0.1, desirable_weight: float = 1.0, undesirable_weight: float = 1.0,
    bco_delta: float = 0.0, average_log_prob: bool = False,
    ref_logps_are: Literal['sums', 'averages'] = 'sums', ignore_index: int = -100, shift: int = 0,
    temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, loss_scale: float = 1.0,
    want_entropy: bool = False, backward: Literal['exact', 'sampled', 'certified'] = 'exact',
    noise: float = 0.01, theta: float = 0.0, tolerance: float = 0.001, seed: int = 0,
) -> Result:
    """Loss of single sequences, each labelled desirable or not: loss_type="kto", "apo_zero_unpaired", "bco"
    or "a2po".

    labels are bools, or 0 and 1 of any type; 1 is desirable. The reference is given as in preference_loss().
    kl_logps and kl_ref_logps are for kto, reward_targets for a2po, sequence_weights for all.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        mask = targets != ignore_index
        logps = np.take_along_axis(logps, np.where(mask, targets, 0)[..., None], axis=-1)[..., 0]
        logps = (logps * mask).sum(-1)
        kl = max(0, (kl_logps - kl_ref_logps).mean())
        z = (logps - ref_logps - kl) * (2 * labels - 1) * beta
        loss = (1 - 1 / (1 + np.exp(-z))).mean()

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [N] or [B, T]): token ids, one per row of hidden.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        labels (flags [B]): 1: desirable, 0: undesirable.
        ref_logps (numbers [B] or [N]): the reference's log-probabilities, per sequence or per token.
        ref_logps_per: whether the reference's log-probabilities are per sequence or per token.
        kl_logps (numbers [B or other]): kto: log-probabilities of mismatched answers.
        kl_ref_logps (numbers as kl_logps): kto: the reference's log-probabilities of mismatched answers.
        sequence_weights (numbers [B]): multiplies each sequence's loss.
        reward_targets (numbers [B]): a2po: reward − value, the target of beta times the log ratio.
        ref_hidden (floats [N, H] or [B, T, H]): the reference: hidden states.
        ref_weight (floats [V, H]): the reference: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ref_bias (floats [V]): the reference: added to the logits.
        ref_softcap: the reference: c of c · tanh(logits / c); 0: none.
        ref_packing: the reference: how weight is packed.
        ref_scales (float32 [V, G]): the reference: the scales of a weight packed as int8 or nf4.
        ref_vocab_ids (ids [K]): the reference: the rows of weight that form the vocabulary; all by default.
        ref_lora_a (floats [r, H]): the reference: a LoRA's first matrix.
        ref_lora_b (floats [V, r]): the reference: a LoRA's second matrix.
        ref_lora_scale: the reference: multiplies the LoRA's term of the logits.
        ref_lora_states (floats [N, r]): the reference: hidden · lora_aᵀ, in place of lora_a.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        loss_type: the loss of each sequence.
        beta: the scale of log ratios.
        desirable_weight: the weight of desirable sequences.
        undesirable_weight: the weight of undesirable sequences.
        bco_delta: bco: the baseline of the rewards, the mean of past ones.
        average_log_prob: uses a sequence's mean log-probability instead of its sum; ref_logps_are still describes the reference's.
        ref_logps_are: whether per-sequence reference log-probabilities are sums or averages.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills metrics.mean_entropy.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        Result: see help(logitless.Result).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> given = {"labels": np.array([1, 0]), "ref_logps": np.array([-6.0, -7.0])}
        >>> states, targets = hidden.reshape(2, 3, 4), np.arange(6).reshape(2, 3)
        >>> result = logitless.kto_loss(states, weight, targets, loss_type="apo_zero_unpaired", **given)
        >>> round(result.loss, 3)
        0.508
    """

def soft_cross_entropy(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None, *,
    context: Optional[Context] = None, dtype: Optional[Literal['float32', 'float64']] = None,
    offsets: Optional[ArrayLike] = None, bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    ids: Optional[ArrayLike] = None, id_offsets: Optional[ArrayLike] = None,
    id_counts: Optional[ArrayLike] = None, weights: Optional[ArrayLike] = None,
    probabilities: Optional[ArrayLike] = None, mask: Optional[ArrayLike] = None,
    token_weights: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    subtract_entropy: bool = False, loss_scale: float = 1.0, num_items_in_batch: Optional[float] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> SoftCrossEntropyResult:
    """Cross-entropy against a target distribution per token instead of a label.

    The targets are probabilities=, [N, V] of float32 (float64 for float64 hidden states), or ids= with
    weights=: both [N, K], with id_counts= [N] if rows have fewer than K entries, or [E] with id_offsets=
    [N + 1]. Weights of equal ids add up. mask=, bools or 0 and 1, [N] or [B, T], leaves tokens out.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        losses = -token_weights * (probabilities * logps).sum(-1)  # token_weights are 1 unless given
        loss = losses[mask].mean()

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        ids (ids [N, K], or [E] with offsets): token ids with a target weight.
        id_offsets (ids [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        id_counts (ids [N]): how many of its K ids each row uses.
        weights (numbers as ids): the probabilities of these ids; a repeated id's weights add up.
        probabilities (float32 [N, V]): target probabilities of all ids, in place of ids and weights; float64 if hidden is.
        mask (flags [N] or [B, T]): 0 excludes a token.
        token_weights (numbers [N] or [B, T]): multiplies each token's loss.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        subtract_entropy: returns KL(q, p) instead of the cross-entropy; the gradients are the same.
        loss_scale: multiplies loss and gradients.
        num_items_in_batch: the divisor of the mean, e.g. the tokens of all micro-batches; unset: as mean_over says; only with reduction mean.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        SoftCrossEntropyResult: see help(logitless.SoftCrossEntropyResult).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> ids = np.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> weights = np.full((6, 2), 0.5)
        >>> result = logitless.soft_cross_entropy(hidden, weight, ids=ids, weights=weights)
        >>> round(result.loss, 3)
        2.774
    """

def set_distillation_loss(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    ids: Optional[ArrayLike] = None, teacher_logps: Optional[ArrayLike] = None,
    targets: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    id_offsets: Optional[ArrayLike] = None, id_counts: Optional[ArrayLike] = None,
    teacher_outside_logps: Optional[ArrayLike] = None, token_weights: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    outside: Literal['tail', 'truncated', 'renormalised', 'teacher_renormalised', 'generalised'] = 'tail',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, divergence_weight: float = 1.0,
    temperature_squared: bool = False, hard_weight: float = 0.0,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    num_items_in_batch: Optional[float] = None, loss_scale: float = 1.0, tail_floor: float = 0.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> SetDistillationResult:
    """Divergence of a student from a teacher whose log-probabilities are known at a set of token ids per row.

    ids and teacher_logps are [N, K], with id_counts= [N] if rows have fewer, or [E] with id_offsets= [N + 1].
    outside= selects how the remaining probability is treated: "tail", "truncated", "renormalised",
    "teacher_renormalised" or "generalised". For "tail", teacher_outside_logps= [N] may give the teacher's
    log-probability of the rest more accurately than teacher_logps does.

    targets are optional. They exclude ignored rows, and are the labels of the cross-entropy that hard_weight=
    adds.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        log_s, log_t = np.take_along_axis(logps, ids, axis=-1), teacher_logps
        rest_s, rest_t = (np.log1p(-np.exp(x).sum(-1)) for x in (log_s, log_t))  # outside="tail"
        kl = (np.exp(log_t) * (log_t - log_s)).sum(-1) + np.exp(rest_t) * (rest_t - rest_s)
        loss = (token_weights * kl).mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (ids [N, K], or [E] with offsets): token ids whose teacher log-probability is known.
        teacher_logps (numbers as ids): the teacher's log-probabilities.
        targets (ids [N] or [B, T]): token ids, one per row of hidden.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        id_offsets (ids [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        id_counts (ids [N]): how many of its K ids each row uses.
        teacher_outside_logps (numbers [N]): the teacher's log-probability of all other ids.
        token_weights (numbers [N] or [B, T]): multiplies each token's loss.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        loss_type: the divergence between student and teacher; acceptance and lk_hybrid are refused.
        outside: how the probability outside a row's set is treated.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        beta: β of jsd; 0 is forward_kl, 1 is reverse_kl.
        skew: λ of skew_kl and skew_reverse_kl: the weight of the KL's first argument in the mixture.
        forward_weight: w of mixed_kl: the weight of the forward KL.
        divergence_weight: the weight of the divergence.
        temperature_squared: multiplies the divergence by the student's temperature squared.
        hard_weight: the weight of the cross-entropy against the targets, at temperature 1.
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        num_items_in_batch: the divisor of the mean; unset: as mean_over says; only with reduction mean.
        loss_scale: multiplies loss and gradients.
        tail_floor: outside tail: the lower bound of the teacher's mass outside a set (TRL: 1e-7).
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        SetDistillationResult: see help(logitless.SetDistillationResult).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> ids = np.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> result = logitless.set_distillation_loss(hidden, weight, ids, np.full((6, 2), -1.0))
        >>> round(result.loss, 3)
        1.054
    """

def id_logps(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    ids: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    id_offsets: Optional[ArrayLike] = None, id_counts: Optional[ArrayLike] = None,
    normalise_over: Literal['vocabulary', 'set'] = 'vocabulary', ignore_index: int = -100, shift: int = 0,
    temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
) -> IdLogps:
    """Log-probabilities at any token ids of each row.

    ids are [N, K], with id_counts= [N] if rows have fewer, or [E] with id_offsets= [N + 1]. With
    normalise_over="set", instead of "vocabulary", probabilities sum to 1 over the row's ids, and only these
    rows of the head are read.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        logps = np.take_along_axis(logps, ids, axis=-1)

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (ids [N, K], or [E] with offsets): token ids of each row.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        id_offsets (ids [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        id_counts (ids [N]): how many of its K ids each row uses.
        normalise_over: the set over which a row's probabilities sum to 1.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.

    Returns:
        IdLogps: see help(logitless.IdLogps).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> ids = np.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> logitless.id_logps(hidden, weight, ids).logps.shape
        (6, 2)
    """

def id_logps_backward(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    ids: Optional[ArrayLike] = None, *, forward: IdLogps, upstream: ArrayLike,
    context: Optional[Context] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    id_offsets: Optional[ArrayLike] = None, id_counts: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False, normalise_over: Literal['vocabulary', 'set'] = 'vocabulary',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """The backward half of id_logps(). Writes gradients to the arrays given as d_hidden=, d_weight=, d_bias=
    or d_logits=.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        d_logits = -np.exp(logps) * upstream.sum(-1, keepdims=True)
        np.add.at(d_logits, (np.arange(len(ids))[:, None], ids), upstream)
        d_hidden, d_weight, d_bias = d_logits @ weight, d_logits.T @ hidden, d_logits.sum(0)

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (ids [N, K], or [E] with offsets): token ids of each row.
        forward: the result of id_logps() for the same arguments.
        upstream (float64 or float32 as ids): the gradient of the loss with respect to logps.
        context: how the call runs; by default a shared one.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        id_offsets (ids [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        id_counts (ids [N]): how many of its K ids each row uses.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        normalise_over: the set over which a row's probabilities sum to 1.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        Plan: how the call ran.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> ids = np.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> made, d_hidden = logitless.id_logps(hidden, weight, ids), np.empty_like(hidden)
        >>> upstream = np.ones((6, 2))
        >>> plan = logitless.id_logps_backward(hidden, weight, ids, forward=made, upstream=upstream, d_hidden=d_hidden)
        >>> plan.tokens
        6
    """

def distillation_loss(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    teacher_hidden: Optional[ArrayLike] = None, teacher_weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    token_weights: Optional[ArrayLike] = None, teacher_bias: Optional[ArrayLike] = None,
    teacher_softcap: float = 0.0,
    teacher_packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    teacher_scales: Optional[ArrayLike] = None, teacher_vocab_ids: Optional[ArrayLike] = None,
    teacher_lora_a: Optional[ArrayLike] = None, teacher_lora_b: Optional[ArrayLike] = None,
    teacher_lora_scale: float = 1.0, teacher_lora_states: Optional[ArrayLike] = None,
    teacher_logits: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    teacher_temperature: Optional[float] = None,
    teacher_round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, acceptance_decay: float = 3.0,
    divergence_weight: float = 1.0, temperature_squared: bool = False, hard_weight: float = 0.0,
    hard_temperature: float = 1.0, reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    num_items_in_batch: Optional[float] = None, loss_scale: float = 1.0, want_entropy: bool = False,
    want_agreement: bool = False, backward: Literal['exact', 'sampled', 'certified'] = 'exact',
    noise: float = 0.01, theta: float = 0.0, tolerance: float = 0.001, seed: int = 0,
) -> Result:
    """Divergence of a student from a teacher over one vocabulary: loss_type="forward_kl", "reverse_kl",
    "jsd", ...

    Each model is given by hidden states and a head. teacher_bias, teacher_softcap and teacher_round_logits_to
    belong to the teacher's head. teacher_logits=, [N, V] or [B, T, V], replaces the teacher's states and
    head; logits= may then replace the student's. targets are optional: they exclude ignored rows, and are the
    labels of the cross-entropy that hard_weight= adds. The teacher has no gradient.

    Equivalent to, with the other options at their defaults:
        logits = [hidden @ weight.T + bias, teacher_hidden @ teacher_weight.T + teacher_bias]
        log_s, log_t = (x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in logits)
        kl = (np.exp(log_t) * (log_t - log_s)).sum(-1)  # loss_type="forward_kl"
        loss = (token_weights * kl).mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        teacher_hidden (floats [N, H] or [B, T, H]): the teacher: hidden states.
        teacher_weight (floats [V, H]): the teacher: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [N] or [B, T]): token ids, one per row of hidden.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        token_weights (numbers [N] or [B, T]): multiplies each token's loss.
        teacher_bias (floats [V]): the teacher: added to the logits.
        teacher_softcap: the teacher: c of c · tanh(logits / c); 0: none.
        teacher_packing: the teacher: how weight is packed.
        teacher_scales (float32 [V, G]): the teacher: the scales of a weight packed as int8 or nf4.
        teacher_vocab_ids (ids [K]): the teacher: the rows of weight that form the vocabulary; all by default.
        teacher_lora_a (floats [r, H]): the teacher: a LoRA's first matrix.
        teacher_lora_b (floats [V, r]): the teacher: a LoRA's second matrix.
        teacher_lora_scale: the teacher: multiplies the LoRA's term of the logits.
        teacher_lora_states (floats [N, r]): the teacher: hidden · lora_aᵀ, in place of lora_a.
        teacher_logits (floats [N, V] or [B, T, V]): the teacher: finished logits, in place of hidden and weight.
        d_hidden (output [N, H] or [B, T, H]): receives the gradient of hidden.
        d_weight (output [V, H]): receives the gradient of weight, stored as weight is.
        d_bias (output [V]): receives the gradient of bias.
        d_lora_a (output [r, H]): receives the gradient of lora_a.
        d_lora_b (output [V, r]): receives the gradient of lora_b.
        d_lora_states (output [N, r]): receives the gradient of lora_states.
        d_logits (output [N, V] or [B, T, V]): receives the gradient of logits.
        weight_sink: receives each tile of d_weight: (first, count, tile).
        accumulate: adds to the gradients instead of overwriting them.
        loss_type: the divergence between student and teacher.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        teacher_temperature: divides the teacher's capped logits; unset: the student's temperature, token by token.
        teacher_round_logits_to: rounds the teacher's raw logits to this type.
        beta: β of jsd, the teacher's weight in the mixture; 0 is forward_kl, 1 is reverse_kl.
        skew: λ of skew_kl and skew_reverse_kl: the weight of the KL's first argument in the mixture.
        forward_weight: w of mixed_kl, the weight of the forward KL.
        acceptance_decay: η of lk_hybrid: how fast the KL's weight falls as student and teacher overlap more.
        divergence_weight: the weight of the divergence.
        temperature_squared: multiplies the divergence by the student's temperature squared.
        hard_weight: the weight of the cross-entropy against the targets.
        hard_temperature: the temperature of the cross-entropy; needs hard_weight.
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        num_items_in_batch: the divisor of the mean; unset: as mean_over says; only with reduction mean.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills the entropies of student and teacher.
        want_agreement: fills metrics.agreement and per_token_agreement.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: sampled: the random seed; use another one for each step; PyTorch's functions draw it.

    Returns:
        Result: see help(logitless.Result).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> result = logitless.distillation_loss(hidden, weight, hidden, 2 * weight, loss_type="reverse_kl")
        >>> round(result.loss, 3)
        0.191
    """

def token_stats(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, *, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, entropy: bool = False,
    cross: bool = False, argmax: bool = False, rank: bool = False, top_k: int = 0,
    cross_weights: Optional[ArrayLike] = None, outside: bool = False, square_sum: bool = False,
    draws: int = 0, draw_seed: int = 0, draw_top_k: int = 0, draw_top_p: float = 1.0,
) -> TokenStats:
    """Per-token statistics: logp of the target, lse, max_logit (before the temperature), and log_sum (lse
    minus the largest final logit).

    entropy=True, cross=True, argmax=True, rank=True, square_sum=True (the sum of p * p) and outside=True
    (log(1 - p) of the target, and the maximum that its gradient needs) add these. top_k=K, up to 256, adds
    top_ids and top_logps, [N, K]: the ids of the K largest logits and their log-probabilities, sorted by
    descending logit; ties go to the lower id. If the vocabulary is smaller than K, the ids after its end are
    -1. A target is the greedy choice if it equals argmax. draws=D, up to 256, adds drawn_ids and drawn_logps,
    [N, D]: ids drawn from each token's distribution, and their log-probabilities. sample() returns only these.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        max_logit, argmax, lse = logits.max(-1), logits.argmax(-1), np.logaddexp.reduce(logits, axis=-1)
        log_sum, logps = lse - max_logit, logits - lse[..., None]
        logp = np.take_along_axis(logps, targets[..., None], axis=-1)[..., 0]
        rank, outside = 1 + (logps > logp[..., None]).sum(-1), np.log1p(-np.exp(logp))
        entropy, square_sum = -(np.exp(logps) * logps).sum(-1), np.exp(2 * logps).sum(-1)
        top_ids = np.argsort(-logits, axis=-1, kind="stable")[..., :top_k]
        top_logps = np.take_along_axis(logps, top_ids, axis=-1)

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [N] or [B, T]): token ids, one per row of hidden.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        entropy: the entropy of the token's distribution, in nats.
        cross: Σ_v q_v log p_v.
        argmax: the most likely id.
        rank: the rank of the target among the logits; costs a second pass over them.
        top_k: the ids and log-probabilities of the k largest logits; 0 for none.
        cross_weights (float32 [V]): the q of cross; empty: 1/V each.
        outside: log(1 − p) of the target, computed from all other entries.
        square_sum: Σ p², the probability that two draws are the same token.
        draws: the number of ids to draw from each row's distribution; 0 for none.
        draw_seed: draws: the random seed; use another one for each call and each rank of a batch.
        draw_top_k: draws: only from the k largest logits; 0: from all ids.
        draw_top_p: draws: only from the most likely of the draw_top_k ids that together have this share of their probability; below 1 it needs draw_top_k.

    Returns:
        TokenStats: see help(logitless.TokenStats).

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> stats = logitless.token_stats(hidden, weight, np.arange(6), entropy=True, top_k=2)
        >>> stats.logp.shape, stats.top_ids.shape
        ((6,), (6, 2))
    """

def sample(
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None, num_samples: int = 1, *,
    seed: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
    context: Optional[Context] = None, dtype: Optional[Literal['float32', 'float64']] = None,
    offsets: Optional[ArrayLike] = None, bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
) -> tuple[NDArray[int64], NDArray[Any]]:
    """Token ids drawn from each row's distribution, independently and with replacement, and their
    log-probabilities: both [N, num_samples].

    The ids are exact draws from the softmax of the logits divided by the temperature. temperature=0 returns
    the most likely id, with its log-probability at temperature 1. top_k restricts the draws to the top_k
    largest logits of a row, and top_p < 1 to the fewest most likely of these that together have top_p of
    their probability; top_p needs top_k. The log-probabilities are always those among all ids. A row with a
    NaN has -1 and NaN. A draw depends on the seed, the row's position and its logits, not on threads, plan or
    slices. So use another seed for each call.

    Equivalent to, with the other options at their defaults:
        logits = (hidden @ weight.T + bias) / temperature
        logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        least = np.sort(logits, axis=-1)[..., -top_k, None]  # if top_k > 0
        noise = np.random.default_rng(seed).gumbel(size=(num_samples, *logits.shape))  # other numbers
        ids = np.where(logits < least, -np.inf, logits + noise).argmax(-1).T
        logps = np.take_along_axis(logps, ids, axis=-1)

    Args:
        hidden (floats [N, H] or [B, T, H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        num_samples: the number of draws per row, from 1 to 256.
        seed: the random seed; use another one for each call, and for each rank of a batch.
        temperature: divides the capped logits; 0: the most likely id.
        top_k: draws only from the k largest logits, at most 256; 0: from all ids.
        top_p: draws only from the most likely of the top_k ids that together have this share of their probability.
        context: how the call runs; by default a shared one.
        dtype: of the returned arrays; by default float64 if hidden is, else float32.
        offsets (ids [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        packing: how weight is packed.
        scales (float32 [V, G]): the scales of a weight packed as int8 or nf4.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        lora_a (floats [r, H]): a LoRA's first matrix.
        lora_b (floats [V, r]): a LoRA's second matrix.
        lora_scale: multiplies the LoRA's term of the logits.
        lora_states (floats [N, r]): hidden · lora_aᵀ, in place of lora_a.
        logits (floats [N, V] or [B, T, V]): finished logits, in place of hidden and weight.
        temperatures (float64 [N]): one per token, in place of temperature.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.

    Returns:
        (ids, logps), both [N, num_samples]: int64, and float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)
        >>> weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)
        >>> ids, logps = logitless.sample(hidden, weight, 3, seed=1, temperature=0.7)
        >>> ids.shape, logps.shape
        ((6, 3), (6, 3))
    """

def topk_overlap(a_ids: Any, b_ids: Any) -> NDArray[int64]:
    """The number of ids that each token's two lists share, such as two models' top_ids.

    Equivalent to:
        same = (a_ids[..., :, None] == b_ids[..., None, :]) & (a_ids[..., None] >= 0)
        overlap = same.any(-1).sum(-1)

    Args:
        a_ids (ids [..., A]): one list per token; nested Python lists are allowed. No id twice; ids below 0 do
            not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        int64 [...], one number per token.

    Raises:
        ValueError: the leading axes differ, or an argument is invalid.
        TypeError: an argument is not an array of integers.

    Example:
        >>> import numpy as np, logitless
        >>> logitless.topk_overlap(np.array([[1, 2], [3, 4]]), np.array([[2, 5], [4, 3]])).tolist()
        [1, 2]
    """
    ...

def topk_union(a_ids: Any, b_ids: Any) -> tuple[NDArray[int64], NDArray[int64]]:
    """The union of each token's two lists, such as a student's own top_ids and a teacher's.

    Equivalent to:
        pairs = zip(a_ids.tolist(), b_ids.tolist())
        unions = [[i for i in dict.fromkeys(a + b) if i >= 0] for a, b in pairs]
        ids, offsets = np.concatenate(unions), np.cumsum([0, *map(len, unions)])

    Args:
        a_ids (ids [..., A]): one list per token; nested Python lists are allowed. Ids below 0 do not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        ids [E] and offsets [N + 1], int64, for ids= and id_offsets= of the losses. Each id of a token appears
        once: first the ids of a_ids in their order, then the new ones of b_ids.

    Raises:
        ValueError: the leading axes differ, or an argument is invalid.
        TypeError: an argument is not an array of integers.

    Example:
        >>> import numpy as np, logitless
        >>> ids, offsets = logitless.topk_union(np.array([[1, 2], [3, 4]]), np.array([[2, 5], [4, 3]]))
        >>> ids.tolist(), offsets.tolist()
        ([1, 2, 5, 3, 4], [0, 3, 5])
    """
    ...

@overload
def plan(
    task: Literal['cross_entropy'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    token_weights: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    label_smoothing: float = 0.0, z_loss: float = 0.0, dft: bool = False,
    class_weights: Optional[ArrayLike] = None, loss_scale: float = 1.0,
    num_items_in_batch: Optional[float] = None, want_accuracy: bool = False, want_entropy: bool = False,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['policy_loss'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    chosen_ids: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    advantages: Optional[ArrayLike] = None, old_logps: Optional[ArrayLike] = None,
    ref_logps: Optional[ArrayLike] = None, sampling_logps: Optional[ArrayLike] = None,
    teacher_logps: Optional[ArrayLike] = None, scores: Optional[ArrayLike] = None,
    mask: Optional[ArrayLike] = None, advantages_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    kept_ids: Optional[ArrayLike] = None, kept_offsets: Optional[ArrayLike] = None,
    kept_counts: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False,
    loss_type: Literal['grpo', 'bnpo', 'dr_grpo', 'dapo', 'cispo', 'sapo', 'luspo', 'vespo', 'reinforce', 'rloo', 'ppo', 'importance_sampling', 'dppo', 'gmpo', 'dro', 'topr', 'clip_cov', 'kl_cov'] = 'grpo',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    importance_sampling_level: Literal['token', 'sequence'] = 'token',
    epsilon_low: Optional[float] = None, epsilon_high: Optional[float] = None,
    delta: Optional[float] = None, log_ratio_clamp: Optional[float] = 20.0, beta: float = 0.0,
    kl_estimator: Literal['k1', 'k2', 'k3', 'abs', 'k1_plus', 'k3_plus'] = 'k3',
    use_bias_correction_kl: bool = False, entropy_bonus: float = 0.0, top_entropy_quantile: float = 1.0,
    off_policy_mask_threshold: Optional[float] = None,
    sampler_correction: Literal['none', 'token_truncate', 'token_mask', 'sequence_truncate', 'sequence_mask', 'geometric_mask'] = 'none',
    sampler_clip_min: Optional[float] = None, sampler_clip_max: Optional[float] = 3.0,
    teacher_weight: float = 0.0, teacher_against: Literal['current', 'old', 'sampling'] = 'current',
    teacher_discount: float = 0.0,
    trust_region: Literal['default', 'none', 'tv', 'tv_both', 'kl'] = 'default',
    trust_region_low: Optional[float] = None, trust_region_high: Optional[float] = None,
    m2_threshold: Optional[float] = None, sampler_penalty: float = 0.0, positive_nll_weight: float = 0.0,
    aggregation: Literal['default', 'token_mean', 'token_sum', 'seq_mean_token_sum', 'seq_mean_token_mean', 'seq_mean_token_sum_norm'] = 'default',
    num_items_in_batch: Optional[float] = None, max_completion_length: Optional[int] = None,
    num_sequences: Optional[float] = None, count_empty_sequences: bool = True,
    sapo_temperature_pos: float = 1.0, sapo_temperature_neg: float = 1.05, vespo_k_pos: float = 2.0,
    vespo_lambda_pos: float = 3.0, vespo_k_neg: float = 3.0, vespo_lambda_neg: float = 2.0,
    dro_tau: float = 0.1, topr_weight_pos: float = 1.0, topr_weight_neg: float = 1.0,
    cov_share: float = 0.0002, cov_low: float = 1.0, cov_high: float = 5.0, cov_seed: int = 0,
    cov_kl_weight: float = 0.1, loss_scale: float = 1.0, want_entropy: bool = False,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['preference_loss'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    ref_logps: Optional[ArrayLike] = None,
    ref_logps_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    ref_hidden: Optional[ArrayLike] = None, ref_weight: Optional[WeightLike] = None,
    ref_bias: Optional[ArrayLike] = None, ref_softcap: float = 0.0,
    ref_packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    ref_scales: Optional[ArrayLike] = None, ref_vocab_ids: Optional[ArrayLike] = None,
    ref_lora_a: Optional[ArrayLike] = None, ref_lora_b: Optional[ArrayLike] = None,
    ref_lora_scale: float = 1.0, ref_lora_states: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False,
    loss_type: Union[Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', 'apo_zero', 'apo_down', 'aot', 'aot_unpaired', 'discopop', 'sft', 'orpo', 'simpo', 'cpo', 'sigmoid_norm'], Sequence[Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', 'apo_zero', 'apo_down', 'aot', 'aot_unpaired', 'discopop', 'sft', 'orpo', 'simpo', 'cpo', 'sigmoid_norm']]] = ['sigmoid'],
    loss_weights: Union[float, Sequence[float]] = [], beta: float = 0.1, label_smoothing: float = 0.0,
    average_log_prob: bool = False, ref_logps_are: Literal['sums', 'averages'] = 'sums',
    discopop_tau: float = 0.05, simpo_gamma: float = 0.5,
    f_divergence: Literal['reverse_kl', 'forward_kl', 'js_divergence', 'alpha_divergence'] = 'reverse_kl',
    f_alpha: float = 0.5, ld_alpha: Optional[float] = None, use_weighting: bool = False,
    reward_alpha: float = 0.0, nll_weight: Optional[float] = None, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, loss_scale: float = 1.0,
    want_entropy: bool = False, backward: Literal['exact', 'sampled', 'certified'] = 'exact',
    noise: float = 0.01, theta: float = 0.0, tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['kto_loss'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    labels: Optional[ArrayLike] = None, ref_logps: Optional[ArrayLike] = None,
    ref_logps_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    kl_logps: Optional[ArrayLike] = None, kl_ref_logps: Optional[ArrayLike] = None,
    sequence_weights: Optional[ArrayLike] = None, reward_targets: Optional[ArrayLike] = None,
    ref_hidden: Optional[ArrayLike] = None, ref_weight: Optional[WeightLike] = None,
    ref_bias: Optional[ArrayLike] = None, ref_softcap: float = 0.0,
    ref_packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    ref_scales: Optional[ArrayLike] = None, ref_vocab_ids: Optional[ArrayLike] = None,
    ref_lora_a: Optional[ArrayLike] = None, ref_lora_b: Optional[ArrayLike] = None,
    ref_lora_scale: float = 1.0, ref_lora_states: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False, loss_type: Literal['kto', 'apo_zero_unpaired', 'bco', 'a2po'] = 'kto',
    beta: float = 0.1, desirable_weight: float = 1.0, undesirable_weight: float = 1.0,
    bco_delta: float = 0.0, average_log_prob: bool = False,
    ref_logps_are: Literal['sums', 'averages'] = 'sums', ignore_index: int = -100, shift: int = 0,
    temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, loss_scale: float = 1.0,
    want_entropy: bool = False, backward: Literal['exact', 'sampled', 'certified'] = 'exact',
    noise: float = 0.01, theta: float = 0.0, tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['soft_cross_entropy'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    context: Optional[Context] = None, dtype: Optional[Literal['float32', 'float64']] = None,
    offsets: Optional[ArrayLike] = None, bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    ids: Optional[ArrayLike] = None, id_offsets: Optional[ArrayLike] = None,
    id_counts: Optional[ArrayLike] = None, weights: Optional[ArrayLike] = None,
    probabilities: Optional[ArrayLike] = None, mask: Optional[ArrayLike] = None,
    token_weights: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    subtract_entropy: bool = False, loss_scale: float = 1.0, num_items_in_batch: Optional[float] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['distillation_loss'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    teacher_hidden: Optional[ArrayLike] = None, teacher_weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    token_weights: Optional[ArrayLike] = None, teacher_bias: Optional[ArrayLike] = None,
    teacher_softcap: float = 0.0,
    teacher_packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    teacher_scales: Optional[ArrayLike] = None, teacher_vocab_ids: Optional[ArrayLike] = None,
    teacher_lora_a: Optional[ArrayLike] = None, teacher_lora_b: Optional[ArrayLike] = None,
    teacher_lora_scale: float = 1.0, teacher_lora_states: Optional[ArrayLike] = None,
    teacher_logits: Optional[ArrayLike] = None, d_hidden: Optional[ArrayLike] = None,
    d_weight: Optional[ArrayLike] = None, d_bias: Optional[ArrayLike] = None,
    d_lora_a: Optional[ArrayLike] = None, d_lora_b: Optional[ArrayLike] = None,
    d_lora_states: Optional[ArrayLike] = None, d_logits: Optional[ArrayLike] = None,
    weight_sink: Optional[Callable[..., Any]] = None, accumulate: bool = False,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    teacher_temperature: Optional[float] = None,
    teacher_round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, acceptance_decay: float = 3.0,
    divergence_weight: float = 1.0, temperature_squared: bool = False, hard_weight: float = 0.0,
    hard_temperature: float = 1.0, reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    num_items_in_batch: Optional[float] = None, loss_scale: float = 1.0, want_entropy: bool = False,
    want_agreement: bool = False, backward: Literal['exact', 'sampled', 'certified'] = 'exact',
    noise: float = 0.01, theta: float = 0.0, tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['set_distillation_loss'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    ids: Optional[ArrayLike] = None, teacher_logps: Optional[ArrayLike] = None,
    targets: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    id_offsets: Optional[ArrayLike] = None, id_counts: Optional[ArrayLike] = None,
    teacher_outside_logps: Optional[ArrayLike] = None, token_weights: Optional[ArrayLike] = None,
    d_hidden: Optional[ArrayLike] = None, d_weight: Optional[ArrayLike] = None,
    d_bias: Optional[ArrayLike] = None, d_lora_a: Optional[ArrayLike] = None,
    d_lora_b: Optional[ArrayLike] = None, d_lora_states: Optional[ArrayLike] = None,
    d_logits: Optional[ArrayLike] = None, weight_sink: Optional[Callable[..., Any]] = None,
    accumulate: bool = False,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    outside: Literal['tail', 'truncated', 'renormalised', 'teacher_renormalised', 'generalised'] = 'tail',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, divergence_weight: float = 1.0,
    temperature_squared: bool = False, hard_weight: float = 0.0,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    num_items_in_batch: Optional[float] = None, loss_scale: float = 1.0, tail_floor: float = 0.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: int = 0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['id_logps'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    ids: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None,
    id_offsets: Optional[ArrayLike] = None, id_counts: Optional[ArrayLike] = None,
    normalise_over: Literal['vocabulary', 'set'] = 'vocabulary', ignore_index: int = -100, shift: int = 0,
    temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

@overload
def plan(
    task: Literal['token_stats'],
    *,
    hidden: Optional[ArrayLike] = None, weight: Optional[WeightLike] = None,
    targets: Optional[ArrayLike] = None, context: Optional[Context] = None,
    dtype: Optional[Literal['float32', 'float64']] = None, offsets: Optional[ArrayLike] = None,
    bias: Optional[ArrayLike] = None, softcap: float = 0.0,
    packing: Optional[Literal['int8', 'q8_0', 'q4_0', 'q4_k', 'q5_k', 'q6_k', 'nf4']] = None,
    scales: Optional[ArrayLike] = None, vocab_ids: Optional[ArrayLike] = None,
    lora_a: Optional[ArrayLike] = None, lora_b: Optional[ArrayLike] = None, lora_scale: float = 1.0,
    lora_states: Optional[ArrayLike] = None, logits: Optional[ArrayLike] = None, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0, temperatures: Optional[ArrayLike] = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, entropy: bool = False,
    cross: bool = False, argmax: bool = False, rank: bool = False, top_k: int = 0,
    cross_weights: Optional[ArrayLike] = None, outside: bool = False, square_sum: bool = False,
    draws: int = 0, draw_seed: int = 0, draw_top_k: int = 0, draw_top_p: float = 1.0,
) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """

def options(task: Literal['cross_entropy', 'policy_loss', 'preference_loss', 'kto_loss', 'soft_cross_entropy', 'distillation_loss', 'set_distillation_loss', 'id_logps', 'token_stats', 'context', 'backward']) -> dict[str, Option]:
    """The options of a function.

    Args:
        task: the name of a function as in plan(), "context", or "backward". Its option "mode" is backward= of
            a call.

    Returns:
        {name: description}. A description is a dict with the option's type, default, range and meaning; with
        its choices if it takes a name, and its shape if it is an array.

    Raises:
        ValueError: task is unknown.

    Example:
        >>> import logitless
        >>> logitless.options("cross_entropy")["reduction"]["choices"]
        ['mean', 'sum', 'none']
    """
    ...

def environment(context: Context | None=None) -> dict[str, Any]:
    """A description of the library, the CPU, the instruction set and the BLAS in use.

    Args:
        context: the context whose threads, instruction set and BLAS are described; by default a shared one.

    Returns:
        A dict with the output of `logitless info`.

    Raises:
        TypeError: context is not a Context.

    Example:
        >>> import logitless
        >>> logitless.environment()["threads"] > 0
        True
    """
    ...
