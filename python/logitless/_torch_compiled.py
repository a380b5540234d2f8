# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The custom operators that torch.compile traces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._torch_call import (
    as_pytorch_raises,
    handed_over,
    loss_tensor,
    memory_like,
    not_finite_handed_on,
    results_in,
)
from ._torch_head import HeadTensors, check_backward_half
from ._torch_options import CROSS_ENTROPY, seeded
from ._torch_ranks import runner_of


# Under torch.compile a call is one opaque operator. It returns the gradients along with the loss, and the
# backward scales them. With reduction="none" the backward is a second operator. Options are keyword arguments
# of both.

_TENSORS = "Tensor input, Tensor weight, Tensor? bias, Tensor target, Tensor? class_weights, Tensor? temperatures"
_TENSORS += ", Tensor? token_weights"
_OPTIONS = ", ".join(field.schema(name) for name, field in CROSS_ENTROPY.items())


def _arguments(
    call: HeadTensors,
    target: Tensor,
    class_weights: Tensor | None,
    temperatures: Tensor | None,
    token_weights: Tensor | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    tensors = {"targets": target, "class_weights": class_weights, "temperatures": temperatures}
    tensors["token_weights"] = token_weights
    return {**call.arguments, **tensors, **seeded(options)}


def _fake_gradients(inputs: tuple[Tensor | None, ...], needs: list[bool]) -> list[Tensor]:
    """The gradients that an operator returns: in the inputs' memory order, and of the type in which they are
    scaled. An operator cannot return None, so an unwanted gradient is an empty tensor."""
    nothing = [inputs[0].new_empty(0) for _ in inputs]  # type: ignore[union-attr]
    return [memory_like(x) if need and x is not None else n for x, need, n in zip(inputs, needs, nothing)]


def _returned(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor]:
    """The gradients in the layout of _fake_gradients(). If an input had to be copied, its gradient has the
    copy's memory order and is copied back."""
    out = _fake_gradients(inputs, [grad is not None for grad in grads])
    for i, (grad, x) in enumerate(zip(grads, inputs)):
        if grad is not None and x is not None:
            grad = grad.view_as(x)
            out[i] = grad if grad.stride() == out[i].stride() else out[i].copy_(grad)
    return out


@torch.library.custom_op(
    "logitless::linear_cross_entropy",
    mutates_args=(),
    schema=f"({_TENSORS}, Tensor? num_items_in_batch, *, bool[] needs, ScalarType dtype, {_OPTIONS}) -> Tensor[]",
)
def linear_cross_entropy_op(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weights: Tensor | None,
    temperatures: Tensor | None,
    token_weights: Tensor | None,
    num_items_in_batch: Tensor | None,
    *,
    needs: list[bool],
    dtype: torch.dtype,
    reduction: str = "mean",
    softcap: float = 0.0,
    **options: Any,
) -> list[Tensor]:
    call = HeadTensors((input, weight, bias), {"softcap": softcap} if softcap else {})
    run = runner_of(None)
    per_token = reduction == "none"
    grads = [None] * 3 if per_token else call.outputs(tuple(needs))  # type: ignore[arg-type]
    arguments = _arguments(call, target, class_weights, temperatures, token_weights, options)
    items = None if num_items_in_batch is None else float(num_items_in_batch.item())
    arguments.update(reduction=reduction, num_items_in_batch=items)
    arguments.update(results_in(dtype))
    if per_token:
        tensors = (input, weight, bias)
        check_backward_half('reduction="none"', _core.plan_cross_entropy, tensors, arguments, tuple(needs), run)
    try:
        result = run(_core.cross_entropy, arguments)
    except ValueError as error:
        raise as_pytorch_raises(error) from None
    if per_token:
        loss = torch.from_numpy(result["per_token_loss"]).to(dtype).view(target.shape)
    else:
        loss = loss_tensor(result["loss"], dtype)
    return [loss, *_returned(grads, (input, weight, bias))]


@linear_cross_entropy_op.register_fake
def _(
    input, weight, bias, target, class_weights, temperatures, token_weights, num_items_in_batch, *, needs, dtype, **options
):
    per_token = options.get("reduction") == "none"
    loss = input.new_empty(target.shape if per_token else (), dtype=dtype)
    return [loss, *_fake_gradients((input, weight, bias), [not per_token and need for need in needs])]


@torch.library.custom_op(
    "logitless::linear_cross_entropy_backward",
    mutates_args=(),
    schema=f"({_TENSORS}, Tensor upstream, *, bool[] needs, {_OPTIONS}) -> Tensor[]",
)
def backward_op(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weights: Tensor | None,
    temperatures: Tensor | None,
    token_weights: Tensor | None,
    upstream: Tensor,
    *,
    needs: list[bool],
    softcap: float = 0.0,
    **options: Any,
) -> list[Tensor]:
    call = HeadTensors((input, weight, bias), {"softcap": softcap} if softcap else {})
    options = seeded(options)  # one seed for both halves
    arguments = _arguments(call, target, class_weights, temperatures, token_weights, options)
    run = runner_of(None)
    _, half = run(_core.cross_entropy_forward, arguments, frozen=list(needs) == [True, False, False])
    grads = call.outputs(tuple(needs))  # type: ignore[arg-type]
    arguments = _arguments(call, target, class_weights, temperatures, token_weights, options)
    with not_finite_handed_on(upstream, grads):
        run(_core.cross_entropy_backward, arguments, half, upstream.flatten().double().tolist())
    return _returned(grads, (input, weight, bias))


@backward_op.register_fake
def _(input, weight, bias, target, class_weights, temperatures, token_weights, upstream, *, needs, **options):
    return _fake_gradients((input, weight, bias), needs)


def _save(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: list[Tensor]) -> None:
    ctx.options = {name: value for name, value in keyword_only_inputs.items() if name in CROSS_ENTROPY}
    ctx.needs = keyword_only_inputs["needs"]
    ctx.types = [None if x is None else x.dtype for x in inputs[:3]]
    ctx.per_token = ctx.options["reduction"] == "none"
    if ctx.per_token:
        ctx.save_for_backward(*inputs[:7])
    else:
        ctx.save_for_backward(*output[1:])


def _scaled(ctx: Any, upstreams: list[Tensor]) -> tuple[Tensor | None, ...]:
    upstream = upstreams[0]
    if ctx.per_token:
        grads = backward_op(*ctx.saved_tensors, upstream, needs=ctx.needs, **ctx.options)
    else:
        # A product with a scalar tensor does not round the scalar to grad's type.
        grads = [grad * upstream for grad in ctx.saved_tensors]
    grads = [grad.to(dtype) if need else None for grad, dtype, need in zip(grads, ctx.types, ctx.needs)]
    return (*handed_over(grads, (upstream, *ctx.saved_tensors)), *[None] * 5)


linear_cross_entropy_op.register_autograd(_scaled, setup_context=_save)
