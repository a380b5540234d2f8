# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Expands packed weights and weights with a LoRA into the arguments of a _core call."""

from __future__ import annotations

from typing import Any

_PREFIXES = ("", "teacher_", "ref_")  # the arguments of a call's heads
# The arguments that a PackedWeight or a LoraWeight sets. The caller may not set them as well.
_PACKED = ("packing", "scales")
_LORA = ("lora_a", "lora_b", "lora_scale", "lora_states")


def with_weights(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments for _core, in which each PackedWeight and LoraWeight is replaced by its arrays and
    options."""
    given = [prefix for prefix in _PREFIXES if hasattr(arguments.get(f"{prefix}weight"), "keywords")]
    if not given:
        return arguments
    out = dict(arguments)
    for prefix in given:
        key = f"{prefix}weight"
        while hasattr(out[key], "keywords"):  # twice for a LoraWeight of a PackedWeight
            weight = out[key]
            beside = weight.keywords(prefix)
            names = _LORA if f"{prefix}lora_a" in beside else _PACKED
            for name in (prefix + name for name in names):
                if out.get(name) is not None:
                    raise ValueError(f"{name} is given, and {key} is a {type(weight).__name__}, which has its own")
            out.update({key: weight.data, **beside})
    return out
