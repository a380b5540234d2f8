# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Losses of whole distributions for JAX: soft targets, sets of token ids, and distillation.

weight may be a PackedWeight (logitless.packed) or a LoraWeight (logitless.lora). vocab_ids [K] selects the
entries of the head that a call is over; all ids, and the columns of probabilities, then refer to positions in
vocab_ids. teacher_weight and teacher_vocab_ids do the same for a teacher.

Per-token values have hidden's leading axes. A loss is float32, or float64 for float64 arrays; with
reduction="none" there is one per token. Only hidden, weight (for a LoraWeight: its weight, a and b) and bias
have gradients. Options are static under jit. In a shard_map, no axis may split the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import Context
from ._draws import draws_of, is_greedy
from ._jax_call import (
    VOCAB_IDS,
    attributes_of,
    call,
    float_type,
    numbers_of,
    read_head,
    seed_of,
    spread,
    token_ids,
)
from ._jax_gradients import differentiable, gradient_types, kept_of, made_again, marked, opened, scaled

# A call has the arrays that all calls have, most of them empty here, and then the task's own, which have no
# gradients.


def _loss_value(tensors: Any, others: Any, name: str, options: Any) -> Any:
    return call(name, float_type(tensors[0]), (*tensors, *others), options)


def _loss_forward(tensors: Any, others: Any, name: str, options: Any) -> Any:
    """Computes the loss and its gradients in one call."""
    arrays, wanted = opened(tensors, others)
    results = (float_type(arrays[0]), *gradient_types(wanted, arrays[VOCAB_IDS], options))
    loss, *grads = call(f"{name}_grad", results, arrays, options)
    return loss, kept_of(grads, arrays)


def _loss_backward(name: str, options: Any, kept: Any, upstream: Any) -> Any:
    return scaled(kept, upstream, options), None


_loss = differentiable(_loss_value, _loss_forward, _loss_backward, static=(2, 3))


def _column_value(tensors: Any, others: Any, name: str, options: Any, shape: tuple[int, ...]) -> Any:
    """One number per token or per id. The backward computes the logits again."""
    return call(name, float_type(tensors[0], shape), (*tensors, *others), options)


def _column_forward(tensors: Any, others: Any, name: str, options: Any, shape: tuple[int, ...]) -> Any:
    arrays, wanted = opened(tensors, others)
    return call(name, float_type(arrays[0], shape), arrays, options), marked(arrays, wanted)


def _column_backward(name: str, options: Any, shape: tuple[int, ...], kept: Any, upstream: Any) -> Any:
    return made_again(f"{name}_backward", kept, (upstream,), options), None


_column = differentiable(_column_value, _column_forward, _column_backward, static=(2, 3, 4))


class _Call:
    """The arrays and options of one call."""

    def __init__(
        self,
        hidden: Any,
        weight: Any,
        bias: Any,
        vocab_ids: Any,
        targets: Any,
        temperatures: Any,
        task: str,
        given: dict[str, Any],
        context: Context | None,
        token_weights: Any = None,
    ) -> None:
        given = dict(given)
        self.lead = jnp.shape(hidden)[:-1]
        hidden = jnp.asarray(hidden)
        self.head = read_head(hidden, weight, bias, vocab_ids, given.get("layout", "vocab_hidden"))
        self.rows = hidden.reshape(-1, hidden.shape[-1])
        self.sums = jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32
        targets = jnp.zeros((0,), jnp.int32) if targets is None else self.ids("targets", targets, ()).reshape(-1)
        self.others = (
            targets,
            jnp.zeros((0,), jnp.float32),  # class weights
            numbers_of("temperatures", temperatures, self.lead),
            numbers_of("token_weights", token_weights, self.lead),
            seed_of(given),
            *self.head.beside,
            jnp.zeros((0,), jnp.int32),  # no slice of the vocabulary: no first entry,
            jnp.zeros((0,), jnp.uint8),  # and no statistics of slices
        )
        options = attributes_of(task, given, context)
        options.update(self.head.options, sequences=np.int64(math.prod(self.lead[:-1])))
        self.options = options

    def _check_lead(self, name: str, array: Any, behind: tuple[int, ...]) -> Any:
        wanted = (*self.lead, *behind)
        if array.shape != wanted:
            raise ValueError(f"{name} has shape {array.shape}: it must be {wanted}, as hidden's leading axes are")
        return array

    def ids(self, name: str, ids: Any, behind: tuple[int, ...]) -> Any:
        return self._check_lead(name, token_ids(name, ids), behind)

    def numbers(self, name: str, array: Any, behind: tuple[int, ...], dtype: Any = None) -> Any:
        """The array, with gradients stopped; an empty array for None."""
        if array is None:
            return jnp.zeros((0,) * (1 + len(behind)), dtype or jnp.float32)
        return jax.lax.stop_gradient(self._check_lead(name, jnp.asarray(array, dtype), behind))

    def arguments(self, *own: Any) -> tuple[Any, ...]:
        """(tensors, other arrays) of the call, with the task's own arrays at the end."""
        tensors = (self.rows, *self.head.tensors)
        arrays = spread(*tensors, *self.others, *own)
        return arrays[: len(tensors)], arrays[len(tensors) :]

    def attributes(self) -> tuple[tuple[str, Any], ...]:
        return tuple(sorted(self.options.items()))

    def run(self, name: str, *own: Any) -> Any:
        """Computes the loss `name`: one number, or one per token."""
        name = f"logitless_{name}"
        if self.options["reduction"] != "none":
            return _loss(*self.arguments(*own), name, self.attributes())
        column = _column(*self.arguments(*own), name, self.attributes(), (self.rows.shape[0],))
        return column.reshape(self.lead)


def _flat(array: Any) -> Any:
    """The array with its leading axes flattened."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def soft_cross_entropy(
    hidden: Any,
    weight: Any,
    probabilities: Any = None,
    *,
    ids: Any = None,
    weights: Any = None,
    mask: Any = None,
    bias: Any = None,
    temperatures: Any = None,
    token_weights: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    **options: Any,
) -> Any:
    """Cross-entropy of hidden [..., H] and a head [V, H] against a target distribution per token.

    The targets are probabilities [..., V], or ids with weights, both [..., K]. Weights of equal ids add up,
    and may have any sum. mask, with hidden's leading axes, leaves tokens out. subtract_entropy=True returns
    KL(targets, model). token_weights and mean_over are as in linear_cross_entropy().
    """
    given = [x is not None for x in (ids, weights)]
    if not all(given) if probabilities is None else any(given):
        raise ValueError("give probabilities, or ids and weights")
    head = (hidden, weight, bias, vocab_ids)
    made = _Call(*head, None, temperatures, "soft_cross_entropy", options, context, token_weights)
    size = jnp.shape(ids if ids is not None else probabilities)[-1]
    empty = jnp.zeros((0, 0), jnp.int32)
    return made.run(
        "soft_cross_entropy",
        empty if ids is None else _flat(made.ids("ids", ids, (size,))),
        _flat(made.numbers("weights", weights, (size,))),
        _flat(made.numbers("probabilities", probabilities, (size,), made.sums)),
        made.numbers("mask", None if mask is None else jnp.asarray(mask) != 0, (), jnp.uint8).reshape(-1),
    )


def id_logps(
    hidden: Any,
    weight: Any,
    ids: Any,
    *,
    bias: Any = None,
    temperatures: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    **options: Any,
) -> Any:
    """Log-probabilities at any token ids [..., K] of each row, with gradients.

    With normalise_over="set", probabilities sum to 1 over the token's ids (an id that occurs twice counts
    once), and only these rows of the head are read.
    """
    made = _Call(hidden, weight, bias, vocab_ids, None, temperatures, "id_logps", options, context)
    rows = _flat(made.ids("ids", ids, (jnp.shape(ids)[-1],)))
    logps = _column(*made.arguments(rows), "logitless_id_logps", made.attributes(), rows.shape)
    return logps.reshape(jnp.shape(ids))


def topk_logps(
    hidden: Any,
    weight: Any,
    k: int,
    *,
    bias: Any = None,
    temperatures: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """The ids of the k largest logits of each row, and their log-probabilities: both [..., k], without
    gradients.

    They are sorted by descending logit; ties go to the lower id. k is 1 to 256. If the vocabulary is smaller
    than k, the remaining ids are -1 and the log-probabilities -inf; a row with a NaN has -1 and NaN. The
    log-probabilities are normalised over the whole vocabulary.
    """
    if not 1 <= k <= 256:
        raise ValueError(f"k = {k} must be an integer from 1 to 256")
    return _lists("topk_logps", hidden, weight, bias, vocab_ids, temperatures, options, context, k, {"top_k": k})


def _lists(
    name: str,
    hidden: Any,
    weight: Any,
    bias: Any,
    vocab_ids: Any,
    temperatures: Any,
    options: dict[str, Any],
    context: Context | None,
    count: int,
    asked: dict[str, Any],
) -> tuple[Any, Any]:
    """Ids and log-probabilities, `count` per row, from a call with the statistics `asked`."""
    for option in ("ignore_index", "shift"):
        if option in options:
            raise TypeError(f"{name} has no argument '{option}': it has no targets")
    every = jnp.zeros(jnp.shape(hidden)[:-1], jnp.int32)
    made = _Call(hidden, weight, bias, vocab_ids, every, temperatures, "token", options, context)
    made.options |= {name: np.float64(x) if isinstance(x, float) else np.int64(x) for name, x in asked.items()}
    tensors, others = jax.lax.stop_gradient(made.arguments())
    shape = (tensors[0].shape[0], count)
    results = (jax.ShapeDtypeStruct(shape, jnp.int32), float_type(tensors[0], shape))
    ids, logps = call(f"logitless_{name}", results, (*tensors, *others), made.attributes())
    return ids.reshape(*made.lead, count), logps.reshape(*made.lead, count)


def sample(
    hidden: Any,
    weight: Any,
    num_samples: int = 1,
    *,
    seed: Any,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    bias: Any = None,
    temperatures: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Token ids drawn from each row's distribution, independently and with replacement, and their
    log-probabilities: both [..., num_samples], without gradients.

    The ids are exact draws from the softmax of the logits divided by the temperature. temperature=0 returns
    the most likely id, with its log-probability at temperature 1. top_k restricts the draws to the top_k
    largest logits of a row, and top_p < 1 to the fewest most likely of these that together have top_p of
    their probability; top_p needs top_k. The log-probabilities are always those among all ids, and a row with
    a NaN has -1 and NaN. jit reads the seed at run time. Use another one for each call, and for each device
    of a shard_map that has rows of its own.
    """
    asked = draws_of(num_samples, temperature, temperatures, top_k, top_p)
    if is_greedy(asked):
        given = {"bias": bias, "temperatures": temperatures, "vocab_ids": vocab_ids, "context": context, **options}
        return jax.tree.map(lambda x: jnp.repeat(x, num_samples, axis=-1), topk_logps(hidden, weight, 1, **given))
    options = {**options, "seed": seed, "temperature": asked.pop("temperature")}
    return _lists("sample", hidden, weight, bias, vocab_ids, temperatures, options, context, num_samples, asked)


def distillation_loss(
    hidden: Any,
    weight: Any,
    teacher_hidden: Any = None,
    teacher_weight: Any = None,
    targets: Any = None,
    *,
    bias: Any = None,
    teacher_bias: Any = None,
    teacher_logits: Any = None,
    temperatures: Any = None,
    token_weights: Any = None,
    vocab_ids: Any = None,
    teacher_vocab_ids: Any = None,
    context: Context | None = None,
    **options: Any,
) -> Any:
    """Divergence of a student (hidden and weight) from a teacher (teacher_hidden and teacher_weight), without
    the logits of either in memory.

    loss_type is "forward_kl" (the default), "reverse_kl", "jsd" (with beta=), ...
    (docs/losses-distillation.md). The teacher may have another hidden size and type, and has no gradient.
    teacher_logits [..., V] may be given instead of teacher_hidden and teacher_weight.

    targets, one id per token, exclude tokens (ignore_index), and are the labels of the cross-entropy that
    hard_weight= adds. Without targets all tokens count. token_weights and mean_over are as in
    linear_cross_entropy().
    """
    for name in ("want_entropy", "want_agreement"):
        if options.get(name):
            raise ValueError(f"{name} = True is not supported: only the loss is returned")
    head = (hidden, weight, bias, vocab_ids)
    made = _Call(*head, targets, temperatures, "distillation_loss", options, context, token_weights)
    if (teacher_logits is None) == (teacher_hidden is None or teacher_weight is None):
        raise ValueError("give teacher_hidden and teacher_weight, or teacher_logits")
    none = jnp.zeros((0, 0), made.rows.dtype)
    if teacher_logits is not None:
        beside = [name for name in ("teacher_softcap", "teacher_layout") if name in options]
        arrays = (("teacher_bias", teacher_bias), ("teacher_vocab_ids", teacher_vocab_ids))
        beside += [name for name, array in arrays if array is not None]
        if beside:
            raise ValueError(f"{beside[0]} does not go with teacher_logits, which have no head")
        given = made.numbers("teacher_logits", teacher_logits, (jnp.shape(teacher_logits)[-1],))
        rows, floats = given.reshape(-1, given.shape[-1]), jnp.zeros((0, 0), jnp.float32)
        no_ids = jnp.zeros((0,), jnp.int32)
        return made.run("distillation_loss", none, none, none.reshape(0), rows, floats, no_ids, floats, floats)
    states = made.numbers("teacher_hidden", teacher_hidden, (jnp.shape(teacher_hidden)[-1],))
    layout = options.get("teacher_layout", "vocab_hidden")
    teacher = read_head(states, teacher_weight, teacher_bias, teacher_vocab_ids, layout, "teacher_")
    made.options.update(teacher.options)
    fixed = jax.lax.stop_gradient((states.reshape(-1, states.shape[-1]), *teacher.tensors))
    return made.run("distillation_loss", *fixed[:3], none, *teacher.beside, *fixed[3:])


def set_distillation_loss(
    hidden: Any,
    weight: Any,
    ids: Any,
    teacher_logps: Any,
    targets: Any = None,
    *,
    teacher_outside_logps: Any = None,
    bias: Any = None,
    temperatures: Any = None,
    token_weights: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    **options: Any,
) -> Any:
    """Divergence of a student from a teacher whose log-probabilities are known at a set of token ids per
    token.

    ids and teacher_logps are [..., K]. outside= selects how the remaining probability is treated: "tail" (the
    default), "truncated", "renormalised", "teacher_renormalised" or "generalised"
    (docs/losses-distillation.md). For "tail", teacher_outside_logps, with hidden's leading axes, may give the
    teacher's log-probability of the rest.

    targets exclude tokens (ignore_index), and are the labels of the cross-entropy that hard_weight= adds.
    token_weights and mean_over are as in linear_cross_entropy().
    """
    head = (hidden, weight, bias, vocab_ids)
    made = _Call(*head, targets, temperatures, "set_distillation_loss", options, context, token_weights)
    size = jnp.shape(ids)[-1]
    return made.run(
        "set_distillation_loss",
        _flat(made.ids("ids", ids, (size,))),
        _flat(made.numbers("teacher_logps", teacher_logps, (size,))),
        made.numbers("teacher_outside_logps", teacher_outside_logps, ()).reshape(-1),
    )
