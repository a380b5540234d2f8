# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for JAX on CPUs: the LM head and its loss as one XLA call, under jit and grad.

    from logitless.jax import linear_cross_entropy
    loss, grads = jax.value_and_grad(linear_cross_entropy, argnums=(0, 1))(hidden, weight, targets)

Threads follow OMP_NUM_THREADS unless a context says otherwise.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import Context, _core

__all__ = ["linear_cross_entropy", "token_logps"]

if not hasattr(_core, "jax_targets"):
    raise ImportError("this logitless was built where jax was not installed: install it again with jax there")
for _name, _handler in _core.jax_targets().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


def _axes(*arrays: Any) -> frozenset:
    """The axes of a shard_map over which any of the arrays varies."""
    return frozenset().union(*(jax.typeof(x).mat.varying for x in arrays))


def _vary(array: Any, axes: frozenset) -> Any:
    return jax.lax.pcast(array, tuple(axes), to="varying") if axes else array


def _spread(*arrays: Any) -> Any:
    """The arrays, typed alike: the gradient of one that is the same on all devices is a psum."""
    axes = _axes(*arrays)
    return tuple(_vary(x, axes - _axes(x)) for x in arrays)


def _call(name: str, results: Any, arrays: Any, options: Any) -> Any:
    axes = _axes(*arrays)
    results = jax.ffi.ffi_call(name, results, vmap_method="sequential")(*arrays, **dict(options))
    return jax.tree.map(lambda result: _vary(result, axes - _axes(result)), results)


def _float_type(hidden: Any, shape: Any = ()) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32)


def _types_of(arrays: Any) -> Any:
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)


# A call has the arrays (hidden, weight, bias), and others that nothing is differentiated by: targets, class weights
# and temperatures. Static are its options, as attributes, and where its vocabulary is split: (axis, bytes a token).


def _slices(name: str, arrays: Any, options: Any, split: Any) -> Any:
    """What a call is told of the other slices of a vocabulary: where this one begins, and the statistics of all."""
    empty = (jnp.zeros((0,), jnp.int32), jnp.zeros((0,), jnp.uint8))
    if split is None:
        return empty
    axis, token_bytes = split
    hidden, weight = arrays[:2]
    entries = weight.shape[1 if dict(options)["layout"] == "hidden_vocab" else 0]
    first = (jax.lax.axis_index(axis) * entries).astype(jnp.int32).reshape(1)
    bytes_of_slice = jax.ShapeDtypeStruct((hidden.shape[0], token_bytes), jnp.uint8)
    mine = _call(f"{name}_slice", bytes_of_slice, (*arrays, first, empty[1]), options)
    return first, jax.lax.all_gather(mine, axis)


def _same(values: Any, split: Any) -> Any:
    """Values that are the same on all devices of the axis, typed so."""
    if split is None:
        return values
    first = jax.lax.axis_index(split[0]) == 0
    return jax.tree.map(lambda x: jax.lax.psum(jnp.where(first, x, 0), split[0]), values)


def _upstream(upstream: Any, grads: Any, split: Any) -> Any:
    """The gradient of what _same() returned, on each device. A shard_map that does not track over which axes values
    vary hands out equal parts of it."""
    axes = _axes(*grads)
    if split is not None and split[0] not in axes:
        upstream = jax.lax.psum(upstream, split[0])
    return _vary(upstream, axes - _axes(upstream))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _cross_entropy(hidden: Any, weight: Any, bias: Any, others: Any, options: Any, split: Any) -> Any:
    arrays = (hidden, weight, bias, *others)
    told = _slices("logitless_cross_entropy", arrays, options, split)
    loss = _call("logitless_cross_entropy", _float_type(hidden), (*arrays, *told), options)
    return _same(loss, split)


def _cross_entropy_forward(
    hidden: Any, weight: Any, bias: Any, others: Any, options: Any, split: Any
) -> Any:
    arrays = (hidden, weight, bias, *others)
    told = _slices("logitless_cross_entropy", arrays, options, split)
    results = (_float_type(hidden), *_types_of(arrays[:3]))
    loss, *grads = _call("logitless_cross_entropy_grad", results, (*arrays, *told), options)
    return _same(loss, split), tuple(grads)


def _cross_entropy_backward(options: Any, split: Any, grads: Any, upstream: Any) -> Any:
    upstream = _upstream(upstream, grads, split)
    return (*((g * upstream).astype(g.dtype) for g in grads), None)


_cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _token_logps(hidden: Any, weight: Any, bias: Any, others: Any, options: Any, split: Any) -> Any:
    """Log-probabilities and entropies."""
    return _token_logps_forward(hidden, weight, bias, others, options, split)[0]


def _token_logps_forward(hidden: Any, weight: Any, bias: Any, others: Any, options: Any, split: Any) -> Any:
    arrays = (hidden, weight, bias, *others)
    told = _slices("logitless_token_logps", arrays, options, split)
    column = _float_type(hidden, others[0].shape)
    columns = _call("logitless_token_logps", (column, column), (*arrays, *told), options)
    return _same(tuple(columns), split), (*arrays, *told)


def _token_logps_backward(options: Any, split: Any, arrays: Any, upstream: Any) -> Any:
    upstream = tuple(_upstream(u, arrays[:3], split) for u in upstream)
    grads = _call("logitless_token_logps_grad", _types_of(arrays[:3]), (*arrays, *upstream), options)
    return (*grads, None)


_token_logps.defvjp(_token_logps_forward, _token_logps_backward)


def _check_narrowed(targets: Any) -> None:
    """Without jax_enable_x64 JAX keeps the lower half of an int64, which may be the id of another token."""
    if jax.config.jax_enable_x64 or not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        return
    for value in (targets.min(initial=0), targets.max(initial=0)):
        if not -(2**31) <= int(value) < 2**31:
            raise ValueError(f"targets holds {value}: JAX keeps 32 bits of it (jax_enable_x64 keeps all)")


def _check(hidden: Any, weight: Any, targets: Any, layout: str) -> None:
    if layout not in ("vocab_hidden", "hidden_vocab"):
        raise ValueError(f"layout = {layout!r} is none of vocab_hidden, hidden_vocab")
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise TypeError(f"targets is {targets.dtype}: token ids are int32 or int64")
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(f"targets has shape {targets.shape}: hidden's leading axes are {hidden.shape[:-1]}")
    size = weight.shape[1 if layout == "vocab_hidden" else 0]
    if hidden.shape[-1] != size:
        raise ValueError(f"hidden has {hidden.shape[-1]} columns, but weight, {layout}, has {size}")


def _attribute(value: Any) -> Any:
    """A Python value as XLA takes it."""
    types = {bool: np.bool_, int: np.int64, float: np.float64}
    return types.get(type(value), lambda x: x)(value)


def _run(
    function: Any,
    task: str,
    arrays: tuple[Any, Any, Any, Any],
    vectors: tuple[Any, Any],
    given: dict[str, Any],
    context: Context | None,
    vocab_axis: str | None,
) -> Any:
    hidden, weight, bias, targets = arrays
    layout = given.get("layout", "vocab_hidden")
    _check_narrowed(targets)
    hidden, weight, targets = jnp.asarray(hidden), jnp.asarray(weight), jnp.asarray(targets)
    _check(hidden, weight, targets, layout)
    bias = jnp.zeros((0,), weight.dtype) if bias is None else jnp.asarray(bias)
    exact = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    class_weights, temperatures = (
        jnp.zeros((0,), dtype) if x is None else jax.lax.stop_gradient(jnp.asarray(x, dtype)).reshape(-1)
        for x, dtype in zip(vectors, (jnp.float32, exact))
    )
    options = {name: _attribute(value) for name, value in _core.jax_attributes(task, given, context).items()}
    options["sequences"] = np.int64(math.prod(targets.shape[:-1]))
    split = None
    if vocab_axis is not None:
        entries = weight.shape[1 if layout == "hidden_vocab" else 0]
        options["vocab_size"] = np.int64(entries * jax.lax.axis_size(vocab_axis))
        bare = {name: value for name, value in given.items() if name not in ("layout", "softcap")}
        split = (vocab_axis, _core.jax_slice_bytes(task, hidden.dtype == jnp.float64, bare))
    rows = hidden.reshape(-1, hidden.shape[-1])
    spread = _spread(rows, weight, bias, targets.reshape(-1), class_weights, temperatures)
    return function(*spread[:3], spread[3:], tuple(sorted(options.items())), split)


def linear_cross_entropy(
    hidden: Any,
    weight: Any,
    targets: Any,
    *,
    bias: Any = None,
    class_weights: Any = None,
    temperatures: Any = None,
    context: Context | None = None,
    vocab_axis: str | None = None,
    **options: Any,
) -> Any:
    """Cross-entropy of hidden [..., H] through a head [V, H] (layout="hidden_vocab": [H, V]), float32, or float64 for
    float64 arrays; differentiable in hidden, weight and bias. Its gradients are made with the loss, in one call.

    bias and class_weights: [V]. temperatures: of targets' shape.
    options: those of CrossEntropyOptions that are no arrays, by their names, fixed when a call is traced: layout,
        softcap, reduction ("mean" or "sum"; for a loss a token see token_logps()), ignore_index, shift, temperature,
        temperature_meaning, round_logits_to, label_smoothing, z_loss, loss_scale, normaliser.
    context: a logitless.Context (threads, workspace_bytes, plan, ...) without ranks and workspace.
    vocab_axis: in a shard_map, the axis over which the vocabulary is sharded: weight and bias have this device's
        entries, an equal number on each; all else is the same on all, and so is the loss.
    """
    if options.get("reduction", "mean") == "none":
        raise ValueError("reduction = 'none' is no one loss: token_logps() has a log-probability a token")
    for name in ("want_accuracy", "want_entropy"):
        if options.get(name):
            raise ValueError(f"{name} = True: there is no place for it beside the loss")
    return _run(
        _cross_entropy,
        "cross_entropy",
        (hidden, weight, bias, targets),
        (class_weights, temperatures),
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
    context: Context | None = None,
    vocab_axis: str | None = None,
    **options: Any,
) -> Any:
    """(log-probabilities of the targets, entropies), both of targets' shape, in nats, with gradients. Tokens that take
    no part have 0 in both. Its arguments are those of linear_cross_entropy(); its options layout, softcap and those
    of TokenOptions: ignore_index, shift, temperature, temperature_meaning, round_logits_to.
    """
    columns = _run(
        _token_logps,
        "token_logps",
        (hidden, weight, bias, targets),
        (None, temperatures),
        options,
        context,
        vocab_axis,
    )
    shape = jnp.asarray(targets).shape
    return tuple(column.reshape(shape) for column in columns)
