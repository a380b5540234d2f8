# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Distillation from a teacher's hidden states and head, under autograd of the student."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._torch_call import batched, not_compiled, rows_of, values_of
from ._torch_head import other_head, read_head
from ._torch_loss import loss_of
from ._torch_options import DISTILLATION, arguments_of
from .lora import HeadWeight, LoraWeight


def _check_roles(student: tuple[Any, ...], teacher: tuple[Any, ...]) -> None:
    """Raises if student and teacher seem to be swapped, or the student is detached."""

    def trained(given: tuple[Any, ...]) -> bool:
        loras = [x for x in given if isinstance(x, LoraWeight)]
        tensors = [*given, *(part for x in loras for part in (x.weight, x.a, x.b))]
        return any(isinstance(t, Tensor) and t.requires_grad for t in tensors)

    if torch.is_grad_enabled() and trained(teacher) and not trained(student):
        raise ValueError(
            "the teacher requires a gradient and the student does not: no gradient flows to a teacher, so the two are "
            "swapped, or hidden and weight are detached"
        )


def _wrong_rows(name: str, last: str, hidden: Tensor, got: Tensor) -> ValueError:
    lead = ", ".join(map(str, hidden.shape[:-1]))
    return ValueError(f"expected {name} of shape ({lead}, {last}), as hidden has, got {tuple(got.shape)}")


def _teacher_arguments(
    hidden: Tensor,
    teacher_hidden: Tensor | None,
    teacher_weight: HeadWeight | None,
    teacher_bias: Tensor | None,
    teacher_logits: Tensor | None,
    teacher_vocab_ids: Tensor | None,
) -> dict[str, Any]:
    if teacher_logits is not None:
        if any(x is not None for x in (teacher_hidden, teacher_weight, teacher_bias, teacher_vocab_ids)):
            raise ValueError("teacher_logits replaces teacher_hidden, teacher_weight and teacher_bias: leave those out")
        if teacher_logits.shape[:-1] != hidden.shape[:-1]:
            raise _wrong_rows("teacher_logits", "V", hidden, teacher_logits)
        return {"teacher_logits": rows_of(values_of(teacher_logits))}
    if teacher_hidden is None or teacher_weight is None:
        raise ValueError("give teacher_hidden and teacher_weight, or teacher_logits")
    if teacher_hidden.shape[:-1] != hidden.shape[:-1]:
        raise _wrong_rows("teacher_hidden", "H", hidden, teacher_hidden)
    return other_head("teacher_", teacher_hidden, teacher_weight, teacher_bias, teacher_vocab_ids)


@not_compiled
def distillation_loss(
    hidden: Tensor,
    weight: HeadWeight,
    teacher_hidden: Tensor | None = None,
    teacher_weight: HeadWeight | None = None,
    targets: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    teacher_bias: Tensor | None = None,
    teacher_logits: Tensor | None = None,
    teacher_softcap: float = 0.0,
    vocab_ids: Tensor | None = None,
    teacher_vocab_ids: Tensor | None = None,
    reduction: str = "mean",
    num_items_in_batch: float | Tensor | None = None,
    temperatures: Tensor | None = None,
    token_weights: Tensor | None = None,
    dtype: torch.dtype | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """Divergence of a student (hidden and weight) from a teacher (teacher_hidden and teacher_weight), without
    the logits of either in memory.

    loss_type is "forward_kl" (the default), "reverse_kl", "jsd" (with beta=), ...
    (docs/losses-distillation.md). hidden, weight and bias have gradients; the teacher never has one, detached
    or not. If a server computed the teacher's logits, give teacher_logits [..., V] instead of teacher_hidden
    and teacher_weight.

    targets, one id per token, exclude tokens (ignore_index), and are the labels of the cross-entropy that
    hard_weight= adds. Without targets all tokens count. softcap is the student's. reduction="none" returns
    one loss per token.

    token_weights, mean_over, vocab_ids and context are as in linear_cross_entropy(). teacher_vocab_ids select
    the same number of entries from the teacher's head. Either head may be a PackedWeight. The ranks of group
    share the vocabulary of both heads; teacher_logits are then the columns of the rank's own slice."""
    _check_roles((hidden, weight, bias), (teacher_hidden, teacher_weight, teacher_bias, teacher_logits))
    head = read_head(
        hidden,
        weight,
        bias,
        vocab_ids=vocab_ids,
        group=group,
        teacher_hidden=teacher_hidden,
        teacher_logits=teacher_logits,
        targets=targets,
    )
    if hidden.dim() < 2:
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}: it must be [..., T, H] or [N, H]")
    if targets is not None and targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"expected targets of shape {tuple(hidden.shape[:-1])}, as hidden has, got {tuple(targets.shape)}"
        )
    options["reduction"] = reduction
    lead = hidden.shape[:-1]
    numbers = (temperatures, num_items_in_batch, token_weights)
    arguments = arguments_of("distillation_loss", DISTILLATION, options, lead, *numbers)
    if teacher_softcap:
        arguments["teacher_softcap"] = teacher_softcap
    given = (teacher_hidden, teacher_weight, teacher_bias, teacher_logits, teacher_vocab_ids)
    arguments.update(_teacher_arguments(head.input, *given))
    if targets is not None:
        rows, arguments["targets"] = batched(head.input, targets)
        head = head.of(rows)
    report: dict[str, Any] = {}
    shape = hidden.shape[:-1]
    loss = loss_of("distillation_loss", head, reduction, arguments, dtype, shape, report)
    return (loss, report["metrics"]) if return_metrics else loss
