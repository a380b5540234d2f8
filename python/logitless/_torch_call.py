# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What the calls of logitless.torch share: the context, tensors as the library takes them, and the step from one call
with its gradients to autograd."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from . import Context

_options: dict[str, Any] = {}


def set_options(**options: Any) -> None:
    """Sets arguments of the Context that calls from here on use, e.g. workspace_bytes or plan. Without arguments all
    are the defaults again. Threads follow torch.set_num_threads() unless they are set."""
    Context(**options)  # refuses what is none
    _options.clear()
    _options.update(options)
    _context.cache_clear()


def options() -> dict[str, Any]:
    """What set_options() has set."""
    return _options


@functools.lru_cache(maxsize=64)
def _context(threads: int, frozen: bool) -> Context:
    given = {"threads": threads, **_options}
    if frozen and given.get("plan", "auto") == "auto":
        given["plan"] = "expected_row"
    return Context(**given)


def current_context(frozen: bool = False) -> Context:
    """The context of calls. With `frozen`, the forward half of a call leaves what makes the gradient of hidden states
    without a product, where the loss allows it."""
    return _context(torch.get_num_threads(), frozen)


def is_frozen(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Tells whether hidden states get a gradient, and the head none."""
    return (
        torch.is_grad_enabled()
        and hidden.requires_grad
        and not weight.requires_grad
        and (bias is None or not bias.requires_grad)
    )


def check_cpu(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != "cpu":
            raise ValueError(f"{name} is on {tensor.device}: logitless computes on the CPU")


def values_of(tensor: Tensor) -> Tensor:
    """The tensor without its history, and with the values in memory that it stands for."""
    return tensor.detach().resolve_neg()


def _has_rows(tensor: Tensor, axis: int) -> bool:
    """Tells whether elements along the axis follow one another in rows of which no two overlap, as those of expanded
    tensors do."""
    cols = tensor.size(axis)
    return all(
        size <= 1 or (stride == 1 if a == axis else stride >= cols)
        for a, (size, stride) in enumerate(zip(tensor.shape, tensor.stride()))
    )


def rows_of(tensor: Tensor) -> Tensor:
    """The tensor as [N, C] or [B, T, C] whose rows follow their elements; a copy only where strides allow nothing else."""
    if tensor.dim() > 3:
        tensor = tensor.flatten(0, -3)
    return tensor if tensor.is_contiguous() or _has_rows(tensor, tensor.dim() - 1) else tensor.contiguous()


def matrix_of(weight: Tensor) -> Tensor:
    if weight.is_contiguous() or _has_rows(weight, 1) or _has_rows(weight, 0):
        return weight
    return weight.contiguous()


def ids_of(ids: Tensor) -> Tensor:
    """Token ids [N] or [B, T] that the library can step through: a copy of expanded ones."""
    return ids if 0 not in ids.stride() else ids.contiguous()


def memory_like(tensor: Tensor) -> Tensor:
    """Memory for a gradient, in the order in which the tensor stands. What float16 would lose before it is scaled
    stays in float32."""
    return torch.empty_like(tensor, dtype=torch.float32 if tensor.dtype == torch.float16 else tensor.dtype)


class HeadTensors:
    """The arguments of one call on a head, and the gradients that are wanted."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float) -> None:
        self.hidden = rows_of(values_of(hidden))
        self.weight = matrix_of(values_of(weight))
        self.bias = None if bias is None else values_of(bias).contiguous()
        self.arguments: dict[str, Any] = {"hidden": self.hidden, "weight": self.weight}
        if self.bias is not None:
            self.arguments["bias"] = self.bias
        if softcap:
            self.arguments["softcap"] = softcap

    def outputs(self, needs: tuple[bool, bool, bool]) -> list[Tensor | None]:
        grads: list[Tensor | None] = [None, None, None]
        for i, (name, tensor) in enumerate(
            (("d_hidden", self.hidden), ("d_weight", self.weight), ("d_bias", self.bias))
        ):
            if needs[i] and tensor is not None:
                grads[i] = self.arguments[name] = memory_like(tensor)
        return grads


# torch.compiler.disable without its import of the compiler, which takes a second.
_disable = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable


def not_compiled(function: Any) -> Any:
    """Makes a function one that torch.compile breaks its graph at, once, and that runs as it does without it."""
    disabled = _disable(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (disabled if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return called


def versions_of(arguments: dict[str, Any]) -> dict[str, int]:
    return {
        name: value._version
        for name, value in arguments.items()
        if isinstance(value, Tensor) and not value.is_inference()  # which has no versions
    }


def check_versions(arguments: dict[str, Any], versions: dict[str, int]) -> None:
    """What saved tensors check of themselves."""
    for name, version in versions.items():
        if arguments[name]._version != version:
            raise RuntimeError(
                f"{name} was changed in place between the loss and its backward, which reads it again"
            )


class NoSecondDerivative(torch.autograd.Function):
    """Stands between a gradient and the tensors that it depends on."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *inputs: Tensor | None) -> Tensor:  # type: ignore[override]
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "logitless computes no second derivatives: its gradients cannot be differentiated again"
        )


def handed_over(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """The gradients; under create_graph=True such that whoever differentiates them is told."""
    if not torch.is_grad_enabled():
        return grads
    return [None if grad is None else NoSecondDerivative.apply(grad, *inputs) for grad in grads]


def loss_tensor(loss: float, dtype: torch.dtype) -> Tensor:
    return torch.tensor(loss, dtype=torch.float64).to(dtype)


def shaped_like(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    return [None if g is None or x is None else g.to(x.dtype).view_as(x) for g, x in zip(grads, inputs)]


def batched(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """A vector is a batch of one token, and of several leading axes all but the last count sequences."""
    if target.dim() == 0:
        return input.unsqueeze(0), target.reshape(1)
    return input, ids_of(target.flatten(0, -2) if target.dim() > 2 else target)


def cast_for_autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    if not torch.is_autocast_enabled("cpu"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cpu")
    return [
        t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
        for t in tensors
    ]


class Reduced(torch.autograd.Function):
    """A loss that is one number, and its gradients, in one call: the backward hands the gradients over, scaled. A
    second backward of the same graph computes them again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        softcap: float,
        function: Any,
        arguments: dict[str, Any],
        dtype: torch.dtype,
        report: dict[str, Any],
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias)
        ctx.rest = (softcap, function, arguments, tuple(ctx.needs_input_grad[:3]))
        ctx.versions = versions_of(arguments)
        result, ctx.grads = Reduced._run((hidden, weight, bias), *ctx.rest)
        report.update(result)
        return loss_tensor(result["loss"], dtype)

    @staticmethod
    def _run(
        inputs: tuple[Any, ...],
        softcap: float,
        function: Any,
        arguments: dict[str, Any],
        needs: tuple[bool, bool, bool],
    ) -> tuple[dict[str, Any], list[Tensor | None]]:
        call = HeadTensors(*inputs, softcap)
        grads = call.outputs(needs)
        return function(current_context(), {**call.arguments, **arguments}), grads

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = ctx.grads
        inputs = ctx.saved_tensors  # once: a checkpoint gives them out no second time
        if grads is None:
            check_versions(ctx.rest[2], ctx.versions)
            _, grads = Reduced._run(inputs, *ctx.rest)
        ctx.grads = None
        scale = upstream.item()
        if scale != 1:
            for grad in grads:
                if grad is not None:
                    grad.mul_(scale)
        grads = shaped_like(grads, inputs)
        return (*handed_over(grads, (upstream, *inputs)), None, None, None, None, None)
