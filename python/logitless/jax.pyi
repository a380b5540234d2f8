# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
# python/generate_signatures.py writes this file.
from typing import Literal, Optional, Union

from jax import Array

from . import Context
from .lora import LoraWeight
from .packed import PackedWeight

__all__ = ['distillation_loss', 'id_logps', 'linear_cross_entropy', 'sample', 'set_distillation_loss', 'soft_cross_entropy', 'token_logps', 'topk_logps']

def distillation_loss(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], teacher_hidden: Optional[Array] = None,
    teacher_weight: Union[Array, PackedWeight, LoraWeight, None] = None, targets: Optional[Array] = None,
    *, bias: Optional[Array] = None, teacher_bias: Optional[Array] = None,
    teacher_logits: Optional[Array] = None, temperatures: Optional[Array] = None,
    token_weights: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    teacher_vocab_ids: Optional[Array] = None, context: Optional[Context] = None,
    layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden', softcap: float = 0.0,
    teacher_layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    teacher_softcap: float = 0.0,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    teacher_temperature: Optional[float] = None,
    teacher_round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, acceptance_decay: float = 3.0,
    divergence_weight: float = 1.0, temperature_squared: bool = False, hard_weight: float = 0.0,
    hard_temperature: float = 1.0, reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    num_items_in_batch: Optional[float] = None, loss_scale: float = 1.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Union[int, Array] = 0,
) -> Array:
    """Divergence of a student (hidden and weight) from a teacher (teacher_hidden and teacher_weight), without
    the logits of either in memory.

    loss_type is "forward_kl" (the default), "reverse_kl", "jsd" (with beta=), ...
    (docs/losses-distillation.md). The teacher may have another hidden size and type, and has no gradient.
    teacher_logits [..., V] may be given instead of teacher_hidden and teacher_weight.

    targets, one id per token, exclude tokens (ignore_index), and are the labels of the cross-entropy that
    hard_weight= adds. Without targets all tokens count. token_weights and mean_over are as in
    linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        log_s = jax.nn.log_softmax(hidden @ weight.T + bias)
        log_t = jax.nn.log_softmax(teacher_hidden @ teacher_weight.T + teacher_bias)
        kl = (jnp.exp(log_t) * (log_t - log_s)).sum(-1)  # loss_type="forward_kl"
        loss = (token_weights * kl).mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        teacher_hidden (floats [..., H]): the teacher: hidden states.
        teacher_weight (floats [V, H]): the teacher: the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [...]): token ids, one per row of hidden.
        bias (floats [V]): added to the logits.
        teacher_bias (floats [V]): the teacher: added to the logits.
        teacher_logits (floats [..., V]): the teacher: finished logits, in place of hidden and weight.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        teacher_vocab_ids (ids [K]): the teacher: the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        teacher_layout: the axes of teacher_weight.
        teacher_softcap: the teacher: c of c · tanh(logits / c); 0: none.
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
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        num_items_in_batch: the divisor of the mean; unset: as mean_over says; only with reduction mean.
        loss_scale: multiplies loss and gradients.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: 32-bit seed for sampled gradients, read by jit at run time; use a new one per step.

    Returns:
        the loss, one number, or one per token with reduction="none"; float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> loss = lj.distillation_loss(hidden, weight, hidden, 2 * weight, loss_type="jsd")
        >>> round(float(loss), 3)
        0.034
    """

def id_logps(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], ids: Array, *,
    bias: Optional[Array] = None, temperatures: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    context: Optional[Context] = None, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0, normalise_over: Literal['vocabulary', 'set'] = 'vocabulary',
    temperature: float = 1.0, temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Union[int, Array] = 0,
) -> Array:
    """Log-probabilities at any token ids [..., K] of each row, with gradients.

    With normalise_over="set", probabilities sum to 1 over the token's ids (an id that occurs twice counts
    once), and only these rows of the head are read.

    Equivalent to, with the other options at their defaults:
        logps = jax.nn.log_softmax(hidden @ weight.T + bias)
        logps = jnp.take_along_axis(logps, ids, axis=-1)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (ids [..., K]): token ids of each row.
        bias (floats [V]): added to the logits.
        temperatures (numbers [...]): one per token, instead of temperature.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        normalise_over: the set over which a row's probabilities sum to 1.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: 32-bit seed for sampled gradients, read by jit at run time; use a new one per step.

    Returns:
        log-probabilities, of ids' shape; float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> ids = jnp.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> lj.id_logps(hidden, weight, ids).shape
        (6, 2)
    """

def linear_cross_entropy(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], targets: Array, *,
    bias: Optional[Array] = None, class_weights: Optional[Array] = None,
    temperatures: Optional[Array] = None, token_weights: Optional[Array] = None,
    vocab_ids: Optional[Array] = None, context: Optional[Context] = None,
    vocab_axis: Optional[str] = None, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0, ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    label_smoothing: float = 0.0, z_loss: float = 0.0, dft: bool = False, loss_scale: float = 1.0,
    num_items_in_batch: Optional[float] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Union[int, Array] = 0,
) -> Array:
    """Cross-entropy of hidden [..., H] and a head [V, H], or [H, V] with layout="hidden_vocab".

    hidden, weight and bias have gradients. One call computes the loss and the requested gradients. Options
    are static under jit.

    weight may be a PackedWeight (logitless.packed), which is frozen, or a LoraWeight (logitless.lora), whose
    weight, a and b have gradients. jit takes either as an argument. With vocab_ids [K], the call is over
    these entries of the head: targets and class_weights refer to positions in vocab_ids, and the gradients of
    weight and bias keep their full shapes, with zeros for the other entries.

    reduction is "mean" or "sum"; for per-token values use token_logps(). token_weights, one per token,
    multiply each token's loss and gradients. mean_over says what a mean divides by: "tokens" (the default),
    "token_weights" (their sum), "sequences" or "sequence_means".

    backward is "exact", "sampled" (with noise or theta, and seed) or "certified" (with tolerance): see
    docs/options.md. seed is a 32-bit int or an array of one, which jit reads at run time; give each step its
    own. context may not have ranks or a workspace.

    vocab_axis is the axis of a shard_map over which the vocabulary is sharded. weight and bias then have this
    device's entries, an equal number on each device, or vocab_ids selects an equal number. All other
    arguments are equal on all devices, and so is the loss.

    Equivalent to, with the other options at their defaults:
        logits = hidden @ weight.T + bias
        logits = softcap * jnp.tanh(logits / softcap) / temperature  # if softcap > 0
        mask = targets != ignore_index
        logps = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
        loss = -(token_weights * logps).mean(where=mask)  # token_weights are 1 unless given

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [...]): token ids, one per row of hidden.
        bias (floats [V]): added to the logits.
        class_weights (numbers [V]): one per vocabulary entry, as in PyTorch.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        vocab_axis: in a shard_map, the axis over which the vocabulary is sharded.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        label_smoothing: ε of PyTorch's label smoothing.
        z_loss: λ of λ · lse², added to each token's loss.
        dft: DFT: multiplies each token's loss by its target's probability (detached).
        loss_scale: multiplies loss and gradients.
        num_items_in_batch: the divisor of the mean, e.g. the tokens of all micro-batches; unset: as mean_over says; only with reduction mean.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: 32-bit seed for sampled gradients, read by jit at run time; use a new one per step.

    Returns:
        the loss, one number; float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> loss, grad = jax.value_and_grad(lj.linear_cross_entropy)(hidden, weight, jnp.arange(6))
        >>> grad.shape
        (6, 4)
    """

def sample(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], num_samples: int = 1, *, seed: int,
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, bias: Optional[Array] = None,
    temperatures: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    context: Optional[Context] = None, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0, temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
) -> tuple[Array, Array]:
    """Token ids drawn from each row's distribution, independently and with replacement, and their
    log-probabilities: both [..., num_samples], without gradients.

    The ids are exact draws from the softmax of the logits divided by the temperature. temperature=0 returns
    the most likely id, with its log-probability at temperature 1. top_k restricts the draws to the top_k
    largest logits of a row, and top_p < 1 to the fewest most likely of these that together have top_p of
    their probability; top_p needs top_k. The log-probabilities are always those among all ids, and a row with
    a NaN has -1 and NaN. jit reads the seed at run time. Use another one for each call, and for each device
    of a shard_map that has rows of its own.

    Equivalent to, with the other options at their defaults:
        logits = (hidden @ weight.T + bias) / temperature
        kept = jnp.where(logits < jax.lax.top_k(logits, top_k)[0][..., -1:], -jnp.inf, logits)  # if top_k > 0
        ids = jax.random.categorical(jax.random.key(seed), kept, shape=(num_samples, *logits.shape[:-1]))
        ids = jnp.moveaxis(ids, 0, -1)
        logps = jnp.take_along_axis(jax.nn.log_softmax(logits), ids, axis=-1)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        num_samples: the number of draws per row, from 1 to 256.
        seed: the random seed; use another one for each call, and for each rank of a batch.
        temperature: divides the capped logits; 0: the most likely id.
        top_k: draws only from the k largest logits, at most 256; 0: from all ids.
        top_p: draws only from the most likely of the top_k ids that together have this share of their probability.
        bias (floats [V]): added to the logits.
        temperatures (numbers [...]): one per token, instead of temperature.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.

    Returns:
        (ids, logps), both [..., num_samples]: int32, and float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> ids, logps = lj.sample(hidden, weight, 3, seed=1)
        >>> ids.shape, str(ids.dtype)
        ((6, 3), 'int32')
    """

def set_distillation_loss(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], ids: Array, teacher_logps: Array,
    targets: Optional[Array] = None, *, teacher_outside_logps: Optional[Array] = None,
    bias: Optional[Array] = None, temperatures: Optional[Array] = None,
    token_weights: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    context: Optional[Context] = None, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0,
    loss_type: Literal['forward_kl', 'reverse_kl', 'jsd', 'skew_kl', 'skew_reverse_kl', 'total_variation', 'mixed_kl', 'acceptance', 'lk_hybrid'] = 'forward_kl',
    outside: Literal['tail', 'truncated', 'renormalised', 'teacher_renormalised', 'generalised'] = 'tail',
    ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None, beta: float = 0.5,
    skew: float = 0.1, forward_weight: float = 0.5, divergence_weight: float = 1.0,
    temperature_squared: bool = False, hard_weight: float = 0.0,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    num_items_in_batch: Optional[float] = None, loss_scale: float = 1.0, tail_floor: float = 0.0,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Union[int, Array] = 0,
) -> Array:
    """Divergence of a student from a teacher whose log-probabilities are known at a set of token ids per
    token.

    ids and teacher_logps are [..., K]. outside= selects how the remaining probability is treated: "tail" (the
    default), "truncated", "renormalised", "teacher_renormalised" or "generalised"
    (docs/losses-distillation.md). For "tail", teacher_outside_logps, with hidden's leading axes, may give the
    teacher's log-probability of the rest.

    targets exclude tokens (ignore_index), and are the labels of the cross-entropy that hard_weight= adds.
    token_weights and mean_over are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logps = jax.nn.log_softmax(hidden @ weight.T + bias)
        log_s, log_t = jnp.take_along_axis(logps, ids, axis=-1), teacher_logps
        rest_s, rest_t = (jnp.log1p(-jnp.exp(x).sum(-1)) for x in (log_s, log_t))  # outside="tail"
        kl = (jnp.exp(log_t) * (log_t - log_s)).sum(-1) + jnp.exp(rest_t) * (rest_t - rest_s)
        loss = (token_weights * kl).mean()  # token_weights are 1 unless given

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        ids (ids [..., K]): token ids whose teacher log-probability is known.
        teacher_logps (numbers as ids): the teacher's log-probabilities.
        targets (ids [...]): token ids, one per row of hidden.
        teacher_outside_logps (numbers [...]): the teacher's log-probability of all other ids.
        bias (floats [V]): added to the logits.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
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
        reduction: how per-token losses are reduced.
        mean_over: what a mean divides by; token_weights: their sum.
        num_items_in_batch: the divisor of the mean; unset: as mean_over says; only with reduction mean.
        loss_scale: multiplies loss and gradients.
        tail_floor: outside tail: the lower bound of the teacher's mass outside a set (TRL: 1e-7).
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: 32-bit seed for sampled gradients, read by jit at run time; use a new one per step.

    Returns:
        the loss, one number, or one per token with reduction="none"; float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> ids = jnp.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])
        >>> loss = lj.set_distillation_loss(hidden, weight, ids, jnp.full((6, 2), -1.0))
        >>> round(float(loss), 3)
        1.054
    """

def soft_cross_entropy(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], probabilities: Optional[Array] = None,
    *, ids: Optional[Array] = None, weights: Optional[Array] = None, mask: Optional[Array] = None,
    bias: Optional[Array] = None, temperatures: Optional[Array] = None,
    token_weights: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    context: Optional[Context] = None, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    reduction: Literal['mean', 'sum', 'none'] = 'mean',
    mean_over: Literal['tokens', 'sequences', 'sequence_means', 'token_weights'] = 'tokens',
    subtract_entropy: bool = False, loss_scale: float = 1.0, num_items_in_batch: Optional[float] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Union[int, Array] = 0,
) -> Array:
    """Cross-entropy of hidden [..., H] and a head [V, H] against a target distribution per token.

    The targets are probabilities [..., V], or ids with weights, both [..., K]. Weights of equal ids add up,
    and may have any sum. mask, with hidden's leading axes, leaves tokens out. subtract_entropy=True returns
    KL(targets, model). token_weights and mean_over are as in linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logps = jax.nn.log_softmax(hidden @ weight.T + bias)
        losses = -token_weights * (probabilities * logps).sum(-1)  # token_weights are 1 unless given
        loss = losses.mean(where=mask)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        probabilities (numbers [..., V]): instead of ids and weights.
        ids (ids [..., K]): token ids with a target weight.
        weights (numbers as ids): the probabilities of these ids; a repeated id's weights add up.
        mask (flags [...]): 0 excludes a token.
        bias (floats [V]): added to the logits.
        temperatures (numbers [...]): one per token, instead of temperature.
        token_weights (numbers [...]): multiplies each token's loss.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        temperature: divides the capped logits.
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
        seed: 32-bit seed for sampled gradients, read by jit at run time; use a new one per step.

    Returns:
        the loss, one number, or one per token with reduction="none"; float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> loss = lj.soft_cross_entropy(hidden, weight, jnp.full((6, 7), 1 / 7))
        >>> round(float(loss), 3)
        2.708
    """

def token_logps(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], targets: Array, *,
    bias: Optional[Array] = None, temperatures: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    context: Optional[Context] = None, vocab_axis: Optional[str] = None, lse: bool = False,
    square_sum: bool = False, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0, ignore_index: int = -100, shift: int = 0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
    backward: Literal['exact', 'sampled', 'certified'] = 'exact', noise: float = 0.01, theta: float = 0.0,
    tolerance: float = 0.001, seed: Union[int, Array] = 0,
) -> tuple[Array, Array]:
    """Log-probabilities of the targets, and entropies: both of targets' shape, in nats, with gradients.

    lse=True and square_sum=True add the log-sum-exp of the logits and the sum of squared probabilities, in
    this order and with gradients. All are 0 for ignored tokens. The other arguments are as in
    linear_cross_entropy().

    Equivalent to, with the other options at their defaults:
        logps = jax.nn.log_softmax(hidden @ weight.T + bias)
        entropies = -(jnp.exp(logps) * logps).sum(-1)
        log_sum_exp = jax.nn.logsumexp(hidden @ weight.T + bias, axis=-1)  # with lse=True
        square_sum = jnp.exp(2 * logps).sum(-1)  # with square_sum=True
        logps = jnp.take_along_axis(logps, targets[..., None], axis=-1)[..., 0]

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        targets (ids [...]): token ids, one per row of hidden.
        bias (floats [V]): added to the logits.
        temperatures (numbers [...]): one per token, instead of temperature.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        vocab_axis: in a shard_map, the axis over which the vocabulary is sharded.
        lse: also returns the log-sum-exp of the logits.
        square_sum: also returns the sum of squared probabilities.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        ignore_index: rows with this target are ignored; policy losses have a mask instead.
        shift: position t predicts target t + shift of the same sequence; 1 for a language model.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.
        backward: exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the least likely, with an error bound.
        noise: sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut vocabulary or a LoRA on the head.
        theta: sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise.
        tolerance: certified: the probability that may be dropped from a row.
        seed: 32-bit seed for sampled gradients, read by jit at run time; use a new one per step.

    Returns:
        (logps, entropies), and lse and square_sum if requested, all of targets' shape; float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> logps, entropies = lj.token_logps(hidden, weight, jnp.arange(6))
        >>> logps.shape, str(logps.dtype)
        ((6,), 'float32')
    """

def topk_logps(
    hidden: Array, weight: Union[Array, PackedWeight, LoraWeight], k: int, *,
    bias: Optional[Array] = None, temperatures: Optional[Array] = None, vocab_ids: Optional[Array] = None,
    context: Optional[Context] = None, layout: Literal['vocab_hidden', 'hidden_vocab'] = 'vocab_hidden',
    softcap: float = 0.0, temperature: float = 1.0,
    temperature_meaning: Literal['scale_logits', 'scale_logp'] = 'scale_logits',
    round_logits_to: Optional[Literal['bfloat16', 'float16']] = None,
) -> tuple[Array, Array]:
    """The ids of the k largest logits of each row, and their log-probabilities: both [..., k], without
    gradients.

    They are sorted by descending logit; ties go to the lower id. k is 1 to 256. If the vocabulary is smaller
    than k, the remaining ids are -1 and the log-probabilities -inf; a row with a NaN has -1 and NaN. The
    log-probabilities are normalised over the whole vocabulary.

    Equivalent to, with the other options at their defaults:
        logps = jax.nn.log_softmax(hidden @ weight.T + bias)
        logps, ids = jax.lax.top_k(logps, k)

    Args:
        hidden (floats [..., H]): hidden states.
        weight (floats [V, H]): the head: a matrix or its transposed view, a PackedWeight or a LoraWeight.
        k: the number of ids, from 1 to 256.
        bias (floats [V]): added to the logits.
        temperatures (numbers [...]): one per token, instead of temperature.
        vocab_ids (ids [K]): the rows of weight that form the vocabulary; all by default.
        context: how the call runs; without ranks and workspace; static under jit.
        layout: the axes of weight.
        softcap: c of c · tanh(logits / c); 0: none.
        temperature: divides the capped logits.
        temperature_meaning: whether the temperature divides the logits or only the log-probability.
        round_logits_to: rounds raw logits to this type, as in a trainer that stores its logits in it.

    Returns:
        (ids, logps), both [..., k]: int32, and float32, or float64 for float64 hidden states.

    Raises:
        ValueError: an argument is invalid; nothing was written.
        TypeError: an argument is unknown, missing, or has the wrong type.

    Example:
        >>> import jax, jax.numpy as jnp, logitless.jax as lj
        >>> hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)
        >>> weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)
        >>> ids, logps = lj.topk_logps(hidden, weight, 3)
        >>> ids.shape, str(ids.dtype)
        ((6, 3), 'int32')
    """
