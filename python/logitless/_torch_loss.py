# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Losses under autograd: one number, or one a token. The functions' last arguments are the tensors of a Head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._heads import with_weights
from ._torch_call import (
    check_versions,
    current_context,
    handed_over,
    loss_tensor,
    not_finite_handed_on,
    type_of_loss,
    versions_of,
)
from ._torch_head import Head, HeadTensors, shaped_like
from ._torch_options import seeded
from ._torch_ranks import in_group, run_in


class Reduced(torch.autograd.Function):
    """A loss that is one number, and its gradients, in one call: the backward hands the gradients over, scaled. A
    second backward of the same graph computes them again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        function: Any,
        arguments: dict[str, Any],
        dtype: torch.dtype,
        report: dict[str, Any],
        *tensors: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.rest = (function, arguments, tuple(ctx.needs_input_grad[4:]))
        ctx.versions = versions_of(arguments)
        result, ctx.grads = Reduced._run(tensors, *ctx.rest)
        report.update(result)
        return loss_tensor(result["loss"], dtype)

    @staticmethod
    def _run(
        inputs: tuple[Any, ...], function: Any, arguments: dict[str, Any], needs: tuple[bool, ...]
    ) -> tuple[dict[str, Any], list[Tensor | None]]:
        call = HeadTensors(inputs, arguments)
        grads = call.outputs(needs)
        return function(current_context(), call.arguments), grads

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = ctx.grads
        inputs = ctx.saved_tensors  # once: a checkpoint gives them out no second time
        arguments = ctx.rest[1]
        if grads is None:
            check_versions(arguments, ctx.versions)
            _, grads = Reduced._run(inputs, *ctx.rest)
        ctx.grads = None
        scale = upstream.item()
        if scale != 1:
            for grad in grads:
                if grad is not None:
                    grad.mul_(scale)
        grads = shaped_like(grads, inputs, arguments.get("vocab_ids"))
        return (*[None] * 4, *handed_over(grads, (upstream, *inputs)))


class PerToken(torch.autograd.Function):
    """A loss a token: the backward, which gets an upstream gradient a token, computes the logits again, or
    takes what the forward has left for a frozen head. `halves` are
    the two functions of _core; `report` gets the forward's result."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        halves: tuple[Any, Any],
        arguments: dict[str, Any],
        dtype: torch.dtype,
        group: Any,
        report: dict[str, Any],
        frozen: bool,
        *tensors: Tensor | None,
    ) -> Tensor:
        call = HeadTensors(tensors, arguments)
        result, ctx.half = run_in(group, halves[0], call.arguments, frozen=frozen)
        ctx.save_for_backward(*tensors)
        ctx.rest = (halves[1], arguments, tuple(ctx.needs_input_grad[6:]), group)
        ctx.versions = versions_of(arguments)
        report.update(result)
        return torch.from_numpy(result["per_token_loss"]).to(dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        backward, arguments, needs, group = ctx.rest
        check_versions(arguments, ctx.versions)
        inputs = ctx.saved_tensors  # once: a checkpoint gives them out no second time
        call = HeadTensors(inputs, arguments)
        grads = call.outputs(needs)
        with not_finite_handed_on(upstream, grads):
            run_in(group, backward, call.arguments, ctx.half, upstream.double().tolist())
        grads = shaped_like(grads, inputs, arguments.get("vocab_ids"))
        return (*[None] * 6, *handed_over(grads, (upstream, *inputs)))


def loss_of(
    name: str,
    head: Head,
    reduction: str | None,
    arguments: dict[str, Any],
    loss_dtype: torch.dtype | None,
    shape: torch.Size,
    report: dict[str, Any] | None = None,
) -> Tensor:
    """The loss of that name in _core: of this shape where its reduction is "none", and otherwise one number. Without a
    loss_dtype it is float32, or float64 for float64."""
    arguments = seeded(with_weights({**head.arguments, **arguments}))
    dtype = type_of_loss(loss_dtype, torch.float64 if head.input.dtype == torch.float64 else torch.float32)
    report = {} if report is None else report
    if reduction == "none":
        halves = (getattr(_core, name + "_forward"), getattr(_core, name + "_backward"))
        return PerToken.apply(halves, arguments, dtype, head.group, report, head.is_frozen, *head.tensors).view(shape)
    return Reduced.apply(in_group(getattr(_core, name), head.group), arguments, dtype, report, *head.tensors)
