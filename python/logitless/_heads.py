# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Weights that are more than a matrix, among the arguments of a call."""

from __future__ import annotations

from typing import Any

_PREFIXES = ("", "teacher_", "ref_")  # of the heads that a call may have
# What says how a weight is packed, and what stands beside it: a call takes each from one place.
_PACKED = ("packing", "scales")
_LORA = ("lora_a", "lora_b", "lora_scale", "lora_states")


def with_weights(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of _core, with those that a PackedWeight or a LoraWeight stands for."""
    given = [prefix for prefix in _PREFIXES if hasattr(arguments.get(f"{prefix}weight"), "keywords")]
    if not given:
        return arguments
    out = dict(arguments)
    for prefix in given:
        key = f"{prefix}weight"
        while hasattr(out[key], "keywords"):  # a LoraWeight may stand beside a PackedWeight
            weight = out[key]
            beside = weight.keywords(prefix)
            names = _LORA if f"{prefix}lora_a" in beside else _PACKED
            for name in (prefix + name for name in names):
                if out.get(name) is not None:
                    raise ValueError(f"{name} is given, and {key} is a {type(weight).__name__}, which has its own")
            out.update({key: weight.data, **beside})
    return out
