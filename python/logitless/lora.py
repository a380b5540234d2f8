# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Weights with a LoRA. The package's functions take them instead of a matrix.

    from logitless.lora import LoraWeight
    loss = linear_cross_entropy(hidden, LoraWeight(lm_head.weight, a, b, scale), targets)
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import sys
from typing import TYPE_CHECKING, Any, Union

from .packed import PackedWeight

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LoraWeight", "from_peft"]


@dataclasses.dataclass(frozen=True, eq=False)
class LoraWeight:
    """weight + scale * b @ a, without computing this matrix: a [r, H] and b [V, r] have products of their
    own.

    Hidden states, weight, a and b get gradients if they require them.

    Args:
        weight (floats [V, H]): a matrix or a PackedWeight; in logitless.jax with layout="hidden_vocab" it is
            [H, V].
        a (floats [r, H]): the LoRA's first matrix.
        b (floats [V, r]): its second matrix.
        scale: a finite number.
        dropout: a module or another function, applied to the hidden states that a multiplies.

    Raises:
        ValueError: the shapes of the arrays do not fit.

    Example:
        >>> import numpy as np, logitless
        >>> from logitless.lora import LoraWeight
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> head = LoraWeight(weight, np.ones((2, 4), np.float32), np.ones((7, 2), np.float32), scale=0.5)
        >>> round(logitless.cross_entropy(hidden, head, np.arange(6)).loss, 3)
        1.946
    """

    weight: Any
    a: Any
    b: Any
    scale: float = 1.0
    dropout: Any = None

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raises a ValueError if the shapes of the arrays do not fit."""
        for name in ("weight", "a", "b"):
            given = getattr(self, name)
            if name == "weight" and isinstance(given, PackedWeight):
                continue
            shape = getattr(given, "shape", None)
            if shape is None or len(shape) != 2:
                what = f"is {given!r}" if shape is None else f"has shape {tuple(shape)}"
                raise ValueError(f"{name} {what}: it must be a tensor of 2 axes")
        (rank, cols), (entries, width) = self.a.shape, self.weight.shape
        if tuple(self.b.shape) == (width, rank) and cols == entries:  # the weight is [H, V]
            entries, width = width, entries
        if rank == 0:
            raise ValueError(f"a has shape {tuple(self.a.shape)}: it must have at least one row")
        if tuple(self.b.shape) != (entries, rank):
            raise ValueError(f"b has shape {tuple(self.b.shape)}: it must be {(entries, rank)} for this weight and a")
        if cols != width:
            raise ValueError(f"a has {cols} columns but weight has {width}")
        if isinstance(self.scale, numbers.Real) and not math.isfinite(self.scale):
            raise ValueError(f"scale = {self.scale} must be a finite number")

    @property
    def shape(self) -> tuple[int, int]:
        """(V, H)."""
        return int(self.b.shape[0]), int(self.a.shape[1])

    @property
    def data(self) -> Any:
        """The weight without the LoRA, for _core."""
        return self.weight if isinstance(self.weight, PackedWeight) else _values("weight", self.weight)

    def keywords(self, prefix: str = "") -> dict[str, Any]:
        """Arguments for _core other than `data`. Dropout is ignored. For a teacher, prefix="teacher_"."""
        a, b = _values("a", self.a), _values("b", self.b)
        return {f"{prefix}lora_a": a, f"{prefix}lora_b": b, f"{prefix}lora_scale": float(self.scale)}


HeadWeight = Union["Tensor", PackedWeight, LoraWeight]


def _values(name: str, array: Any) -> Any:
    """The array as _core takes it. A PyTorch tensor is detached."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return array
    from ._torch_call import check_cpu, matrix_of, values_of

    check_cpu(**{name: array})
    values = values_of(array)
    return matrix_of(values) if name == "weight" else values.contiguous()


def is_lora(layer: Any) -> bool:
    """Tells whether a module is a linear layer with PEFT LoRA adapters."""
    import torch

    names = ("lora_A", "lora_B", "scaling", "get_base_layer", "out_features")
    return all(hasattr(layer, name) for name in names) and isinstance(layer.lora_A, torch.nn.ModuleDict)


def check_peft(layer: Any) -> list[str]:
    """The active adapters of a PEFT LoRA layer. A ValueError names an adapter that is not a plain LoRA."""
    adapters = [name for name in layer.active_adapters if name in layer.lora_A]
    for name in adapters:
        for what, of in (("DoRA (use_dora)", layer.use_dora), ("a bias of its own (lora_bias)", layer.lora_bias)):
            if of.get(name):
                raise ValueError(f"the head's adapter {name!r} has {what}, which logitless does not support")
        variant = getattr(layer, "lora_variant", {}).get(name)
        if variant is not None:
            raise ValueError(
                f"the head's adapter {name!r} is a {type(variant).__name__}, which logitless does not support"
            )
        drop = layer.lora_dropout[name]
        if len(adapters) > 1 and drop.training and getattr(drop, "p", 0) > 0:
            raise ValueError(f"lora_dropout = {drop.p} of the head's adapter {name!r}: with several adapters it must be 0")
    return adapters


def from_peft(layer: Any, weight: PackedWeight | None = None) -> HeadWeight:
    """The current weight of a PEFT LoRA layer, with its active adapters.

    Args:
        layer: a linear layer with adapters, such as the head of a PEFT model.
        weight: a packed weight to use instead of the base layer's weight.

    Returns:
        A LoraWeight, or the base layer's weight if no adapter is active.

    Raises:
        ValueError: an adapter is not a plain LoRA.

    Example:
        >>> import peft, torch
        >>> from logitless.lora import from_peft
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 7))
        >>> model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["0"]))
        >>> from_peft(model.base_model.model[0]).shape
        (7, 4)
    """
    import torch

    from ._torch_quantised import packed_of

    if layer.disable_adapters and layer.merged:
        layer.unmerge()  # as the layer's own forward does
    inside = layer.get_base_layer().weight
    whole = weight or packed_of(inside) or inside
    adapters = check_peft(layer)
    if layer.disable_adapters or layer.merged or not adapters:
        return whole
    if len(adapters) == 1:
        (name,) = adapters
        drop = layer.lora_dropout[name]
        dropout = None if isinstance(drop, torch.nn.Identity) else drop
        return LoraWeight(whole, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name], dropout)
    a = torch.cat([layer.scaling[name] * layer.lora_A[name].weight for name in adapters])
    b = torch.cat([layer.lora_B[name].weight for name in adapters], dim=1)
    return LoraWeight(whole, a, b)


def has_trained_rows(layer: Any) -> bool:
    """Tells whether PEFT trains some rows of a layer (trainable_token_indices). The layer may be the wrapper
    or the layer inside."""
    return hasattr(getattr(layer, "token_adapter", layer), "trainable_tokens_delta")


def rows_from_peft(layer: Any) -> tuple[HeadWeight, Any]:
    """The current weight and bias of a layer of which PEFT trains some rows.

    Few rows become a LoRA W + b @ a: b [V, k] has a 1 for each trained row, and a [k, H] holds the changes of
    these rows, so only they get a gradient. Many rows are copied into the weight, as PEFT does.
    """
    import torch

    layer = getattr(layer, "token_adapter", layer)
    inside = layer.base_layer
    adapters = [name for name in layer.active_adapters if name in layer.token_indices]
    if layer.disable_adapters and layer.merged:
        layer.unmerge()  # as the layer's own forward does
    if layer.disable_adapters or layer.merged or not adapters:
        return inside.weight, inside.bias
    layer._check_overlapping_tokens(adapters)
    weight = inside.weight
    rows = [row for name in adapters for row in layer.token_indices[name]]
    # Up to H / 8 rows, b takes an eighth of the weight's memory. If a row is named twice, PEFT uses the last
    # one, which a LoRA cannot express.
    if weight.requires_grad or len(rows) > weight.shape[1] // 8 or len(set(rows)) < len(rows):
        return layer.get_merged_weights(adapters), None  # PEFT's forward also ignores the bias
    wide = torch.promote_types(weight.dtype, torch.float32)
    index = torch.tensor(rows)
    trained = torch.cat([layer.trainable_tokens_delta[name].to(weight) for name in adapters])
    b = torch.zeros(weight.shape[0], len(rows), dtype=wide)
    b[index, torch.arange(len(rows))] = 1
    return LoraWeight(weight, trained.to(wide) - weight[index].to(wide), b), None
