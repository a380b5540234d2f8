# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""PyTorch's linear_cross_entropy() and its module, also for the versions of PyTorch that do not have them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

LOWEST = (2, 6)
_version = tuple(int(part) for part in torch.__version__.split(".")[:2])
if _version < LOWEST:
    raise ImportError(f"logitless.torch needs PyTorch {'.'.join(map(str, LOWEST))} or later, not {torch.__version__}")


def _linear_cross_entropy(
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
) -> Tensor:
    """PyTorch's function as it is defined: a product, then a cross-entropy."""
    classes = linear_weight.shape[:-1]
    if len(classes) > 1 and input.dim() < 2:
        raise RuntimeError(f"linear_weight of shape {tuple(linear_weight.shape)} requires batched input")
    if ignore_index is not None and target.shape == (*input.shape[:-1], *classes):
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = torch.nn.functional.linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    return torch.nn.functional.cross_entropy(
        logits.reshape(*input.shape[:-1], *classes),
        target,
        weight=weight,
        reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )


class _LinearCrossEntropyLoss(torch.nn.Module):
    """PyTorch's module: a linear layer and the arguments of the loss."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__()
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(f"expected weight of shape {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
        self.register_buffer("weight", weight)
        self.num_classes, self.out_features, self.reduction = num_classes, out_features, reduction
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        rows = math.prod(out_features, start=num_classes)
        self.linear = torch.nn.Linear(in_features, rows, bias=bias, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        names = ("num_classes", "out_features", "reduction", "ignore_index", "label_smoothing", "options")
        head = f"in_features={self.linear.in_features}, bias={self.linear.bias is not None}"
        return ", ".join([head, *(f"{name}={getattr(self, name)}" for name in names)])


# The function is saved at import, so it is PyTorch's even if a program replaces it later.
linear_cross_entropy = getattr(torch.nn.functional, "linear_cross_entropy", _linear_cross_entropy)
Module: Any = getattr(torch.nn, "LinearCrossEntropyLoss", _LinearCrossEntropyLoss)


def check_options(options: Any, dtype: torch.dtype) -> None:
    """Raises if LinearCrossEntropyOptions ask for other results. Their chunk sizes have no effect, because
    logits are not cut into chunks."""
    wanted = getattr(options, "acc_dtype", None)
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    if wanted is not None and wanted != sums:
        raise ValueError(f"options.acc_dtype = {wanted} is not supported for an input of {dtype}: sums are {sums}")
