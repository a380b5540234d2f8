# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The function of TRL's own head, computed by the fused head, and how patch() replaces it."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch
import trl
from torch import Tensor
from trl.trainer import utils

from ._model_head import whole_head
from ._torch_call import cast_for_autocast, not_compiled
from ._torch_head import read_head
from ._torch_quantised import packed_of
from ._torch_tokens import token_columns

WRITTEN_FOR = "1.16.0"
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
        "log_sum_sq_probs": lambda: columns["square_sum"].detach().log(),
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


def check_version(what: str, missing: set[str], function: Any, arguments: list[str]) -> None:
    """Raises a RuntimeError if TRL's code does not use the names that the patch replaces, or if the
    function takes other arguments."""
    found = [] if function is None else [name for name in inspect.signature(function).parameters if name != "ctx"]
    if missing or found != arguments:
        differs = f"does not use {' and '.join(sorted(missing))}" if missing else f"passes {', '.join(found)}"
        raise RuntimeError(
            f"the {what} of TRL {trl.__version__} {differs}: logitless.trl is written for TRL {WRITTEN_FOR}"
        )


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


def _check_model(name: str, model: Any, forward: types.FunctionType) -> None:
    check_whole_head(name, model)
    known = inspect.getclosurevars(forward).nonlocals
    for option in ("temperature", "logit_scale", "final_logit_softcapping"):
        value = known.get(option)
        if value is not None and not value > 0:
            raise ValueError(f"{name}: {option} = {value} must be above 0")


def check_whole_head(name: str, model: Any) -> None:
    """Raises unless the head of the model is just a matrix with an optional bias."""
    try:
        whole_head(model)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


class TrlHead:
    """Replaces the function that TRL's own head calls, in the forwards of one trainer's models."""

    def __init__(self, trainer: Any, models: dict[str, Any]) -> None:
        self._models = models
        self._forwards = {}
        for name, model in models.items():
            forward = _forward_of(model)
            if forward is None:
                raise ValueError(
                    f"{type(trainer).__name__}.{name} has no head of TRL's to replace (TRL {trl.__version__}): "
                    f"logitless.trl is written for TRL {WRITTEN_FOR}. If the model's forward was replaced since, create "
                    "the trainer again"
                )
            self._forwards[name] = forward

    def is_patched(self) -> bool:
        return any(_is_patched(forward) for forward in self._forwards.values())

    def check(self) -> None:
        """Raises for another version of TRL, and for a head that cannot be fused."""
        forwards = self._forwards.values()
        missing = {name for forward in forwards for name in set(_NAMES) - set(forward.__code__.co_names)}
        function = getattr(utils, "_ChunkedLogProbFunction", None)
        check_version("head", missing, getattr(function, "forward", None), _ARGUMENTS)
        for name, model in self._models.items():
            _check_model(name, model, self._forwards[name])

    def patch(self) -> None:
        for name, value in _NAMES.values():
            setattr(utils, name, value)
        for forward in self._forwards.values():
            _rename(forward, _PATCHED)

    def unpatch(self) -> None:
        for forward in self._forwards.values():
            if _is_patched(forward):
                _rename(forward, {ours: name for name, ours in _PATCHED.items()})
