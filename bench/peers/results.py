# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Output: JSON Lines as `logitless bench` writes them, and a table for people."""

import math
import statistics
from dataclasses import dataclass, field

from job import Measured

MIB = 2**20
ERRORS = ("loss_error", "d_hidden_rel_l2", "d_weight_rel_l2")

# Largest difference between two correct programs. float32: sums over up to 152,000 vocabulary entries in any
# order. bfloat16: a gradient is rounded once (2^-9), and peers that keep logits or their gradients in
# bfloat16 lose a few more bits.
LOSS_TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-3}
GRADIENT_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


def finite(figure: float) -> float | None:
    """JSON has no NaN."""
    return figure if math.isfinite(figure) else None


def quantile(values: list[float], rank: float) -> float:
    """Interpolate linearly, as tools/timing/statistics.cc does."""
    ordered = sorted(values)
    place = rank * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def spread(values: list[float]) -> float:
    """Return half the distance between the quartiles."""
    return (quantile(values, 0.75) - quantile(values, 0.25)) / 2


def disagreements(figures: dict[str, float | None], dtype: str) -> list[str]:
    """Return the figures above their tolerances. NaN is above, and so is None, which means NaN in a file."""
    limits = dict(zip(ERRORS, (LOSS_TOLERANCE[dtype], GRADIENT_TOLERANCE[dtype], GRADIENT_TOLERANCE[dtype])))
    known = {name: math.nan if figures[name] is None else figures[name] for name in ERRORS if name in figures}
    return [f"{name} is {figure:.1e}, above {limits[name]:.0e}" for name, figure in known.items()
            if not figure <= limits[name]]


@dataclass
class Turns:
    """The measurements of a contender at one point, over all rounds."""

    contender: str
    measured: list[Measured] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)  # against float64
    failure: str = ""

    @property
    def times_s(self) -> list[float]:
        return [seconds for measured in self.measured for seconds in measured.times_s]

    @property
    def peaks_bytes(self) -> list[int]:
        return [peak for measured in self.measured for peak in measured.extra_peaks_bytes]

    def to_json(self) -> dict:
        if self.failure:
            return {"name": self.contender, "status": "error", "message": self.failure}
        first = self.measured[0]
        errors = {name: finite(figure) for name, figure in self.errors.items()}
        method = {"extra_peak_method": first.peak_method} if first.peak_method else {}
        return {"name": self.contender, "status": "ok", "loss": finite(first.loss), "first_s": first.first_s,
                "median_s": statistics.median(self.times_s), "spread_s": spread(self.times_s),
                "times_s": self.times_s,
                "extra_peak_bytes": round(statistics.median(self.peaks_bytes)),
                "extra_peak_spread_bytes": round(spread(self.peaks_bytes)),
                "workspace_bytes": first.workspace_bytes, "plan": first.plan, **errors, **method}

    def cells(self) -> list[str]:
        """Return one row of the table."""
        if self.failure:
            return [self.contender, "left out: " + self.failure]
        times = self.times_s
        cells = [self.contender, f"{statistics.median(times):.3f}", f"{min(times):.3f} to {max(times):.3f}",
                 f"{statistics.median(self.peaks_bytes) / MIB:.1f}", f"{self.measured[0].loss:.7g}"]
        return cells + [f"{self.errors[name]:.1e}" for name in ERRORS if name in self.errors]


def table(turns: list[Turns]) -> str:
    """Align the first column left and the others right; a failure may run past its column."""
    head = ["", "median s", "least to most", "extra MiB", "loss", "its error", "d_hidden", "d_weight"]
    rows = [head] + [each.cells() for each in turns]
    whole = [row for row in rows if len(row) > 2]
    widths = [max(len(row[i]) for row in whole if i < len(row)) for i in range(len(head))]
    widths[0] = max(len(row[0]) for row in rows)
    lines = []
    for row in rows:
        cells = row[1:] if len(row) == 2 else [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
