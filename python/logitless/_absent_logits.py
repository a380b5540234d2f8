# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""AbsentLogits: the placeholder for logits that a model's head returns without computing them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import Tensor

from . import _core
from ._heads import with_weights
from ._split_heads import SplitHead, check_gathered, check_lora_gathered, whole
from ._torch_call import current_context
from ._torch_head import HeadTensors, lora_states
from .lora import HeadWeight, LoraWeight, is_lora
from .packed import PackedWeight
from .torch import linear_cross_entropy


def _dtype_for(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> torch.dtype | None:
    """The dtype in the arguments of Tensor.to()."""
    for value in (*arguments, *keywords.values()):
        if isinstance(value, torch.dtype):
            return value
        if isinstance(value, (Tensor, AbsentLogits)):
            return value.dtype
    return None


class UnfollowedLogits(RuntimeError):
    """Raised if something reads AbsentLogits, or changes them in an unsupported way."""

    def __init__(self, what: str, after_the_loss: bool = False) -> None:
        self.what = what
        if after_the_loss:
            rest = (
                "logitless computed the loss without them. Calls without labels and calls in eval() mode compute them; "
                "patch(model, return_logits=True) returns them with the loss, and unpatch(model) removes logitless"
            )
        else:
            rest = (
                "the model does this before its loss, and logitless supports only scales, softcaps, casts, slices and "
                "masks of vocabulary entries. unpatch(model) removes logitless; calls without labels run as before"
            )
        super().__init__(f"logits are {what}: {rest}")


def _rows_of(weight: HeadWeight, entries: slice) -> HeadWeight:
    """The weight with only these vocabulary entries."""
    if isinstance(weight, LoraWeight):
        return dataclasses.replace(weight, weight=_rows_of(weight.weight, entries), b=weight.b[entries])
    if isinstance(weight, PackedWeight):
        scales = None if weight.scales is None else weight.scales[entries]
        return PackedWeight(weight.data[entries], weight.packing, scales)
    return weight[entries]


# A logit masked with this value or less has probability 0 in every type: exp(-745) is 0 in float64, and a
# model's unmasked logits are far above -1e4 + 745.
_NO_PROBABILITY = -1e4


class AbsentLogits:
    """A placeholder for logits: the hidden states, the head, and the operations applied to the logits since.

    The logits are tanh(raw / softcap) * scale, or raw * scale without a softcap, of type dtype. `entries`
    selects vocabulary entries (None: all). Where `masked` [V] is true, logits are `fill`. `cast` is the type
    in which autocast would have run the head, or None. `weight` and `bias` are the head's at the time of its
    call; changing an adapter changes them later. With `gathered`, the head has them only in a call of its own.
    `read_after_loss` is true once the loss has been computed.
    `is_slice` is true if an in-place operation would change other logits, too.
    """

    def __init__(
        self,
        hidden: Tensor,
        head: Any,
        weight: HeadWeight | None = None,
        bias: Tensor | None = None,
        *,
        scale: Any = 1.0,
        softcap: Any = 0.0,
        dtype: torch.dtype | None = None,
        cast: torch.dtype | None = None,
        entries: slice | None = None,
        masked: Tensor | None = None,
        fill: float = 0.0,
        is_slice: bool = False,
        read_after_loss: bool = False,
        gathered: bool = False,
    ) -> None:
        self._hidden = hidden
        self._head = head
        self._gathered = gathered
        self._weight, self._bias = weight, bias
        if weight is None and not gathered:
            self._weight, self._bias = head.weight, head.bias
        self._scale = scale
        self._softcap = softcap
        self.dtype = dtype or cast or hidden.dtype
        self._cast = cast
        self._entries = entries
        self._masked = masked
        self._fill = fill
        self._is_slice = is_slice
        self._read_after_loss = read_after_loss

    @staticmethod
    def of(
        hidden: Tensor, head: Any, weight: HeadWeight | None = None, bias: Tensor | None = None
    ) -> AbsentLogits:
        """The placeholder for head(hidden) under the current autocast. `weight` and `bias` are the head's
        current ones; without a weight, the head has it only in a call of its own."""
        cast = None
        if torch.is_autocast_enabled("cpu") and hidden.dtype != torch.float64:
            cast = torch.get_autocast_dtype("cpu")
        return AbsentLogits(hidden, head, weight, bias, cast=cast, gathered=weight is None)

    def _with(self, hidden: Tensor | None = None, **changes: Any) -> AbsentLogits:
        """A copy with these changes."""
        state: dict[str, Any] = {
            "scale": self._scale,
            "softcap": self._softcap,
            "dtype": self.dtype,
            "cast": self._cast,
            "entries": self._entries,
            "masked": self._masked,
            "fill": self._fill,
            "read_after_loss": self._read_after_loss,
            "gathered": self._gathered,
        }
        state.update(changes)
        return AbsentLogits(self._hidden if hidden is None else hidden, self._head, self._weight, self._bias, **state)

    def handed_out(self) -> AbsentLogits:
        """A copy for the caller of the model: reading it reports that the loss has been computed."""
        return self._with(read_after_loss=True)

    @property
    def _head_entries(self) -> int:
        return int(self._head.out_features if self._weight is None else self._weight.shape[0])

    @property
    def _entry_count(self) -> int:
        entries = self._head_entries
        return entries if self._entries is None else len(range(*self._entries.indices(entries)))

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self._hidden.shape[:-1], self._entry_count))

    @property
    def ndim(self) -> int:
        return self._hidden.dim()

    def dim(self) -> int:
        return self._hidden.dim()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @property
    def device(self) -> torch.device:
        return self._hidden.device

    def _number(self, factor: Any) -> Any:
        if isinstance(factor, Tensor):
            if factor.numel() != 1 or factor.requires_grad:
                self.refuse("scaled by a tensor")
            return factor.item()
        return factor

    def mul(self, factor: Any) -> AbsentLogits:
        number = self._number(factor)
        return self._with(scale=self._scale * number, fill=self._fill * number)

    def div(self, divisor: Any) -> AbsentLogits:
        number = self._number(divisor)
        if number == 0:
            self.refuse("divided by 0")
        return self.mul(1.0 / number)

    def neg(self) -> AbsentLogits:
        return self.mul(-1.0)

    __mul__ = __rmul__ = multiply = mul
    __truediv__ = divide = true_divide = div
    __neg__ = negative = neg

    def tanh(self) -> AbsentLogits:
        if self._softcap:
            self.refuse("capped twice")
        if self._masked is not None:
            self.refuse("masked before their softcap")
        if self._scale == 0:
            self.refuse("scaled by 0")
        # tanh is odd: the sign of the scale can be applied after it.
        sign = 1.0 if self._scale > 0 else -1.0
        return self._with(scale=sign, softcap=sign / self._scale)

    def masked_fill(self, mask: Tensor, value: Any) -> AbsentLogits:
        """The logits with some vocabulary entries set to this value for all tokens."""
        if mask.shape[-1:] != self.shape[-1:] or mask.numel() != mask.shape[-1]:
            self.refuse(f"masked token by token, by a mask of shape {tuple(mask.shape)}")
        value = float(self._number(value))
        mask = mask.reshape(-1)
        if self._masked is not None:
            if value != self._fill:
                self.refuse(f"masked twice, by {self._fill} and {value}")
            mask = mask | self._masked
        return self._with(masked=mask, fill=value)

    def _become(self, other: AbsentLogits) -> AbsentLogits:
        """Stores the result of an in-place operation in this object."""
        if self._is_slice:
            self.refuse("changed in place, in a slice of them")
        self._scale, self._softcap, self._masked, self._fill = other._scale, other._softcap, other._masked, other._fill
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = key if isinstance(key, tuple) else (key,)
        rest = parts[:-1]
        of_all_tokens = all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in rest)
        if not of_all_tokens or not (len(parts) == self.dim() or any(part is Ellipsis for part in rest)):
            self.refuse("written to, token by token")
        mask = torch.zeros(self._entry_count, dtype=torch.bool, device=self.device)
        mask[parts[-1]] = True
        self._become(self.masked_fill(mask, value))

    def float(self) -> AbsentLogits:
        return self.to(torch.float32)

    def double(self) -> AbsentLogits:
        return self.to(torch.float64)

    def half(self) -> AbsentLogits:
        return self.to(torch.float16)

    def bfloat16(self) -> AbsentLogits:
        return self.to(torch.bfloat16)

    def to(self, *arguments: Any, **keywords: Any) -> AbsentLogits:
        dtype = _dtype_for(arguments, keywords) or self.dtype
        return self if dtype == self.dtype else self._with(dtype=dtype)

    type_as = to

    def contiguous(self) -> AbsentLogits:
        return self

    def clone(self) -> AbsentLogits:
        return self._with()

    def __getitem__(self, key: Any) -> AbsentLogits:
        """A slice of the tokens, such as logits[..., :-1, :], or of the vocabulary, such as
        logits[..., :n]."""
        parts = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(part, slice) or part is Ellipsis for part in parts):
            self.refuse("read")
        named = [part for part in parts if part is not Ellipsis]
        last_axis_named = len(named) == self._hidden.dim() or (Ellipsis in parts and parts[-1] is not Ellipsis)
        if not last_axis_named or named[-1] == slice(None):
            return self._with(self._hidden[key], is_slice=True)
        tokens = parts[: len(parts) - 1 - (parts[-1] is Ellipsis)]
        return self._with(self._hidden[(*tokens, slice(None))], is_slice=True)._of_entries(named[-1])

    def _of_entries(self, part: slice) -> AbsentLogits:
        entries = range(self._head_entries)
        kept = (entries if self._entries is None else entries[self._entries])[part]
        if len(kept) == 0 or kept.step < 1:
            self.refuse("read")
        masked = None if self._masked is None else self._masked[part]
        return self._with(entries=slice(kept.start, kept.stop, kept.step), masked=masked, is_slice=True)

    def _in_head(self, function: Any) -> Any:
        """function(hidden states, weight, bias), in a call of the head if it has its weight only there."""
        if not self._gathered:
            return function(self._hidden, self._weight, self._bias)
        if self._read_after_loss:
            raise SplitHead
        return self._head(self._hidden, logitless=function)

    def _operands(
        self, hidden: Tensor, weight: HeadWeight, bias: Tensor | None, by_slices: bool = False
    ) -> tuple[Tensor, HeadWeight, Tensor | None]:
        """The operands of the product. With `by_slices` a DTensor may stay this rank's slice of the head."""
        lora = weight if isinstance(weight, LoraWeight) else None
        check = check_lora_gathered if lora and not self._read_after_loss else check_gathered
        check(bias, *((lora.weight, lora.a, lora.b) if lora else (weight,)))
        if not by_slices or self._entries is not None or self._masked is not None:
            weight, bias = whole(weight), whole(bias)
        if self._entries is not None:
            weight = _rows_of(weight, self._entries)
            bias = None if bias is None else bias[self._entries]
        operands = [hidden, weight, bias]
        if self._cast is not None:
            operands = [x.to(self._cast) if isinstance(x, Tensor) else x for x in operands]
        return tuple(operands)  # type: ignore[return-value]

    def check(self) -> None:
        """Raises if the fused head cannot compute the logits with the operations recorded so far."""
        if not self.factor > 0:
            self.refuse(f"scaled by {self.factor}, which is not above 0")
        if self._masked is not None and self._softcap:
            self.refuse("masked after their softcap")
        if self._masked is not None and not self._fill <= _NO_PROBABILITY:
            self.refuse(f"masked by {self._fill}, which is not at most {_NO_PROBABILITY}")

    def _masked_operands(self, *given: Any, by_slices: bool = False) -> tuple[Tensor, HeadWeight, Tensor | None]:
        """The operands of the fused head. A mask becomes -inf in the bias."""
        self.check()
        hidden, weight, bias = self._operands(*given, by_slices=by_slices)
        if self._masked is None:
            return hidden, weight, bias
        bias = hidden.new_zeros(self._entry_count) if bias is None else bias
        return hidden, weight, bias.masked_fill(self._masked, -torch.inf)

    def head_tensors(self) -> list[Tensor]:
        """The tensors of the head on which the logits depend."""
        lora = self._weight if isinstance(self._weight, LoraWeight) else None
        given: tuple[Any, ...] = (lora.weight, lora.a, lora.b) if lora else (self._weight,)
        if isinstance(self._weight, PackedWeight):
            given = (getattr(self._head, "weight", None),)
        return [tensor for tensor in (*given, self._bias) if isinstance(tensor, Tensor)]

    def _raw(self, hidden: Tensor, weight: HeadWeight, bias: Tensor | None) -> Tensor:
        if isinstance(weight, Tensor):
            return torch.nn.functional.linear(hidden, weight, bias)
        if isinstance(weight, LoraWeight):
            of_lora = torch.nn.functional.linear(lora_states(weight, hidden), weight.b)
            return self._raw(hidden, weight.weight, bias) + of_lora
        layer = self._head.get_base_layer() if is_lora(self._head) else self._head
        logits = layer(hidden)  # a packed weight: the layer's own code unpacks it
        return logits if self._entries is None else logits[..., self._entries]

    def materialise(self) -> Tensor:
        """Computes the logits."""
        with torch.autocast("cpu", dtype=self._cast or torch.bfloat16, enabled=self._cast is not None):
            logits = self._in_head(lambda *given: self._raw(*self._operands(*given)))
        if self._softcap:
            logits = torch.tanh(logits / self._softcap)
        if self._scale != 1:
            logits = logits * self._scale
        if self._masked is not None:
            logits = logits.masked_fill(self._masked, self._fill)
        return logits.to(self.dtype)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The most likely vocabulary entry of each token, computed tile by tile from unrounded logits."""
        if dim not in (-1, self._hidden.dim() - 1) or keepdim:
            self.refuse("read, by argmax()")
        if self._scale <= 0:
            return self.materialise().argmax(-1)
        if self.shape[:-1].numel() == 0:
            return torch.empty(self.shape[:-1], dtype=torch.int64)
        targets = torch.zeros(self.shape[:-1].numel(), dtype=torch.int64)
        return self.token_stats(targets, argmax=True)["argmax"].view(self.shape[:-1])

    def spans(self, bounds: list[tuple[int, int]]) -> AbsentLogits:
        """The positions [begin, end) of each sequence, concatenated: [N, V]."""
        parts = [states[begin:end] for states, (begin, end) in zip(self._hidden, bounds, strict=True)]
        return self._with(torch.cat(parts))

    @property
    def factor(self) -> float:
        """The factor by which the logits (capped, if they have a softcap) are multiplied."""
        return self._scale / self._softcap if self._softcap else self._scale

    def _called(self, function: Any, more: dict[str, Any]) -> Any:
        """The result of a function of _core without gradients, with one row per token."""
        return self._in_head(lambda *given: function(current_context(), {**self._arguments(*given), **more}))

    def _arguments(self, *given: Any) -> dict[str, Any]:
        hidden, weight, bias = self._masked_operands(*given)
        options: dict[str, Any] = {"softcap": self._softcap} if self._softcap else {}
        if not isinstance(weight, Tensor):
            options, weight = with_weights({**options, "weight": weight}), None  # type: ignore[assignment]
        arguments = HeadTensors((hidden, weight, bias), options).arguments
        arguments["hidden"] = arguments["hidden"].reshape(-1, self._hidden.shape[-1])
        return {**arguments, "temperature": 1.0 / self.factor, "dtype": "float64"}

    def token_stats(self, targets: Tensor, **wanted: Any) -> dict[str, Tensor]:
        """The columns of token_stats() for one target per token, from unrounded logits."""
        columns, _ = self._called(_core.token_stats, {"targets": targets, **wanted})
        return {name: torch.from_numpy(column) for name, column in columns.items()}

    def set_logps(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Log-probabilities normalised over each token's set of ids, reading only their rows of the head.
        Differences within a set equal differences of logits."""
        more = {"ids": ids, "id_offsets": offsets, "normalise_over": "set"}
        result, _ = self._called(_core.id_logps, more)
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
        """The cross-entropy: the mean, or the sum divided by `items`. It is float32, or float64 for float64
        states. `backward` are the options for sampled or certified gradients."""
        self.check()
        if labels.shape != self._hidden.shape[:-1]:
            raise ValueError(f"labels have shape {tuple(labels.shape)}, but logits {tuple(self.shape)}")
        predicted = labels[..., 1:] if shift else labels
        if self._masked is not None and not torch.compiler.is_compiling():
            self._check_masked(predicted[predicted != ignore_index])
        if items is not None:
            # A step without labels has 0 items. Its loss is 0, as for a mean over no tokens.
            items = items + (torch.as_tensor(items) == 0) * (predicted == ignore_index).all()

        def fused(*given: Any) -> Tensor:
            hidden, weight, bias = self._masked_operands(*given, by_slices=True)
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
                num_items_in_batch=items,
                loss_dtype=torch.float64 if hidden.dtype == torch.float64 else torch.float32,
                **backward,
            )

        return self._in_head(fused)

    def _check_masked(self, labels: Tensor) -> None:
        in_head = labels[(labels >= 0) & (labels < self._entry_count)]
        wrong = in_head[self._masked[in_head]]  # type: ignore[index]
        if wrong.numel():
            raise ValueError(
                f"labels have vocabulary entry {int(wrong[0])}, which the model masks by {self._fill}: its loss would "
                f"be {-self._fill}. Give ignore_index there"
            )

    def refuse(self, what: str) -> Any:
        raise UnfollowedLogits(what, self._read_after_loss)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", str(function))
        absent = next((a for a in args if isinstance(a, cls)), None)
        if absent is None:
            return NotImplemented
        if name == "mul" and args[0] is not absent:  # tensor * logits
            args = (absent, args[0])
        if name in _FOLLOWED and args[0] is absent and not kwargs:
            return getattr(absent, name)(*args[1:])
        return absent.refuse(f"read, by {name}()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_") and name[:-1] in _FOLLOWED:
            return lambda *arguments: self._become(getattr(self, name[:-1])(*arguments))
        return self.refuse(f"read, by .{name}")

    def __repr__(self) -> str:
        return f"<logits of shape {list(self.shape)} that logitless has not computed>"


# Functions of torch that AbsentLogits has as methods.
_FOLLOWED = {"mul", "multiply", "div", "divide", "true_divide", "neg", "negative", "tanh", "masked_fill", "clone"}

# Operators that Python looks up in the class, so __getattr__ does not see them.
for _name in (
    "add",
    "radd",
    "sub",
    "rsub",
    "rtruediv",
    "matmul",
    "pow",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "iter",
):
    setattr(
        AbsentLogits,
        f"__{_name}__",
        functools.partialmethod(lambda self, name, *_: self.refuse(f"read, by {name}()"), _name),
    )
