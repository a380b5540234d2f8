# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for TRL: trainers take log-probabilities and their statistics from the fused head.

    from logitless.trl import patch
    trainer = trl.SFTTrainer(model, ...)  # or DPO, GRPO, KTO, RLOO
    patch(trainer)
    trainer.train()                       # the same losses, gradients and logs

TRL's trainers give their models a forward that runs the body and asks one function for what each target's loss and the
logs are made of. patch() puts logitless in the place of that function, and leaves all else to TRL.
"""

from __future__ import annotations

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

# The columns of logitless.token_stats() that make TRL's outputs.
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
    """What TRL's function returns for the same arguments: the log-probabilities of targets [N], and of the statistics
    those that are named in `outputs`."""
    # The head has the type in which TRL would run it: that of autocast, or that of the hidden states.
    packed = packed_of(weight)
    if packed is None:
        hidden, weight, bias = cast_for_autocast(hidden, weight, bias)  # type: ignore[assignment]
        weight = weight.to(hidden.dtype)
    bias = None if bias is None else bias.to(hidden.dtype)
    # softcap * tanh(scale * logit / softcap) / temperature, where the library scales after the softcap.
    head = read_head(
        hidden, weight if packed is None else packed, bias, softcap=(final_logit_softcapping or 0.0) / logit_scale
    )
    columns = token_columns(
        head,
        targets,
        tuple(name for output in _COLUMNS if output in outputs for name in _COLUMNS[output]),
        options={"temperature": temperature / logit_scale, "dtype": "float64"},
        expects_rows=True,  # entropies are logged, and few losses have a gradient of them
    )
    made = {
        "entropy": lambda: columns["entropy"],
        "log_sum_sq_probs": lambda: columns["square_sum"].log(),
        # cross is the mean of log-probabilities: log p = logit - lse.
        "mean_logits": lambda: columns["cross"] + columns["lse"].detach(),
        "is_top1": lambda: columns["argmax"] == targets,
    }
    statistics = [made[name]() if name in outputs else None for name in _COLUMNS]
    return tuple(t.float() if t is not None and t.is_floating_point() else t for t in (columns["logp"], *statistics))


class _LogProbs:
    """Stands where TRL has its autograd function."""

    apply = staticmethod(_log_probs)


def _scores_targets_alone(device: torch.device) -> bool:
    """Stands where TRL asks whether a device scores only positions with a label, and not all of them."""
    return True


# The names that TRL's forward reads, and those that it reads in a patched model, of the same module. So what holds the
# forward, such as accelerate's prepare(), keeps it.
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
    """The forward that TRL has given the model, under what has wrapped it since."""
    forward = getattr(model, "forward", None)
    while forward is not None:
        function = getattr(forward, "__func__", forward)
        if getattr(function, "__globals__", None) is vars(utils):
            return function
        forward = getattr(function, "__wrapped__", None)
    return None


def _models_of(trainer: Any) -> dict[str, Any]:
    """The causal LMs of a trainer, by the names that it has for them."""
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
                f"{type(trainer).__name__}.{name} has no head of TRL's to take the place of (TRL {trl.__version__}): "
                "trainers have one whose losses are made of log-probabilities, which are those of SFT, DPO, GRPO, KTO "
                f"and RLOO in TRL {_WRITTEN_FOR}"
            )
        forwards[name] = forward
    return forwards


def _check_version(forwards: dict[str, types.FunctionType]) -> None:
    missing = {name for forward in forwards.values() for name in set(_NAMES) - set(forward.__code__.co_names)}
    function = getattr(utils, "_ChunkedLogProbFunction", None)
    arguments = [] if function is None else list(inspect.signature(function.forward).parameters)[1:]
    if missing or arguments != _ARGUMENTS:
        what = f"reads no {' and no '.join(sorted(missing))}" if missing else f"hands over {', '.join(arguments)}"
        raise RuntimeError(
            f"the head of TRL {trl.__version__} {what}: logitless.trl is written for that of TRL {_WRITTEN_FOR}"
        )


def _check_settings(trainer: Any) -> None:
    """Throws where TRL would compute logits for the loss, or where the head is not whole."""
    args = trainer.args
    if isinstance(trainer, trl.SFTTrainer):
        own = trainer.compute_loss_func
        fused = "compute_loss_func=compute_loss_func(patch(model), label_smoothing=...) of logitless.transformers"
        if own is not None and getattr(own, "func", None) is not loss_of_output:
            raise ValueError(f"compute_loss_func = {own!r}: it makes the loss of logits. Take it away, or give {fused}")
        if own is None and args.loss_type == "nll" and args.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor = {args.label_smoothing_factor}: SFTTrainer makes this loss of logits. "
                f"Give it {fused}"
            )
    if is_deepspeed_zero3_enabled():
        raise ValueError(f"deepspeed = {args.deepspeed!r}: with ZeRO stage 3 the backward has a part of the head")


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
    """Makes a trainer of TRL take its log-probabilities, and the statistics that it logs, from the fused head. Its model and its reference model are patched, and only positions with a label are computed.

    All else is TRL's: labels and masks, the loss, its reduction, the auxiliary loss of experts, generation. A call
    without labels (generate(), logits for compute_metrics) runs as it did.

    Args:
        trainer: a trainer of TRL, before train().

    Returns:
        The trainer.

    Raises:
        ValueError: an adapter on the head, a head of a class that neither torch, bitsandbytes nor torchao has, or that is
            not on the CPU, a loss that TRL makes of logits (SFTTrainer's label_smoothing_factor, and a compute_loss_func
            that is not logitless.transformers.compute_loss_func()), or a trainer that takes no log-probabilities from
            such a head.
        RuntimeError: the installed TRL has another head.

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
    """Gives a patched trainer TRL's own head back.

    Args:
        trainer: a trainer that patch() has returned.

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
