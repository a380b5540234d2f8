# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Logits that have not been computed: AbsentLogits is what a model's own code gets from its head, LogitsOnRead what
the caller of the model gets."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from . import _core
from ._heads import with_weights
from ._torch_call import current_context
from ._torch_head import HeadTensors, lora_states
from .lora import HeadWeight, LoraWeight, is_lora
from .torch import linear_cross_entropy


def _dtype_for(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> torch.dtype | None:
    """The type that Tensor.to() is asked for."""
    for value in (*arguments, *keywords.values()):
        if isinstance(value, torch.dtype):
            return value
        if isinstance(value, (Tensor, AbsentLogits)):
            return value.dtype
    return None


class UnfollowedLogits(RuntimeError):
    """Something wants logits of AbsentLogits, or does to them what these do not note."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"logits are {what}: logitless computed the loss without them. A call without labels computes them, so "
            "does one of a model in eval() mode; patch(model, return_logits=True) returns them with the loss, and "
            "unpatch(model) takes logitless away"
        )


class AbsentLogits:
    """Stands where logits would: the hidden states, the head, and what has been done to the logits since.

    The logits are softcap * tanh(raw / softcap) * scale / softcap, or raw * scale without a softcap, of type dtype.
    `cast` is the type in which autocast would have run the head, or None. `weight` is what stood for the head's weight
    when it was called: a head with adapters has another one when they are changed.
    """

    def __init__(
        self,
        hidden: Tensor,
        head: Any,
        scale: Any = 1.0,
        softcap: Any = 0.0,
        dtype: torch.dtype | None = None,
        cast: torch.dtype | None = None,
        weight: HeadWeight | None = None,
    ) -> None:
        self._hidden = hidden
        self._head = head
        self._weight = head.weight if weight is None else weight
        self._scale = scale
        self._softcap = softcap
        self.dtype = dtype or cast or hidden.dtype
        self._cast = cast

    @staticmethod
    def of(hidden: Tensor, head: Any, weight: HeadWeight) -> AbsentLogits:
        """What the head makes of the hidden states here, under autocast or not; `weight` stands for its own now."""
        cast = None
        if torch.is_autocast_enabled("cpu") and hidden.dtype != torch.float64:
            cast = torch.get_autocast_dtype("cpu")
        return AbsentLogits(hidden, head, cast=cast, weight=weight)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self._hidden.shape[:-1], self._weight.shape[0]))

    @property
    def device(self) -> torch.device:
        return self._hidden.device

    def _number(self, factor: Any) -> Any:
        if isinstance(factor, Tensor):
            if factor.numel() != 1 or factor.requires_grad:
                self.refuse("scaled by a tensor")
            return factor.item()
        return factor

    def _with(self, hidden: Tensor, scale: Any, softcap: Any, dtype: torch.dtype) -> AbsentLogits:
        return AbsentLogits(hidden, self._head, scale, softcap, dtype, self._cast, self._weight)

    def __mul__(self, factor: Any) -> AbsentLogits:
        return self._with(self._hidden, self._scale * self._number(factor), self._softcap, self.dtype)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> AbsentLogits:
        return self * (1.0 / self._number(divisor))

    def tanh(self) -> AbsentLogits:
        if self._softcap or self._scale <= 0:
            self.refuse("capped twice")
        return self._with(self._hidden, 1.0, 1.0 / self._scale, self.dtype)

    def float(self) -> AbsentLogits:
        return self.to(torch.float32)

    def to(self, *arguments: Any, **keywords: Any) -> AbsentLogits:
        dtype = _dtype_for(arguments, keywords) or self.dtype
        return self._with(self._hidden, self._scale, self._softcap, dtype)

    def contiguous(self) -> AbsentLogits:
        return self

    def __getitem__(self, key: Any) -> AbsentLogits:
        """Some of the tokens, with all of their logits, as logits[..., :-1, :] has."""
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, slice) or part is Ellipsis for part in parts):
            self.refuse("read")
        named = [part for part in parts if part is not Ellipsis]
        last_axis_named = len(named) == self._hidden.dim() or (Ellipsis in parts and parts[-1] is not Ellipsis)
        if last_axis_named and named[-1] != slice(None):
            self.refuse("read")
        return self._with(self._hidden[key], self._scale, self._softcap, self.dtype)

    def _operands(self) -> tuple[Tensor, HeadWeight, Tensor | None]:
        operands = (self._hidden, self._weight, getattr(self._head, "bias", None))
        if self._cast is None:
            return operands
        return tuple(x.to(self._cast) if isinstance(x, Tensor) else x for x in operands)  # type: ignore[return-value]

    def head_tensors(self) -> list[Tensor]:
        """What the logits are made of beside the hidden states."""
        lora = self._weight if isinstance(self._weight, LoraWeight) else None
        given = (lora.weight, lora.a, lora.b) if lora else (self._weight, getattr(self._head, "weight", None))
        return [tensor for tensor in given if isinstance(tensor, Tensor)]

    def _raw(self, hidden: Tensor, weight: HeadWeight, bias: Tensor | None) -> Tensor:
        if isinstance(weight, Tensor):
            return torch.nn.functional.linear(hidden, weight, bias)
        if isinstance(weight, LoraWeight):
            of_lora = torch.nn.functional.linear(lora_states(weight, hidden), weight.b)
            return self._raw(hidden, weight.weight, bias) + of_lora
        layer = self._head.get_base_layer() if is_lora(self._head) else self._head
        return layer(hidden)  # whose own code unpacks it

    def materialise(self) -> Tensor:
        """Computes the logits after all."""
        with torch.autocast("cpu", dtype=self._cast or torch.bfloat16, enabled=self._cast is not None):
            logits = self._raw(*self._operands())
        if self._softcap:
            logits = torch.tanh(logits / self._softcap)
        if self._scale != 1:
            logits = logits * self._scale
        return logits.to(self.dtype)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The most likely vocabulary entry of each token, tile by tile; of logits that are not rounded."""
        if dim not in (-1, self._hidden.dim() - 1) or keepdim:
            self.refuse("read, by argmax()")
        if self._scale <= 0:
            return self.materialise().argmax(-1)
        if self.shape[:-1].numel() == 0:
            return torch.empty(self.shape[:-1], dtype=torch.int64)
        targets = torch.zeros(self.shape[:-1].numel(), dtype=torch.int64)
        return self.token_stats(targets, argmax=True)["argmax"].view(self.shape[:-1])

    def spans(self, bounds: list[tuple[int, int]]) -> AbsentLogits:
        """The positions [begin, end) of each sequence, one sequence after the other: [N, V]."""
        parts = [states[begin:end] for states, (begin, end) in zip(self._hidden, bounds, strict=True)]
        return self._with(torch.cat(parts), self._scale, self._softcap, self.dtype)

    @property
    def factor(self) -> float:
        """What multiplies the logits, after their softcap where there is one."""
        return self._scale / self._softcap if self._softcap else self._scale

    def _arguments(self) -> dict[str, Any]:
        """The arguments of a call that makes no gradients, of one row a token."""
        hidden, weight, bias = self._operands()
        given: dict[str, Any] = {"softcap": self._softcap} if self._softcap else {}
        if not isinstance(weight, Tensor):
            given, weight = with_weights({**given, "weight": weight}), None  # type: ignore[assignment]
        arguments = HeadTensors((hidden, weight, bias), given).arguments
        arguments["hidden"] = arguments["hidden"].reshape(-1, self._hidden.shape[-1])
        return {**arguments, "temperature": 1.0 / self.factor}

    def token_stats(self, targets: Tensor, **wanted: Any) -> dict[str, Tensor]:
        """The columns of token_stats() with one target a token; of logits that are not rounded."""
        arguments = {**self._arguments(), "targets": targets, **wanted}
        columns = _core.token_stats(current_context(), arguments).columns()
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def set_logps(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Log-probabilities over each token's set of ids alone, which reads only their rows of the head: the differences
        in a set are those of the logits."""
        arguments = {**self._arguments(), "ids": ids, "id_offsets": offsets, "normalise_over": "set"}
        result, _ = _core.id_logps(current_context(), arguments)
        return torch.from_numpy(result["logps"])

    def loss(
        self,
        labels: Tensor,
        ignore_index: int,
        shift: bool,
        items: Any,
        label_smoothing: float = 0.0,
        **backward: Any,
    ) -> Tensor:
        """The cross-entropy, float32 (of float64 states float64): a mean, or a sum over `items`. `backward` says how its
        gradients are made."""
        hidden, weight, bias = self._operands()
        if self.factor <= 0:
            self.refuse(f"scaled by {self.factor}")
        if labels.numel() != hidden.shape[:-1].numel():
            raise ValueError(f"labels have shape {tuple(labels.shape)}, and logits {tuple(self.shape)}")
        labels = labels.reshape(hidden.shape[:-1])
        if items is not None:
            # A step without a label has 0 items: its loss is 0, as a mean over no token is.
            predicted = labels[..., 1:] if shift else labels
            items = items + (torch.as_tensor(items) == 0) * (predicted == ignore_index).all()
        return linear_cross_entropy(
            hidden,
            weight,
            labels,
            linear_bias=bias,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            softcap=self._softcap,
            temperature=1.0 / self.factor,
            shift=shift,
            normaliser=items,
            loss_dtype=torch.float64 if hidden.dtype == torch.float64 else torch.float32,
            **backward,
        )

    def refuse(self, what: str) -> Any:
        raise UnfollowedLogits(what)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.tanh, Tensor.tanh) and isinstance(args[0], cls):
            return args[0].tanh()
        absent = next((a for a in args if isinstance(a, cls)), None)
        name = getattr(function, "__name__", str(function))
        return absent.refuse(f"read, by {name}()") if absent is not None else NotImplemented

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.refuse(f"read, by .{name}")

    def __repr__(self) -> str:
        return f"<logits of shape {list(self.shape)} that logitless has not computed>"


# Operators that Python looks up in the class.
for _name in (
    "add",
    "radd",
    "sub",
    "rsub",
    "rtruediv",
    "matmul",
    "pow",
    "neg",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "iter",
    "setitem",
):
    setattr(
        AbsentLogits,
        f"__{_name}__",
        functools.partialmethod(lambda self, name, *_: self.refuse(f"read, by {name}()"), _name),
    )


class _WithHistory(torch.autograd.Function):
    """Logits as a result of what they are made of. Their gradient, [N, V], is never made: it is undefined."""

    @staticmethod
    def forward(ctx: Any, logits: LogitsOnRead, *tensors: Tensor | None) -> LogitsOnRead:  # type: ignore[override]
        ctx.set_materialize_grads(False)
        return logits._copy()

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[None, ...]:  # type: ignore[override]
        return (None,) * len(ctx.needs_input_grad)


class _Reaches(torch.autograd.Function):
    """A loss, and the logits beside it without a gradient of theirs."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, logits: LogitsOnRead) -> Tensor:  # type: ignore[override]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return upstream, None


# What a tensor answers without its values.
_OF_NO_VALUES = frozenset(
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "grad_fn", "is_leaf", "grad")
    + ("is_cuda", "is_meta", "is_sparse", "is_quantized", "is_nested")
) | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point, Tensor.is_complex}
_OF_NO_VALUES |= {torch.numel, torch.is_floating_point, torch.is_complex}


class LogitsOnRead(Tensor):
    """A tensor of logits that are computed when something reads them, and never where nothing does.

    Slices of tokens, casts and detach() wait, too, and argmax(-1) needs no logits. In a model that trains, whose loss
    was computed without the logits, reading them is an error that says so.
    """

    absent: AbsentLogits

    @staticmethod
    def __new__(cls: Any, absent: AbsentLogits, may_be_read: bool, has_history: bool = True) -> LogitsOnRead:
        return Tensor._make_wrapper_subclass(cls, absent.shape, dtype=absent.dtype, device=absent.device)

    def __init__(self, absent: AbsentLogits, may_be_read: bool, has_history: bool = True) -> None:
        self.absent = absent
        self._may_be_read = may_be_read
        self._has_history = has_history and torch.is_grad_enabled()  # as logits that are computed now would
        # Of tensors that have any.
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
        """The same, with its history also where gradients are off: DistributedDataParallel copies outputs in a function
        of autograd."""
        result = self._with(self.absent)
        result._has_history = self._has_history
        return result

    def _waits(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of an operator that needs no logits; NotImplemented from another."""
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
        """The same with the history of logits, in which DistributedDataParallel looks for parameters that are used."""
        bias = getattr(self.absent._head, "bias", None)
        tensors = (self.absent._hidden, *self.absent.head_tensors(), bias)
        return _WithHistory.apply(self, *tensors)

    def reached_from(self, loss: Tensor) -> Tensor:
        """A loss of the absent logits, whose backward passes by what these have passed since."""
        return _Reaches.apply(loss, self)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if self._computed is not None:
            return repr(self._computed)
        return repr(self.absent)
