# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Gradients of the tensors of a logitless.jax call. Only the requested ones are computed.

The tensors are hidden, weight, bias, and the states and b of a LoRA. A list of wanted tensors holds None for
each tensor without a requested gradient. The residuals that a forward keeps for its backward always form the
same pytree, and sizes of arrays encode which gradients are wanted: JAX 0.10 may otherwise reuse a compiled
function for other argnums.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ._jax_call import VOCAB_IDS, axes_of, call, vary

_TENSORS = 5
_OF_ENTRIES = (1, 2, 4)  # tensors with one row, or one number, per vocabulary entry


def differentiable(function: Any, forward: Any, backward: Any, static: tuple[int, ...]) -> Any:
    """function(tensors, others, ...) with these forward and backward halves. `static` are the positions of
    arguments that are not arrays."""
    made = jax.custom_vjp(function, nondiff_argnums=static)
    made.defvjp(forward, backward, symbolic_zeros=True)
    # An eager shard_map does not accept a custom_vjp with symbolic zeros, but accepts a jit around it.
    return jax.jit(made, static_argnums=static, inline=True)


def opened(tensors: Any, others: Any) -> tuple[Any, Any]:
    """Unpacks the arguments that a custom_vjp with symbolic zeros passes to its forward: all arrays of the
    call, and the wanted tensors."""
    return tuple(x.value for x in (*tensors, *others)), tuple(x.value if x.perturbed else None for x in tensors)


def gradient_types(wanted: Any, vocab_ids: Any, options: Any) -> Any:
    """The types of a call's gradients: empty for unwanted tensors, and only the entries of vocab_ids for a
    head. The gradient of a float16 tensor is float32 until it is scaled, so that small values are not
    lost."""
    entries = vocab_ids.shape[0]

    def of(i: int, like: Any) -> Any:
        if like is None:
            return jax.ShapeDtypeStruct((0,) if i == 2 else (0, 0), jnp.float32)
        shape = list(like.shape)
        if entries and i in _OF_ENTRIES:
            shape[_entry_axis(i, options)] = entries
        return jax.ShapeDtypeStruct(shape, jnp.float32 if like.dtype == jnp.float16 else like.dtype)

    return tuple(of(i, like) for i, like in enumerate(wanted))


def kept_of(grads: Any, arrays: Any) -> Any:
    """The residuals for scaled(), of a forward that computed the gradients. The tensors themselves are only
    kept with vocab_ids, otherwise just their types."""
    chosen = arrays[VOCAB_IDS].shape[0] > 0
    like = tuple(x if chosen else jnp.zeros((0,), x.dtype) for x in arrays[:_TENSORS])
    return tuple(grads), like, arrays[VOCAB_IDS]


def scaled(kept: Any, upstream: Any, options: Any, split: Any = None) -> Any:
    """The gradients from kept_of(), times the upstream gradient."""
    grads, like, vocab_ids = kept
    upstream = _upstream_of(upstream, grads, split)
    grads = tuple(grad * upstream if grad.size else None for grad in grads)
    return _of_tensors(grads, like, vocab_ids, options)


def marked(arrays: Any, wanted: Any) -> Any:
    """The residuals for made_again(): all arrays of the call, and which tensors are wanted."""
    return arrays, tuple(jnp.zeros((0 if like is None else 1,), jnp.bool) for like in wanted)


def made_again(name: str, kept: Any, upstream: Any, options: Any, split: Any = None) -> Any:
    """The gradients, from the call `name`, which computes the logits again. Its arguments are the arrays,
    then `upstream`."""
    arrays, marks = kept
    wanted = tuple(like if mark.size else None for like, mark in zip(arrays, marks))
    if all(like is None for like in wanted):
        return wanted
    upstream = tuple(_upstream_of(u, arrays[:_TENSORS], split) for u in upstream)
    vocab_ids = arrays[VOCAB_IDS]
    grads = call(name, gradient_types(wanted, vocab_ids, options), (*arrays, *upstream), options)
    grads = tuple(None if like is None else grad for grad, like in zip(grads, wanted))
    return _of_tensors(grads, wanted, vocab_ids, options)


def _entry_axis(i: int, options: Any) -> int:
    return 1 if i == 1 and dict(options)["layout"] == "hidden_vocab" else 0


def _of_tensors(grads: Any, tensors: Any, vocab_ids: Any, options: Any) -> Any:
    """The gradients in the tensors' types. With vocab_ids, gradients of the head are scattered into zeros; if
    an id occurs twice, its gradients are added."""

    def of(i: int, part: Any, like: Any) -> Any:
        if part is None:
            return None
        part = part.astype(like.dtype)
        if i not in _OF_ENTRIES or not vocab_ids.shape[0]:
            return part
        zeros = jnp.zeros_like(like)
        at = (slice(None), vocab_ids) if _entry_axis(i, options) else vocab_ids
        return vary(zeros, axes_of(part) - axes_of(zeros)).at[at].add(part)

    return tuple(of(i, part, like) for i, (part, like) in enumerate(zip(grads, tensors)))


def _upstream_of(upstream: Any, tensors: Any, split: Any) -> Any:
    """The upstream gradient of a result of same(), on each device. If the shard_map does not track varying
    axes, it gives each device an equal part of the gradient, and the parts are summed here."""
    if isinstance(upstream, jax.custom_derivatives.SymbolicZero):
        upstream = jnp.zeros(upstream.shape, upstream.dtype)
    axes = axes_of(*tensors)
    if split is not None and split[0] not in axes:
        upstream = jax.lax.psum(upstream, split[0])
    return vary(upstream, axes - axes_of(upstream))
