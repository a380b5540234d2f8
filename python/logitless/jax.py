# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for JAX on CPUs: the LM head and its loss as one XLA call, under jit and grad.

    from logitless.jax import linear_cross_entropy
    loss, grads = jax.value_and_grad(linear_cross_entropy, argnums=(0, 1))(hidden, weight, targets)

Threads follow OMP_NUM_THREADS.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _core

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


def _call(name: str, results: Any, *arrays: Any, **attributes: Any) -> Any:
    axes = _axes(*arrays)
    results = jax.ffi.ffi_call(name, results, vmap_method="sequential")(*arrays, **attributes)
    return jax.tree.map(lambda result: _vary(result, axes), results)


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


def _loss_type(hidden: Any) -> Any:
    return jax.ShapeDtypeStruct((), jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _cross_entropy(hidden: Any, weight: Any, bias: Any, targets: Any, options: Any) -> Any:
    return _call(
        "logitless_cross_entropy", _loss_type(hidden), hidden, weight, bias, targets, **dict(options)
    )


def _cross_entropy_forward(hidden: Any, weight: Any, bias: Any, targets: Any, options: Any) -> Any:
    results = (_loss_type(hidden), *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (hidden, weight, bias)))
    loss, *grads = _call(
        "logitless_cross_entropy_grad", results, hidden, weight, bias, targets, **dict(options)
    )
    return loss, tuple(grads)


def _cross_entropy_backward(options: Any, grads: Any, upstream: Any) -> Any:
    scaled = tuple((g * upstream).astype(g.dtype) for g in grads)
    return (*scaled, None)


_cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _token_logps(hidden: Any, weight: Any, bias: Any, targets: Any, options: Any) -> Any:
    """Log-probabilities, entropies, log-sum-exps and, with the option cross, means of all vocabulary entries' log-probabilities."""
    column = jax.ShapeDtypeStruct(targets.shape, _loss_type(hidden).dtype)
    of_cross = column if dict(options)["cross"] else jax.ShapeDtypeStruct((0,), column.dtype)
    return tuple(
        _call(
            "logitless_token_logps",
            (column, column, column, of_cross),
            hidden,
            weight,
            bias,
            targets,
            **dict(options),
        )
    )


def _token_logps_forward(hidden: Any, weight: Any, bias: Any, targets: Any, options: Any) -> Any:
    return _token_logps(hidden, weight, bias, targets, options), (hidden, weight, bias, targets)


def _token_logps_backward(options: Any, inputs: Any, upstream: Any) -> Any:
    results = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs[:3])
    return (*_call("logitless_token_logps_grad", results, *inputs, *upstream, **dict(options)), None)


_token_logps.defvjp(_token_logps_forward, _token_logps_backward)


def _check_narrowed(targets: Any) -> None:
    """Without jax_enable_x64 JAX keeps the lower half of an int64, which may be the id of another token."""
    if jax.config.jax_enable_x64 or not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        return
    for value in (targets.min(initial=0), targets.max(initial=0)):
        if not -(2**31) <= int(value) < 2**31:
            raise ValueError(f"targets holds {value}: JAX keeps 32 bits of it (jax_enable_x64 keeps all)")


def _prepared(hidden: Any, weight: Any, targets: Any, bias: Any, layout: str) -> Any:
    _check_narrowed(targets)
    hidden, weight, targets = jnp.asarray(hidden), jnp.asarray(weight), jnp.asarray(targets)
    _check(hidden, weight, targets, layout)
    bias = jnp.zeros((0,), weight.dtype) if bias is None else jnp.asarray(bias)
    return hidden.reshape(-1, hidden.shape[-1]), weight, bias, targets.reshape(-1)


def _of_all_entries(stats: Any, mine: Any, axis: str, with_means: bool) -> tuple[Any, Any, Any]:
    """(log-probabilities, log-sum-exps, means of all vocabulary entries' log-probabilities) over the vocabulary entries of all devices, from
    those over each one's own. `mine` says whose targets a device holds."""
    logps, _, lses, means = stats
    most = jax.lax.pmax(jax.lax.stop_gradient(lses), axis)
    whole = most + jnp.log(jax.lax.psum(jnp.exp(lses - most), axis))
    # Logits, without a common offset that would take their digits.
    logits = jax.lax.psum(jnp.where(mine, logps + (lses - most), 0), axis)
    if with_means:
        means = jax.lax.pmean(means + (lses - most), axis) - (whole - most)
    return logits - (whole - most), whole, means


def _sharded_cross_entropy(
    hidden: Any, weight: Any, bias: Any, targets: Any, options: dict[str, Any], reduction: str, axis: str
) -> Any:
    ignore_index, z_loss = int(options["ignore_index"]), float(options["z_loss"])
    smoothing = float(options["label_smoothing"])
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing = {smoothing} is outside [0, 1]")
    if not 0 <= z_loss < float("inf"):
        raise ValueError(f"z_loss = {z_loss} is no finite number of at least 0")
    entries = weight.shape[1 if options["hidden_vocab"] else 0]
    own = targets - jax.lax.axis_index(axis) * entries
    mine = (own >= 0) & (own < entries) & (targets != ignore_index)
    # A target that no device has is wrong on all of them, so that none waits for another.
    somewhere = jax.lax.psum(mine.astype(jnp.int32), axis) == 1
    known = jnp.where(somewhere, jnp.clip(own, 0, entries - 1), entries)
    known = jnp.where(targets == ignore_index, -1, known)
    token = (
        ("hidden_vocab", options["hidden_vocab"]),
        ("ignore_index", np.int64(-1)),
        ("softcap", options["softcap"]),
        ("temperature", options["temperature"]),
        ("cross", np.bool_(smoothing != 0)),
    )
    stats = _token_logps(*_spread(hidden, weight, bias, known), token)
    logps, lses, means = _of_all_entries(stats, mine, axis, smoothing != 0)
    active = targets != ignore_index
    losses = -logps if smoothing == 0 else -(1 - smoothing) * logps - smoothing * means
    total = jnp.where(active, losses + z_loss * lses**2, 0).sum()
    if reduction == "sum":
        return total
    return total / jnp.maximum(active.sum(), 1)


def linear_cross_entropy(
    hidden: Any,
    weight: Any,
    targets: Any,
    *,
    bias: Any = None,
    layout: str = "vocab_hidden",
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    softcap: float = 0.0,
    temperature: float = 1.0,
    z_loss: float = 0.0,
    vocab_axis: str | None = None,
) -> Any:
    """Cross-entropy of hidden [..., H] through a head [V, H] (layout="hidden_vocab": [H, V]), float32, or float64 for
    float64 arrays; differentiable in hidden, weight and bias. Its gradients are made with the loss, in one call.
    reduction is "mean" or "sum"; for a loss a token see token_logps().

    vocab_axis: in a shard_map, the axis over which the vocabulary entries are sharded: weight and bias have this device's, an equal
        number on each, hidden and targets are the same on all, and so is the loss.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction = {reduction!r} is none of mean, sum")
    options = (
        ("hidden_vocab", np.bool_(layout == "hidden_vocab")),
        ("sum", np.bool_(reduction == "sum")),
        ("ignore_index", np.int64(ignore_index)),
        ("label_smoothing", np.float64(label_smoothing)),
        ("softcap", np.float64(softcap)),
        ("temperature", np.float64(temperature)),
        ("z_loss", np.float64(z_loss)),
    )
    arrays = _prepared(hidden, weight, targets, bias, layout)
    if vocab_axis is None:
        return _cross_entropy(*_spread(*arrays), options)
    return _sharded_cross_entropy(*arrays, dict(options), reduction, vocab_axis)


def token_logps(
    hidden: Any,
    weight: Any,
    targets: Any,
    *,
    bias: Any = None,
    layout: str = "vocab_hidden",
    ignore_index: int = -100,
    softcap: float = 0.0,
    temperature: float = 1.0,
) -> Any:
    """(log-probabilities of the targets, entropies), both of targets' shape, in nats, with gradients. Tokens that take
    no part have 0 in both."""
    options = (
        ("hidden_vocab", np.bool_(layout == "hidden_vocab")),
        ("ignore_index", np.int64(ignore_index)),
        ("softcap", np.float64(softcap)),
        ("temperature", np.float64(temperature)),
        ("cross", np.bool_(False)),
    )
    logps, entropies, *_ = _token_logps(*_spread(*_prepared(hidden, weight, targets, bias, layout)), options)
    shape = jnp.asarray(targets).shape
    return logps.reshape(shape), entropies.reshape(shape)
