# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The arguments of sample(), on every surface."""

from __future__ import annotations

from typing import Any


# Name, type, default and meaning. sample() calls its draw_seed `seed`.
SEED = {"draw_seed": "seed"}
DRAW_ARGUMENTS = {
    name: (name, type, default, meaning)
    for name, type, default, meaning in (
        ("num_samples", int, 1, "the number of draws per row, from 1 to 256"),
        ("temperature", float, 1.0, "divides the capped logits; 0: the most likely id"),
        ("top_k", int, 0, "draws only from the k largest logits, at most 256; 0: from all ids"),
        ("top_p", float, 1.0, "draws only from the most likely of the top_k ids that together have this share of their probability"),
        ("draw_seed", int, None, "the random seed; use another one for each call, and for each rank of a batch"),
    )
}


def draws_of(num_samples: int, temperature: Any, temperatures: Any, top_k: int, top_p: float) -> dict[str, Any]:
    """The options of token_stats() for sample(): draws, or for a temperature of 0 the largest logit."""
    for name, value, least in (("num_samples", num_samples, 1), ("top_k", top_k, 0)):
        if value not in range(least, 257):
            raise ValueError(f"{name} = {value} must be an integer from {least} to 256")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p = {top_p} must be a number above 0 and up to 1")
    if top_p < 1 and top_k == 0:
        raise ValueError(
            f"top_p = {top_p} needs top_k: the most likely ids are taken from the top_k largest logits, at most 256"
        )
    if temperature == 0:
        if temperatures is not None:
            raise ValueError("temperature = 0 is given with temperatures: give one of them")
        return {"top_k": 1}
    return {"draws": int(num_samples), "draw_top_k": int(top_k), "draw_top_p": float(top_p), "temperature": temperature}


def is_greedy(options: dict[str, Any]) -> bool:
    """Whether draws_of() returned these options for a temperature of 0."""
    return "top_k" in options
