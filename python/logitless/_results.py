# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What the calls of the package return."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy import floating, int64
    from numpy.typing import NDArray

    from . import _core
    from ._core import Plan

    Floats = NDArray[floating[Any]]  # float32, or float64 where the call is float64 or dtype= asks for it


@dataclasses.dataclass(frozen=True)
class Result:
    """What a loss returns: `loss`, NumPy arrays with one entry per token or per sequence, `metrics` and `plan`."""

    loss: float
    per_token_logps: Floats
    metrics: dict[str, float]
    plan: Plan
    per_token_loss: Floats | None = None
    per_token_lse: Floats | None = None
    per_token_argmax: NDArray[int64] | None = None
    sequence_logps: Floats | None = None
    sequence_losses: Floats | None = None
    per_token_divergence: Floats | None = None
    per_token_acceptance: Floats | None = None
    per_token_agreement: Floats | None = None
    per_token_entropy: Floats | None = None
    per_token_teacher_entropy: Floats | None = None


@dataclasses.dataclass(frozen=True)
class TokenStats:
    """What token_stats() returns: NumPy arrays with one entry per token; top_ids and top_logps are [N, top_k]. What was
    not asked for is None."""

    logp: Floats
    lse: Floats
    max_logit: Floats
    log_sum: Floats
    entropy: Floats | None = None
    cross: Floats | None = None
    argmax: NDArray[int64] | None = None
    rank: NDArray[int64] | None = None
    outside: Floats | None = None
    outside_max: Floats | None = None
    top_ids: NDArray[int64] | None = None
    top_logps: Floats | None = None
    square_sum: Floats | None = None

    @property
    def top_mass(self) -> Floats:
        """How much probability the top_k entries of each token have together: the sum of exp(top_logps).

        It is 0 where a token takes no part.
        """
        if self.top_ids is None or self.top_logps is None:
            raise ValueError("top_mass needs top_ids and top_logps: top_k = 0 asked for none")
        taken = (self.top_ids >= 0) | np.isnan(self.top_logps)
        return np.where(taken, np.exp(self.top_logps), 0.0).sum(axis=-1)

    def keys(self) -> list[str]:
        """The names of what was asked for; with stats["logp"] for stats.logp a dict(stats) has its columns."""
        return [name for name in self.__dataclass_fields__ if getattr(self, name) is not None]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)


@dataclasses.dataclass(frozen=True)
class SoftCrossEntropyResult:
    """What soft_cross_entropy() returns: `loss`, `per_token_loss` [N], `metrics` and `plan`."""

    loss: float
    per_token_loss: Floats
    metrics: dict[str, float]
    plan: Plan


@dataclasses.dataclass(frozen=True)
class SetDistillationResult:
    """What set_distillation_loss() returns: `loss`, `per_token_loss` and `per_token_divergence` [N], `metrics` and
    `plan`."""

    loss: float
    per_token_loss: Floats
    per_token_divergence: Floats
    metrics: dict[str, float]
    plan: Plan


@dataclasses.dataclass(frozen=True)
class IdLogps:
    """What id_logps() returns: `logps`, an array of ids' shape, `plan`, and what id_logps_backward() needs."""

    logps: Floats
    plan: Plan
    forward: _core.IdLogps
