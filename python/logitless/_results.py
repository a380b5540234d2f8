# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The results of the package's functions."""

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

    Floats = NDArray[floating[Any]]  # float32, or float64 for float64 calls and dtype="float64"


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a loss: `loss`, per-token or per-sequence NumPy arrays, `metrics` and `plan`."""

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
    """The result of token_stats(): per-token NumPy arrays; top_ids and top_logps are [N, top_k], drawn_ids
    and drawn_logps [N, draws]. Statistics that were not requested are None."""

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
    drawn_ids: NDArray[int64] | None = None
    drawn_logps: Floats | None = None

    @property
    def top_mass(self) -> Floats:
        """The probability of each token's top_k entries together: the sum of exp(top_logps). 0 for ignored
        tokens."""
        if self.top_ids is None or self.top_logps is None:
            raise ValueError("top_mass needs top_ids and top_logps: call token_stats() with top_k > 0")
        taken = (self.top_ids >= 0) | np.isnan(self.top_logps)
        return np.where(taken, np.exp(self.top_logps), 0.0).sum(axis=-1)

    def keys(self) -> list[str]:
        """The names of the statistics that are present. With keys() and [], dict(stats) works."""
        return [name for name in self.__dataclass_fields__ if getattr(self, name) is not None]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)


@dataclasses.dataclass(frozen=True)
class SoftCrossEntropyResult:
    """The result of soft_cross_entropy(): `loss`, `per_token_loss` [N], `metrics` and `plan`."""

    loss: float
    per_token_loss: Floats
    metrics: dict[str, float]
    plan: Plan


@dataclasses.dataclass(frozen=True)
class SetDistillationResult:
    """The result of set_distillation_loss(): `loss`, `per_token_loss` and `per_token_divergence` [N],
    `metrics` and `plan`."""

    loss: float
    per_token_loss: Floats
    per_token_divergence: Floats
    metrics: dict[str, float]
    plan: Plan


@dataclasses.dataclass(frozen=True)
class IdLogps:
    """The result of id_logps(): `logps`, of ids' shape, `plan`, and `forward`, the state for
    id_logps_backward()."""

    logps: Floats
    plan: Plan
    forward: _core.IdLogps
