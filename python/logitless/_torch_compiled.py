# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The operators that torch.compile sees."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._torch_call import Call, current_context, handed_over, loss_tensor, shaped_like

# Under torch.compile the call is one operator, which the compiler does not look into. Its gradients are outputs,
# which the backward scales; under reduction none the backward is an operator of its own.


def _operator_arguments(
    call: Call,
    target: Tensor,
    class_weights: Tensor | None,
    values: tuple[str, int, float, float, float, bool],
) -> dict[str, Any]:
    names = ("reduction", "ignore_index", "label_smoothing", "temperature", "z_loss", "shift")
    arguments = {**call.arguments, "targets": target, **dict(zip(names, values))}
    if class_weights is not None:
        arguments["class_weights"] = class_weights
    return arguments


@torch.library.custom_op("logitless::linear_cross_entropy", mutates_args=())
def linear_cross_entropy_op(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weights: Tensor | None,
    softcap: float,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    temperature: float,
    z_loss: float,
    shift: bool,
    needs: list[bool],
    dtype: torch.dtype,
) -> list[Tensor]:
    call = Call(input, weight, bias, softcap)
    per_token = reduction == "none"
    grads = [None] * 3 if per_token else call.outputs(tuple(needs))  # type: ignore[arg-type]
    values = (reduction, ignore_index, label_smoothing, temperature, z_loss, shift)
    result = _core.cross_entropy(current_context(), _operator_arguments(call, target, class_weights, values))
    if per_token:
        loss = torch.from_numpy(result["per_token_loss"]).to(dtype).view(target.shape)
    else:
        loss = loss_tensor(result["loss"], dtype)
    nothing = [input.new_empty(0) for _ in range(3)]
    shaped = shaped_like(grads, (input, weight, bias))
    return [loss, *(n if g is None else g for g, n in zip(shaped, nothing))]


@linear_cross_entropy_op.register_fake
def _(input, weight, bias, target, class_weights, softcap, reduction, *others):
    needs, dtype = others[-2:]
    per_token = reduction == "none"
    loss = input.new_empty(target.shape if per_token else (), dtype=dtype)
    return [
        loss,
        *(
            torch.empty_like(x) if need and x is not None and not per_token else input.new_empty(0)
            for x, need in zip((input, weight, bias), needs)
        ),
    ]


@torch.library.custom_op("logitless::linear_cross_entropy_backward", mutates_args=())
def backward_op(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weights: Tensor | None,
    softcap: float,
    ignore_index: int,
    label_smoothing: float,
    temperature: float,
    z_loss: float,
    shift: bool,
    needs: list[bool],
    upstream: Tensor,
) -> list[Tensor]:
    call = Call(input, weight, bias, softcap)
    values = ("none", ignore_index, label_smoothing, temperature, z_loss, shift)
    _, half = _core.cross_entropy_forward(
        current_context(), _operator_arguments(call, target, class_weights, values)
    )
    grads = call.outputs(tuple(needs))  # type: ignore[arg-type]
    arguments = _operator_arguments(call, target, class_weights, values)
    _core.cross_entropy_backward(current_context(), arguments, half, upstream.flatten().double().tolist())
    return [input.new_empty(0) if g is None else g for g in shaped_like(grads, (input, weight, bias))]


@backward_op.register_fake
def _(input, weight, bias, *others):
    needs = others[-2]
    return [
        torch.empty_like(x) if need and x is not None else input.new_empty(0)
        for x, need in zip((input, weight, bias), needs)
    ]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.rest = inputs[5:12]
    ctx.needs = inputs[12]
    if ctx.rest[1] == "none":
        ctx.save_for_backward(*inputs[:5])
    else:
        ctx.save_for_backward(*output[1:])


def _scaled(ctx: Any, upstreams: list[Tensor]) -> tuple[Tensor | None, ...]:
    upstream = upstreams[0]
    if ctx.rest[1] == "none":
        softcap, _, *values = ctx.rest
        grads = backward_op(*ctx.saved_tensors, softcap, *values, ctx.needs, upstream)
    else:
        # The upstream gradient is a number, which is not rounded to grad's type.
        grads = [grad * upstream for grad in ctx.saved_tensors]
    grads = handed_over(grads, (upstream, *ctx.saved_tensors))
    return (*(g if need else None for g, need in zip(grads, ctx.needs)), *[None] * 11)


linear_cross_entropy_op.register_autograd(_scaled, setup_context=_save)
