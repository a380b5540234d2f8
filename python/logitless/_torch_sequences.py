# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The losses of logitless.torch that are taken of sequences: policy, preference, KTO."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._torch_call import check_cpu, ids_of, not_compiled, rows_of, values_of
from ._torch_head import Head, checked_ids, other_weight_of, read_head
from ._torch_loss import loss_of
from ._torch_options import name_of, temperatures_of
from ._torch_sets import sets_of
from .lora import HeadWeight


def _sequence_loss(
    function: str,
    head: Head,
    ids: Tensor,
    ids_name: str,
    return_metrics: bool,
    arguments: dict[str, Any],
) -> Any:
    """The loss of sequences of that name in _core: input [B, T, H] and ids [B, T], or [N, H] and [N]."""
    input = head.input
    check_cpu(**{ids_name: ids})
    if input.dim() not in (2, 3):
        raise ValueError(f"input has shape {tuple(input.shape)}: it must be [B, T, H] or [N, H]")
    if ids.shape != input.shape[:-1]:
        raise ValueError(
            f"expected {ids_name} of shape {tuple(input.shape[:-1])}, as input has, got {tuple(ids.shape)}"
        )
    given: dict[str, Any] = {ids_name: ids_of(ids)}
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            given[name] = name_of(value)
            continue
        check_cpu(**{name: value})
        if value.requires_grad and name != "ref_weight" and name != "ref_hidden":
            raise ValueError(f"{name} requires a gradient, and none flows to it: detach it")
        if name == "temperatures":
            given[name] = temperatures_of(value)
            continue
        if name == "ref_vocab_ids":
            given[name] = checked_ids(name, value)
            continue
        value = values_of(value)
        if name == "kept_ids":  # as sets_of() has made them
            given[name] = value
            continue
        if name in ("ref_hidden", "ref_weight"):
            given[name] = rows_of(value) if name == "ref_hidden" else other_weight_of(value)
        else:
            value = value.to(torch.uint8) if value.dtype == torch.bool else value
            given[name] = value.flatten().contiguous()
    report: dict[str, Any] = {}
    loss = loss_of(function, head, None, given, None, input.shape[:-1], report)
    return (loss, report["metrics"]) if return_metrics else loss


@not_compiled
def policy_loss(
    input: Tensor,
    linear_weight: HeadWeight,
    chosen_ids: Tensor,
    advantages: Tensor | None = None,
    *,
    linear_bias: Tensor | None = None,
    old_logps: Tensor | None = None,
    ref_logps: Tensor | None = None,
    sampling_logps: Tensor | None = None,
    teacher_logps: Tensor | None = None,
    scores: Tensor | None = None,
    mask: Tensor | None = None,
    kept_ids: Tensor | None = None,
    kept_counts: Tensor | None = None,
    kept_offsets: Tensor | None = None,
    softcap: float = 0.0,
    vocab_ids: Tensor | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """A policy loss of sampled tokens (variant="grpo", "dapo", "ppo", ...: docs/losses.md), float32, with gradients of
    input and head. advantages are one a sequence or one a token, logps and mask one a token; options are the
    members of PolicyOptions. scores are one a sequence (variant="topr", positive_nll_weight). teacher_logps and teacher_weight=1.0 distil on-policy; advantages may be left out
    then. With return_metrics=True a dict of them comes with the loss.

    kept_ids are the token ids that a sampler kept (top-p, top-k), chosen ones included: [..., K] with kept_counts where
    tokens have fewer, or [E] with kept_offsets. Log-probabilities are then over these (docs/losses.md, 1.11).
    vocab_ids are those of linear_cross_entropy(); all ids mean places among them."""
    arguments = {"advantages": advantages, "old_logps": old_logps, "ref_logps": ref_logps, "mask": mask}
    arguments.update(sampling_logps=sampling_logps, teacher_logps=teacher_logps, scores=scores, **options)
    if kept_ids is not None:
        kept = sets_of(kept_ids, input.shape[:-1], kept_counts, kept_offsets, "kept_ids")
        arguments.update({"kept_" + name.removeprefix("id_"): tensor for name, tensor in kept.items()})
    elif kept_counts is not None or kept_offsets is not None:
        raise ValueError("kept_counts and kept_offsets belong to kept_ids, which are not given")
    head = read_head(input, linear_weight, linear_bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("policy_loss", head, chosen_ids, "chosen_ids", return_metrics, arguments)


@not_compiled
def preference_loss(
    input: Tensor,
    linear_weight: HeadWeight,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    ref_logps: Tensor | None = None,
    ref_input: Tensor | None = None,
    ref_weight: HeadWeight | None = None,
    softcap: float = 0.0,
    vocab_ids: Tensor | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """A loss of pairs (DPO's family, ORPO, SimPO, CPO), float32: input [2B, T, H] holds the chosen sequences, then
    the rejected ones. options are the members of PreferenceOptions, e.g. losses="ipo" or a list of names with
    loss_weights; the reference is its log-probabilities, one a sequence or a token, or its own states and head, which
    are run forward in the same call. vocab_ids are those of linear_cross_entropy(), and ref_vocab_ids the
    reference's."""
    arguments = {"ref_logps": ref_logps, "ref_hidden": ref_input, "ref_weight": ref_weight, **options}
    head = read_head(input, linear_weight, linear_bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("preference_loss", head, target, "targets", return_metrics, arguments)


@not_compiled
def kto_loss(
    input: Tensor,
    linear_weight: HeadWeight,
    target: Tensor,
    labels: Tensor | None = None,
    *,
    linear_bias: Tensor | None = None,
    ref_logps: Tensor | None = None,
    ref_input: Tensor | None = None,
    ref_weight: HeadWeight | None = None,
    kl_logps: Tensor | None = None,
    kl_ref_logps: Tensor | None = None,
    sequence_weights: Tensor | None = None,
    reward_targets: Tensor | None = None,
    softcap: float = 0.0,
    vocab_ids: Tensor | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """A loss of single sequences (loss="kto", "apo_zero_unpaired", "bco", "a2po"), float32: labels is one a sequence,
    true where it is desirable; a2po may have none. reward_targets, one a sequence, are what a2po fits, and
    sequence_weights multiply the losses. vocab_ids and ref_vocab_ids are those of preference_loss()."""
    arguments: dict[str, Any] = {"ref_logps": ref_logps}
    arguments["labels"] = None if labels is None else labels.to(torch.uint8)
    arguments.update(
        ref_hidden=ref_input, ref_weight=ref_weight, kl_logps=kl_logps, kl_ref_logps=kl_ref_logps
    )
    arguments.update(sequence_weights=sequence_weights, reward_targets=reward_targets)
    arguments.update(options)
    head = read_head(input, linear_weight, linear_bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("kto_loss", head, target, "targets", return_metrics, arguments)
