# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The losses of logitless.torch that are taken of sequences: policy, preference, KTO."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._torch_call import check_cpu, ids_of, not_compiled, row_of, without_gradient
from ._torch_head import Head, other_head, read_head
from ._torch_loss import loss_of
from ._torch_options import KTO, POLICY, PREFERENCE, arguments_of
from ._torch_sets import sets_of
from .lora import HeadWeight


_FIELDS = {"policy_loss": POLICY, "preference_loss": PREFERENCE, "kto_loss": KTO}
# What a tensor has an entry for; the others are lists.
_PER = {
    **dict.fromkeys(("old_logps", "sampling_logps", "teacher_logps", "mask"), ("token",)),
    **dict.fromkeys(("scores", "labels", "sequence_weights", "reward_targets"), ("sequence",)),
    **dict.fromkeys(("advantages", "ref_logps"), ("sequence", "token")),
}


def _sequence_loss(
    function: str,
    head: Head,
    ids: dict[str, Tensor],
    tensors: dict[str, Tensor | None],
    beside: dict[str, Any],
    options: dict[str, Any],
    dtype: torch.dtype | None,
    return_metrics: bool,
) -> Any:
    """The loss of sequences of that name in _core: hidden [B, T, H] and ids [B, T], or [N, H] and [N]. `tensors` have an
    entry a token or a sequence, `beside` are arguments that are finished, and `options` what the caller has named."""
    hidden = head.input
    ((ids_name, chosen),) = ids.items()
    check_cpu(**ids, **tensors)
    if hidden.dim() not in (2, 3):
        raise ValueError(f"hidden has shape {tuple(hidden.shape)}: it must be [B, T, H] or [N, H]")
    lead = hidden.shape[:-1]
    if chosen.shape != lead:
        raise ValueError(f"expected {ids_name} of shape {tuple(lead)}, as hidden has, got {tuple(chosen.shape)}")
    arguments = arguments_of(function, _FIELDS[function], options, lead, tensors.pop("temperatures"))
    arguments.update(beside)
    arguments[ids_name] = ids_of(chosen)
    offsets = tensors["offsets"]
    sequences = (1 if hidden.dim() == 2 else lead[0]) if offsets is None else offsets.numel() - 1
    shapes = {"token": (tuple(lead), (lead.numel(),)), "sequence": ((sequences,), (sequences, 1))}
    without_gradient(**tensors)
    for name, tensor in tensors.items():
        if tensor is not None:
            given = [shape for per in _PER.get(name, ()) for shape in shapes[per]] or [(tensor.numel(),)]
            row = row_of(name, tensor, *given)
            arguments[name] = row.to(torch.uint8) if row.dtype == torch.bool else row
    report: dict[str, Any] = {}
    loss = loss_of(function, head, None, arguments, dtype, lead, report)
    return (loss, report["metrics"]) if return_metrics else loss


def _reference(
    hidden: Tensor | None, weight: HeadWeight | None, bias: Tensor | None, vocab_ids: Tensor | None
) -> dict[str, Any]:
    """The arguments of a reference that has states and a head of its own, or of none."""
    if hidden is not None and weight is not None:
        return other_head("ref_", hidden, weight, bias, vocab_ids)
    if any(x is not None for x in (hidden, weight, bias, vocab_ids)):
        raise ValueError("a reference of its own states and head has ref_hidden and ref_weight, and one is not given")
    return {}


@not_compiled
def policy_loss(
    hidden: Tensor,
    weight: HeadWeight,
    chosen_ids: Tensor,
    advantages: Tensor | None = None,
    *,
    bias: Tensor | None = None,
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
    temperatures: Tensor | None = None,
    offsets: Tensor | None = None,
    vocab_ids: Tensor | None = None,
    dtype: torch.dtype | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """A policy loss of sampled tokens (loss_type="grpo", "dapo", "ppo", ...: docs/losses.md), with gradients of
    hidden and head. advantages are per sequence or per token, logps and mask per token, scores per sequence
    (loss_type="topr", positive_nll_weight); options are the members of PolicyOptions. teacher_logps and
    teacher_weight=1.0 distil on-policy; advantages may be left out then. With return_metrics=True a dict of them comes
    with the loss.

    kept_ids are the token ids that a sampler kept (top-p, top-k), chosen ones included: [..., K] with kept_counts where
    tokens have fewer, or [E] with kept_offsets. Log-probabilities are then over these (docs/losses-policy.md).
    temperatures, vocab_ids and context are those of linear_cross_entropy(); all ids mean places among vocab_ids.
    offsets, [B + 1], say where each of the sequences of hidden [N, H] begins, and where the last one ends."""
    tensors = {"advantages": advantages, "old_logps": old_logps, "ref_logps": ref_logps, "mask": mask}
    tensors.update(sampling_logps=sampling_logps, teacher_logps=teacher_logps, scores=scores)
    tensors.update(temperatures=temperatures, offsets=offsets)
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    kept: dict[str, Tensor] = {}
    if kept_ids is not None:
        sets = sets_of(kept_ids, hidden.shape[:-1], kept_counts, kept_offsets, "kept_ids")
        kept = {"kept_" + name.removeprefix("id_"): tensor for name, tensor in sets.items()}
    elif kept_counts is not None or kept_offsets is not None:
        raise ValueError("kept_counts and kept_offsets belong to kept_ids, which are not given")
    return _sequence_loss("policy_loss", head, {"chosen_ids": chosen_ids}, tensors, kept, options, dtype, return_metrics)


@not_compiled
def preference_loss(
    hidden: Tensor,
    weight: HeadWeight,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    ref_logps: Tensor | None = None,
    ref_hidden: Tensor | None = None,
    ref_weight: HeadWeight | None = None,
    ref_bias: Tensor | None = None,
    ref_vocab_ids: Tensor | None = None,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    offsets: Tensor | None = None,
    vocab_ids: Tensor | None = None,
    dtype: torch.dtype | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """A loss of pairs (DPO's family, ORPO, SimPO, CPO): hidden [2B, T, H] holds the chosen sequences, then
    the rejected ones. options are the members of PreferenceOptions, e.g. loss_type="ipo" or a list of names with
    loss_weights; the reference is its log-probabilities, one a sequence or a token, or its own states and head, which
    are run forward in the same call, with its ref_bias, ref_softcap and ref_vocab_ids. temperatures, offsets,
    vocab_ids and context are those of policy_loss()."""
    tensors = {"ref_logps": ref_logps, "temperatures": temperatures, "offsets": offsets}
    reference = _reference(ref_hidden, ref_weight, ref_bias, ref_vocab_ids)
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("preference_loss", head, {"targets": targets}, tensors, reference, options, dtype, return_metrics)


def _flags(name: str, tensor: Tensor) -> Tensor:
    """What stands for yes and no, as bools."""
    check_cpu(**{name: tensor})
    others = tensor[(tensor != 0) & (tensor != 1)]
    if others.numel():
        raise ValueError(f"{name} has {others[0].item()}: each must be 0 or 1, or a bool")
    return tensor.detach() != 0


@not_compiled
def kto_loss(
    hidden: Tensor,
    weight: HeadWeight,
    targets: Tensor,
    labels: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    ref_logps: Tensor | None = None,
    ref_hidden: Tensor | None = None,
    ref_weight: HeadWeight | None = None,
    ref_bias: Tensor | None = None,
    ref_vocab_ids: Tensor | None = None,
    kl_logps: Tensor | None = None,
    kl_ref_logps: Tensor | None = None,
    sequence_weights: Tensor | None = None,
    reward_targets: Tensor | None = None,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    offsets: Tensor | None = None,
    vocab_ids: Tensor | None = None,
    dtype: torch.dtype | None = None,
    return_metrics: bool = False,
    group: Any = None,
    **options: Any,
) -> Any:
    """A loss of single sequences (loss_type="kto", "apo_zero_unpaired", "bco", "a2po"): labels is one a sequence,
    true where it is desirable; a2po may have none. reward_targets, one a sequence, are what a2po fits, and
    sequence_weights multiply the losses. The reference, temperatures, offsets, vocab_ids and context are those
    of preference_loss()."""
    tensors: dict[str, Tensor | None] = {"ref_logps": ref_logps, "kl_logps": kl_logps, "kl_ref_logps": kl_ref_logps}
    tensors["labels"] = None if labels is None else _flags("labels", labels)
    tensors.update(sequence_weights=sequence_weights, reward_targets=reward_targets)
    tensors.update(temperatures=temperatures, offsets=offsets)
    reference = _reference(ref_hidden, ref_weight, ref_bias, ref_vocab_ids)
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("kto_loss", head, {"targets": targets}, tensors, reference, options, dtype, return_metrics)
