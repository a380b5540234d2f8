# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shared by the functions of logitless.jax: XLA calls, heads, checks, and the devices of a shard_map."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import Context, _core, plan
from .lora import LoraWeight
from .packed import PackedWeight

for _name, _handler in _core.jax_targets().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")

# Registered as pytrees, so that jit takes them as arguments.
jax.tree_util.register_dataclass(PackedWeight, data_fields=["data", "scales"], meta_fields=["packing"])


def _lora_of_parts(fixed: Any, parts: Any) -> LoraWeight:
    # Skips the checks: JAX also builds pytrees with placeholders instead of arrays.
    made = object.__new__(LoraWeight)
    for name, value in zip(("weight", "a", "b", "scale", "dropout"), (*parts, *fixed)):
        object.__setattr__(made, name, value)
    return made


jax.tree_util.register_pytree_with_keys(
    LoraWeight,
    lambda x: ([(jax.tree_util.GetAttrKey(n), getattr(x, n)) for n in ("weight", "a", "b")], (x.scale, x.dropout)),
    _lora_of_parts,
    lambda x: ((x.weight, x.a, x.b), (x.scale, x.dropout)),
)


def axes_of(*arrays: Any) -> frozenset:
    """The axes of a shard_map over which at least one of the arrays varies."""
    return frozenset().union(*(jax.typeof(x).mat.varying for x in arrays))


def vary(array: Any, axes: frozenset) -> Any:
    return jax.lax.pcast(array, tuple(axes), to="varying") if axes else array


def spread(*arrays: Any) -> Any:
    """The arrays, all cast to vary over the same axes. JAX then sums the gradient of an array that was equal
    on all devices (a psum)."""
    axes = axes_of(*arrays)
    return tuple(vary(x, axes - axes_of(x)) for x in arrays)


def call(name: str, results: Any, arrays: Any, options: Any) -> Any:
    axes = axes_of(*arrays)

    @jax.custom_jvp
    def made(*arrays: Any) -> Any:
        return jax.ffi.ffi_call(name, results, vmap_method="sequential")(*arrays, **dict(options))

    @made.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise ValueError("logitless computes no second derivatives: its gradients cannot be differentiated again")

    return jax.tree.map(lambda result: vary(result, axes - axes_of(result)), made(*arrays))


def float_type(hidden: Any, shape: Any = ()) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float64 if hidden.dtype == jnp.float64 else jnp.float32)


# A call has five tensors that may have gradients (hidden, weight, bias, LoRA states, LoRA b), and other
# arrays without gradients: targets, class weights, temperatures, token weights, a seed, scales of a packed
# weight, and vocab_ids. An array that is not given has no elements. The options (attributes of the XLA call) and `split`
# are static. `split` is None, or (axis over which the vocabulary is split, bytes per token of a slice's
# statistics).
VOCAB_IDS = 11  # its index among all arrays
_FLOATS = ("float32", "bfloat16", "float16", "float64")


class Head(NamedTuple):
    """The arrays of a head, and its static options."""

    weight: Any  # the bytes of a packed weight; their type is an integer
    bias: Any
    lora_states: Any
    lora_b: Any
    scales: Any
    vocab_ids: Any
    options: dict[str, Any]

    @property
    def tensors(self) -> tuple[Any, Any, Any, Any]:
        return self.weight, self.bias, self.lora_states, self.lora_b

    @property
    def beside(self) -> tuple[Any, Any]:
        return self.scales, self.vocab_ids


def read_head(hidden: Any, weight: Any, bias: Any, vocab_ids: Any, layout: str, prefix: str = "") -> Head:
    """Reads a head, and checks it against hidden states. Messages call its arguments by their names with
    `prefix`."""
    options: dict[str, Any] = {}
    states = lora_b = scales = jnp.zeros((0, 0), jnp.float32)
    if isinstance(weight, LoraWeight):
        states, lora_b = _read_lora(weight, hidden, prefix)
        weight = weight.weight
    if isinstance(weight, PackedWeight):
        options[f"{prefix}packing"] = weight.packing
        size = weight.shape[1]
        weight, scales = _arrays_of(weight, prefix)
        dtype = jnp.float32
    else:
        weight = jnp.asarray(weight)
        if weight.ndim != 2 or not jnp.issubdtype(weight.dtype, jnp.floating):
            what = f"{prefix}weight is {weight.dtype} of shape {weight.shape}"
            raise ValueError(f"{what}: it must have 2 axes of floats, or be a PackedWeight or a LoraWeight")
        size = weight.shape[1 if layout == "vocab_hidden" else 0]
        dtype = weight.dtype
    if layout not in ("vocab_hidden", "hidden_vocab"):
        raise ValueError(f"{prefix}layout = {layout!r} is none of vocab_hidden, hidden_vocab")
    if hidden.shape[-1] != size:
        raise ValueError(
            f"{prefix}hidden has {hidden.shape[-1]} columns, but {prefix}weight, {layout}, has {size}"
        )
    if bias is None:
        bias = jnp.zeros((0,), dtype)
    elif jnp.ndim(bias) != 1 or jnp.size(bias) == 0:
        raise ValueError(f"{prefix}bias has shape {jnp.shape(bias)}: it must have one axis, and at least one entry")
    bias = jnp.asarray(bias)
    return Head(weight, bias, states, lora_b, scales, checked_ids(vocab_ids, f"{prefix}vocab_ids"), options)


def _read_lora(lora: LoraWeight, hidden: Any, prefix: str) -> tuple[Any, Any]:
    """The states scale * hidden @ a.T, [N, r], in the type of sums, and b. JAX computes the gradients of
    hidden and a from the states' gradient."""
    lora.check()
    a, b = jnp.asarray(lora.a), jnp.asarray(lora.b)
    for name, array in (("a", a), ("b", b)):
        what = f"{prefix}weight.{name} is {array.dtype}"
        if array.dtype.name not in _FLOATS:
            raise ValueError(f"{what}: it must be {', '.join(_FLOATS[:-1])} or {_FLOATS[-1]}")
        if (array.dtype == jnp.float64) != (hidden.dtype == jnp.float64):
            raise ValueError(f"{what}, and {prefix}hidden is {hidden.dtype}: both or neither must be float64")
    if hidden.shape[-1] != a.shape[1]:
        raise ValueError(f"{prefix}weight.a has {a.shape[1]} columns but {prefix}hidden has {hidden.shape[-1]}")
    dropped = hidden if lora.dropout is None else lora.dropout(hidden)
    sums = float_type(hidden).dtype
    states = jnp.matmul(dropped.astype(sums), a.astype(sums).T, precision=jax.lax.Precision.HIGHEST)
    return (states * jnp.asarray(lora.scale, sums)).reshape(-1, a.shape[0]), b


def _arrays_of(packed: PackedWeight, prefix: str) -> tuple[Any, Any]:
    """The data and scales of a packed weight, checked."""
    rows, cols = packed.shape
    data, scales = (x if x is None or isinstance(x, jax.Array) else np.asarray(x) for x in (packed.data, packed.scales))
    kind = "int8" if packed.packing == "int8" else "uint8"
    if data.dtype != kind:
        what = f"{prefix}weight.data is {data.dtype}"
        raise ValueError(f"{what}: with packing = {packed.packing!r} it must be {kind}")
    if scales is None:
        return jnp.asarray(data), jnp.zeros((0, 0), jnp.float32)
    dtype, shape = scales.dtype, scales.shape
    if dtype != "float32":
        raise ValueError(f"{prefix}weight.scales is {dtype}: it must be float32")
    if len(shape) not in (1, 2) or shape[0] != rows or (len(shape) == 2 and (shape[1] == 0 or cols % shape[1] != 0)):
        what = f"{prefix}weight.scales has shape {tuple(shape)}"
        raise ValueError(f"{what}: for each of the {rows} rows it must have one number, or a number that divides {cols}")
    return jnp.asarray(data), jnp.asarray(scales)


def checked_ids(ids: Any, name: str) -> Any:
    if ids is None:
        return jnp.zeros((0,), jnp.int32)
    ids = token_ids(name, ids)
    if ids.ndim != 1 or ids.shape[0] == 0:
        raise ValueError(f"{name} has shape {ids.shape}: it must have one axis, and at least one entry")
    return ids


def entries_of(weight: Any, vocab_ids: Any, layout: str) -> int:
    """The number of vocabulary entries of a call."""
    return vocab_ids.shape[0] or weight.shape[1 if layout == "hidden_vocab" else 0]


def slices(name: str, arrays: Any, options: Any, split: Any) -> Any:
    """The arguments for a slice of the vocabulary: the index of its first entry, and the statistics of all
    slices."""
    empty = (jnp.zeros((0,), jnp.int32), jnp.zeros((0,), jnp.uint8))
    if split is None:
        return empty
    axis, token_bytes = split
    hidden = arrays[0]
    entries = entries_of(arrays[1], arrays[VOCAB_IDS], dict(options)["layout"])
    first = (jax.lax.axis_index(axis) * entries).astype(jnp.int32).reshape(1)
    bytes_of_slice = jax.ShapeDtypeStruct((hidden.shape[0], token_bytes), jnp.uint8)
    mine = call(f"{name}_slice", bytes_of_slice, (*arrays, first, empty[1]), options)
    return first, jax.lax.all_gather(mine, axis)


def same(values: Any, split: Any) -> Any:
    """The values, which are equal on all devices of the axis, cast so that JAX knows it."""
    if split is None:
        return values
    first = jax.lax.axis_index(split[0]) == 0
    return jax.tree.map(lambda x: jax.lax.psum(jnp.where(first, x, 0), split[0]), values)


def seed_of(given: dict[str, Any]) -> Any:
    """Removes the seed of sampled gradients from the options and returns it as an array, so that a new seed
    does not retrace the call. Only the lower 32 bits of a traced seed are used."""
    seed = given.pop("seed", None)
    if seed is None:
        return jnp.zeros((0,), jnp.int32)
    seed = seed if hasattr(seed, "dtype") else np.asarray(seed)
    if not jnp.issubdtype(seed.dtype, jnp.integer):
        raise TypeError(f"seed is {seed.dtype}: it must be an integer")
    if not isinstance(seed, jax.core.Tracer) and seed.dtype.itemsize > 4:
        value = np.asarray(seed).item()
        if not -(2**31) <= value < 2**31:
            raise ValueError(f"seed = {value} must be from -2^31 to 2^31 - 1: JAX calls take 32 bits")
    return jax.lax.stop_gradient(jnp.asarray(seed)).astype(jnp.int32).reshape(1)


def check_narrowed(name: str, ids: Any) -> None:
    """Raises if JAX would truncate an id. Without jax_enable_x64 it keeps the lower half of an int64, which
    may be a different valid id."""
    if jax.config.jax_enable_x64 or not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu":
        return
    for value in (ids.min(initial=0), ids.max(initial=0)):
        if not -(2**31) <= int(value) < 2**31:
            raise ValueError(f"{name} holds {value}: JAX only keeps 32 bits, unless jax_enable_x64 is set")


def token_ids(name: str, ids: Any) -> Any:
    """Token ids as int32 or int64. Other integers are converted."""
    check_narrowed(name, ids)
    ids = jnp.asarray(ids)
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(f"{name} is {ids.dtype}: token ids are integers")
    if ids.dtype in (jnp.int32, jnp.int64):
        return ids
    if ids.dtype in (jnp.uint32, jnp.uint64):
        ids = jnp.minimum(ids, 2**31 - 1)  # outside every vocabulary, like the id
    return ids.astype(jnp.int32)


def check_targets(hidden: Any, targets: Any) -> None:
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(f"targets has shape {targets.shape}: hidden's leading axes are {hidden.shape[:-1]}")


def numbers_of(name: str, given: Any, lead: tuple[int, ...]) -> Any:
    """One number per token, with hidden's leading axes or flat, as a flat array; empty if they are not given."""
    exact = jnp.float64 if jax.config.jax_enable_x64 else jnp.float32
    if given is None:
        return jnp.zeros((0,), exact)
    if jnp.shape(given) not in (lead, (math.prod(lead),)):
        raise ValueError(f"{name} has shape {jnp.shape(given)}: hidden's leading axes are {lead}")
    return jax.lax.stop_gradient(jnp.asarray(given, exact)).reshape(-1)


def _check_ranges(given: dict[str, Any]) -> None:
    """Raises for gradient options outside their ranges when a call is traced, even if its gradient is never
    computed."""
    options = {name: given[name] for name in ("noise", "theta", "tolerance") if name in given}
    if options:
        one = np.ones((1, 1), np.float32)
        plan("cross_entropy", hidden=one, weight=one, targets=np.zeros(1, np.int64), d_hidden=one.copy(), **options)


def attributes_of(task: str, given: dict[str, Any], context: Context | None) -> dict[str, Any]:
    """The options of a call as attributes for XLA."""
    if given.get("reduction", "mean") is None:
        raise ValueError("None is not a valid value for reduction")
    _check_ranges(given)
    types = {bool: np.bool_, int: np.int64, float: np.float64}
    attributes = _core.jax_attributes(task, given, context)
    return {name: types.get(type(value), lambda x: x)(value) for name, value in attributes.items()}
