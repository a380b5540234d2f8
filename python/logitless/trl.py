# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for TRL: trainers compute their losses and logs by the fused head, without logits in memory.

    from logitless.trl import patch
    trainer = trl.SFTTrainer(model, ...)  # or DPO, GRPO, KTO, RLOO, Distillation, and experimental ones
    patch(trainer)
    trainer.train()                       # the same losses, gradients and logs

There are three kinds of trainers. In most of TRL's stable ones, the model's forward runs the body, and calls one
function for the log-probabilities and statistics that the loss and the logs need: patch() replaces that function.
DistillationTrainer calls a function for the divergence of two heads: patch() replaces it. Experimental trainers
read logits: patch() makes the heads return logits whose operators are fused.
"""

from __future__ import annotations

from ._extras import check_extra

check_extra("trl")

from typing import Any

import torch
import trl
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from ._trl_head import WRITTEN_FOR, TrlHead
from ._trl_losses import Divergence, LogitsOfLosses
from .transformers import causal_lm, loss_of_output

__all__ = ["patch", "unpatch"]

# How each trainer is patched. A class is known by its name and the beginning of its module's name, because
# importing TRL's experimental package warns. Subclasses are patched like the first base that is here.
_KINDS: dict[tuple[str, str], Any] = {
    **dict.fromkeys((("trl.trainer", f"{name}Trainer") for name in ("SFT", "DPO", "KTO", "GRPO", "RLOO")), TrlHead),
    ("trl.trainer", "DistillationTrainer"): Divergence,
    **dict.fromkeys(
        (
            ("trl.experimental", f"{name}Trainer")
            for name in ("A2PO", "CPO", "GKD", "GOLD", "IWOPD", "ORPO", "OnlineDPO", "SDFT", "SDPO")
            + ("ServerDistillation", "TPO")
        ),
        LogitsOfLosses,
    ),
}
_REFUSED = {
    "RewardTrainer": "its head returns one score per sequence, and has no vocabulary",
    "AsyncGRPOTrainer": "it trains together with a vLLM server, on GPUs, and logitless computes on the CPU",
    "AsyncDistillationTrainer": "it trains together with a vLLM server, on GPUs, and logitless computes on the CPU",
}


def _kind_of(trainer: Any) -> Any:
    """The kind of a trainer; a ValueError for trainers that are not supported."""
    name = type(trainer).__name__
    for base in type(trainer).__mro__:
        of_trl = base.__module__.startswith("trl.")
        if of_trl and base.__name__ in _REFUSED:
            raise ValueError(f"{name} (TRL {trl.__version__}) is not supported: {_REFUSED[base.__name__]}")
        for (module, known), kind in _KINDS.items():
            if base.__name__ == known and base.__module__.startswith(module):
                return kind
    names = ", ".join(known.removesuffix("Trainer") for _, known in _KINDS)
    raise ValueError(
        f"{name} is not supported: logitless.trl is written for these trainers of TRL {WRITTEN_FOR}, and their "
        f"subclasses: {names}"
    )


def _seam_of(trainer: Any) -> Any:
    """The object that patches this trainer."""
    if not isinstance(getattr(trainer, "model", None), torch.nn.Module) or not hasattr(trainer, "args"):
        raise TypeError(
            f"logitless.trl takes a trainer of TRL, not a {type(trainer).__name__}: logitless.transformers.patch() "
            "takes a model"
        )
    kind = _kind_of(trainer)
    given = {name: getattr(trainer, name, None) for name in ("model", "ref_model", "teacher_model")}
    return kind(trainer, {name: causal_lm(model) for name, model in given.items() if model is not None})


def _check_settings(trainer: Any, kind: Any) -> None:
    """Raises if TRL would compute the loss from logits, or if DeepSpeed splits the head."""
    args = trainer.args
    if kind is TrlHead and isinstance(trainer, trl.SFTTrainer):
        own = trainer.compute_loss_func
        fused = "compute_loss_func=compute_loss_func(patch(model), label_smoothing=...) of logitless.transformers"
        if own is not None and getattr(own, "func", None) is not loss_of_output:
            raise ValueError(f"compute_loss_func = {own!r}: it computes the loss from logits. Remove it, or give {fused}")
        if own is None and args.loss_type == "nll" and args.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor = {args.label_smoothing_factor}: SFTTrainer computes this loss from logits. "
                f"Give it {fused}"
            )
    if is_deepspeed_zero3_enabled():
        raise ValueError(f"deepspeed = {args.deepspeed!r}: with ZeRO stage 3 the backward only has a part of the head")


def patch(trainer: Any) -> Any:
    """Makes a TRL trainer compute its loss, and the statistics that it logs, by the fused head. The model, the
    reference model and the teacher are patched.

    Everything else is still TRL's code: labels and masks, the loss, its reduction, the auxiliary loss of
    experts, generation. docs/transformers.md lists the trainers, and what is computed for each.

    The heads of experimental trainers return logits whose operators are fused. An operator that is not known
    computes the logits, and warns once.

    Args:
        trainer: a trainer of TRL, before train().

    Returns:
        The trainer.

    Raises:
        ValueError: the trainer is not supported; or its head has an adapter, is not a linear layer of torch,
            bitsandbytes or torchao, or is not on the CPU; or an option makes TRL compute the loss from all
            logits (such as SFTTrainer's label_smoothing_factor, or a compute_loss_func other than
            logitless.transformers.compute_loss_func()).
        RuntimeError: the head or the divergence of the installed TRL version is not supported.

    Example:
        >>> from logitless.trl import patch
        >>> patch(trl.GRPOTrainer(model, reward, args, dataset)).train()  # doctest: +SKIP
    """
    seam = _seam_of(trainer)
    if seam.is_patched():
        raise ValueError("the trainer is patched already")
    _check_settings(trainer, type(seam))
    seam.check()
    seam.patch()
    return trainer


def unpatch(trainer: Any) -> Any:
    """Undoes patch().

    Args:
        trainer: a patched trainer.

    Returns:
        The trainer.

    Raises:
        ValueError: the trainer is not patched.

    Example:
        >>> from logitless.trl import unpatch
        >>> unpatch(trainer).train()  # doctest: +SKIP
    """
    seam = _seam_of(trainer)
    if not seam.is_patched():
        raise ValueError("the trainer is not patched")
    seam.unpatch()
    return trainer
