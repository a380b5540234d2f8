# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Autograd functions for losses: one number, or one per token. Their last arguments are the tensors of a
Head."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import _core
from ._heads import with_weights
from ._torch_call import (
    Kept,
    handed_over,
    loss_tensor,
    not_finite_handed_on,
    one_gradient,
    results_in,
    type_of_results,
)
from ._torch_head import Head, HeadTensors, check_backward_half, shaped_like
from ._torch_options import seeded
from ._torch_ranks import Runner, runner_of


@dataclasses.dataclass(frozen=True)
class CrossEntropyStats:
    """The statistics that linear_cross_entropy(..., return_stats=True) returns along with the loss. They have
    no gradients; for a gradient of lse, use token_logps(..., lse=True).

    predicted_ids, logps and lse have target's shape. predicted_ids are the ids of the largest logits; ties go
    to the lower id. logps are the targets' log-probabilities, and lse the log-sum-exp of the logits: float32,
    or float64 if loss_dtype or the type of hidden states is float64. For ignored tokens the three are -1, 0
    and 0.

    The other members are over the tokens that are not ignored: tokens is their number, accuracy the share
    whose predicted id is the target, mean_nll the mean of -logps, perplexity its exponential, and z_loss the
    part of the loss that is z-loss. plan names the plan that ran, such as "two_pass". It is "forward_only"
    for a call without gradients, and with reduction="none", where backward() computes the gradients.
    """

    predicted_ids: Tensor
    logps: Tensor
    lse: Tensor
    tokens: int
    accuracy: float
    mean_nll: float
    perplexity: float
    z_loss: float
    plan: str

    @staticmethod
    def of(report: dict[str, Any], shape: torch.Size, dtype: torch.dtype) -> CrossEntropyStats:
        # A call without tokens has no column of ids.
        ids = report.get("per_token_argmax", np.empty(0, np.int64))
        columns = {"predicted_ids": ids, "logps": report["per_token_logps"], "lse": report["per_token_lse"]}
        tensors = {name: torch.from_numpy(column.reshape(shape)) for name, column in columns.items()}
        tensors.update({name: tensors[name].to(dtype) for name in ("logps", "lse")})
        metrics = {name: value for name, value in report["metrics"].items() if name != "mean_entropy"}
        return CrossEntropyStats(**tensors, **metrics, plan=report["plan"].kind)


class Reduced(torch.autograd.Function):
    """A loss that is one number. The forward computes its gradients in the same call, and the backward scales
    them. A second backward of the same graph computes them again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        function: Any,
        arguments: dict[str, Any],
        dtype: torch.dtype,
        group: Any,
        report: dict[str, Any],
        *tensors: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.kept = Kept(arguments)
        ctx.rest = (runner_of(group), function, tuple(ctx.needs_input_grad[5:]))
        result, ctx.grads = Reduced._run(tensors, arguments, *ctx.rest)
        report.update(result)
        return loss_tensor(result["loss"], dtype)

    @staticmethod
    def _run(
        inputs: tuple[Any, ...], arguments: dict[str, Any], run: Runner, function: Any, needs: tuple[bool, ...]
    ) -> tuple[dict[str, Any], list[Tensor | None]]:
        call = HeadTensors(inputs, arguments)
        grads = call.outputs(needs)
        return run(function, call.arguments), grads

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = ctx.grads
        inputs = ctx.saved_tensors  # read once: a checkpoint does not return them a second time
        if grads is None:
            _, grads = Reduced._run(inputs, ctx.kept.all(), *ctx.rest)
        ctx.grads = None
        scale = one_gradient(upstream).item()
        if scale != 1:
            for grad in grads:
                if grad is not None:
                    grad.mul_(scale)
        grads = shaped_like(grads, inputs, ctx.kept.get("vocab_ids"))
        return (*[None] * 5, *handed_over(grads, (upstream, *inputs)))


class PerToken(torch.autograd.Function):
    """One loss per token. The backward gets one upstream gradient per token. It recomputes the logits, or,
    with a frozen head, uses the expected rows that the forward kept. `halves` are the forward, backward and
    planning functions of _core; `report` receives the forward's result."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        halves: tuple[Any, ...],
        arguments: dict[str, Any],
        dtype: torch.dtype,
        group: Any,
        report: dict[str, Any],
        frozen: bool,
        *tensors: Tensor | None,
    ) -> Tensor:
        needs = tuple(ctx.needs_input_grad[6:])
        run = runner_of(group)
        check_backward_half('reduction="none"', halves[2], tensors, arguments, needs, run)
        ctx.save_for_backward(*tensors)
        ctx.kept = Kept(arguments)
        ctx.rest = (run, halves[1], needs)
        result, ctx.half = run(halves[0], HeadTensors(tensors, arguments).arguments, frozen=frozen)
        report.update(result)
        return torch.from_numpy(result["per_token_loss"]).to(dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        run, backward, needs = ctx.rest
        inputs = ctx.saved_tensors  # read once: a checkpoint does not return them a second time
        call = HeadTensors(inputs, ctx.kept.all())
        grads = call.outputs(needs)
        with not_finite_handed_on(upstream, grads):
            run(backward, call.arguments, ctx.half, one_gradient(upstream).double().tolist())
        grads = shaped_like(grads, inputs, ctx.kept.get("vocab_ids"))
        return (*[None] * 6, *handed_over(grads, (upstream, *inputs)))


def loss_of(
    name: str,
    head: Head,
    reduction: str | None,
    arguments: dict[str, Any],
    dtype: torch.dtype | None,
    shape: torch.Size,
    report: dict[str, Any] | None = None,
) -> Tensor:
    """The loss `name` of _core: one number, or of this shape if reduction is "none". dtype defaults to
    type_of_results()."""
    dtype = type_of_results(dtype, head.input)
    arguments = seeded(with_weights({**head.arguments, **arguments, **results_in(dtype)}))
    report = {} if report is None else report
    if reduction == "none":
        halves = tuple(getattr(_core, half) for half in (f"{name}_forward", f"{name}_backward", f"plan_{name}"))
        return PerToken.apply(halves, arguments, dtype, head.group, report, head.is_frozen, *head.tensors).view(shape)
    return Reduced.apply(getattr(_core, name), arguments, dtype, head.group, report, *head.tensors)
