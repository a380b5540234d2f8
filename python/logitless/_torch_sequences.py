# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The losses of logitless.torch on sequences: policy, preference, KTO."""

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
# Whether a tensor is per token or per sequence. Other tensors may have any shape, and are flattened.
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
    """The sequence loss `function` of _core: hidden [B, T, H] and ids [B, T], or [N, H] and [N]. `tensors`
    are per token or per sequence, `beside` are further arguments for _core, and `options` are the caller's
    options."""
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
    """Arguments for _core of a reference given by hidden states and a head; {} without one."""
    if hidden is not None and weight is not None:
        return other_head("ref_", hidden, weight, bias, vocab_ids)
    if any(x is not None for x in (hidden, weight, bias, vocab_ids)):
        raise ValueError("ref_hidden and ref_weight give a reference together, but one of them is missing")
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
    """Policy loss of sampled tokens: loss_type="grpo", "dapo", "ppo", ... (docs/losses-policy.md).

    advantages are per sequence or per token, logps and mask per token, and scores per sequence (for
    loss_type="topr" and positive_nll_weight). teacher_logps with teacher_weight=1.0 distil on-policy;
    advantages are then optional.

    kept_ids are the token ids that a sampler kept (top-p, top-k), including the chosen ones: [..., K], with
    kept_counts if tokens have fewer than K, or [E] with kept_offsets. Log-probabilities are then normalised
    over these ids.

    temperatures, vocab_ids and context are as in linear_cross_entropy(); all ids are then indices into
    vocab_ids. For packed sequences in hidden [N, H], offsets [B + 1] are the first token of each sequence and
    the end of the last."""
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
    """Preference loss of pairs of sequences (DPO and its variants, ORPO, SimPO, CPO): hidden [2B, T, H] holds
    the chosen sequences, then the rejected ones.

    loss_type is a name such as "ipo", or a list of names with loss_weights. The reference is given by
    ref_logps, one per sequence or per token, or by its own hidden states and head (ref_hidden, ref_weight,
    ref_bias, ref_softcap, ref_vocab_ids), which run forward in the same call. temperatures, offsets,
    vocab_ids and context are as in policy_loss()."""
    tensors = {"ref_logps": ref_logps, "temperatures": temperatures, "offsets": offsets}
    reference = _reference(ref_hidden, ref_weight, ref_bias, ref_vocab_ids)
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("preference_loss", head, {"targets": targets}, tensors, reference, options, dtype, return_metrics)


def _flags(name: str, tensor: Tensor) -> Tensor:
    """Checks that the tensor has only 0 and 1; returns it as bools."""
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
    """Loss of single sequences, each labelled desirable or not: loss_type="kto", "apo_zero_unpaired", "bco"
    or "a2po".

    labels, one per sequence, are true for desirable sequences; for a2po they are optional. reward_targets,
    one per sequence, are the rewards that a2po fits. sequence_weights multiply the losses. The reference,
    temperatures, offsets, vocab_ids and context are as in preference_loss()."""
    tensors: dict[str, Tensor | None] = {"ref_logps": ref_logps, "kl_logps": kl_logps, "kl_ref_logps": kl_ref_logps}
    tensors["labels"] = None if labels is None else _flags("labels", labels)
    tensors.update(sequence_weights=sequence_weights, reward_targets=reward_targets)
    tensors.update(temperatures=temperatures, offsets=offsets)
    reference = _reference(ref_hidden, ref_weight, ref_bias, ref_vocab_ids)
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    return _sequence_loss("kto_loss", head, {"targets": targets}, tensors, reference, options, dtype, return_metrics)
