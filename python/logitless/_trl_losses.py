# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patches of TRL's trainers whose losses do not call TRL's own head: they call a divergence of two heads, or
read the logits that a model returns."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor

from ._model_head import read_lazily, reads_lazily, unread_lazily
from ._torch_distillation import distillation_loss
from ._torch_quantised import packed_of
from ._trl_head import check_version, check_whole_head
from .lora import HeadWeight
from .transformers import absent_logits, evaluating

_DIVERGENCE = "_chunked_divergence_loss"
_ARGUMENTS = ["student_hidden_states", "teacher_hidden_states", "student_lm_head_weight", "teacher_lm_head_weight"]
_ARGUMENTS += ["completion_mask", "beta", "num_items_in_batch", "student_lm_head_bias", "teacher_lm_head_bias"]
_ARGUMENTS += ["student_logit_scale", "teacher_logit_scale", "student_final_logit_softcapping"]
_ARGUMENTS += ["teacher_final_logit_softcapping", "temperature"]

# Options of configurations by which TRL scales logits before their divergence.
_SCALES = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling", "final_logit_softcapping")


def _weight(weight: Tensor, hidden: Tensor) -> HeadWeight:
    """The weight in the type of hidden states, as TRL multiplies it. Under autocast the library casts both."""
    packed = packed_of(weight)
    return weight.to(hidden.dtype) if packed is None else packed


def _divergence_loss(
    student_hidden_states: Tensor,
    teacher_hidden_states: Tensor,
    student_lm_head_weight: Tensor,
    teacher_lm_head_weight: Tensor,
    completion_mask: Tensor,
    beta: float,
    num_items_in_batch: Any = None,
    student_lm_head_bias: Tensor | None = None,
    teacher_lm_head_bias: Tensor | None = None,
    student_logit_scale: float = 1.0,
    teacher_logit_scale: float = 1.0,
    student_final_logit_softcapping: float | None = None,
    teacher_final_logit_softcapping: float | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """TRL's function, with its arguments and results: the loss, the sum of the student's entropies, and the
    number of positions."""
    counted = completion_mask != 0
    positions = counted.sum()
    student, teacher = student_hidden_states[counted], teacher_hidden_states[counted]
    loss_type = {0.0: "forward_kl", 1.0: "reverse_kl"}.get(float(beta), "jsd")
    items = positions.clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    loss, metrics = distillation_loss(
        student,
        _weight(student_lm_head_weight, student),
        teacher,
        _weight(teacher_lm_head_weight, teacher),
        bias=None if student_lm_head_bias is None else student_lm_head_bias.to(student.dtype),
        teacher_bias=None if teacher_lm_head_bias is None else teacher_lm_head_bias.to(teacher.dtype),
        # TRL scales before the softcap, the library after it.
        softcap=(student_final_logit_softcapping or 0.0) / student_logit_scale,
        teacher_softcap=(teacher_final_logit_softcapping or 0.0) / teacher_logit_scale,
        temperature=temperature / student_logit_scale,
        teacher_temperature=temperature / teacher_logit_scale,
        loss_type=loss_type,
        num_items_in_batch=float(items),
        want_entropy=True,
        return_metrics=True,
        **({"beta": beta} if loss_type == "jsd" else {}),
    )
    entropies = metrics["mean_entropy"] * metrics["tokens"] if metrics["tokens"] else 0.0
    return loss, loss.new_tensor(entropies), positions


class Divergence:
    """Gives one trainer a copy of its method _compute_loss() that calls the fused divergence of two heads."""

    def __init__(self, trainer: Any, models: dict[str, Any]) -> None:
        self._trainer = trainer
        self._models = models

    def is_patched(self) -> bool:
        return "_compute_loss" in vars(self._trainer)

    def check(self) -> None:
        """Raises for another version of TRL, and for a head that cannot be fused."""
        method = getattr(type(self._trainer), "_compute_loss", None)
        missing = {_DIVERGENCE} - set(getattr(getattr(method, "__code__", None), "co_names", ()))
        function = None if missing else method.__globals__.get(_DIVERGENCE)  # type: ignore[union-attr]
        check_version("DistillationTrainer", missing, function, _ARGUMENTS)
        for name, model in self._models.items():
            check_whole_head(name, model)
            config = model.config.get_text_config()
            for option in _SCALES:
                value = getattr(config, option, None)
                if value is not None and not value > 0:
                    raise ValueError(f"{name}: {option} = {value} must be above 0")

    def patch(self) -> None:
        method = type(self._trainer)._compute_loss
        names = {**method.__globals__, _DIVERGENCE: _divergence_loss}
        copied = types.FunctionType(
            method.__code__, names, method.__name__, method.__defaults__, method.__closure__
        )
        self._trainer._compute_loss = types.MethodType(copied, self._trainer)

    def unpatch(self) -> None:
        del self._trainer._compute_loss


def _probe(model: Any) -> None:
    """Calls the model with two tokens. A ValueError says what it does to its logits, if that is not supported.
    The test is skipped for a model that needs more than token ids."""

    def call() -> Any:
        return model(input_ids=torch.zeros((1, 2), dtype=torch.int64)).logits

    with evaluating(model):
        try:
            absent_logits(model, call)
        except ValueError:
            raise
        except Exception:
            pass


# The largest k of topk_logps().
_MOST = 256


def _check_options(trainer: Any) -> None:
    """Raises for options with which the loss reads all logits."""
    args = trainer.args
    if getattr(args, "torch_compile", False):
        raise ValueError("torch_compile = True: a compiled model computes its logits. Leave it out")
    if getattr(trainer, "use_uld_loss", False) and getattr(trainer, "teacher_tokenizer", None) is not None:
        raise ValueError("use_uld_loss = True: this loss of two vocabularies sorts all probabilities")
    for name in ("distillation_topk", "loss_top_k"):
        if (getattr(args, name, None) or 0) > _MOST:
            raise ValueError(f"{name} = {getattr(args, name)}: the fused head takes at most {_MOST}")


class LogitsOfLosses:
    """Makes the heads of one trainer's models return LazyLogits, whose operators are fused."""

    def __init__(self, trainer: Any, models: dict[str, Any]) -> None:
        self._trainer = trainer
        self._models = models

    def is_patched(self) -> bool:
        return any(reads_lazily(model) for model in self._models.values())

    def check(self) -> None:
        """Raises for a head that cannot be fused, and for settings whose loss reads all logits."""
        _check_options(self._trainer)
        for name, model in self._models.items():
            try:
                _probe(model)
            except ValueError as error:
                for each in self._models.values():
                    unread_lazily(each)
                raise ValueError(f"{name}: {error}") from None

    def patch(self) -> None:
        for model in self._models.values():
            read_lazily(model)

    def unpatch(self) -> None:
        for model in self._models.values():
            unread_lazily(model)
