# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The gradients of the tensors of a call of logitless.jax: those that something is differentiated by, and no other ones.

The tensors are hidden, weight, bias, and the states and b of a LoRA. A list of those that are wanted has None in the place
of each other one. What a forward keeps for a backward is one tree whatever is wanted, and sizes tell: a compiled function
that is differentiated by other arguments than before would be taken for the one that it was (JAX 0.10).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ._jax_call import VOCAB_IDS, axes_of, call, vary

_TENSORS = 5
_OF_ENTRIES = (1, 2, 4)  # which tensors have a row, or a number, for each entry of the vocabulary


def differentiable(function: Any, forward: Any, backward: Any, static: tuple[int, ...]) -> Any:
    """The function of (tensors, others, ...) with these halves; `static` are the places of its arguments that are no
    arrays."""
    made = jax.custom_vjp(function, nondiff_argnums=static)
    made.defvjp(forward, backward, symbolic_zeros=True)
    # A shard_map that is not compiled takes no custom_vjp with symbolic zeros, but a jit around one.
    return jax.jit(made, static_argnums=static, inline=True)


def opened(tensors: Any, others: Any) -> tuple[Any, Any]:
    """All arrays of a call, and the wanted tensors, of what the forward of a custom_vjp with symbolic zeros gets."""
    return tuple(x.value for x in (*tensors, *others)), tuple(x.value if x.perturbed else None for x in tensors)


def gradient_types(wanted: Any, vocab_ids: Any, options: Any) -> Any:
    """What a call gives for its tensors: nothing for those that are not wanted, and of a head the entries that the call
    is over. What float16 would lose before it is scaled stays in float32."""
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
    """What a forward that has made the gradients leaves for scaled(); of the tensors their types, where these do."""
    chosen = arrays[VOCAB_IDS].shape[0] > 0
    like = tuple(x if chosen else jnp.zeros((0,), x.dtype) for x in arrays[:_TENSORS])
    return tuple(grads), like, arrays[VOCAB_IDS]


def scaled(kept: Any, upstream: Any, options: Any, split: Any = None) -> Any:
    """The gradients that kept_of() has kept, times the one of the loss."""
    grads, like, vocab_ids = kept
    upstream = _upstream_of(upstream, grads, split)
    grads = tuple(grad * upstream if grad.size else None for grad in grads)
    return _of_tensors(grads, like, vocab_ids, options)


def marked(arrays: Any, wanted: Any) -> Any:
    """What a forward leaves for made_again(): all arrays of its call, and which tensors are wanted."""
    return arrays, tuple(jnp.zeros((0 if like is None else 1,), jnp.bool) for like in wanted)


def made_again(name: str, kept: Any, upstream: Any, options: Any, split: Any = None) -> Any:
    """The gradients from a call that makes the logits again; it takes the arrays, and `upstream` behind them."""
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
    """Gradients of the tensors' types, and those of chosen entries, where there are such, in the places of these, among
    zeros. Those of an entry that is chosen twice are added."""

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
    """The gradient of what same() returned, on each device. A shard_map that does not track over which axes values
    vary hands out equal parts of it."""
    if isinstance(upstream, jax.custom_derivatives.SymbolicZero):
        upstream = jnp.zeros(upstream.shape, upstream.dtype)
    axes = axes_of(*tensors)
    if split is not None and split[0] not in axes:
        upstream = jax.lax.psum(upstream, split[0])
    return vary(upstream, axes - axes_of(upstream))
