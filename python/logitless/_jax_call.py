# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""How logitless.jax calls the library: types, checks, and the devices of a shard_map."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _core

if not hasattr(_core, "jax_targets"):
    raise ImportError("this logitless was built where jax was not installed: install it again with jax there")
for _name, _handler in _core.jax_targets().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


def axes_of(*arrays: Any) -> frozenset:
    """The axes of a shard_map over which any of the arrays varies."""
    return frozenset().union(*(jax.typeof(x).mat.varying for x in arrays))


def vary(array: Any, axes: frozenset) -> Any:
    return jax.lax.pcast(array, tuple(axes), to="varying") if axes else array


def spread(*arrays: Any) -> Any:
    """The arrays, typed alike: the gradient of one that is the same on all devices is a psum."""
    axes = axes_of(*arrays)
    return tuple(vary(x, axes - axes_of(x)) for x in arrays)


def call(name: str, results: Any, arrays: Any, options: Any) -> Any:
    axes = axes_of(*arrays)
    results = jax.ffi.ffi_call(name, results, vmap_method="sequential")(*arrays, **dict(options))
    return jax.tree.map(lambda result: vary(result, axes - axes_of(result)), results)


def float_type(hidden: Any, shape: Any = ()) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32)


def types_of(arrays: Any) -> Any:
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)


# A call has the arrays (hidden, weight, bias), and others that nothing is differentiated by: targets, class weights,
# temperatures and a seed. Static are its options, as attributes, and where its vocabulary is split: (axis, bytes a token).


def slices(name: str, arrays: Any, options: Any, split: Any) -> Any:
    """What a call is told of the other slices of a vocabulary: where this one begins, and the statistics of all."""
    empty = (jnp.zeros((0,), jnp.int32), jnp.zeros((0,), jnp.uint8))
    if split is None:
        return empty
    axis, token_bytes = split
    hidden, weight = arrays[:2]
    entries = weight.shape[1 if dict(options)["layout"] == "hidden_vocab" else 0]
    first = (jax.lax.axis_index(axis) * entries).astype(jnp.int32).reshape(1)
    bytes_of_slice = jax.ShapeDtypeStruct((hidden.shape[0], token_bytes), jnp.uint8)
    mine = call(f"{name}_slice", bytes_of_slice, (*arrays, first, empty[1]), options)
    return first, jax.lax.all_gather(mine, axis)


def same(values: Any, split: Any) -> Any:
    """Values that are the same on all devices of the axis, typed so."""
    if split is None:
        return values
    first = jax.lax.axis_index(split[0]) == 0
    return jax.tree.map(lambda x: jax.lax.psum(jnp.where(first, x, 0), split[0]), values)


def upstream_of(upstream: Any, grads: Any, split: Any) -> Any:
    """The gradient of what same() returned, on each device. A shard_map that does not track over which axes values
    vary hands out equal parts of it."""
    axes = axes_of(*grads)
    if split is not None and split[0] not in axes:
        upstream = jax.lax.psum(upstream, split[0])
    return vary(upstream, axes - axes_of(upstream))


def seed_of(given: dict[str, Any]) -> Any:
    """Takes the seed of sampled gradients out of the options: an array, so that another one is no new trace."""
    seed = given.pop("seed", None)
    if seed is None:
        return jnp.zeros((0,), jnp.int32)
    return jax.lax.stop_gradient(jnp.asarray(seed)).astype(jnp.int32).reshape(1)


def check_narrowed(name: str, ids: Any) -> None:
    """Without jax_enable_x64 JAX keeps the lower half of an int64, which may be the id of another token."""
    if jax.config.jax_enable_x64 or not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu":
        return
    for value in (ids.min(initial=0), ids.max(initial=0)):
        if not -(2**31) <= int(value) < 2**31:
            raise ValueError(f"{name} holds {value}: JAX keeps 32 bits of it (jax_enable_x64 keeps all)")


def check_sizes(hidden: Any, weight: Any, layout: str, prefix: str = "") -> None:
    """Tells what is wrong with hidden states and the head that they are for."""
    if layout not in ("vocab_hidden", "hidden_vocab"):
        raise ValueError(f"{prefix}layout = {layout!r} is none of vocab_hidden, hidden_vocab")
    size = weight.shape[1 if layout == "vocab_hidden" else 0]
    if hidden.shape[-1] != size:
        raise ValueError(
            f"{prefix}hidden has {hidden.shape[-1]} columns, but {prefix}weight, {layout}, has {size}"
        )


def check(hidden: Any, weight: Any, targets: Any, layout: str) -> None:
    if not jnp.issubdtype(targets.dtype, jnp.integer):
        raise TypeError(f"targets is {targets.dtype}: token ids are int32 or int64")
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(f"targets has shape {targets.shape}: hidden's leading axes are {hidden.shape[:-1]}")
    check_sizes(hidden, weight, layout)


def attribute(value: Any) -> Any:
    """A Python value as XLA takes it."""
    types = {bool: np.bool_, int: np.int64, float: np.float64}
    return types.get(type(value), lambda x: x)(value)
