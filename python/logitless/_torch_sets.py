# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Log-probabilities at sets of token ids, cross-entropy against a distribution per token, and distillation
from both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from ._torch_call import (
    Kept,
    check_cpu,
    handed_over,
    ids_of,
    not_compiled,
    one_gradient,
    results_in,
    row_of,
    row_of_tokens,
    rows_of,
    type_of_results,
    values_of,
    without_gradient,
)
from ._torch_head import HeadTensors, check_backward_half, read_head, shaped_like
from ._torch_loss import loss_of
from ._torch_options import ID_SET, SET_DISTILLATION, SOFT_TARGETS, arguments_of, seeded
from ._torch_ranks import Runner, runner_of
from .lora import HeadWeight


def _rows(tensor: Tensor, lead: torch.Size) -> Tensor:
    """The tensor with its leading axes flattened."""
    return tensor.reshape(lead.numel(), tensor.shape[-1])


def _sequences(hidden: Tensor) -> Tensor:
    """Hidden states as [N, H] or [B, T, H]: all leading axes except the last count sequences."""
    return hidden.flatten(0, -3) if hidden.dim() > 2 else _rows(hidden, hidden.shape[:-1])


_INTEGERS = (torch.int64, torch.int32)


def sets_of(
    ids: Tensor, lead: torch.Size, id_counts: Tensor | None, id_offsets: Tensor | None, name: str = "ids"
) -> dict[str, Tensor]:
    """Arguments for _core of sets of token ids. Messages call them `name`."""
    begin = name.removesuffix("ids") or "id_"
    check_cpu(**{name: ids, f"{begin}counts": id_counts, f"{begin}offsets": id_offsets})
    for of, tensor in (("counts", id_counts), ("offsets", id_offsets)):
        if tensor is not None and tensor.dtype not in _INTEGERS:
            raise TypeError(f"{begin}{of} must be int64 or int32, not {tensor.dtype}")
    if ids.dtype not in _INTEGERS:
        raise TypeError(f"{name} must be int64 or int32, not {ids.dtype}")
    sets = {}
    if id_offsets is not None:
        if ids.dim() != 1:
            raise ValueError(f"{name} has {ids.dim()} axes: with offsets it has one")
        sets["id_offsets"] = id_offsets.long().contiguous()
    elif ids.shape[:-1] != lead:
        raise ValueError(
            f"expected {name} of shape {tuple(lead)} and one axis more, as hidden has, got {tuple(ids.shape)}"
        )
    else:
        ids = _rows(ids, lead)
    if id_counts is not None:
        sets["id_counts"] = row_of_tokens(f"{begin}counts", id_counts, lead).long()
    return {"ids": ids_of(ids).contiguous(), **sets}


def _check_backward_half(
    arguments: dict[str, Any], tensors: tuple[Tensor | None, ...], needs: tuple[bool, ...], run: Runner
) -> None:
    mode = arguments.get("backward", "exact")
    if any(needs) and mode != "exact" and arguments.get("normalise_over") == "set":
        raise ValueError(f'backward = {mode!r} cannot run: normalise_over="set" reads only the ids, not the vocabulary')
    own = ("ids", "id_counts", "id_offsets", "normalise_over")
    tokens = tensors[0].shape[0]  # type: ignore[union-attr]
    like = {name: value for name, value in arguments.items() if name not in own}
    like["targets"] = torch.zeros(tokens, dtype=torch.int64)
    check_backward_half("id_logps", _core.plan_cross_entropy, tensors, like, needs, run)


class _IdLogps(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        arguments: dict[str, Any],
        group: Any,
        frozen: bool,
        *tensors: Tensor | None,
    ) -> Tensor:
        needs = tuple(ctx.needs_input_grad[3:])
        run = runner_of(group)
        _check_backward_half(arguments, tensors, needs, run)
        ctx.save_for_backward(*tensors)
        ctx.kept = Kept(arguments)
        ctx.rest = (run, needs)
        result, ctx.half = run(_core.id_logps, HeadTensors(tensors, arguments).arguments, frozen=frozen)
        return torch.from_numpy(result["logps"])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        run, needs = ctx.rest
        inputs = ctx.saved_tensors
        call = HeadTensors(inputs, ctx.kept.all())
        grads = call.outputs(needs)
        given = values_of(one_gradient(upstream)).flatten().double().contiguous()
        run(_core.id_logps_backward, call.arguments, ctx.half, given)
        grads = shaped_like(grads, inputs, ctx.kept.get("vocab_ids"))
        return (*[None] * 3, *handed_over(grads, (upstream, *inputs)))


@not_compiled
def id_logps(
    hidden: Tensor,
    weight: HeadWeight,
    ids: Tensor,
    *,
    bias: Tensor | None = None,
    id_counts: Tensor | None = None,
    id_offsets: Tensor | None = None,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> Tensor:
    """Log-probabilities at any token ids of each row, with gradients.

    ids are [..., K] with hidden's leading axes, or [E] with id_offsets [N + 1]. If a token has fewer than K
    ids, give id_counts; the results after them are 0. With normalise_over="set", probabilities sum to 1 over
    the token's ids (an id that occurs twice counts once), only these rows of the head are read, and group is
    not supported. temperatures, vocab_ids, group and context are as in linear_cross_entropy().
    """
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group, ids=ids)
    lead = hidden.shape[:-1]
    arguments = seeded(arguments_of("id_logps", ID_SET, options, lead, temperatures))
    dtype = type_of_results(dtype, head.input)
    arguments.update({**head.arguments, **sets_of(ids, lead, id_counts, id_offsets), **results_in(dtype)})
    head = head.of(_rows(head.input, lead))
    logps = _IdLogps.apply(arguments, head.group, head.is_frozen, *head.tensors)
    return logps.view(ids.shape).to(dtype)


@not_compiled
def soft_cross_entropy(
    hidden: Tensor,
    weight: HeadWeight,
    probabilities: Tensor | None = None,
    *,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
    id_counts: Tensor | None = None,
    id_offsets: Tensor | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    reduction: str = "mean",
    softcap: float = 0.0,
    num_items_in_batch: float | Tensor | None = None,
    temperatures: Tensor | None = None,
    token_weights: Tensor | None = None,
    dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> Tensor:
    """Cross-entropy against a target distribution per token, without the logits in memory.

    The targets are probabilities [..., V] with hidden's leading axes, or ids with weights: both [..., K],
    with id_counts if tokens have fewer than K, or [E] with id_offsets. Weights of equal ids add up. The
    targets of a token may have any sum, and get no gradient. probabilities are copied unless they are float32
    (float64 for float64 hidden). mask leaves tokens out.

    subtract_entropy=True returns KL(targets, model). num_items_in_batch, temperatures, token_weights,
    mean_over, vocab_ids, group and context are as in linear_cross_entropy().
    """
    head = read_head(
        hidden,
        weight,
        bias,
        softcap=softcap,
        vocab_ids=vocab_ids,
        group=group,
        probabilities=probabilities,
        ids=ids,
        weights=weights,
        mask=mask,
    )
    without_gradient(probabilities=probabilities, weights=weights)
    given = [x is not None for x in (ids, weights, id_counts, id_offsets)]
    if not all(given[:2]) if probabilities is None else any(given):
        raise ValueError("give probabilities, or ids and weights")
    options["reduction"] = reduction
    lead = hidden.shape[:-1]
    numbers = (temperatures, num_items_in_batch, token_weights)
    arguments = arguments_of("soft_cross_entropy", SOFT_TARGETS, options, lead, *numbers)
    if probabilities is not None:
        if probabilities.shape[:-1] != lead:
            raise ValueError(
                f"expected probabilities of shape {tuple(lead)} and one axis more, as hidden has, "
                f"got {tuple(probabilities.shape)}"
            )
        sums = torch.float64 if head.input.dtype == torch.float64 else torch.float32
        arguments["probabilities"] = rows_of(_rows(values_of(probabilities).to(sums), lead))
    else:
        assert ids is not None and weights is not None
        arguments.update(sets_of(ids, lead, id_counts, id_offsets))
        arguments["weights"] = row_of("weights", weights, tuple(ids.shape))
    if mask is not None:
        arguments["mask"] = row_of_tokens("mask", mask, lead)
    return loss_of("soft_cross_entropy", head.of(_sequences(head.input)), reduction, arguments, dtype, lead)


@not_compiled
def set_distillation_loss(
    hidden: Tensor,
    weight: HeadWeight,
    ids: Tensor,
    teacher_logps: Tensor,
    targets: Tensor | None = None,
    *,
    id_counts: Tensor | None = None,
    id_offsets: Tensor | None = None,
    teacher_outside_logps: Tensor | None = None,
    bias: Tensor | None = None,
    reduction: str = "mean",
    softcap: float = 0.0,
    num_items_in_batch: float | Tensor | None = None,
    temperatures: Tensor | None = None,
    token_weights: Tensor | None = None,
    dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> Tensor:
    """Divergence of a student from a teacher whose log-probabilities are known at a set of token ids per
    token.

    ids and teacher_logps are [..., K] with hidden's leading axes, with id_counts if tokens have fewer than K,
    or [E] with id_offsets. outside= selects how the remaining probability is treated: "tail" (the default),
    "truncated", "renormalised", "teacher_renormalised" or "generalised" (docs/losses-distillation.md). For
    "tail", teacher_outside_logps may give the teacher's log-probability of the rest. hidden, weight and bias
    have gradients; the teacher does not.

    targets, one id per token, exclude tokens (ignore_index), and are the labels of the cross-entropy that
    hard_weight= adds. num_items_in_batch, temperatures, token_weights, mean_over, vocab_ids, group and
    context are as in linear_cross_entropy().
    """
    head = read_head(
        hidden,
        weight,
        bias,
        softcap=softcap,
        vocab_ids=vocab_ids,
        group=group,
        ids=ids,
        teacher_logps=teacher_logps,
        teacher_outside_logps=teacher_outside_logps,
        targets=targets,
    )
    without_gradient(teacher_logps=teacher_logps, teacher_outside_logps=teacher_outside_logps)
    lead = hidden.shape[:-1]
    if targets is not None and targets.shape != lead:
        raise ValueError(f"expected targets of shape {tuple(lead)}, as hidden has, got {tuple(targets.shape)}")
    options["reduction"] = reduction
    numbers = (temperatures, num_items_in_batch, token_weights)
    arguments = arguments_of("set_distillation_loss", SET_DISTILLATION, options, lead, *numbers)
    arguments.update(sets_of(ids, lead, id_counts, id_offsets))
    arguments["teacher_logps"] = row_of("teacher_logps", teacher_logps, tuple(ids.shape))
    if teacher_outside_logps is not None:
        arguments["teacher_outside_logps"] = row_of_tokens("teacher_outside_logps", teacher_outside_logps, lead)
    rows = _sequences(head.input)
    if targets is not None:
        arguments["targets"] = ids_of(targets.reshape(rows.shape[:-1]))
    return loss_of("set_distillation_loss", head.of(rows), reduction, arguments, dtype, lead)


def class_probabilities(
    target: Tensor, weight: Tensor | None, label_smoothing: float, classes: int, dtype: torch.dtype
) -> Tensor:
    """The factors of log p in torch.nn.functional.cross_entropy: the target, smoothed and times the class
    weights."""
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    out = values_of(target).to(sums)
    if label_smoothing > 0:
        out = out * (1 - label_smoothing) + label_smoothing / classes
    if weight is not None:
        out = out * values_of(weight).to(sums)
    return out
