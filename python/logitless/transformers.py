# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for Hugging Face transformers: a causal LM computes its loss fused, and holds no logits.

    from logitless.transformers import patch, unpatch
    patch(model)                            # any causal LM with an output head
    model(input_ids, labels=labels).loss    # the same loss and gradients, without the logits

Where labels are given, the head hands on its hidden states instead of logits, and what the model does to logits
before the loss (a scale, a softcap) is noted and done tile by tile. Without labels (generate(), scoring) the model
runs as it did.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import _core
from ._torch_call import Reduced, cast_for_autocast, check_cpu

__all__ = ["patch", "unpatch"]


class AbsentLogits:
    """Stands where a patched model's logits would: it knows what they would be, and has not computed them."""

    def __init__(self, hidden: Tensor, head: torch.nn.Linear, scale: Any = 1.0, softcap: Any = 0.0) -> None:
        self._hidden = hidden
        self._head = head
        self._scale = scale  # of the logits, or of the tangent's value
        self._softcap = softcap

    def _number(self, factor: Any) -> Any:
        if isinstance(factor, Tensor):
            if factor.numel() != 1 or factor.requires_grad:
                self._refuse("scaled by a tensor")
            return factor.item()
        return factor

    def __mul__(self, factor: Any) -> AbsentLogits:
        return AbsentLogits(self._hidden, self._head, self._scale * self._number(factor), self._softcap)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> AbsentLogits:
        return self * (1.0 / self._number(divisor))

    def tanh(self) -> AbsentLogits:
        if self._softcap or self._scale <= 0:
            self._refuse("capped twice")
        return AbsentLogits(self._hidden, self._head, 1.0, 1.0 / self._scale)

    def float(self) -> AbsentLogits:
        return self

    def to(self, *_: Any, **__: Any) -> AbsentLogits:
        return self

    def materialise(self) -> Tensor:
        """Computes the logits after all."""
        logits = torch.nn.functional.linear(self._hidden, self._head.weight, self._head.bias)
        if self._softcap:
            logits = torch.tanh(logits / self._softcap)
        return logits if self._scale == 1 else logits * self._scale

    def _refuse(self, what: str) -> Any:
        raise RuntimeError(
            f"logits are {what}: logitless computed the loss without them. patch(model, return_logits=True) returns "
            "them with the loss, a call without labels computes them, and unpatch(model) takes logitless away"
        )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.tanh, Tensor.tanh) and isinstance(args[0], cls):
            return args[0].tanh()
        absent = next((a for a in args if isinstance(a, cls)), None)
        name = getattr(function, "__name__", str(function))
        return absent._refuse(f"read, by {name}()") if absent is not None else NotImplemented

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse(f"read, by .{name}")

    def __getitem__(self, key: Any) -> Any:
        return self._refuse("read")

    def __repr__(self) -> str:
        return f"<logits of {tuple(self._hidden.shape[:-1])} tokens that logitless has not computed>"

    def loss(self, labels: Tensor, ignore_index: int, shift: bool, items: Any) -> Tensor:
        """The cross-entropy, float32: a mean, or a sum over `items`."""
        hidden, weight, bias = cast_for_autocast(self._hidden, self._head.weight, self._head.bias)
        if hidden is None or weight is None:
            raise AssertionError("a head has a weight")
        check_cpu(hidden=hidden, lm_head=weight, labels=labels)
        # softcap * tanh(logits / softcap) * (scale / softcap), or logits * scale.
        factor = self._scale / self._softcap if self._softcap else self._scale
        if factor <= 0:
            self._refuse(f"scaled by {factor}")
        arguments: dict[str, Any] = {
            "targets": labels.reshape(1) if labels.dim() == 0 else labels.contiguous(),
            "ignore_index": ignore_index,
            "shift": shift,
            "temperature": 1.0 / factor,
        }
        if items is not None:
            arguments["normaliser"] = float(items)
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        return Reduced.apply(hidden, weight, bias, self._softcap, _core.cross_entropy, arguments, dtype, {})


class _Patch:
    """What patch() put into a model, and what stood there before."""

    def __init__(self, model: Any, head: torch.nn.Linear, return_logits: bool) -> None:
        self.head = head
        self.return_logits = return_logits
        self.fused = False  # while a call with labels runs
        self.model_forward = model.forward
        self.head_forward = head.forward
        self.loss_function = model.loss_function
        self.had_loss_function = "_loss_function" in vars(model)

    def forward_of_model(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("labels") is None:  # without them a model computes no loss, whatever else it gets
            return self.model_forward(*args, **kwargs)
        self.fused = True
        try:
            output = self.model_forward(*args, **kwargs)
        finally:
            self.fused = False
        if self.return_logits and isinstance(output, tuple):
            return tuple(x.materialise() if isinstance(x, AbsentLogits) else x for x in output)
        if self.return_logits and isinstance(output.logits, AbsentLogits):
            output.logits = output.logits.materialise()
        return output

    def forward_of_head(self, hidden: Tensor) -> Any:
        return AbsentLogits(hidden, self.head) if self.fused else self.head_forward(hidden)

    def loss(
        self,
        logits: Any,
        labels: Tensor | None,
        vocab_size: int | None = None,
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if not isinstance(logits, AbsentLogits):
            return self.loss_function(
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs
            )
        if vocab_size is not None and vocab_size != self.head.out_features:
            raise ValueError(f"vocab_size = {vocab_size}, but the head has {self.head.out_features} vocabulary entries")
        given = labels if shift_labels is None else shift_labels
        if given is None:
            raise ValueError("neither labels nor shift_labels are given")
        return logits.loss(given, ignore_index, shift_labels is None, num_items_in_batch)


def _head_of(model: Any) -> torch.nn.Linear:
    """The model's output head; throws where it is more than a plain matrix."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        raise ValueError(f"{type(model).__name__} has no output head")
    if type(head) is not torch.nn.Linear:
        raise ValueError(f"the head is a {type(head).__module__}.{type(head).__name__}, not a torch.nn.Linear: merge "
                         "its adapter, or leave it unquantised")  # fmt: skip
    if torch.nn.utils.parametrize.is_parametrized(head):
        raise ValueError(
            "the head is parametrised (torch.nn.utils.parametrize): remove_parametrizations() first"
        )
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(head, name, None) for name in hooks):
        raise ValueError("the head has hooks, which would not see its logits: remove them")
    if not head.weight.is_floating_point():
        raise ValueError(f"the head's weight is {head.weight.dtype}")
    check_cpu(lm_head=head.weight)
    return head


def patch(model: Any, *, return_logits: bool = False) -> Any:
    """Makes model(..., labels=...) compute its loss fused; returns the model. With return_logits=True such a call
    also computes and returns its logits, which costs their memory; otherwise reading them says that they are absent.

    A head that is more than a plain torch.nn.Linear (an adapter, quantised, with hooks or parametrisations) is a
    ValueError, and so is a model whose loss is not that of a causal LM.
    """
    if hasattr(model, "_logitless"):
        raise ValueError("the model is patched already")
    loss_type = getattr(model, "loss_type", None)
    if loss_type not in (None, "ForCausalLM") or "_loss_function" in vars(model):
        raise ValueError(f"the model's loss ({loss_type}) is not that of a causal LM, or is one of your own")
    installed = _Patch(model, _head_of(model), return_logits)
    model._logitless = installed

    # A function, which generate() and Trainer see the signature of the model's own through.
    @functools.wraps(installed.model_forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return installed.forward_of_model(*args, **kwargs)

    model.forward = forward
    installed.head.forward = installed.forward_of_head  # type: ignore[method-assign]
    model.loss_function = installed.loss
    return model


def unpatch(model: Any) -> Any:
    """Takes away what patch() put into the model; returns the model."""
    installed = vars(model).pop("_logitless", None)
    if installed is None:
        raise ValueError("the model is not patched")
    del model.forward
    del installed.head.forward
    del model._loss_function
    return model
