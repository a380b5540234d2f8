# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Rules of LazyLogits: how operators select rows, scale logits, and read statistics of them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._absent_logits import AbsentLogits
from ._lazy_logits import LazyLogits, LazyTerm, rule

_TopK = collections.namedtuple("_TopK", ["values", "indices"])


def is_last(lazy: Any, dim: Any) -> bool:
    """Tells whether dim is the axis of the vocabulary."""
    return dim in (-1, lazy.dim() - 1)


# Operators that select rows.


def rows_key(lazy: Any, key: Any) -> Any:
    """The part of an index that selects rows; None if it selects vocabulary entries, or adds axes."""
    parts = key if isinstance(key, tuple) else (key,)
    if any(part is None for part in parts):
        return None
    named = [part for part in parts if part is not Ellipsis]
    taken = sum(part.dim() if isinstance(part, Tensor) and part.dtype == torch.bool else 1 for part in named)
    if taken < lazy.dim() and (len(named) == len(parts) or parts[-1] is Ellipsis):
        return tuple(parts)
    last = parts[-1]
    return tuple(parts[:-1]) if isinstance(last, slice) and last == slice(None) else None


@rule(LazyLogits, "getitem")
def _getitem(logits: LazyLogits, key: Any) -> Any:
    selected = rows_key(logits, key)
    return NotImplemented if selected is None else logits.but(rows=logits.rows[selected])


@rule(LazyLogits, "view", "reshape")
def _reshape(logits: LazyLogits, *shape: Any) -> Any:
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if not all(isinstance(size, int) for size in sizes) or sizes[-1] not in (-1, logits.shape[-1]):
        return NotImplemented
    if sizes[-1] == -1 and torch.Size(sizes[:-1]).numel() != logits.rows.numel():
        return NotImplemented
    return logits.but(rows=logits.rows.reshape(sizes[:-1]))


def _divided(lazy: LazyLogits, function: Callable[..., Any], size: Any, dim: int) -> Any:
    if is_last(lazy, dim):
        return NotImplemented
    return tuple(lazy.but(rows=rows) for rows in function(lazy.rows, size, dim % lazy.dim()))


@rule(LazyLogits, "chunk")
def _chunk(logits: LazyLogits, chunks: int, dim: int = 0) -> Any:
    return _divided(logits, torch.chunk, chunks, dim)


@rule(LazyLogits, "split")
def _split(logits: LazyLogits, split_size: Any, dim: int = 0) -> Any:
    return _divided(logits, torch.split, split_size, dim)


@rule(LazyLogits, "unbind")
def _unbind(logits: LazyLogits, dim: int = 0) -> Any:
    if is_last(logits, dim):
        return NotImplemented
    return tuple(logits.but(rows=rows) for rows in logits.rows.unbind(dim))


@rule(LazyLogits, "contiguous", "clone", "cpu")
def _same(logits: LazyLogits) -> Any:
    return logits.but()


@rule(LazyLogits, "detach")
def _detach(logits: LazyLogits) -> Any:
    return logits.but(attached=False)


# Operators that change the logits.


def _transformed(logits: LazyLogits, absent: AbsentLogits) -> Any:
    if logits.kind != "logits":
        return NotImplemented
    return logits.but(columns=logits.columns.of(absent))


@rule(LazyLogits, "float")
def _float(logits: LazyLogits) -> Any:
    return _to(logits, torch.float32)


@rule(LazyLogits, "double")
def _double(logits: LazyLogits) -> Any:
    return _to(logits, torch.float64)


@rule(LazyLogits, "to")
def _to(logits: LazyLogits, to: Any) -> Any:
    if not isinstance(to, torch.dtype):
        return logits if torch.device(to).type == "cpu" else NotImplemented
    return logits if to == logits.dtype else _transformed(logits, logits.columns.absent.to(to))


@rule(LazyLogits, "neg")
def _neg(logits: LazyLogits) -> Any:
    return _transformed(logits, logits.columns.absent.neg())


@rule(LazyLogits, "tanh")
def _tanh(logits: LazyLogits) -> Any:
    return _transformed(logits, logits.columns.absent.tanh())


@rule(LazyLogits, "div", "true_divide", "divide")
def _div(logits: Any, divisor: Any) -> Any:
    if not isinstance(logits, LazyLogits) or isinstance(divisor, (LazyLogits, LazyTerm)):
        return NotImplemented
    return _transformed(logits, logits.columns.absent.div(divisor))


@rule(LazyLogits, "mul", "multiply")
def _mul(a: Any, b: Any) -> Any:
    if isinstance(a, LazyLogits) and isinstance(b, LazyLogits):
        return _entropy_term(a, b)
    logits, factor = (a, b) if isinstance(a, LazyLogits) else (b, a)
    return NotImplemented if isinstance(factor, LazyTerm) else _transformed(logits, logits.columns.absent.mul(factor))


@rule(LazyLogits, "add")
def _add(a: Any, b: Any) -> Any:
    logps, shift = (a, b) if isinstance(a, LazyLogits) else (b, a)
    if logps.kind != "logps" or isinstance(shift, (LazyLogits, LazyTerm)):
        return NotImplemented
    if isinstance(shift, Tensor) and (shift.numel() != 1 or shift.requires_grad):
        return NotImplemented
    return logps.but(shift=logps.shift + float(shift))


@rule(LazyLogits, "log_softmax")
def _log_softmax(logits: LazyLogits, dim: int, dtype: Any = None, _stacklevel: int = 3) -> Any:
    if logits.kind != "logits" or not is_last(logits, dim) or dtype not in (None, logits.dtype):
        return NotImplemented
    return logits.but(kind="logps")


@rule(LazyLogits, "softmax")
def _softmax(logits: LazyLogits, dim: int, dtype: Any = None, _stacklevel: int = 3) -> Any:
    if logits.kind != "logits" or not is_last(logits, dim) or dtype not in (None, logits.dtype):
        return NotImplemented
    return logits.but(kind="probs")


@rule(LazyLogits, "exp")
def _exp(logps: LazyLogits) -> Any:
    return logps.but(kind="probs") if logps.kind == "logps" and logps.shift == 0 else NotImplemented


# Operators that read statistics.


@rule(LazyLogits, "argmax")
def _argmax(logits: LazyLogits, dim: Any = None, keepdim: bool = False) -> Any:
    return logits.read("argmax") if is_last(logits, dim) and not keepdim else NotImplemented


@rule(LazyLogits, "logsumexp")
def _logsumexp(logits: LazyLogits, dim: Any, keepdim: bool = False) -> Any:
    if logits.kind != "logits" or not is_last(logits, dim):
        return NotImplemented
    lse = logits.value(logits.read("lse"))
    return lse.unsqueeze(-1) if keepdim else lse


def _at(lazy: LazyLogits, ids: Tensor) -> Any:
    """The logits or log-probabilities at ids [..., K]."""
    if lazy.kind == "probs":
        return NotImplemented
    if ids.shape[-1] == 1:
        logps = lazy.read("logp", ids.squeeze(-1)).unsqueeze(-1)
    else:
        with torch.set_grad_enabled(lazy.attached):
            logps = lazy.columns.id_logps(lazy.rows, ids)
    offset = lazy.read("lse").unsqueeze(-1) if lazy.kind == "logits" else lazy.shift
    return lazy.value(logps + offset)


@rule(LazyLogits, "gather")
def _gather(lazy: LazyLogits, dim: int, index: Tensor) -> Any:
    rows = lazy.rows
    if not is_last(lazy, dim) or index.dim() != lazy.dim():
        return NotImplemented
    if index.shape[:-1] != rows.shape:  # gather() takes an index that is smaller than its input
        if any(i > n for i, n in zip(index.shape, rows.shape)):
            return NotImplemented
        lazy = lazy.but(rows=rows[tuple(slice(size) for size in index.shape[:-1])])
    return _at(lazy, index)


@rule(LazyLogits, "take_along_dim")
def _take_along_dim(lazy: LazyLogits, indices: Tensor, dim: Any = None) -> Any:
    if dim is None or not is_last(lazy, dim) or indices.shape[:-1] != lazy.rows.shape:
        return NotImplemented
    return _at(lazy, indices)


@rule(LazyLogits, "topk")
def _topk(logits: LazyLogits, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if logits.kind != "logits" or not is_last(logits, dim) or not largest or not 1 <= k <= min(256, logits.shape[-1]):
        return NotImplemented
    ids = logits.columns.top(logits.rows, k)
    return _TopK(_at(logits, ids), ids)


@rule(LazyLogits, "mean")
def _mean(logits: LazyLogits, dim: Any = None) -> Any:
    if logits.kind != "logits" or logits.attached or not (dim is None or is_last(logits, dim)):
        return NotImplemented  # the mean over the vocabulary has no gradient
    # cross is the mean over the vocabulary of log p = logit - lse.
    means = logits.value(logits.read("cross") + logits.read("lse"))
    return means.mean() if dim is None else means


@rule(LazyLogits, "cross_entropy")
def _cross_entropy(
    input: LazyLogits,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if any(x is not None for x in (weight, size_average, reduce)) or label_smoothing or reduction == "none":
        return NotImplemented
    if input.kind != "logits" or target.shape != input.rows.shape or target.dim() != 1:
        return NotImplemented
    active = target != ignore_index
    counted = input.but(rows=input.rows[active])
    losses = counted.value(-counted.read("logp", target[active]))
    return losses.sum() if reduction == "sum" else losses.mean()


class EntropyTerm(LazyTerm):
    """p log p."""

    def __init__(self, logps: LazyLogits) -> None:
        self.logits = logps

    def dense(self, reader: str) -> Tensor:
        logps = self.logits.dense(reader)
        return logps.exp() * logps


def _entropy_term(a: LazyLogits, b: LazyLogits) -> Any:
    probs, logps = (a, b) if a.kind == "probs" else (b, a)
    same = probs.columns is logps.columns and torch.equal(probs.rows, logps.rows)
    is_term = same and probs.kind == "probs" and logps.kind == "logps" and logps.shift == 0
    return EntropyTerm(logps) if is_term else NotImplemented


@rule(EntropyTerm, "sum")
def _sum_of_entropies(term: EntropyTerm, dim: Any = None, keepdim: bool = False) -> Any:
    if not is_last(term, dim) or keepdim:
        return NotImplemented
    return term.logits.value(-term.logits.read("entropy"))
