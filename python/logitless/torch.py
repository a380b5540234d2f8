# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for PyTorch: the LM head and its loss in one call, under autograd, and no logits in memory.

    from logitless.torch import linear_cross_entropy
    loss = linear_cross_entropy(hidden, lm_head.weight, targets)  # instead of cross_entropy(lm_head(hidden), targets)
    loss.backward()

Tensors are on the CPU; float32, bfloat16, float16 or float64. Threads follow torch.set_num_threads().
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from . import Context, _core

__all__ = [
    "LinearCrossEntropyLoss",
    "kto_loss",
    "linear_cross_entropy",
    "policy_loss",
    "preference_loss",
    "set_options",
    "token_logps",
]

_options: dict[str, Any] = {}


def set_options(**options: Any) -> None:
    """Sets arguments of the Context that calls from here on use, e.g. workspace_bytes or plan. Without arguments all
    are the defaults again. Threads follow torch.set_num_threads() unless they are set."""
    Context(**options)  # refuses what is none
    _options.clear()
    _options.update(options)
    _context.cache_clear()


@functools.lru_cache(maxsize=64)
def _context(threads: int) -> Context:
    return Context(**{"threads": threads, **_options})


def _current_context() -> Context:
    return _context(torch.get_num_threads())


def _check_cpu(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != "cpu":
            raise ValueError(f"{name} is on {tensor.device}: logitless computes on the CPU")


def _rows(tensor: Tensor) -> Tensor:
    """The tensor as [N, C] or [B, T, C] whose rows follow their elements; a copy only where strides allow nothing else."""
    if tensor.dim() > 3:
        tensor = tensor.flatten(0, -3)
    return tensor if tensor.stride(-1) == 1 or tensor.size(-1) == 1 else tensor.contiguous()


def _matrix(weight: Tensor) -> Tensor:
    return weight if weight.stride(1) == 1 or weight.stride(0) == 1 else weight.contiguous()


def _like(tensor: Tensor) -> Tensor:
    """Memory for a gradient, in the order in which the tensor stands. What float16 would lose before it is scaled
    stays in float32."""
    return torch.empty_like(tensor, dtype=torch.float32 if tensor.dtype == torch.float16 else tensor.dtype)


class _Call:
    """The arguments of one call on a head, and the gradients that are wanted."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float) -> None:
        self.hidden = _rows(hidden.detach())
        self.weight = _matrix(weight.detach())
        self.bias = None if bias is None else bias.detach().contiguous()
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
                grads[i] = self.arguments[name] = _like(tensor)
        return grads


def _versions(arguments: dict[str, Any]) -> dict[str, int]:
    return {name: value._version for name, value in arguments.items() if isinstance(value, Tensor)}


def _check_versions(arguments: dict[str, Any], versions: dict[str, int]) -> None:
    """What saved tensors check of themselves."""
    for name, version in versions.items():
        if arguments[name]._version != version:
            raise RuntimeError(
                f"{name} was changed in place between the loss and its backward, which reads it again"
            )


class _NoSecondDerivative(torch.autograd.Function):
    """Stands between a gradient and the tensors that it depends on."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *inputs: Tensor | None) -> Tensor:  # type: ignore[override]
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "logitless computes no second derivatives: its gradients cannot be differentiated again"
        )


def _handed_over(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """The gradients; under create_graph=True such that whoever differentiates them is told."""
    if not torch.is_grad_enabled():
        return grads
    return [None if grad is None else _NoSecondDerivative.apply(grad, *inputs) for grad in grads]


def _loss_tensor(loss: float, dtype: torch.dtype) -> Tensor:
    return torch.tensor(loss, dtype=torch.float64).to(dtype)


def _shaped(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    return [None if g is None or x is None else g.to(x.dtype).view_as(x) for g, x in zip(grads, inputs)]


class _Reduced(torch.autograd.Function):
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
        ctx.versions = _versions(arguments)
        result, ctx.grads = _Reduced._run((hidden, weight, bias), *ctx.rest)
        report.update(result)
        return _loss_tensor(result["loss"], dtype)

    @staticmethod
    def _run(
        inputs: tuple[Any, ...],
        softcap: float,
        function: Any,
        arguments: dict[str, Any],
        needs: tuple[bool, bool, bool],
    ) -> tuple[dict[str, Any], list[Tensor | None]]:
        call = _Call(*inputs, softcap)
        grads = call.outputs(needs)
        return function(_current_context(), {**call.arguments, **arguments}), grads

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grads = ctx.grads
        if grads is None:
            _check_versions(ctx.rest[2], ctx.versions)
            _, grads = _Reduced._run(ctx.saved_tensors, *ctx.rest)
        ctx.grads = None
        scale = upstream.item()
        if scale != 1:
            for grad in grads:
                if grad is not None:
                    grad.mul_(scale)
        grads = _shaped(grads, ctx.saved_tensors)
        return (*_handed_over(grads, (upstream, *ctx.saved_tensors)), None, None, None, None, None)


class _PerToken(torch.autograd.Function):
    """A loss a token: the backward, which gets an upstream gradient a token, computes the logits again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        softcap: float,
        arguments: dict[str, Any],
        dtype: torch.dtype,
    ) -> Tensor:
        call = _Call(hidden, weight, bias, softcap)
        result, ctx.half = _core.cross_entropy_forward(_current_context(), {**call.arguments, **arguments})
        ctx.save_for_backward(hidden, weight, bias)
        ctx.rest = (softcap, arguments, tuple(ctx.needs_input_grad[:3]))
        ctx.versions = _versions(arguments)
        return torch.from_numpy(result["per_token_loss"]).to(dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        softcap, arguments, needs = ctx.rest
        _check_versions(arguments, ctx.versions)
        call = _Call(*ctx.saved_tensors, softcap)
        grads = call.outputs(needs)
        _core.cross_entropy_backward(
            _current_context(), {**call.arguments, **arguments}, ctx.half, upstream.double().tolist()
        )
        grads = _shaped(grads, ctx.saved_tensors)
        return (*_handed_over(grads, (upstream, *ctx.saved_tensors)), None, None, None)


# Under torch.compile the call is one operator, which the compiler does not look into. Its gradients are outputs,
# which the backward scales; under reduction none the backward is an operator of its own.


def _operator_arguments(
    call: _Call,
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
def _compiled(
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
    call = _Call(input, weight, bias, softcap)
    per_token = reduction == "none"
    grads = [None] * 3 if per_token else call.outputs(tuple(needs))  # type: ignore[arg-type]
    values = (reduction, ignore_index, label_smoothing, temperature, z_loss, shift)
    result = _core.cross_entropy(_current_context(), _operator_arguments(call, target, class_weights, values))
    if per_token:
        loss = torch.from_numpy(result["per_token_loss"]).to(dtype).view(target.shape)
    else:
        loss = _loss_tensor(result["loss"], dtype)
    nothing = [input.new_empty(0) for _ in range(3)]
    shaped = _shaped(grads, (input, weight, bias))
    return [loss, *(n if g is None else g for g, n in zip(shaped, nothing))]


@_compiled.register_fake
def _(
    input,
    weight,
    bias,
    target,
    class_weights,
    softcap,
    reduction,
    ignore_index,
    label_smoothing,
    temperature,
    z_loss,
    shift,
    needs,
    dtype,
):
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
def _compiled_backward(
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
    call = _Call(input, weight, bias, softcap)
    values = ("none", ignore_index, label_smoothing, temperature, z_loss, shift)
    _, half = _core.cross_entropy_forward(
        _current_context(), _operator_arguments(call, target, class_weights, values)
    )
    grads = call.outputs(tuple(needs))  # type: ignore[arg-type]
    arguments = _operator_arguments(call, target, class_weights, values)
    _core.cross_entropy_backward(_current_context(), arguments, half, upstream.flatten().double().tolist())
    return [input.new_empty(0) if g is None else g for g in _shaped(grads, (input, weight, bias))]


@_compiled_backward.register_fake
def _(
    input,
    weight,
    bias,
    target,
    class_weights,
    softcap,
    ignore_index,
    label_smoothing,
    temperature,
    z_loss,
    shift,
    needs,
    upstream,
):
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
        grads = _compiled_backward(*ctx.saved_tensors, softcap, *values, ctx.needs, upstream)
    else:
        grads = [
            grad * upstream for grad in ctx.saved_tensors
        ]  # a number, which is not rounded to grad's type
    return (*(g if need else None for g, need in zip(grads, ctx.needs)), *[None] * 11)


_compiled.register_autograd(_scaled, setup_context=_save)


def _batched(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """A vector is a batch of one token, and of several leading axes all but the last count sequences."""
    if target.dim() == 0:
        return input.unsqueeze(0), target.reshape(1)
    return input, target.flatten(0, -2) if target.dim() > 2 else target


def _cast_for_autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    if not torch.is_autocast_enabled("cpu"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cpu")
    return [
        t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
        for t in tensors
    ]


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    softcap: float = 0.0,
    temperature: float = 1.0,
    z_loss: float = 0.0,
    shift: bool = False,
    loss_dtype: torch.dtype | None = None,
) -> Tensor:
    """torch.nn.functional.linear_cross_entropy, exact and without the logits in memory.

    The arguments up to `options` are PyTorch's, with its meaning and its errors; `options`, which chooses a chunking
    there, has nothing to choose here. `input` may have any leading axes, which `target` shares. Beyond PyTorch:

    softcap: logits become softcap * tanh(logits / softcap) (Gemma 2).
    temperature: divides the logits.
    z_loss: weight of the squared log-sum-exp, added to the loss.
    shift: position t of the second last axis of `input` predicts target t + 1.
    loss_dtype: of the result, which else has input's type, as PyTorch's has. The loss is computed in float64, so that
        float32 shows more of it than bfloat16 does; gradients do not depend on it.

    What differs from PyTorch: the mean over no token at all is 0, where PyTorch's is NaN. Targets that are class
    probabilities, and weights of more than two axes, are handed to PyTorch's own function, with a warning.
    """
    if torch.overrides.has_torch_function((input, linear_weight, target)):
        return torch.overrides.handle_torch_function(
            linear_cross_entropy,
            (input, linear_weight, target),
            input,
            linear_weight,
            target,
            linear_bias=linear_bias,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            options=options,
            softcap=softcap,
            temperature=temperature,
            z_loss=z_loss,
            shift=shift,
            loss_dtype=loss_dtype,
        )
    if input.dim() < 1:
        raise RuntimeError(f"expected input with dimensionality at least 1, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}"
        )
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_weight.dim() > 2 or target.is_floating_point():
        return _pytorch_path(
            input,
            linear_weight,
            target,
            linear_bias,
            weight,
            reduction,
            ignore_index,
            label_smoothing,
            (softcap, temperature, z_loss, shift),
        )
    _check_cpu(
        input=input, linear_weight=linear_weight, target=target, linear_bias=linear_bias, weight=weight
    )
    vocab = linear_weight.shape[0]
    if linear_bias is not None and tuple(linear_bias.shape) != (vocab,):
        raise RuntimeError(f"expected linear_bias shape {(vocab,)}, got {tuple(linear_bias.shape)}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if target.dtype != torch.int64:
        raise RuntimeError(f"expected target of dtype torch.int64, got {target.dtype}")
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"expected target of shape {tuple(input.shape[:-1])}, as input has, got {tuple(target.shape)}"
        )
    input, linear_weight, linear_bias = _cast_for_autocast(input, linear_weight, linear_bias)  # type: ignore[assignment]
    if input.dtype != linear_weight.dtype or (linear_bias is not None and linear_bias.dtype != input.dtype):
        raise RuntimeError(
            f"expected input, linear_weight and linear_bias of one dtype, got {input.dtype}, {linear_weight.dtype}"
            + ("" if linear_bias is None else f" and {linear_bias.dtype}")
        )
    if weight is not None:
        if tuple(weight.shape) != (vocab,):
            raise RuntimeError(f"expected weight of shape {(vocab,)}, got {tuple(weight.shape)}")
        weight = weight.detach().float().contiguous()
    dtype = loss_dtype or (torch.float32 if torch.is_autocast_enabled("cpu") else input.dtype)
    arguments: dict[str, Any] = {"reduction": reduction}
    for name, value, default in (
        ("ignore_index", -100 if ignore_index is None else ignore_index, -100),
        ("label_smoothing", label_smoothing, 0.0),
        ("temperature", temperature, 1.0),
        ("z_loss", z_loss, 0.0),
        ("shift", shift, False),
    ):
        if value != default:
            arguments[name] = value
    shape = target.shape
    rows, ids = _batched(input, target)
    if torch.compiler.is_compiling():
        grad = torch.is_grad_enabled()
        needs = [grad and t is not None and t.requires_grad for t in (rows, linear_weight, linear_bias)]
        loss = _compiled(
            rows,
            linear_weight,
            linear_bias,
            ids,
            weight,
            softcap,
            reduction,
            arguments.get("ignore_index", -100),
            label_smoothing,
            temperature,
            z_loss,
            shift,
            needs,
            dtype,
        )[0]
        return loss.view(shape) if reduction == "none" else loss
    arguments["targets"] = ids
    if weight is not None:
        arguments["class_weights"] = weight
    try:
        if reduction == "none":
            loss = _PerToken.apply(rows, linear_weight, linear_bias, softcap, arguments, dtype)
        else:
            loss = _Reduced.apply(
                rows, linear_weight, linear_bias, softcap, _core.cross_entropy, arguments, dtype, {}
            )
    except ValueError as error:
        if str(error).startswith("targets["):
            raise IndexError(f"Target out of bounds: {error}") from None
        raise
    return loss.view(shape) if reduction == "none" else loss


def _pytorch_path(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: float,
    beyond: tuple[float, float, float, bool],
) -> Tensor:
    what = (
        "target holds class probabilities"
        if target.is_floating_point()
        else "linear_weight has more than 2 axes"
    )
    if beyond != (0.0, 1.0, 0.0, False):
        raise ValueError(f"softcap, temperature, z_loss and shift do not go where {what}")
    warnings.warn(
        f"logitless.torch.linear_cross_entropy: {what}: PyTorch's own path runs, with all logits in memory",
        stacklevel=3,
    )
    return torch.nn.functional.linear_cross_entropy(
        input,
        linear_weight,
        target,
        linear_bias=linear_bias,
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


class LinearCrossEntropyLoss(torch.nn.Module):
    """linear_cross_entropy() as a module, with its own head: weight [num_classes, in_features] and a bias."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return linear_cross_entropy(
            input, self.linear.weight, target, linear_bias=self.linear.bias, **self.options
        )


def _sequence_loss(
    function: Any,
    input: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    ids: Tensor,
    ids_name: str,
    softcap: float,
    return_metrics: bool,
    arguments: dict[str, Any],
) -> Any:
    """A loss of sequences: input [B, T, H] and ids [B, T], or [N, H] and [N]."""
    _check_cpu(input=input, linear_weight=linear_weight, linear_bias=linear_bias, **{ids_name: ids})
    if input.dim() not in (2, 3):
        raise ValueError(f"input has shape {tuple(input.shape)}: it must be [B, T, H] or [N, H]")
    if ids.shape != input.shape[:-1]:
        raise ValueError(
            f"expected {ids_name} of shape {tuple(input.shape[:-1])}, as input has, got {tuple(ids.shape)}"
        )
    input, linear_weight, linear_bias = _cast_for_autocast(input, linear_weight, linear_bias)  # type: ignore[assignment]
    given: dict[str, Any] = {ids_name: ids}
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            given[name] = value
            continue
        _check_cpu(**{name: value})
        if value.requires_grad and name != "ref_weight" and name != "ref_hidden":
            raise ValueError(f"{name} requires a gradient, and none flows to it: detach it")
        value = value.detach()
        if name in ("ref_hidden", "ref_weight"):
            given[name] = _rows(value) if name == "ref_hidden" else _matrix(value)
        else:
            value = value.to(torch.uint8) if value.dtype == torch.bool else value
            given[name] = value.flatten().contiguous()
    report: dict[str, Any] = {}
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    loss = _Reduced.apply(input, linear_weight, linear_bias, softcap, function, given, dtype, report)
    return (loss, report["metrics"]) if return_metrics else loss


def policy_loss(
    input: Tensor,
    linear_weight: Tensor,
    chosen_ids: Tensor,
    advantages: Tensor,
    *,
    linear_bias: Tensor | None = None,
    old_logps: Tensor | None = None,
    ref_logps: Tensor | None = None,
    sampling_logps: Tensor | None = None,
    mask: Tensor | None = None,
    softcap: float = 0.0,
    return_metrics: bool = False,
    **options: Any,
) -> Any:
    """A policy loss of sampled words (variant="grpo", "dapo", "ppo", ...: docs/losses.md), float32, with gradients of
    input and head. advantages are one a sequence or one a token, logps and mask one a token; options are the
    members of PolicyOptions. With return_metrics=True a dict of them comes with the loss."""
    arguments = {"advantages": advantages, "old_logps": old_logps, "ref_logps": ref_logps, "mask": mask}
    arguments.update(sampling_logps=sampling_logps, **options)
    return _sequence_loss(
        _core.policy_loss,
        input,
        linear_weight,
        linear_bias,
        chosen_ids,
        "chosen_ids",
        softcap,
        return_metrics,
        arguments,
    )


def preference_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    terms: Any = "sigmoid",
    ref_logps: Tensor | None = None,
    ref_input: Tensor | None = None,
    ref_weight: Tensor | None = None,
    softcap: float = 0.0,
    return_metrics: bool = False,
    **options: Any,
) -> Any:
    """A loss of pairs (DPO's family, ORPO, SimPO, CPO), float32: input [2B, T, H] holds the chosen sequences, then
    the rejected ones. terms is a name or a list of (name, weight); the reference is its log-probabilities, one a
    sequence or a token, or its own states and head, which are run forward in the same call."""
    arguments = {"terms": [(terms, 1.0)] if isinstance(terms, str) else list(terms), "ref_logps": ref_logps}
    arguments.update(ref_hidden=ref_input, ref_weight=ref_weight, **options)
    return _sequence_loss(
        _core.preference_loss,
        input,
        linear_weight,
        linear_bias,
        target,
        "targets",
        softcap,
        return_metrics,
        arguments,
    )


def kto_loss(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    labels: Tensor,
    *,
    linear_bias: Tensor | None = None,
    ref_logps: Tensor | None = None,
    ref_input: Tensor | None = None,
    ref_weight: Tensor | None = None,
    kl_logps: Tensor | None = None,
    kl_ref_logps: Tensor | None = None,
    softcap: float = 0.0,
    return_metrics: bool = False,
    **options: Any,
) -> Any:
    """KTO of single sequences, float32: labels is one a sequence, true where it is desirable."""
    arguments: dict[str, Any] = {"labels": labels.to(torch.uint8), "ref_logps": ref_logps}
    arguments.update(
        ref_hidden=ref_input, ref_weight=ref_weight, kl_logps=kl_logps, kl_ref_logps=kl_ref_logps
    )
    arguments.update(options)
    return _sequence_loss(
        _core.kto_loss,
        input,
        linear_weight,
        linear_bias,
        target,
        "targets",
        softcap,
        return_metrics,
        arguments,
    )


class _TokenLogps(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        softcap: float,
        options: dict[str, Any],
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        call = _Call(hidden, weight, bias, softcap)
        arguments = {**call.arguments, "targets": target, **options, "entropy": entropy}
        ctx.stats = _core.token_stats(_current_context(), arguments)
        columns = ctx.stats.columns()
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.rest = (softcap, options, entropy, tuple(ctx.needs_input_grad[:3]))
        logp = torch.from_numpy(columns["logp"]).view(target.shape)
        if not entropy:
            nothing = logp.new_empty(0)
            ctx.mark_non_differentiable(nothing)
            return logp, nothing
        return logp, torch.from_numpy(columns["entropy"]).view(target.shape)

    @staticmethod
    def backward(ctx: Any, d_logp: Tensor | None, d_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target = ctx.saved_tensors
        softcap, options, entropy, needs = ctx.rest
        call = _Call(hidden, weight, bias, softcap)
        grads = call.outputs(needs)
        upstream = {"logp": torch.zeros(target.numel(), dtype=torch.float64) if d_logp is None else d_logp}
        if entropy and d_entropy is not None:
            upstream["entropy"] = d_entropy
        _core.token_grads(
            _current_context(),
            {**call.arguments, "targets": target, **options, "entropy": entropy},
            ctx.stats,
            {name: g.detach().flatten().contiguous() for name, g in upstream.items()},
        )
        grads = _shaped(grads, (hidden, weight, bias))
        return (*_handed_over(grads, (d_logp, d_entropy, hidden, weight, bias)), None, None, None, None)


def token_logps(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    entropy: bool = False,
    ignore_index: int = -100,
    softcap: float = 0.0,
    temperature: float = 1.0,
    shift: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Log-probabilities of the targets, float64 and of target's shape; with entropy=True a pair with the entropies, in
    nats. Both have gradients. Tokens that take no part have 0 in both.

    They are what a policy loss of your own needs; policy_loss() of the package has those of the literature fused.
    """
    _check_cpu(input=input, linear_weight=linear_weight, target=target, linear_bias=linear_bias)
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"expected target of shape {tuple(input.shape[:-1])}, as input has, got {tuple(target.shape)}"
        )
    input, linear_weight, linear_bias = _cast_for_autocast(input, linear_weight, linear_bias)  # type: ignore[assignment]
    options = {"ignore_index": ignore_index, "temperature": temperature, "shift": shift}
    rows, ids = _batched(input, target)
    logp, entropies = _TokenLogps.apply(rows, linear_weight, linear_bias, ids, softcap, options, entropy)
    logp = logp.view(target.shape)
    return (logp, entropies.view(target.shape)) if entropy else logp
