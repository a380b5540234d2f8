# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
# python/generate_signatures.py writes this file.
from collections.abc import Sequence
from typing import Any, Literal, Optional, Union

import torch
from torch import Tensor

from . import Context
from ._torch_call import options as options, set_options as set_options
from ._torch_loss import CrossEntropyStats as CrossEntropyStats
from ._torch_tokens import topk_union as topk_union
from ._torch_versions import Module
from .lora import LoraWeight
from .packed import PackedWeight

__all__ = ['CrossEntropyStats', 'LinearCrossEntropyLoss', 'distillation_loss', 'id_logps', 'kto_loss', 'linear_cross_entropy', 'options', 'policy_loss', 'preference_loss', 'sample', 'set_distillation_loss', 'set_options', 'soft_cross_entropy', 'token_logps', 'topk_logps', 'topk_union']

def distillation_loss(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight],
    teacher_hidden: Optional[Tensor] = None,
    teacher_weight: Union[Tensor, PackedWeight, LoraWeight, None] = None,
    targets: Optional[Tensor] = None, *, bias: Optional[Tensor] = None,
    teacher_bias: Optional[Tensor] = None, teacher_logits: Optional[Tensor] = None,
    teacher_softcap: float = 0.0, vocab_ids: Optional[Tensor] = None,
    teacher_vocab_ids: Optional[Tensor] = None, reduction: Literal['mean', 'sum', 'none'] = 'mean',
    num_items_in_batch: Union[float, Tensor, None] = None, temperatures: Optional[Tensor] = None,
    token_weights: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None,
    return_metrics: bool = False, group: Any = None, softcap: float = 0.0,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    teacher_temperature: Optional[float] = None,
    teacher_round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, acceptance_decay: float = 3.0,
    divergence_weight: float = 1.0, temperature_squared: bool = False, hard_weight: float = 0.0,
    hard_temperature: float = 1.0,
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    loss_scale: float = 1.0, want_entropy: bool = False, want_agreement: bool = False,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Any:
    """Divergence of a student (hidden and weight) from a teacher (teacher_hidden and teacher_weight), without
    the logits of either in memory.

    loss_type is "forward_kl" (the default), "reverse_kl", "jsd" (with beta=), ...
    (docs/losses-distillation.md). hidden, weight and bias have gradients; the teacher never has one, detached
    or not. If a server computed the teacher's logits, give teacher_logits [..., V] instead of teacher_hidden
    and teacher_weight.

    targets, one id per token, exclude tokens (ignore_index), and are the labels of the cross-entropy that
    hard_weight= adds. Without targets all tokens count. softcap is the student's. reduction="none" returns
    one loss per token.

    token_weights, mean_over, vocab_ids and context are as in linear_cross_entropy(). teacher_vocab_ids select
    the same number of entries from the teacher's head. Either head may be a PackedWeight. The ranks of group
    share the vocabulary of both heads; teacher_logits are then the columns of the rank's own slice.

    Equivalent to, with the other options at their defaults:
        log_s = F.linear(hidden, weight, bias).log_softmax(-1)
        log_t = F.linear(teacher_hidden, teacher_weight, teacher_bias).log_softmax(-1)
        kl = F.kl_div(log_s, log_t, reduction="none", log_target=True)  # loss_type="forward_kl"
        loss = (token_weights * kl.sum(-1)).mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        teacher_hidden (floats [..., H]): the teacher: hidden states.
        teacher_weight (floats [V, H]): the teacher: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (int64 or int32 [...]): token ids, one per row of hidden.
        bias (floats [V]): added to the logits.
        teacher_bias (floats [V]): the teacher: added to the logits.
        teacher_logits (floats [..., V]): the teacher: finished logits, in place of hidden and weight.
        teacher_softcap: the teacher: c of c · tanh(logits / c); 0: none.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        teacher_vocab_ids (int64 or int32 [K]): the teacher: the rows of weight that form the vocabulary; all by default.
        reduction: how per-token losses are reduced.
        num_items_in_batch: divides the sum of a mean instead of the number of tokens.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        dtype: of the results; by default float64 if hidden is, else float32.
        return_metrics: returns the loss and a dict of metrics to log.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        softcap: c of c · tanh(logits / c); 0: none.
        loss_type: the divergence between student and teacher.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
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
        mean_over: what a mean divides by; token_weights: their sum.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills the entropies of student and teacher.
        want_agreement: fills metrics.agreement and per_token_agreement.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        the loss, one number, or one per token with reduction="none"; float32, or float64 for float64 hidden states, or dtype. With return_metrics=True a tuple (loss, metrics), where metrics is a dict of floats.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> loss = lt.distillation_loss(hidden, weight, hidden.detach(), 2 * weight, loss_type="jsd")
        >>> round(loss.item(), 3)
        0.034
    """

def id_logps(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], ids: Tensor, *,
    bias: Optional[Tensor] = None, id_counts: Optional[Tensor] = None,
    id_offsets: Optional[Tensor] = None, softcap: float = 0.0, temperatures: Optional[Tensor] = None,
    dtype: Optional[torch.dtype] = None, vocab_ids: Optional[Tensor] = None, group: Any = None,
    normalise_over: Literal['vocabulary', 'set'] = 'vocabulary', temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Tensor:
    """Log-probabilities at any token ids of each row, with gradients.

    ids are [..., K] with hidden's leading axes, or [E] with id_offsets [N + 1]. If a token has fewer than K
    ids, give id_counts; the results after them are 0. With normalise_over="set", probabilities sum to 1 over
    the token's ids (an id that occurs twice counts once), only these rows of the head are read, and group is
    not supported. temperatures, vocab_ids, group and context are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        logps = logits.log_softmax(-1).gather(-1, ids)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (int64 or int32 [..., K], or [E] with offsets): token ids of each row.
        bias (floats [V]): added to the logits.
        id_counts (int64 or int32 [...]): how many of its K ids each row uses.
        id_offsets (int64 or int32 [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        dtype: of the results; by default float64 if hidden is, else float32.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        normalise_over: the set over which a row's probabilities sum to 1.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        log-probabilities, of ids' shape; float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> ids = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> lt.id_logps(hidden, weight, ids, normalise_over="set").exp().sum(-1).round().tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

def kto_loss(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], targets: Tensor,
    labels: Optional[Tensor] = None, *, bias: Optional[Tensor] = None, ref_logps: Optional[Tensor] = None,
    ref_hidden: Optional[Tensor] = None, ref_weight: Union[Tensor, PackedWeight, LoraWeight, None] = None,
    ref_bias: Optional[Tensor] = None, ref_vocab_ids: Optional[Tensor] = None,
    kl_logps: Optional[Tensor] = None, kl_ref_logps: Optional[Tensor] = None,
    sequence_weights: Optional[Tensor] = None, reward_targets: Optional[Tensor] = None,
    softcap: float = 0.0, temperatures: Optional[Tensor] = None, offsets: Optional[Tensor] = None,
    vocab_ids: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None, return_metrics: bool = False,
    group: Any = None, loss_type: Literal['kto', 'apo_zero_unpaired', 'bco', 'a2po'] = 'kto',
    beta: float = 0.1, desirable_weight: float = 1.0, undesirable_weight: float = 1.0,
    bco_delta: float = 0.0, average_log_prob: bool = False,
    ref_logps_are: Literal['sums', 'averages'] = 'sums', ignore_index: int = -100, shift: int = 0,
    temperature: float = 1.0, temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    loss_scale: float = 1.0, want_entropy: bool = False, ref_softcap: float = 0.0,
    ref_logps_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Any:
    """Loss of single sequences, each labelled desirable or not: loss_type="kto", "apo_zero_unpaired", "bco"
    or "a2po".

    labels, one per sequence, are true for desirable sequences; for a2po they are optional. reward_targets,
    one per sequence, are the rewards that a2po fits. sequence_weights multiply the losses. The reference,
    temperatures, offsets, vocab_ids and context are as in preference_loss().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        logps = -F.cross_entropy(logits.movedim(-1, 1), targets, reduction="none").sum(-1)
        kl = (kl_logps - kl_ref_logps).mean().clamp(min=0)
        z = (logps - ref_logps - kl) * (2 * labels - 1) * beta
        loss = (1 - torch.sigmoid(z)).mean()

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (int64 or int32 [...]): token ids, one per row of hidden.
        labels (flags [B]): 1: desirable, 0: undesirable.
        bias (floats [V]): added to the logits.
        ref_logps (numbers [B] or [...]): the reference's log-probabilities, per sequence or per token.
        ref_hidden (floats [..., H]): the reference: hidden states.
        ref_weight (floats [V, H]): the reference: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ref_bias (floats [V]): the reference: added to the logits.
        ref_vocab_ids (int64 or int32 [K]): the reference: the rows of weight that form the vocabulary; all by default.
        kl_logps (numbers [B or other]): kto: log-probabilities of mismatched answers.
        kl_ref_logps (numbers as kl_logps): kto: the reference's log-probabilities of mismatched answers.
        sequence_weights (numbers [B]): multiplies each sequence's loss.
        reward_targets (numbers [B]): a2po: reward − value, the target of beta times the log ratio.
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        offsets (int64 or int32 [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        dtype: of the results; by default float64 if hidden is, else float32.
        return_metrics: returns the loss and a dict of metrics to log.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
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
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills metrics.mean_entropy.
        ref_softcap: the reference: c of c · tanh(logits / c); 0: none.
        ref_logps_per: whether the reference's log-probabilities are per sequence or per token.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        the loss, one number; float32, or float64 for float64 hidden states, or dtype. With return_metrics=True a tuple (loss, metrics), where metrics is a dict of floats.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> given = {"labels": torch.tensor([1, 0]), "ref_logps": torch.tensor([-6.0, -7.0])}
        >>> states, targets = hidden.reshape(2, 3, 4), torch.arange(6).reshape(2, 3)
        >>> loss = lt.kto_loss(states, weight, targets, loss_type="apo_zero_unpaired", **given)
        >>> round(loss.item(), 3)
        0.508
    """

def linear_cross_entropy(
    input: Tensor, linear_weight: Union[Tensor, PackedWeight, LoraWeight], target: Tensor, *,
    linear_bias: Optional[Tensor] = None, weight: Optional[Tensor] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean', ignore_index: Optional[int] = None,
    label_smoothing: float = 0.0, options: Any = None,
    num_items_in_batch: Union[float, Tensor, None] = None, temperatures: Optional[Tensor] = None,
    token_weights: Optional[Tensor] = None, loss_dtype: Optional[torch.dtype] = None,
    vocab_ids: Optional[Tensor] = None, offsets: Optional[Tensor] = None, return_stats: bool = False,
    group: Any = None, context: Optional[Context] = None, softcap: float = 0.0, shift: int = 0,
    temperature: float = 1.0, temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    z_loss: float = 0.0, dft: bool = False, loss_scale: float = 1.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None,
) -> Any:
    """A drop-in for torch.nn.functional.linear_cross_entropy, exact and without the logits in memory.

    The arguments up to `options` have PyTorch's meaning and raise PyTorch's errors. `input` may have any
    leading axes; `target` has the same ones. `options` are PyTorch's LinearCrossEntropyOptions. They have no
    effect, because logits are not cut into chunks. Their acc_dtype may only name the type of the sums.

    The loss is computed in float64 and rounded to loss_dtype. Gradients do not depend on loss_dtype, but a
    float32 loss shows more digits than a bfloat16 one. num_items_in_batch is a number, such as the tokens in
    all micro-batches of a step, or a tensor, which torch.compile reads at run time.

    token_weights, one per token, multiply each token's loss and gradients. mean_over says what a mean divides
    by: "tokens" (the default, PyTorch's mean), "token_weights" (their sum), "sequences" or "sequence_means".

    With vocab_ids, targets and `weight` refer to positions in vocab_ids. The gradient of linear_weight keeps
    its full shape, with zeros for the other entries. shift stays within each sequence of offsets.

    With group, linear_weight and linear_bias hold this rank's vocabulary entries, and all other arguments are
    equal on all ranks. A head that is a DTensor, sharded by vocabulary entry, needs no group.

    torch.compile breaks the graph at a call with context.

    linear_weight may be a PackedWeight (logitless.packed), which is frozen: only input and linear_bias have
    gradients. It may be a LoraWeight (logitless.lora), whose tensors have gradients, too.

    Targets may be class probabilities, with input's leading axes and the classes as last axis. They are
    copied if label_smoothing or weight is given, or if they are not float32 (float64 for a float64 input).

    Differences from PyTorch: the mean over no tokens is 0 instead of NaN, and a negative class probability is
    an error. Weights of more than two axes, and class probabilities that require a gradient, are passed to
    PyTorch's own function, with a warning.

    Equivalent to, with the other options at their defaults:
        logits = F.linear(input, linear_weight, linear_bias)
        logits = softcap * torch.tanh(logits / softcap) / temperature  # if softcap > 0
        loss = F.cross_entropy(logits.movedim(-1, 1), target, weight, ignore_index=ignore_index,
                               reduction=reduction, label_smoothing=label_smoothing)
        loss = token_weights * loss  # if given, with reduction="none"

    Args:
        input (floats [..., H]): hidden states.
        linear_weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        target (int64 [...], or floats [..., V]): token ids, or class probabilities.
        linear_bias (floats [V]): added to the logits.
        weight (numbers [V]): class weights, as in PyTorch.
        reduction: how per-token losses are reduced.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        label_smoothing: ε of PyTorch's label smoothing.
        options: PyTorch's LinearCrossEntropyOptions, which have no effect.
        num_items_in_batch: divides the sum of a mean instead of the number of tokens.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        loss_dtype: of the loss; by default input's type.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        offsets (int64 or int32 [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        return_stats: returns the loss and its CrossEntropyStats.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        context: how the call and its backward run; overrides options().
        softcap: c of c · tanh(logits / c); 0: none.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        mean_over: what a mean divides by; token_weights: their sum.
        z_loss: λ of λ · lse², added to each token's loss.
        dft: DFT: multiplies each token's loss by its target's probability (detached).
        loss_scale: multiplies loss and gradients.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.

    Returns:
        the loss, one number, or one per token with reduction="none"; input's type, or loss_dtype. With return_stats=True a tuple (loss, CrossEntropyStats).

    Raises:
        ValueError, RuntimeError, IndexError: as in PyTorch's function.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> loss = lt.linear_cross_entropy(hidden, weight, torch.arange(6))
        >>> loss.backward()
        >>> hidden.grad.shape
        torch.Size([6, 4])
    """

def policy_loss(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], chosen_ids: Tensor,
    advantages: Optional[Tensor] = None, *, bias: Optional[Tensor] = None,
    old_logps: Optional[Tensor] = None, ref_logps: Optional[Tensor] = None,
    sampling_logps: Optional[Tensor] = None, teacher_logps: Optional[Tensor] = None,
    scores: Optional[Tensor] = None, mask: Optional[Tensor] = None, kept_ids: Optional[Tensor] = None,
    kept_counts: Optional[Tensor] = None, kept_offsets: Optional[Tensor] = None, softcap: float = 0.0,
    temperatures: Optional[Tensor] = None, offsets: Optional[Tensor] = None,
    vocab_ids: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None, return_metrics: bool = False,
    group: Any = None,
    loss_type: Literal['grpo', 'bnpo', 'dr_grpo', 'dapo', 'cispo', 'sapo', 'luspo', 'vespo', 'reinforce', 'rloo', 'ppo', 'importance_sampling', 'dppo', 'gmpo', 'dro', 'topr', 'clip_cov', 'kl_cov'] = 'grpo',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
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
    num_items_in_batch: Union[float, Tensor, None] = None, max_completion_length: Optional[int] = None,
    num_sequences: Optional[float] = None, count_empty_sequences: bool = True,
    sapo_temperature_pos: float = 1.0, sapo_temperature_neg: float = 1.05, vespo_k_pos: float = 2.0,
    vespo_lambda_pos: float = 3.0, vespo_k_neg: float = 3.0, vespo_lambda_neg: float = 2.0,
    dro_tau: float = 0.1, topr_weight_pos: float = 1.0, topr_weight_neg: float = 1.0,
    cov_share: float = 0.0002, cov_low: float = 1.0, cov_high: float = 5.0, cov_seed: int = 0,
    cov_kl_weight: float = 0.1, loss_scale: float = 1.0, want_entropy: bool = False,
    advantages_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Any:
    """Policy loss of sampled tokens: loss_type="grpo", "dapo", "ppo", ... (docs/losses-policy.md).

    advantages are per sequence or per token, logps and mask per token, and scores per sequence (for
    loss_type="topr" and positive_nll_weight). teacher_logps with teacher_weight=1.0 distil on-policy;
    advantages are then optional.

    kept_ids are the token ids that a sampler kept (top-p, top-k), including the chosen ones: [..., K], with
    kept_counts if tokens have fewer than K, or [E] with kept_offsets. Log-probabilities are then normalised
    over these ids.

    temperatures, vocab_ids and context are as in linear_cross_entropy(); all ids are then indices into
    vocab_ids. For packed sequences in hidden [N, H], offsets [B + 1] are the first token of each sequence and
    the end of the last.

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        logps = logits.log_softmax(-1).gather(-1, chosen_ids[..., None]).squeeze(-1)
        ratio, A = torch.exp(logps - old_logps), advantages[:, None]
        clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)
        per_token = -torch.min(ratio * A, clipped * A)  # loss_type="grpo"
        loss = ((per_token * mask).sum(-1) / mask.sum(-1)).mean()

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        chosen_ids (int64 or int32 [...]): the sampled token ids.
        advantages (numbers [B] or [...]): one per sequence or per token.
        bias (floats [V]): added to the logits.
        old_logps (numbers [...]): log-probabilities before the update; without them the ratio is 1.
        ref_logps (numbers [...]): the reference's log-probabilities; needs beta.
        sampling_logps (numbers [...]): the sampler's log-probabilities; NaN where unknown.
        teacher_logps (numbers [...]): the teacher's log-probabilities; needs teacher_weight.
        scores (numbers [B]): above 0 for a good sequence; for topr and positive_nll_weight.
        mask (flags [...]): 0 excludes a token.
        kept_ids (int64 or int32 [..., K], or [E] with offsets): token ids that the sampler kept.
        kept_counts (int64 or int32 [...]): how many of its K ids each row uses.
        kept_offsets (int64 or int32 [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        offsets (int64 or int32 [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        dtype: of the results; by default float64 if hidden is, else float32.
        return_metrics: returns the loss and a dict of metrics to log.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        loss_type: the per-token loss, which also sets the default aggregation and trust region.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
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
        num_items_in_batch: divides the sum of a mean instead of the number of tokens.
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
        advantages_per: whether advantages are per sequence or per token.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        the loss, one number; float32, or float64 for float64 hidden states, or dtype. With return_metrics=True a tuple (loss, metrics), where metrics is a dict of floats.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> advantages = torch.tensor([1.0, -1.0, 0.5, 1.0, -1.0, 2.0])
        >>> loss, metrics = lt.policy_loss(hidden, weight, torch.arange(6), advantages, return_metrics=True)
        >>> round(loss.item(), 3)
        -0.417
    """

def preference_loss(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], targets: Tensor, *,
    bias: Optional[Tensor] = None, ref_logps: Optional[Tensor] = None,
    ref_hidden: Optional[Tensor] = None, ref_weight: Union[Tensor, PackedWeight, LoraWeight, None] = None,
    ref_bias: Optional[Tensor] = None, ref_vocab_ids: Optional[Tensor] = None, softcap: float = 0.0,
    temperatures: Optional[Tensor] = None, offsets: Optional[Tensor] = None,
    vocab_ids: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None, return_metrics: bool = False,
    group: Any = None,
    loss_type: Union[Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', 'apo_zero', 'apo_down', 'aot', 'aot_unpaired', 'discopop', 'sft', 'orpo', 'simpo', 'cpo', 'sigmoid_norm'], Sequence[Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', 'apo_zero', 'apo_down', 'aot', 'aot_unpaired', 'discopop', 'sft', 'orpo', 'simpo', 'cpo', 'sigmoid_norm']]] = ['sigmoid'],
    loss_weights: Union[float, Sequence[float]] = [], beta: float = 0.1, label_smoothing: float = 0.0,
    average_log_prob: bool = False, ref_logps_are: Literal['sums', 'averages'] = 'sums',
    discopop_tau: float = 0.05, simpo_gamma: float = 0.5,
    f_divergence: Literal['reverse_kl', 'forward_kl', 'js_divergence', 'alpha_divergence'] = 'reverse_kl',
    f_alpha: float = 0.5, ld_alpha: Optional[float] = None, use_weighting: bool = False,
    reward_alpha: float = 0.0, nll_weight: Optional[float] = None, ignore_index: int = -100,
    shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    loss_scale: float = 1.0, want_entropy: bool = False, ref_softcap: float = 0.0,
    ref_logps_per: Literal['by_size', 'sequence', 'token'] = 'by_size',
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Any:
    """Preference loss of pairs of sequences (DPO and its variants, ORPO, SimPO, CPO): hidden [2B, T, H] holds
    the chosen sequences, then the rejected ones.

    loss_type is a name such as "ipo", or a list of names with loss_weights. The reference is given by
    ref_logps, one per sequence or per token, or by its own hidden states and head (ref_hidden, ref_weight,
    ref_bias, ref_softcap, ref_vocab_ids), which run forward in the same call. temperatures, offsets,
    vocab_ids and context are as in policy_loss().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        logps = -F.cross_entropy(logits.movedim(-1, 1), targets, reduction="none").sum(-1)
        chosen, rejected = (logps - ref_logps).chunk(2)
        loss = -F.logsigmoid(beta * (chosen - rejected)).mean()  # loss_type="sigmoid"

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (int64 or int32 [...]): token ids, one per row of hidden.
        bias (floats [V]): added to the logits.
        ref_logps (numbers [B] or [...]): the reference's log-probabilities, per sequence or per token.
        ref_hidden (floats [..., H]): the reference: hidden states.
        ref_weight (floats [V, H]): the reference: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ref_bias (floats [V]): the reference: added to the logits.
        ref_vocab_ids (int64 or int32 [K]): the reference: the rows of weight that form the vocabulary; all by default.
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        offsets (int64 or int32 [B + 1]): packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]].
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        dtype: of the results; by default float64 if hidden is, else float32.
        return_metrics: returns the loss and a dict of metrics to log.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
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
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        loss_scale: multiplies loss and gradients.
        want_entropy: fills metrics.mean_entropy.
        ref_softcap: the reference: c of c · tanh(logits / c); 0: none.
        ref_logps_per: whether the reference's log-probabilities are per sequence or per token.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        the loss, one number; float32, or float64 for float64 hidden states, or dtype. With return_metrics=True a tuple (loss, metrics), where metrics is a dict of floats.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> pairs = hidden.reshape(2, 3, 4)  # a chosen sequence and a rejected one
        >>> targets, ref_logps = torch.arange(6).reshape(2, 3), torch.tensor([-6.0, -7.0])
        >>> loss = lt.preference_loss(pairs, weight, targets, ref_logps=ref_logps, loss_type="ipo")
        >>> round(loss.item(), 3)
        27.293
    """

def sample(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], num_samples: int = 1, *,
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: Optional[int] = None,
    bias: Optional[Tensor] = None, softcap: float = 0.0, temperatures: Optional[Tensor] = None,
    dtype: Optional[torch.dtype] = None, vocab_ids: Optional[Tensor] = None, group: Any = None,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    context: Optional[Context] = None,
) -> tuple[Tensor, Tensor]:
    """Token ids drawn from each row's distribution, independently and with replacement, and their
    log-probabilities: both [..., num_samples], without gradients.

    The ids are exact draws from the softmax of the logits divided by the temperature. temperature=0 returns
    the most likely id, with its log-probability at temperature 1. top_k restricts the draws to the top_k
    largest logits of a row, and top_p < 1 to the fewest most likely of these that together have top_p of
    their probability; top_p needs top_k. The log-probabilities are always those among all ids, and a row with
    a NaN has -1 and NaN. By default the seed is drawn from PyTorch's generator, so torch.manual_seed() makes
    runs reproducible; with group=, all of its ranks need the same seed. With vocab_ids, the ids are indices
    into vocab_ids. temperatures, group and context are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias) / temperature
        kept = logits.masked_fill(logits < logits.topk(top_k).values[..., -1:], -torch.inf)  # if top_k > 0
        ids = torch.multinomial(kept.softmax(-1).flatten(0, -2), num_samples, replacement=True)
        ids = ids.unflatten(0, logits.shape[:-1])
        logps = logits.log_softmax(-1).gather(-1, ids)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        num_samples: the number of draws per row, from 1 to 256.
        temperature: divides the capped logits; 0: the most likely id.
        top_k: draws only from the k largest logits, at most 256; 0: from all ids.
        top_p: draws only from the most likely of the top_k ids that together have this share of their probability.
        seed: the random seed; use another one for each call, and for each rank of a batch.
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        dtype: of the results; by default float64 if hidden is, else float32.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        context: how the call and its backward run; overrides options().

    Returns:
        (ids, logps), both [..., num_samples]: int64, and float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> ids, logps = lt.sample(hidden, weight, 3, temperature=0.7, top_k=5, top_p=0.9)
        >>> ids.shape, ids.dtype, logps.dtype
        (torch.Size([6, 3]), torch.int64, torch.float32)
    """

def set_distillation_loss(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], ids: Tensor, teacher_logps: Tensor,
    targets: Optional[Tensor] = None, *, id_counts: Optional[Tensor] = None,
    id_offsets: Optional[Tensor] = None, teacher_outside_logps: Optional[Tensor] = None,
    bias: Optional[Tensor] = None, reduction: Literal['mean', 'sum', 'none'] = 'mean',
    softcap: float = 0.0, num_items_in_batch: Union[float, Tensor, None] = None,
    temperatures: Optional[Tensor] = None, token_weights: Optional[Tensor] = None,
    dtype: Optional[torch.dtype] = None, vocab_ids: Optional[Tensor] = None, group: Any = None,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    outside: Literal['tail', 'truncated', 'renormalised', 'teacher_renormalised', 'generalised'] = 'tail',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, divergence_weight: float = 1.0,
    temperature_squared: bool = False, hard_weight: float = 0.0,
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    loss_scale: float = 1.0, tail_floor: float = 0.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Tensor:
    """Divergence of a student from a teacher whose log-probabilities are known at a set of token ids per
    token.

    ids and teacher_logps are [..., K] with hidden's leading axes, with id_counts if tokens have fewer than K,
    or [E] with id_offsets. outside= selects how the remaining probability is treated: "tail" (the default),
    "truncated", "renormalised", "teacher_renormalised" or "generalised" (docs/losses-distillation.md). For
    "tail", teacher_outside_logps may give the teacher's log-probability of the rest. hidden, weight and bias
    have gradients; the teacher does not.

    targets, one id per token, exclude tokens (ignore_index), and are the labels of the cross-entropy that
    hard_weight= adds. num_items_in_batch, temperatures, token_weights, mean_over, vocab_ids, group and
    context are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        log_s, log_t = logits.log_softmax(-1).gather(-1, ids), teacher_logps
        rest_s, rest_t = (torch.log1p(-x.exp().sum(-1, keepdim=True)) for x in (log_s, log_t))
        log_s, log_t = torch.cat([log_s, rest_s], -1), torch.cat([log_t, rest_t], -1)  # outside="tail"
        kl = F.kl_div(log_s, log_t, reduction="none", log_target=True).sum(-1)
        loss = (token_weights * kl).mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (int64 or int32 [..., K], or [E] with offsets): token ids whose teacher log-probability is known.
        teacher_logps (numbers as ids): the teacher's log-probabilities.
        targets (int64 or int32 [...]): token ids, one per row of hidden.
        id_counts (int64 or int32 [...]): how many of its K ids each row uses.
        id_offsets (int64 or int32 [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        teacher_outside_logps (numbers [...]): the teacher's log-probability of all other ids.
        bias (floats [V]): added to the logits.
        reduction: how per-token losses are reduced.
        softcap: c of c · tanh(logits / c); 0: none.
        num_items_in_batch: divides the sum of a mean instead of the number of tokens.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        dtype: of the results; by default float64 if hidden is, else float32.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        loss_type: the divergence between student and teacher; acceptance and lk_hybrid are refused.
        outside: how the probability outside a row's set is treated.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        beta: β of jsd; 0 is forward_kl, 1 is reverse_kl.
        skew: λ of skew_kl and skew_reverse_kl: the weight of the KL's first argument in the mixture.
        forward_weight: w of mixed_kl: the weight of the forward KL.
        divergence_weight: the weight of the divergence.
        temperature_squared: multiplies the divergence by the student's temperature squared.
        hard_weight: the weight of the cross-entropy against the targets, at temperature 1.
        mean_over: what a mean divides by; token_weights: their sum.
        loss_scale: multiplies loss and gradients.
        tail_floor: outside tail: the lower bound of the teacher's mass outside a set (TRL: 1e-7).
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        the loss, one number, or one per token with reduction="none"; float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> ids = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> loss = lt.set_distillation_loss(hidden, weight, ids, torch.full((6, 2), -1.0), outside="truncated")
        >>> round(loss.item(), 3)
        1.305
    """

def soft_cross_entropy(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight],
    probabilities: Optional[Tensor] = None, *, ids: Optional[Tensor] = None,
    weights: Optional[Tensor] = None, id_counts: Optional[Tensor] = None,
    id_offsets: Optional[Tensor] = None, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean', softcap: float = 0.0,
    num_items_in_batch: Union[float, Tensor, None] = None, temperatures: Optional[Tensor] = None,
    token_weights: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None,
    vocab_ids: Optional[Tensor] = None, group: Any = None, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    subtract_entropy: bool = False, loss_scale: float = 1.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Tensor:
    """Cross-entropy against a target distribution per token, without the logits in memory.

    The targets are probabilities [..., V] with hidden's leading axes, or ids with weights: both [..., K],
    with id_counts if tokens have fewer than K, or [E] with id_offsets. Weights of equal ids add up. The
    targets of a token may have any sum, and get no gradient. probabilities are copied unless they are float32
    (float64 for float64 hidden). mask leaves tokens out.

    subtract_entropy=True returns KL(targets, model). num_items_in_batch, temperatures, token_weights,
    mean_over, vocab_ids, group and context are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        probabilities = torch.zeros_like(logits).scatter_add(-1, ids, weights)  # if not given
        losses = -token_weights * (probabilities * logits.log_softmax(-1)).sum(-1)
        loss = losses[mask].mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        probabilities (numbers [..., V]): instead of ids and weights; copied unless they are float32.
        ids (int64 or int32 [..., K], or [E] with offsets): token ids with a target weight.
        weights (numbers as ids): the probabilities of these ids; a repeated id's weights add up.
        id_counts (int64 or int32 [...]): how many of its K ids each row uses.
        id_offsets (int64 or int32 [N + 1]): row r has ids[offsets[r] : offsets[r + 1]].
        mask (flags [...]): 0 excludes a token.
        bias (floats [V]): added to the logits.
        reduction: how per-token losses are reduced.
        softcap: c of c · tanh(logits / c); 0: none.
        num_items_in_batch: divides the sum of a mean instead of the number of tokens.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        dtype: of the results; by default float64 if hidden is, else float32.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        mean_over: what a mean divides by; token_weights: their sum.
        subtract_entropy: returns KL(q, p) instead of the cross-entropy; the gradients are the same.
        loss_scale: multiplies loss and gradients.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        the loss, one number, or one per token with reduction="none"; float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> loss = lt.soft_cross_entropy(hidden, weight, torch.full((6, 7), 1 / 7))
        >>> round(loss.item(), 3)
        2.708
    """

def token_logps(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], targets: Tensor, *,
    bias: Optional[Tensor] = None, entropy: bool = False, lse: bool = False, square_sum: bool = False,
    softcap: float = 0.0, temperatures: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None,
    vocab_ids: Optional[Tensor] = None, group: Any = None, ignore_index: int = -100, shift: int = 0,
    temperature: float = 1.0, temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Optional[int] = None, context: Optional[Context] = None,
) -> Union[Tensor, tuple[Tensor, ...]]:
    """Log-probabilities of the targets, in targets' shape and with gradients.

    entropy=True, lse=True and square_sum=True add the entropies, in nats, the log-sum-exp of the logits, and
    the sum of squared probabilities, in this order and with gradients. All are 0 for ignored tokens. temperatures, vocab_ids, group and context are as in
    linear_cross_entropy().

    Use this function for a policy loss of your own; policy_loss() has the published ones.

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        all_logps = logits.log_softmax(-1)
        logps = all_logps.gather(-1, targets[..., None]).squeeze(-1)
        entropies = -(all_logps.exp() * all_logps).sum(-1)  # with entropy=True
        log_sum_exp = logits.logsumexp(-1)  # with lse=True
        square_sum = (2 * all_logps).exp().sum(-1)  # with square_sum=True

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (int64 or int32 [...]): token ids, one per row of hidden.
        bias (floats [V]): added to the logits.
        entropy: also returns entropies, in nats.
        lse: also returns the log-sum-exp of the logits.
        square_sum: also returns the sum of squared probabilities.
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        dtype: of the results; by default float64 if hidden is, else float32.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: for sampled gradients; by default each call draws one from PyTorch's generator.
        context: how the call and its backward run; overrides options().

    Returns:
        log-probabilities, of targets' shape; with entropy, lse or square_sum a tuple (logps, entropies, lse, square_sum) of the requested ones. float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> logps, entropy = lt.token_logps(hidden, weight, torch.arange(6), entropy=True)
        >>> logps.dtype, entropy.shape
        (torch.float32, torch.Size([6]))
    """

def topk_logps(
    hidden: Tensor, weight: Union[Tensor, PackedWeight, LoraWeight], k: int, *,
    bias: Optional[Tensor] = None, softcap: float = 0.0, temperatures: Optional[Tensor] = None,
    dtype: Optional[torch.dtype] = None, vocab_ids: Optional[Tensor] = None, group: Any = None,
    temperature: float = 1.0, temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Union[Literal['bfloat16', 'float16'], None, torch.dtype] = None,
    context: Optional[Context] = None,
) -> tuple[Tensor, Tensor]:
    """The ids of the k largest logits of each row, and their log-probabilities: both [..., k], without
    gradients.

    They are sorted by descending logit; ties go to the lower id, so [..., 0] is the greedy choice. k is 1 to
    256. If the vocabulary is smaller than k, the remaining ids are -1 and the log-probabilities -inf; a row
    with a NaN has -1 and NaN. The log-probabilities are normalised over the whole vocabulary. With vocab_ids,
    the ids are indices into vocab_ids. temperatures, group and context are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logits = F.linear(hidden, weight, bias)
        ids = logits.topk(k).indices
        logps = logits.log_softmax(-1).gather(-1, ids)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        k: the number of ids, from 1 to 256.
        bias (floats [V]): added to the logits.
        softcap: c of c · tanh(logits / c); 0: none.
        temperatures (numbers [...]): one per token, instead of temperature.
        dtype: of the results; by default float64 if hidden is, else float32.
        vocab_ids (int64 [K]): the entries of the head that the call is over; all by default.
        group: a torch.distributed group whose ranks share the vocabulary (docs/parallel.md).
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        context: how the call and its backward run; overrides options().

    Returns:
        (ids, logps), both [..., k]: int64, and float32, or float64 for float64 hidden states, or dtype.

    Raises:
        ValueError: an argument is invalid, or is not on the CPU.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()
        >>> weight = torch.arange(28.0).cos().reshape(7, 4)
        >>> ids, logps = lt.topk_logps(hidden, weight, 3)
        >>> ids.shape, ids.dtype, logps.dtype
        (torch.Size([6, 3]), torch.int64, torch.float32)
    """

class LinearCrossEntropyLoss(Module):
    """torch.nn.LinearCrossEntropyLoss, computed by linear_cross_entropy(). It also takes that function's
    further options. It is a subclass of PyTorch's module in versions of PyTorch that have it.

    Equivalent to:
        loss = linear_cross_entropy(input, self.linear.weight, target, linear_bias=self.linear.bias,
                                    weight=self.weight, reduction=self.reduction)

    Args:
        in_features: columns of hidden states.
        num_classes: vocabulary entries.
        **arguments: PyTorch's arguments, and options of linear_cross_entropy() except per-token tensors:
            softcap, z_loss, mean_over, num_items_in_batch, loss_dtype, return_stats, context, ...

    forward() takes input, target and, if wanted, token_weights.

    Raises:
        ValueError, RuntimeError: forward() raises what linear_cross_entropy() raises.
        TypeError: an argument is unknown.

    Example:
        >>> import torch, logitless.torch as lt
        >>> module = lt.LinearCrossEntropyLoss(4, 7, softcap=20.0)
        >>> module(torch.ones(6, 4), torch.arange(6)).shape
        torch.Size([])
    """

    def __init__(self, in_features: int, num_classes: int, **arguments: Any) -> None:
        ...

    def forward(self, input: Tensor, target: Tensor, token_weights: Tensor | None=None) -> Any:
        ...

    def extra_repr(self) -> str:
        ...
