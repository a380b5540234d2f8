# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for JAX on CPUs: the LM head and its loss as one XLA call, under jit and grad.

    from logitless.jax import linear_cross_entropy
    loss, grads = jax.value_and_grad(linear_cross_entropy, argnums=(0, 1))(hidden, weight, targets)

Threads follow OMP_NUM_THREADS unless a context sets them. The words floats, numbers, ids and flags in help()
of a function are defined by help(logitless.ArrayLike).
"""

from __future__ import annotations

from ._extras import check_extra

check_extra("jax")

import math
from typing import Any, Literal, Optional, Union

import jax
import jax.numpy as jnp
import numpy as np

from . import Context, _core
from ._draws import DRAW_ARGUMENTS, SEED
from ._signatures import Array, Surface, arguments_of, describe, options_of
from ._jax_call import (
    VOCAB_IDS,
    attributes_of,
    call,
    check_targets,
    entries_of,
    float_type,
    numbers_of,
    read_head,
    same,
    seed_of,
    slices,
    spread,
    token_ids,
)
from ._jax_distributions import (
    distillation_loss,
    id_logps,
    sample,
    set_distillation_loss,
    soft_cross_entropy,
    topk_logps,
)
from .lora import LoraWeight
from .packed import PackedWeight
from ._jax_gradients import differentiable, gradient_types, kept_of, made_again, marked, opened, scaled

__all__ = [
    "distillation_loss",
    "id_logps",
    "linear_cross_entropy",
    "sample",
    "set_distillation_loss",
    "soft_cross_entropy",
    "token_logps",
    "topk_logps",
]


def _cross_entropy_value(tensors: Any, others: Any, options: Any, split: Any) -> Any:
    arrays = (*tensors, *others)
    told = slices("logitless_cross_entropy", arrays, options, split)
    loss = call("logitless_cross_entropy", float_type(arrays[0]), (*arrays, *told), options)
    return same(loss, split)


def _cross_entropy_forward(tensors: Any, others: Any, options: Any, split: Any) -> Any:
    arrays, wanted = opened(tensors, others)
    told = slices("logitless_cross_entropy", arrays, options, split)
    results = (float_type(arrays[0]), *gradient_types(wanted, arrays[VOCAB_IDS], options))
    loss, *grads = call("logitless_cross_entropy_grad", results, (*arrays, *told), options)
    return same(loss, split), kept_of(grads, arrays)


def _cross_entropy_backward(options: Any, split: Any, kept: Any, upstream: Any) -> Any:
    return scaled(kept, upstream, options, split), None


_cross_entropy = differentiable(_cross_entropy_value, _cross_entropy_forward, _cross_entropy_backward, static=(2, 3))


def _token_logps_value(tensors: Any, others: Any, options: Any, split: Any) -> Any:
    """Log-probabilities, entropies, log-sum-exps, and sums of squared probabilities if they are requested."""
    return _token_columns((*tensors, *others), options, split)[0]


def _token_columns(arrays: Any, options: Any, split: Any) -> Any:
    told = slices("logitless_token_logps", arrays, options, split)
    column, absent = (float_type(arrays[0], shape) for shape in (arrays[0].shape[:1], (0,)))
    squares = column if dict(options)["square_sum"] else absent
    columns = call("logitless_token_logps", (column, column, column, squares), (*arrays, *told), options)
    return same(tuple(columns), split), (*arrays, *told)


def _token_logps_forward(tensors: Any, others: Any, options: Any, split: Any) -> Any:
    arrays, wanted = opened(tensors, others)
    columns, arrays = _token_columns(arrays, options, split)
    return columns, marked(arrays, wanted)


def _token_logps_backward(options: Any, split: Any, kept: Any, upstream: Any) -> Any:
    return made_again("logitless_token_logps_grad", kept, upstream, options, split), None


_token_logps = differentiable(_token_logps_value, _token_logps_forward, _token_logps_backward, static=(2, 3))


def _run(
    function: Any,
    task: str,
    arrays: tuple[Any, Any, Any, Any],
    vectors: tuple[Any, Any, Any],
    vocab_ids: Any,
    given: dict[str, Any],
    context: Context | None,
    vocab_axis: str | None,
    **flags: bool,
) -> Any:
    """`flags` are attributes that are not options of the task."""
    hidden, weight, bias, targets = arrays
    layout = given.get("layout", "vocab_hidden")
    hidden, targets = jnp.asarray(hidden), token_ids("targets", targets)
    check_targets(hidden, targets)
    head = read_head(hidden, weight, bias, vocab_ids, layout)
    class_weights, temperatures, token_weights = vectors
    class_weights = jnp.zeros((0,)) if class_weights is None else jax.lax.stop_gradient(jnp.asarray(class_weights))
    if class_weights.ndim != 1 or (vectors[0] is not None and class_weights.size == 0):
        raise ValueError(f"class_weights has shape {class_weights.shape}: it must have one axis, and at least one entry")
    class_weights = class_weights.astype(jnp.float32)
    temperatures = numbers_of("temperatures", temperatures, targets.shape)
    token_weights = numbers_of("token_weights", token_weights, targets.shape)
    seed = seed_of(given)
    options = attributes_of(task, given, context)
    options.update(head.options, sequences=np.int64(math.prod(targets.shape[:-1])))
    options.update({name: np.bool_(flag) for name, flag in flags.items()})
    split = None
    if vocab_axis is not None:
        entries = entries_of(head.weight, head.vocab_ids, layout)
        options["vocab_size"] = np.int64(entries * jax.lax.axis_size(vocab_axis))
        bare = {name: value for name, value in given.items() if name not in ("layout", "softcap")}
        split = (vocab_axis, _core.jax_slice_bytes(task, hidden.dtype == jnp.float64, {**bare, **flags}))
    rows = hidden.reshape(-1, hidden.shape[-1])
    vectors = (targets.reshape(-1), class_weights, temperatures, token_weights, seed)
    tensors = (rows, *head.tensors)
    alike = spread(*tensors, *vectors, *head.beside)
    return function(alike[: len(tensors)], alike[len(tensors) :], tuple(sorted(options.items())), split)


def linear_cross_entropy(
    hidden: Any,
    weight: Any,
    targets: Any,
    *,
    bias: Any = None,
    class_weights: Any = None,
    temperatures: Any = None,
    token_weights: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    vocab_axis: str | None = None,
    **options: Any,
) -> Any:
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
    """
    if options.get("reduction", "mean") == "none":
        raise ValueError("reduction = 'none' is not supported: use token_logps() for per-token values")
    for name in ("want_accuracy", "want_entropy"):
        if options.get(name):
            raise ValueError(f"{name} = True is not supported: only the loss is returned")
    return _run(
        _cross_entropy,
        "cross_entropy",
        (hidden, weight, bias, targets),
        (class_weights, temperatures, token_weights),
        vocab_ids,
        options,
        context,
        vocab_axis,
    )


def token_logps(
    hidden: Any,
    weight: Any,
    targets: Any,
    *,
    bias: Any = None,
    temperatures: Any = None,
    vocab_ids: Any = None,
    context: Context | None = None,
    vocab_axis: str | None = None,
    lse: bool = False,
    square_sum: bool = False,
    **options: Any,
) -> Any:
    """Log-probabilities of the targets, and entropies: both of targets' shape, in nats, with gradients.

    lse=True and square_sum=True add the log-sum-exp of the logits and the sum of squared probabilities, in
    this order and with gradients. All are 0 for ignored tokens. The other arguments are as in
    linear_cross_entropy().
    """
    columns = _run(
        _token_logps,
        "token_logps",
        (hidden, weight, bias, targets),
        (None, temperatures, None),
        vocab_ids,
        options,
        context,
        vocab_axis,
        square_sum=bool(square_sum),
    )
    shape, is_wanted = jnp.asarray(targets).shape, (True, True, lse, square_sum)
    return tuple(column.reshape(shape) for column, wanted in zip(columns, is_wanted) if wanted)


_ARGUMENTS = {
    name: (name, type, None, meaning)
    for name, type, meaning in (
        ("context", Optional[Context], "how the call runs; without ranks and workspace; static under jit"),
        ("vocab_axis", Optional[str], "in a shard_map, the axis over which the vocabulary is sharded"),
        ("temperatures", Array("numbers", "[...]"), "one per token, instead of temperature"),
        ("class_weights", Array("numbers", "[V]"), "one per vocabulary entry, as in PyTorch"),
        ("probabilities", Array("numbers", "[..., V]"), "instead of ids and weights"),
        ("k", int, "the number of ids, from 1 to 256"),
    )
}
# JAX has no strided arrays: a transpose under jit would copy the head and its gradient. `layout` avoids that.
for _prefix in ("", "teacher_"):
    _ARGUMENTS[f"{_prefix}layout"] = (
        f"{_prefix}layout",
        Literal["vocab_hidden", "hidden_vocab"],
        "vocab_hidden",
        f"the axes of {_prefix}weight",
    )
for _name, _meaning in (("lse", "log-sum-exp of the logits"), ("square_sum", "sum of squared probabilities")):
    _ARGUMENTS[_name] = (_name, bool, False, f"also returns the {_meaning}")
_ARGUMENTS["seed"] = ("seed", Union[int, jax.Array], 0, "32-bit seed for sampled gradients, read by jit at run time; use a new one per step")


def _shape(shape: str) -> str:
    """The shape with "..." for the leading axes of hidden states, instead of [N] or [B, T]."""
    shape = shape.replace("[N, H] or [B, T, H]", "[..., H]").replace("[N, V] or [B, T, V]", "[..., V]")
    shape = shape.replace("[N] or [B, T]", "[...]").replace("[N]", "[...]").replace("[N, ", "[..., ")
    return shape.split(", or [E]")[0]


_SURFACE = Surface("jax", jax.Array, Union[jax.Array, PackedWeight, LoraWeight], _ARGUMENTS, _shape)
_WITHOUT = ("want_accuracy", "want_entropy", "want_agreement")  # a loss alone cannot return them
for _function, _task, _lists in (
    (linear_cross_entropy, "cross_entropy", ("backward",)),
    (token_logps, "token", ("backward",)),
    (topk_logps, "token", ()),
    (sample, "token", ()),
    (id_logps, "id_logps", ("backward",)),
    (soft_cross_entropy, "soft_cross_entropy", ("backward",)),
    (set_distillation_loss, "set_distillation_loss", ("backward",)),
    (distillation_loss, "distillation_loss", ("backward",)),
):
    _rows = arguments_of("token_stats" if _task == "token" else _task, gradients=True)
    _names = ["layout", "softcap"]
    _names += ["teacher_layout", "teacher_softcap"] if _task == "distillation_loss" else []
    _names += [name for name, row in options_of(_task, *_lists).items() if not isinstance(row[1], Array)]
    _without = _WITHOUT if _task in ("cross_entropy", "token") and _lists else (*_WITHOUT, "ignore_index", "shift")
    if _task in ("set_distillation_loss", "distillation_loss"):
        _without = _WITHOUT
    _own = SEED if _function is sample else {}
    if _own:
        _rows = {**_rows, **DRAW_ARGUMENTS}
    describe(_function, _SURFACE, _rows, Any, [name for name in _names if name not in _without], _own)
