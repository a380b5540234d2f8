# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""LogitsOnRead: the logits that the caller of a patched model gets. They are computed when they are read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ._absent_logits import AbsentLogits


class _WithHistory(torch.autograd.Function):
    """Connects logits to the tensors they depend on in the autograd graph. The gradient of the logits,
    [N, V], is never computed: it is undefined."""

    @staticmethod
    def forward(ctx: Any, logits: LogitsOnRead, *tensors: Tensor | None) -> LogitsOnRead:  # type: ignore[override]
        ctx.set_materialize_grads(False)
        return logits._copy()

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[None, ...]:  # type: ignore[override]
        return (None,) * len(ctx.needs_input_grad)


class _Reaches(torch.autograd.Function):
    """Connects a loss to logits in the autograd graph, without a gradient for the logits."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, logits: LogitsOnRead) -> Tensor:  # type: ignore[override]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return upstream, None


# Attributes and functions of a tensor that do not need its values.
_OF_NO_VALUES = frozenset(
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "grad_fn", "is_leaf", "grad")
    + ("is_cuda", "is_meta", "is_sparse", "is_quantized", "is_nested")
) | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point, Tensor.is_complex}
_OF_NO_VALUES |= {torch.numel, torch.is_floating_point, torch.is_complex}


class LogitsOnRead(Tensor):
    """A tensor of logits that are only computed when something reads them.

    Slices, casts and detach() are lazy, too, and argmax(-1) does not need the logits. While the model trains
    and its loss was computed without the logits, reading them raises an error.
    """

    absent: AbsentLogits

    @staticmethod
    def __new__(cls: Any, absent: AbsentLogits, may_be_read: bool, has_history: bool = True) -> LogitsOnRead:
        return Tensor._make_wrapper_subclass(cls, absent.shape, dtype=absent.dtype, device=absent.device)

    def __init__(self, absent: AbsentLogits, may_be_read: bool, has_history: bool = True) -> None:
        self.absent = absent.handed_out()
        self._may_be_read = may_be_read
        self._has_history = has_history and torch.is_grad_enabled()  # as for logits computed now
        # Inference tensors have no version.
        self._versions = [(t, t._version) for t in absent.head_tensors() if not t.is_inference()]
        self._computed: Tensor | None = None

    def compute(self, reader: str) -> Tensor:
        if self._computed is None:
            if not self._may_be_read:
                self.absent.refuse(f"read, by {reader}()")
            self._check_head()
            with torch.set_grad_enabled(self._has_history):
                self._computed = self.absent.materialise()
        return self._computed

    def _check_head(self) -> None:
        if any(tensor._version != version for tensor, version in self._versions):
            raise RuntimeError(
                "the head was changed between the call of the model and the reading of its logits"
            )

    def _with(self, absent: AbsentLogits, has_history: bool = True) -> LogitsOnRead:
        result = LogitsOnRead(absent, self._may_be_read, self._has_history and has_history)
        result._versions = self._versions
        return result

    def _copy(self) -> LogitsOnRead:
        """A copy that keeps its history even if gradients are off: DistributedDataParallel copies outputs
        inside an autograd function."""
        result = self._with(self.absent)
        result._has_history = self._has_history
        return result

    def _waits(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of an operator that does not need the logits; NotImplemented for other operators."""
        absent = self.absent
        if self._computed is not None:
            return NotImplemented
        if function in (Tensor.argmax, torch.argmax):
            dim = arguments[0] if arguments else keywords.get("dim")
            keeps = arguments[1] if len(arguments) > 1 else keywords.get("keepdim", False)
            if dim not in (-1, self.dim() - 1) or keeps:
                return NotImplemented
            self._check_head()
            return absent.argmax(-1)
        if function is Tensor.__getitem__:
            try:
                return self._with(absent[arguments[0]])
            except RuntimeError:
                return NotImplemented
        if function in (Tensor.detach, torch.detach):
            return self._with(absent, has_history=False)
        if function in (Tensor.clone, torch.clone) and self._has_history:
            return self._copy()
        if function in (Tensor.contiguous, Tensor.cpu) and not arguments and not keywords:
            return self
        if function is Tensor.float and not keywords:
            return self._with(absent.float())
        if (
            function is Tensor.to
            and len(arguments) == 1
            and isinstance(arguments[0], torch.dtype)
            and not keywords
        ):
            return self._with(absent.to(arguments[0]))
        return NotImplemented

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _OF_NO_VALUES:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        if args and isinstance(args[0], cls):
            result = args[0]._waits(function, args[1:], kwargs)
            if isinstance(result, cls) and result._has_history and args[0].grad_fn is not None:
                return _WithHistory.apply(result, args[0])
            if result is not NotImplemented:
                return result
        return cls._of_values(function, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls._of_values(function, args, kwargs or {})

    @classmethod
    def _of_values(cls, function: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(function, "__name__", str(function))
        args, kwargs = tree_map_only(cls, lambda logits: logits.compute(name), (args, kwargs))
        return function(*args, **kwargs)

    def waiting_for_a_loss(self) -> LogitsOnRead:
        """A copy with the autograd history of the logits, where DistributedDataParallel looks for used
        parameters."""
        return _WithHistory.apply(self, self.absent._hidden, *self.absent.head_tensors())

    def reached_from(self, loss: Tensor) -> Tensor:
        """The loss of the absent logits. Its backward also runs the autograd functions applied to this tensor
        since."""
        return _Reaches.apply(loss, self)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if self._computed is not None:
            return repr(self._computed)
        return repr(self.absent)
