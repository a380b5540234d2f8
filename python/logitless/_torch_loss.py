# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Losses under autograd: one number, or one a token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._torch_call import (
    HeadTensors,
    Reduced,
    check_versions,
    handed_over,
    is_frozen,
    shaped_like,
    versions_of,
)
from ._torch_options import seeded
from ._torch_ranks import in_group, run_in


class PerToken(torch.autograd.Function):
    """A loss a token: the backward, which gets an upstream gradient a token, computes the logits again, or
    takes what the forward has left for a frozen head. `halves` are
    the two functions of _core; `report` gets the forward's result."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        softcap: float,
        halves: tuple[Any, Any],
        arguments: dict[str, Any],
        dtype: torch.dtype,
        group: Any,
        report: dict[str, Any],
        frozen: bool,
    ) -> Tensor:
        call = HeadTensors(hidden, weight, bias, softcap)
        result, ctx.half = run_in(group, halves[0], {**call.arguments, **arguments}, frozen=frozen)
        ctx.save_for_backward(hidden, weight, bias)
        ctx.rest = (softcap, halves[1], arguments, tuple(ctx.needs_input_grad[:3]), group)
        ctx.versions = versions_of(arguments)
        report.update(result)
        return torch.from_numpy(result["per_token_loss"]).to(dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        softcap, backward, arguments, needs, group = ctx.rest
        check_versions(arguments, ctx.versions)
        inputs = ctx.saved_tensors  # once: a checkpoint gives them out no second time
        call = HeadTensors(*inputs, softcap)
        grads = call.outputs(needs)
        half = (ctx.half, upstream.double().tolist())
        run_in(group, backward, {**call.arguments, **arguments}, *half)
        grads = shaped_like(grads, inputs)
        return (*handed_over(grads, (upstream, *inputs)), *[None] * 7)


def loss_of(
    name: str,
    head: tuple[Tensor, Tensor, Tensor | None, float],
    reduction: str,
    arguments: dict[str, Any],
    dtype: torch.dtype | None,
    group: Any,
    shape: torch.Size,
    report: dict[str, Any] | None = None,
) -> Tensor:
    """The loss of that name in _core, of hidden states, weight, bias and softcap; of this shape where it is one a token.
    Without a dtype it is float32, or float64 for float64."""
    arguments = seeded(arguments)
    dtype = dtype or (torch.float64 if head[0].dtype == torch.float64 else torch.float32)
    report = {} if report is None else report
    if reduction == "none":
        halves = (getattr(_core, name + "_forward"), getattr(_core, name + "_backward"))
        frozen = is_frozen(*head[:3])
        return PerToken.apply(*head, halves, arguments, dtype, group, report, frozen).view(shape)
    return Reduced.apply(*head, in_group(getattr(_core, name), group), arguments, dtype, report)
