# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Packed weights, and weights with a LoRA, among the arguments of a call."""

from __future__ import annotations

from typing import Any

from .packed import PackedWeight

_PREFIXES = ("", "teacher_", "ref_")  # of the heads that a call may have


def with_packed(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of _core, with those that a PackedWeight or a LoraWeight stands for."""
    given = [prefix for prefix in _PREFIXES if hasattr(arguments.get(f"{prefix}weight"), "keywords")]
    if not given:
        return arguments
    out = dict(arguments)
    for prefix in given:
        packed = out[f"{prefix}weight"]
        if not isinstance(packed, PackedWeight):  # a LoraWeight, whose module needs PyTorch
            out.update(packed.keywords(prefix))
            packed = out[f"{prefix}weight"]
            if not isinstance(packed, PackedWeight):
                continue
        for name in (f"{prefix}packing", f"{prefix}scales"):
            if out.get(name) is not None:
                raise ValueError(f"{name} is given, and {prefix}weight is a PackedWeight, which has its own")
        out[f"{prefix}weight"] = packed.data
        out.update(packed.keywords(prefix))
    return out
