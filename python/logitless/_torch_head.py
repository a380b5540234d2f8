# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Reads the head of a call of logitless.torch, and shapes its gradients like its tensors."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._heads import with_weights
from ._torch_call import (
    cast_for_autocast,
    check_cpu,
    check_transforms,
    matrix_of,
    memory_like,
    rows_of,
    values_of,
)
from ._torch_ranks import Runner, check_group, local_parts
from .lora import HeadWeight, LoraWeight
from .packed import PackedWeight


class Head(NamedTuple):
    """Hidden states and their head."""

    # The tensors that may have gradients: input, weight, bias, and a LoRA's states and b.
    tensors: tuple[Tensor | None, ...]
    arguments: dict[str, Any]  # the other arguments for _core
    group: Any

    @property
    def input(self) -> Tensor:
        return self.tensors[0]  # type: ignore[return-value]

    def of(self, rows: Tensor) -> Head:
        """The same head for other hidden states."""
        return Head((rows, *self.tensors[1:]), self.arguments, self.group)

    @property
    def is_frozen(self) -> bool:
        """Tells whether hidden states require a gradient and the head does not. A LoRA's states do not count:
        they are computed from hidden states, and the same expected rows give both gradients."""
        hidden, weight, bias, *lora = self.tensors
        trained = any(t is not None and t.requires_grad for t in (weight, bias, *lora[1:]))
        return torch.is_grad_enabled() and hidden.requires_grad and not trained  # type: ignore[union-attr]


def read_head(
    hidden: Tensor,
    weight: HeadWeight,
    bias: Tensor | None,
    *,
    softcap: float = 0.0,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    prefix: str = "",
    names: tuple[str, str, str] = ("hidden", "weight", "bias"),
    **others: Tensor | None,
) -> Head:
    """Reads and checks a head. Messages call its arguments `names`, with `prefix`. `others` are further
    tensors that must be on the CPU."""
    check_transforms()
    check_group(group)
    if isinstance(weight, Tensor):
        hidden, weight, bias, group = local_parts(hidden, weight, bias, group, names)
    arguments: dict[str, Any] = {"softcap": softcap} if softcap else {}
    lora = weight if isinstance(weight, LoraWeight) else None
    if lora:
        check_cpu(**{prefix + names[0]: hidden})
    beside: tuple[Tensor, ...] = (lora_states(lora, hidden), lora.b) if lora else ()
    matrix = lora.weight if lora else weight
    if isinstance(matrix, PackedWeight):
        arguments = with_weights({**arguments, "weight": matrix})
        matrix = None
    check_cpu(**{prefix + name: tensor for name, tensor in zip(names, (hidden, matrix, bias))}, **others)
    if vocab_ids is not None:
        arguments["vocab_ids"] = checked_ids(f"{prefix}vocab_ids", vocab_ids)
    tensors = cast_for_autocast(hidden, matrix, bias, *beside)
    if not torch.is_grad_enabled():  # autograd's needs_input_grad ignores no_grad()
        tensors = [t if t is None else t.detach() for t in tensors]
    return Head(tuple(tensors), arguments, group)


def lora_states(lora: LoraWeight, hidden: Tensor) -> Tensor:
    """scale * dropout(hidden) @ a.T, with gradients."""
    for name in ("weight", "a", "b"):
        given = getattr(lora, name)
        if not isinstance(given, (Tensor, PackedWeight)):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(given).__name__}")
    check_cpu(a=lora.a, b=lora.b)
    if hidden.shape[-1] != lora.a.shape[1]:
        raise ValueError(f"a has {lora.a.shape[1]} columns but hidden has {hidden.shape[-1]}")
    dropped = hidden if lora.dropout is None else lora.dropout(hidden)
    return torch.nn.functional.linear(dropped.to(lora.a.dtype), lora.a) * lora.scale


def checked_ids(name: str, ids: Tensor) -> Tensor:
    """Checks vocab_ids; returns them contiguous."""
    kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
    if kind != torch.int64:
        raise TypeError(f"{name} is {kind}: it must be a tensor of torch.int64")
    if ids.dim() != 1 or ids.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(ids.shape)}: it must have one axis, and at least one entry")
    check_cpu(**{name: ids})
    return ids.contiguous()


def entries_of(weight: HeadWeight, vocab_ids: Tensor | None) -> int:
    """The number of vocabulary entries of the call."""
    if vocab_ids is not None:
        return vocab_ids.numel()
    return int(weight.shape[0])


class HeadTensors:
    """Arguments for _core of a call on a head, and memory for its gradients."""

    def __init__(self, tensors: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        hidden, weight, bias, *lora = tensors
        self.hidden = rows_of(values_of(hidden))
        self.weight = None if weight is None else matrix_of(values_of(weight))
        self.bias = None if bias is None else values_of(bias).contiguous()
        self.arguments = {**arguments, "hidden": self.hidden}
        if self.weight is not None:
            self.arguments["weight"] = self.weight
        if self.bias is not None:
            self.arguments["bias"] = self.bias
        self.lora_states = self.lora_b = None
        if lora:
            self.lora_states, self.lora_b = (values_of(x).reshape(-1, x.shape[-1]).contiguous() for x in lora)
            self.arguments.update(lora_states=self.lora_states, lora_b=self.lora_b)

    def outputs(self, needs: tuple[bool, ...]) -> list[Tensor | None]:
        ids = self.arguments.get("vocab_ids")
        entries = None if ids is None else ids.numel()
        grads: list[Tensor | None] = [None] * len(needs)
        outputs = (
            ("d_hidden", self.hidden, None),
            ("d_weight", self.weight, entries),
            ("d_bias", self.bias, entries),
            ("d_lora_states", self.lora_states, None),
            ("d_lora_b", self.lora_b, entries),
        )
        for i, (name, tensor, rows) in enumerate(outputs):
            if i < len(needs) and needs[i] and tensor is not None:
                grads[i] = self.arguments[name] = memory_like(tensor, rows)
        return grads


def check_backward_half(
    what: str,
    plan: Any,
    tensors: tuple[Tensor | None, ...],
    arguments: dict[str, Any],
    needs: tuple[bool, ...],
    run: Runner,
) -> None:
    """Raises, in the forward half, for options that would make the backward half fail. `plan` is the function
    of _core that plans the gradients."""
    if not any(needs):
        return
    if run.settings.options.get("plan") == "one_pass":
        setter = "set_options() or options()" if run.settings.given is None else "context"
        raise ValueError(
            f'plan = "one_pass", from {setter}, computes gradients with the loss, but {what} computes them in '
            'backward(): set plan="auto" or "two_pass"'
        )
    # Exact gradients run under every other plan. For the other modes, planning checks the ranges of their
    # options. In a group planning is a collective call, so it is skipped.
    if any(name in arguments for name in ("backward", "noise", "theta", "tolerance")) and run.group is None:
        call = HeadTensors(tensors, arguments)
        call.outputs(needs)
        plan(run.settings.context(), call.arguments)


def shaped_like(
    grads: list[Tensor | None], inputs: tuple[Tensor | None, ...], vocab_ids: Tensor | None = None
) -> list[Tensor | None]:
    """The gradients in the types and shapes of the inputs, as autograd expects them. With vocab_ids,
    gradients of the head are scattered into zeros; if an id occurs twice, its gradients are added."""
    out: list[Tensor | None] = []
    for i, (grad, x) in enumerate(zip(grads, inputs)):
        if grad is None or x is None:
            out.append(None)
        elif i in (0, 3) or vocab_ids is None:  # 0 and 3, hidden and LoRA states, have one row per token
            out.append(grad.to(x.dtype).view_as(x))
        else:
            out.append(torch.zeros_like(x).index_add_(0, vocab_ids, grad.to(x.dtype)))
    return out


@torch.no_grad()
def other_head(
    prefix: str, hidden: Tensor, weight: HeadWeight, bias: Tensor | None, vocab_ids: Tensor | None
) -> dict[str, Any]:
    """Arguments for _core of a teacher or a reference, read like a student's but without gradients and
    dropout."""
    if isinstance(weight, LoraWeight):
        weight = dataclasses.replace(weight, dropout=None)
    head = read_head(hidden, weight, bias, vocab_ids=vocab_ids, prefix=prefix)
    arguments = HeadTensors(head.tensors, head.arguments).arguments
    return {prefix + name: value for name, value in arguments.items()}
