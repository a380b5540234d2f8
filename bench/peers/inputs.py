# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The single file of tensors that every contender reads: drawn from a seed, or taken from the user's files."""

import math

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from job import GRPO_EPSILON, Shape

LOGIT_DEVIATION = 4.0  # of drawn logits, as in the command's seeded inputs
LOG_RATIO_DEVIATION = 0.25  # nats between the policy and the sampling or reference policy
CLIP_MARGIN = 0.1  # nats; bfloat16 logits below 32 are rounded by at most 0.06
ROWS = 256  # rows whose logits are computed at once

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def drawn(shape: Shape, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    head = torch.empty(shape.vocab, shape.hidden).normal_(0, LOGIT_DEVIATION / shape.hidden**0.5, generator=generator)
    student = {
        "hidden": torch.empty(shape.tokens, shape.hidden).normal_(generator=generator).to(DTYPES[shape.dtype]),
        "lm_head": head.to(DTYPES[shape.dtype]),
        "targets": torch.randint(shape.vocab, (shape.tokens,), generator=generator),
    }
    return student | (drawn_teacher(shape, generator) if shape.teacher_hidden else {})


def drawn_teacher(shape: Shape, generator: torch.Generator) -> dict[str, torch.Tensor]:
    width, dtype = shape.teacher_hidden, DTYPES[shape.dtype]
    head = torch.empty(shape.vocab, width).normal_(0, LOGIT_DEVIATION / width**0.5, generator=generator)
    return {
        "teacher_hidden": torch.empty(shape.tokens, width).normal_(generator=generator).to(dtype),
        "teacher_head": head.to(dtype),
    }


def captured(states: str, head: str, shape: Shape) -> dict[str, torch.Tensor]:
    """Return the first tokens of `hidden` and `targets` from one file, and `lm_head` from another. Raises
    ValueError if their shapes differ from `shape`."""
    with safe_open(states, framework="pt") as file:
        hidden = file.get_slice("hidden")[: shape.tokens]
        targets = file.get_slice("targets")[: shape.tokens]
    with safe_open(head, framework="pt") as file:
        weight = file.get_tensor("lm_head")
    for path, name, tensor, wanted in ((states, "hidden", hidden, (shape.tokens, shape.hidden)),
                                       (head, "lm_head", weight, (shape.vocab, shape.hidden))):
        if tuple(tensor.shape) != wanted:
            raise ValueError(f"{path}: {name} is {list(tensor.shape)}, not {list(wanted)}")
    dtype = DTYPES[shape.dtype]
    return {"hidden": hidden.to(dtype), "lm_head": weight.to(dtype), "targets": targets.long()}


def policy_batch(tensors: dict[str, torch.Tensor], sequences: int, seed: int) -> dict[str, torch.Tensor]:
    """Return policy_loss's additional inputs: advantages, and log-probabilities near the policy's own. No
    ratio is close to a clip bound; otherwise the rounding of bfloat16 logits would decide which tokens have a
    gradient."""
    generator = torch.Generator().manual_seed(seed + 1)
    head = tensors["lm_head"].float()
    own = [torch.nn.functional.cross_entropy(hidden.float() @ head.T, targets, reduction="none").neg()
           for hidden, targets in zip(tensors["hidden"].split(ROWS), tensors["targets"].split(ROWS))]
    logps = torch.cat(own)
    log_ratios = LOG_RATIO_DEVIATION * torch.randn(len(logps), generator=generator)
    for bound in (1 - GRPO_EPSILON, 1 + GRPO_EPSILON):
        log_ratios[(log_ratios - math.log(bound)).abs() < CLIP_MARGIN] = 0
    return {
        "advantages": torch.randn(sequences, generator=generator),
        "old_logps": logps - log_ratios,
        "ref_logps": logps + LOG_RATIO_DEVIATION * torch.randn(len(logps), generator=generator),
    }


def write(path: str, tensors: dict[str, torch.Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
