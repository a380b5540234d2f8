# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""LazyLogits: the logits that the loss of a trainer gets. The operators by which losses read logits have
rules, which use the fused head. Any other operator computes the logits."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ._absent_logits import AbsentLogits, UnfollowedLogits
from ._lazy_columns import LazyColumns, dense_rows
from ._logits_on_read import _OF_NO_VALUES, _Reaches, _WithHistory


class LazyLogits(Tensor):
    """Logits, log-probabilities or probabilities (`kind`) [..., V] of some rows of one call of a head.

    `rows` [...] are indices of the flattened tokens of the call, and `shift` is a number that was added to
    log-probabilities.
    """

    @staticmethod
    def __new__(cls: Any, columns: LazyColumns, rows: Tensor, *_: Any) -> LazyLogits:
        absent = columns.absent
        shape = (*rows.shape, absent.shape[-1])
        return Tensor._make_wrapper_subclass(cls, shape, dtype=absent.dtype, device=absent.device)

    def __init__(
        self, columns: LazyColumns, rows: Tensor, kind: str = "logits", shift: float = 0.0, attached: bool = True
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.kind = kind
        self.shift = shift
        self._attached = attached

    @staticmethod
    def of(absent: AbsentLogits, names: set[str]) -> LazyLogits:
        """The logits of a call of a head. `names` are the columns that losses have read of this head so
        far."""
        rows = torch.arange(absent.shape[:-1].numel()).view(absent.shape[:-1])
        logits = LazyLogits(LazyColumns(absent, names), rows)
        # The autograd history of the logits, where DistributedDataParallel looks for used parameters.
        return _WithHistory.apply(logits, absent._hidden, *absent.head_tensors())

    @property
    def attached(self) -> bool:
        """Tells whether a value that is read now has gradients."""
        return self._attached and self.columns.can_attach()

    def but(self, **changes: Any) -> LazyLogits:
        """A copy with these changes, connected to this tensor's history."""
        state = dict(columns=self.columns, rows=self.rows, kind=self.kind, shift=self.shift, attached=self._attached)
        result = LazyLogits(*{**state, **changes}.values())
        return _WithHistory.apply(result, self) if result.attached and self.grad_fn is not None else result

    def _copy(self) -> LazyLogits:
        return LazyLogits(self.columns, self.rows, self.kind, self.shift, self._attached)

    def read(self, name: str, targets: Tensor | None = None) -> Tensor:
        """A column of token_stats() for these rows, float64 or int64."""
        return self.columns.read(name, self.rows, self.attached, targets)

    def value(self, result: Tensor) -> Tensor:
        """A statistic in the type of a loss, connected to this tensor's history."""
        if result.is_floating_point():
            result = result.to(torch.float64 if self.dtype == torch.float64 else torch.float32)
        return _Reaches.apply(result, self) if self.attached and self.grad_fn is not None else result

    def dense(self, reader: str) -> Tensor:
        """Computes the tensor, for this operator."""
        if self.attached and self.columns.is_new_reader(reader):
            warnings.warn(f"logitless: the loss reads all logits, by {reader}(): they are computed", stacklevel=5)
        with torch.set_grad_enabled(self.attached):
            logits = dense_rows(self.columns.absent, self.rows)
            if self.kind == "probs":
                return logits.softmax(-1)
            return logits.log_softmax(-1) + self.shift if self.kind == "logps" else logits

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _OF_NO_VALUES:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        return _run(function, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run_densely(function, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{self.kind} of shape {list(self.shape)} that logitless has not computed>"


class LazyTerm:
    """An expression [..., V] of LazyLogits. Its sum over V is a statistic."""

    logits: LazyLogits  # has the shape of the expression

    def dense(self, reader: str) -> Tensor:
        """Computes the expression, for this operator."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})

    @property
    def shape(self) -> torch.Size:
        return self.logits.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.logits.dtype

    @property
    def device(self) -> torch.device:
        return self.logits.device

    def dim(self) -> int:
        return self.logits.dim()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(Tensor, name)
        return lambda *args, **kwargs: _run(function, (self, *args), kwargs)


def _operator(name: str) -> Any:
    function = getattr(Tensor, name)
    return lambda self, *args: _run(function, (self, *args), {})


# Python looks up operators in the class.
for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "neg", "getitem", "len"):
    setattr(LazyTerm, f"__{_name}__", _operator(f"__{_name}__"))

_RULES: dict[tuple[str, type], Callable[..., Any]] = {}


def rule(of: type, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the rule for operators whose first lazy argument has the type `of`: a function that takes the
    operator's arguments, and returns NotImplemented if it needs the logits."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _RULES.update({(name, of): function for name in names})
        return function

    return register


def _takes(function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _first_lazy(args: Any) -> Any:
    flat = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return next((x for x in flat if isinstance(x, (LazyLogits, LazyTerm))), None)


def _run(function: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator by its rule, or on computed tensors."""
    name = getattr(function, "__name__", str(function))
    lazy = _first_lazy(args)
    if lazy is not None:
        if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            raise RuntimeError(
                f"the loss changes logits in place, by {name}(): logitless does not support that. "
                "logitless.trl.unpatch(trainer) removes it"
            )
        found = _RULES.get((name.removeprefix("__").removesuffix("__"), type(lazy)))
        if found is not None and _takes(found, args, kwargs):
            try:
                result = found(*args, **kwargs)
            except UnfollowedLogits:  # an operation that AbsentLogits cannot record
                result = NotImplemented
            if result is not NotImplemented:
                return result
    return _run_densely(function, args, kwargs)


def _run_densely(function: Any, args: Any, kwargs: Any) -> Any:
    name = getattr(function, "__name__", str(function))
    args, kwargs = tree_map_only((LazyLogits, LazyTerm), lambda lazy: lazy.dense(name), (args, kwargs))
    return function(*args, **kwargs)
