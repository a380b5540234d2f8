# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Rules of LazyLogits for divergences: F.kl_div() of two models' log-probabilities, or of their mixture."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._lazy_columns import arguments_of
from ._lazy_logits import LazyLogits, LazyTerm, rule
from ._lazy_rules import is_last, rows_key
from ._torch_distillation import distillation_loss


class _Stack(LazyTerm):
    """torch.stack() of two tensors of log-probabilities."""

    def __init__(self, a: LazyLogits, b: LazyLogits) -> None:
        self.logits = a
        self.pair = (a, b)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((2, *self.logits.shape))

    def dense(self, reader: str) -> Tensor:
        return torch.stack([logps.dense(reader) for logps in self.pair])


class _Mixture(LazyTerm):
    """log(e^a p + e^b q), with e^a + e^b = 1."""

    def __init__(self, stack: _Stack) -> None:
        self.logits = stack.logits
        self.stack = stack

    def dense(self, reader: str) -> Tensor:
        return torch.logsumexp(self.stack.dense(reader), dim=0)

    def weight_of(self, logps: LazyLogits) -> float | None:
        """The weight of a member, by its log-probabilities; None if it is none."""
        return next((math.exp(m.shift) for m in self.stack.pair if _is_same(m, logps)), None)


def _is_same(a: LazyLogits, b: LazyLogits) -> bool:
    return a.columns is b.columns and torch.equal(a.rows, b.rows)


class _Divergence(LazyTerm):
    """Elements of one or two F.kl_div(): a factor times KL(target, input) of each `part`, a pair (target,
    input)."""

    def __init__(self, parts: list[tuple[float, LazyLogits, Any]]) -> None:
        self.parts = parts
        self.logits = parts[0][1]

    def dense(self, reader: str) -> Tensor:
        made = [
            factor * torch.nn.functional.kl_div(
                input.dense(reader), target.dense(reader), reduction="none", log_target=True
            )
            for factor, target, input in self.parts
        ]
        return sum(made[1:], made[0])

    def times(self, factor: float) -> _Divergence:
        return _Divergence([(factor * f, target, input) for f, target, input in self.parts])

    def of_rows(self, key: Any) -> _Divergence:
        """The elements of the rows that an index selects."""
        made: dict[int, Any] = {}

        def selected(lazy: Any) -> Any:
            if id(lazy) not in made:
                if isinstance(lazy, _Mixture):
                    made[id(lazy)] = _Mixture(_Stack(*map(selected, lazy.stack.pair)))
                else:
                    made[id(lazy)] = lazy.but(rows=lazy.rows[key])
            return made[id(lazy)]

        return _Divergence([(f, selected(target), selected(input)) for f, target, input in self.parts])

    def _named(self) -> tuple[str, float, float, LazyLogits, LazyLogits] | None:
        """The loss type, beta, a factor, the student and the teacher, as distillation_loss() knows them."""
        if len(self.parts) == 1 and isinstance(self.parts[0][2], LazyLogits):
            factor, target, input = self.parts[0]
            if not target.attached:
                return "forward_kl", 0.5, factor, input, target
            return None if input.attached else ("reverse_kl", 0.5, factor, target, input)
        if len(self.parts) != 2 or not all(isinstance(part[2], _Mixture) for part in self.parts):
            return None
        (f, student, mixture), (g, teacher, other) = sorted(self.parts, key=lambda part: not part[1].attached)
        # The tensors of a mixture's weights may have the type of the logits.
        close = 16 * torch.finfo(self.dtype).eps
        weights = [mixture.weight_of(student), mixture.weight_of(teacher)]
        if mixture is not other or teacher.attached or None in weights or _is_same(student, teacher):
            return None
        wrong = (abs(w - x / (f + g)) > close for w, x in zip(weights, (f, g)))
        return None if any(wrong) else ("jsd", g / (f + g), f + g, student, teacher)

    def values(self, reduction: str) -> Any:
        """The sum over the vocabulary, and with reduction="sum" also over the rows."""
        named = self._named()
        if named is None:
            return NotImplemented
        loss_type, beta, factor, student, teacher = named
        head = arguments_of(student.columns.absent, student.rows.reshape(-1))
        other = {f"teacher_{k}": v for k, v in arguments_of(teacher.columns.absent, teacher.rows.reshape(-1)).items()}
        options = {"beta": beta} if loss_type == "jsd" else {}
        with torch.set_grad_enabled(student.attached):
            result = distillation_loss(**head, **other, loss_type=loss_type, reduction=reduction, **options)
        return factor * student.value(result if reduction == "sum" else result.view(student.rows.shape))


@rule(LazyLogits, "stack")
def _stack(tensors: Any, dim: int = 0) -> Any:
    lazy = len(tensors) == 2 and all(isinstance(t, LazyLogits) and t.kind == "logps" for t in tensors)
    return _Stack(*tensors) if lazy and dim == 0 and tensors[0].shape == tensors[1].shape else NotImplemented


@rule(_Stack, "logsumexp")
def _logsumexp(stack: _Stack, dim: Any, keepdim: bool = False) -> Any:
    weights = sum(math.exp(logps.shift) for logps in stack.pair)
    sums_to_1 = abs(weights - 1) <= 16 * torch.finfo(stack.dtype).eps
    return _Mixture(stack) if dim == 0 and not keepdim and sums_to_1 else NotImplemented


@rule(LazyLogits, "kl_div")
@rule(_Mixture, "kl_div")
def _kl_div(
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    known = isinstance(input, _Mixture) or (isinstance(input, LazyLogits) and input.kind == "logps" and not input.shift)
    known = known and isinstance(target, LazyLogits) and target.kind == "logps" and not target.shift
    if not known or reduction != "none" or not log_target or size_average is not None or reduce is not None:
        return NotImplemented
    return _Divergence([(1.0, target, input)]) if target.shape == input.shape else NotImplemented


@rule(_Divergence, "mul", "rmul")
def _mul(a: Any, b: Any) -> Any:
    term, factor = (a, b) if isinstance(a, _Divergence) else (b, a)
    plain = not isinstance(factor, (LazyLogits, LazyTerm)) and (not isinstance(factor, Tensor) or factor.numel() == 1)
    if not plain or (isinstance(factor, Tensor) and factor.requires_grad):
        return NotImplemented
    return term.times(float(factor))


@rule(_Divergence, "add", "radd")
def _add(a: Any, b: Any) -> Any:
    if not (isinstance(a, _Divergence) and isinstance(b, _Divergence)):
        return NotImplemented
    return _Divergence(a.parts + b.parts)


@rule(_Divergence, "lerp")
def _lerp(start: Any, end: Any, weight: Any) -> Any:
    if not (isinstance(start, _Divergence) and isinstance(end, _Divergence)) or isinstance(weight, Tensor):
        return NotImplemented
    return _Divergence(start.times(1 - weight).parts + end.times(weight).parts)


@rule(_Divergence, "getitem")
def _getitem(term: _Divergence, key: Any) -> Any:
    selected = rows_key(term, key)
    return NotImplemented if selected is None else term.of_rows(selected)


@rule(_Divergence, "sum")
def _sum(term: _Divergence, dim: Any = None, keepdim: bool = False) -> Any:
    if keepdim or not (dim is None or is_last(term, dim)):
        return NotImplemented
    return term.values("sum" if dim is None else "none")


@rule(_Divergence, "mean")
def _mean(term: _Divergence) -> Any:
    total = term.values("sum")
    return total if total is NotImplemented else total / term.shape.numel()
