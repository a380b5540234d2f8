# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Weights with a LoRA beside them, as the functions of logitless.torch take them in place of a matrix.

    from logitless.lora import LoraWeight
    loss = linear_cross_entropy(hidden, LoraWeight(lm_head.weight, a, b, scale), targets)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from .packed import PackedWeight

__all__ = ["LoraWeight", "from_peft"]


@dataclasses.dataclass(frozen=True)
class LoraWeight:
    """weight + scale * b @ a, which is never made: a [r, H] and b [V, r] are multiplied by themselves.

    weight may be a matrix [V, H] or a PackedWeight. What requires a gradient gets one: hidden states, weight, a and b.
    dropout, a module or another function, is applied to the hidden states that a multiplies.
    """

    weight: Tensor | PackedWeight
    a: Tensor
    b: Tensor
    scale: float = 1.0
    dropout: Any = None

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            given = getattr(self, name)
            if not isinstance(given, Tensor) or given.dim() != 2:
                shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise ValueError(f"{name} is {shape}: it must be a tensor of 2 axes")
        rank, entries = self.a.shape[0], self.shape[0]
        if tuple(self.b.shape) != (entries, rank):
            raise ValueError(f"b has shape {tuple(self.b.shape)}: it must be {(entries, rank)}, as weight and a have it")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight: [V, H], or [V, bytes] of one that is packed."""
        return tuple((self.weight.data if isinstance(self.weight, PackedWeight) else self.weight).shape)

    def states(self, hidden: Tensor) -> Tensor:
        """scale * hidden @ a.T, under autograd."""
        if hidden.shape[-1] != self.a.shape[1]:
            raise ValueError(f"a has {self.a.shape[1]} columns but hidden has {hidden.shape[-1]}")
        dropped = hidden if self.dropout is None else self.dropout(hidden)
        return torch.nn.functional.linear(dropped.to(self.a.dtype), self.a) * self.scale

    def keywords(self, prefix: str = "") -> dict[str, Any]:
        """The arguments of a call without gradients of it, and without dropout."""
        weight = self.weight if isinstance(self.weight, PackedWeight) else self.weight.detach()
        a, b = (x.detach().contiguous() for x in (self.a, self.b))
        given = {"weight": weight, "lora_a": a, "lora_b": b, "lora_scale": float(self.scale)}
        return {prefix + name: value for name, value in given.items()}


def is_lora(layer: Any) -> bool:
    """Tells whether a module is a linear layer with adapters of PEFT's LoRA."""
    return all(hasattr(layer, name) for name in ("lora_A", "lora_B", "scaling", "get_base_layer", "out_features"))


def from_peft(layer: Any, weight: Tensor | PackedWeight) -> Tensor | PackedWeight | LoraWeight:
    """The weight of a layer of PEFT's LoRA with its active adapters, where `weight` is that of the layer inside."""
    adapters = [name for name in layer.active_adapters if name in layer.lora_A]
    if layer.disable_adapters or layer.merged or not adapters:
        return weight
    for name in adapters:
        for what, of in (("DoRA (use_dora)", layer.use_dora), ("a bias of its own (lora_bias)", layer.lora_bias)):
            if of.get(name):
                raise ValueError(f"the head's adapter {name!r} has {what}, which logitless does not compute")
        variant = getattr(layer, "lora_variant", {}).get(name)
        if variant is not None:
            raise ValueError(
                f"the head's adapter {name!r} is a {type(variant).__name__}, which logitless does not compute"
            )
    drops = [layer.lora_dropout[name] for name in adapters]
    if len(adapters) == 1:
        a, b = layer.lora_A[adapters[0]].weight, layer.lora_B[adapters[0]].weight
        dropout = None if isinstance(drops[0], torch.nn.Identity) else drops[0]
        return LoraWeight(weight, a, b, float(layer.scaling[adapters[0]]), dropout)
    for name, drop in zip(adapters, drops):
        if drop.training and getattr(drop, "p", 0) > 0:
            raise ValueError(f"lora_dropout = {drop.p} of the head's adapter {name!r}: of several adapters it must be 0")
    a = torch.cat([layer.scaling[name] * layer.lora_A[name].weight for name in adapters])
    b = torch.cat([layer.lora_B[name].weight for name in adapters], dim=1)
    return LoraWeight(weight, a, b)
