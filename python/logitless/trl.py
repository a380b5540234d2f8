# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for TRL: trainers compute log-probabilities and their statistics by the fused head.

    from logitless.trl import patch
    trainer = trl.SFTTrainer(model, ...)  # or DPO, GRPO, KTO, RLOO
    patch(trainer)
    trainer.train()                       # the same losses, gradients and logs

TRL's trainers replace the forward of their models. The new forward runs the body, and calls one function for
the log-probabilities and statistics that the loss and the logs need. patch() replaces only that function.
"""

from __future__ import annotations

from ._extras import check_extra

check_extra("trl")

import inspect
import types
from typing import Any

import torch
import trl
from torch import Tensor
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl.trainer import utils

from ._torch_call import cast_for_autocast, not_compiled
from ._model_head import whole_head
from ._torch_head import read_head
from ._torch_quantised import packed_of
from ._torch_tokens import token_columns
from .transformers import causal_lm, loss_of_output

__all__ = ["patch", "unpatch"]

_WRITTEN_FOR = "1.16.0"
_ARGUMENTS = ["hidden", "weight", "bias", "targets", "temperature", "chunk_size"]
_ARGUMENTS += ["final_logit_softcapping", "logit_scale", "outputs"]

# TRL's outputs, and the columns of logitless.token_stats() that they are computed from.
_COLUMNS = {
    "entropy": ("entropy",),
    "log_sum_sq_probs": ("square_sum",),
    "mean_logits": ("cross", "lse"),
    "is_top1": ("argmax",),
}


@not_compiled
def _log_probs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float,
    chunk_size: int,
    final_logit_softcapping: float | None,
    logit_scale: float,
    outputs: tuple[str, ...],
) -> tuple[Tensor | None, ...]:
    """TRL's function, with its arguments and results: the log-probabilities of targets [N], then the
    statistics, None for those that `outputs` does not name."""
    # The head runs in the same type as in TRL: autocast's, or the hidden states'.
    packed = packed_of(weight)
    if packed is None:
        hidden, weight, bias = cast_for_autocast(hidden, weight, bias)  # type: ignore[assignment]
        weight = weight.to(hidden.dtype)
    bias = None if bias is None else bias.to(hidden.dtype)
    # TRL: softcap * tanh(scale * logit / softcap) / temperature. The library scales after the softcap, so
    # divide the softcap and the temperature by the scale.
    head = read_head(
        hidden, weight if packed is None else packed, bias, softcap=(final_logit_softcapping or 0.0) / logit_scale
    )
    columns = token_columns(
        head,
        targets,
        tuple(name for output in _COLUMNS if output in outputs for name in _COLUMNS[output]),
        options={"temperature": temperature / logit_scale, "dtype": "float64"},
        expects_rows=True,  # entropies are usually only logged, without a gradient
    )
    made = {
        "entropy": lambda: columns["entropy"],
        "log_sum_sq_probs": lambda: columns["square_sum"].log(),
        # cross is the mean over the vocabulary of log p = logit - lse.
        "mean_logits": lambda: columns["cross"] + columns["lse"].detach(),
        "is_top1": lambda: columns["argmax"] == targets,
    }
    statistics = [made[name]() if name in outputs else None for name in _COLUMNS]
    return tuple(t.float() if t is not None and t.is_floating_point() else t for t in (columns["logp"], *statistics))


class _LogProbs:
    """Replaces TRL's autograd function."""

    apply = staticmethod(_log_probs)


def _scores_targets_alone(device: torch.device) -> bool:
    """Replaces TRL's test whether a device computes only positions with a label."""
    return True


# {global name in TRL's forward: (name in a patched forward, its value)}. The forward is patched by renaming
# these in its code, so the function object stays the same for wrappers such as accelerate's prepare().
_NAMES = {
    "_ChunkedLogProbFunction": ("_logitless_log_probs", _LogProbs),
    "_use_triton": ("_logitless_scores_targets_alone", _scores_targets_alone),
}
_PATCHED = {name: ours for name, (ours, _) in _NAMES.items()}


def _rename(function: types.FunctionType, names: dict[str, str]) -> None:
    code = function.__code__
    function.__code__ = code.replace(co_names=tuple(names.get(name, name) for name in code.co_names))


def _is_patched(function: types.FunctionType) -> bool:
    return set(_PATCHED.values()) <= set(function.__code__.co_names)


def _forward_of(model: Any) -> types.FunctionType | None:
    """The forward that TRL has given the model, inside any later wrappers."""
    forward = getattr(model, "forward", None)
    while forward is not None:
        function = getattr(forward, "__func__", forward)
        if getattr(function, "__globals__", None) is vars(utils):
            return function
        forward = getattr(function, "__wrapped__", None)
    return None


def _models_of(trainer: Any) -> dict[str, Any]:
    """The causal LMs of a trainer, by their attribute names."""
    if not isinstance(getattr(trainer, "model", None), torch.nn.Module) or not hasattr(trainer, "args"):
        raise TypeError(
            f"logitless.trl takes a trainer of TRL, not a {type(trainer).__name__}: logitless.transformers.patch() "
            "takes a model"
        )
    given = {name: getattr(trainer, name, None) for name in ("model", "ref_model")}
    return {name: causal_lm(model) for name, model in given.items() if model is not None}


def _forwards_of(trainer: Any) -> dict[str, types.FunctionType]:
    forwards = {}
    for name, model in _models_of(trainer).items():
        forward = _forward_of(model)
        if forward is None:
            raise ValueError(
                f"{type(trainer).__name__}.{name} has no head of TRL's to replace (TRL {trl.__version__}): only trainers "
                f"whose losses use log-probabilities have one, in TRL {_WRITTEN_FOR} SFT, DPO, GRPO, KTO and RLOO"
            )
        forwards[name] = forward
    return forwards


def _check_version(forwards: dict[str, types.FunctionType]) -> None:
    missing = {name for forward in forwards.values() for name in set(_NAMES) - set(forward.__code__.co_names)}
    function = getattr(utils, "_ChunkedLogProbFunction", None)
    arguments = [] if function is None else list(inspect.signature(function.forward).parameters)[1:]
    if missing or arguments != _ARGUMENTS:
        what = f"does not use {' and '.join(sorted(missing))}" if missing else f"passes {', '.join(arguments)}"
        raise RuntimeError(f"the head of TRL {trl.__version__} {what}: logitless.trl is written for TRL {_WRITTEN_FOR}")


def _check_settings(trainer: Any) -> None:
    """Raises if TRL would compute the loss from logits, or if DeepSpeed splits the head."""
    args = trainer.args
    if isinstance(trainer, trl.SFTTrainer):
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


def _check_model(name: str, model: Any, forward: types.FunctionType) -> None:
    try:
        whole_head(model)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    known = inspect.getclosurevars(forward).nonlocals
    for option in ("temperature", "logit_scale", "final_logit_softcapping"):
        value = known.get(option)
        if value is not None and not value > 0:
            raise ValueError(f"{name}: {option} = {value} must be above 0")


def patch(trainer: Any) -> Any:
    """Makes a TRL trainer compute its log-probabilities, and the statistics that it logs, by the fused head.
    The model and the reference model are patched, and only positions with a label are computed.

    Everything else is still TRL's code: labels and masks, the loss, its reduction, the auxiliary loss of
    experts, generation. Calls without labels (generate(), logits for compute_metrics) run as before.

    Args:
        trainer: a trainer of TRL, before train().

    Returns:
        The trainer.

    Raises:
        ValueError: the head has an adapter, is not a linear layer of torch, bitsandbytes or torchao, or is
            not on the CPU; or TRL computes the loss from logits (SFTTrainer's label_smoothing_factor, or a
            compute_loss_func other than logitless.transformers.compute_loss_func()); or the trainer does not
            use log-probabilities.
        RuntimeError: the head of the installed TRL version is not supported.

    Example:
        >>> from logitless.trl import patch
        >>> patch(trl.GRPOTrainer(model, reward, args, dataset)).train()  # doctest: +SKIP
    """
    forwards = _forwards_of(trainer)
    if any(_is_patched(forward) for forward in forwards.values()):
        raise ValueError("the trainer is patched already")
    _check_version(forwards)
    _check_settings(trainer)
    for name, model in _models_of(trainer).items():
        _check_model(name, model, forwards[name])
    for name, value in _NAMES.values():
        setattr(utils, name, value)
    for forward in forwards.values():
        _rename(forward, _PATCHED)
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
    forwards = [forward for forward in _forwards_of(trainer).values() if _is_patched(forward)]
    if not forwards:
        raise ValueError("the trainer is not patched")
    for forward in forwards:
        _rename(forward, {ours: name for name, ours in _PATCHED.items()})
    return trainer
