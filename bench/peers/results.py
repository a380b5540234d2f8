# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What is written: JSON Lines as `logitless bench` writes them, and a table for people."""

import statistics
from dataclasses import dataclass, field

from job import Measured

MIB = 2**20
ERRORS = ("loss_error", "d_hidden_rel_l2", "d_weight_rel_l2")


def quantile(values: list[float], rank: float) -> float:
    """With linear interpolation, as tools/timing/statistics.cc has it."""
    ordered = sorted(values)
    place = rank * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def spread(values: list[float]) -> float:
    """Half the distance between the quartiles."""
    return (quantile(values, 0.75) - quantile(values, 0.25)) / 2


@dataclass
class Turns:
    """What a contender did at one point, over all rounds."""

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
        return {"name": self.contender, "status": "ok", "loss": first.loss, "first_s": first.first_s,
                "median_s": statistics.median(self.times_s), "spread_s": spread(self.times_s),
                "least_s": min(self.times_s), "most_s": max(self.times_s), "times_s": self.times_s,
                "extra_peak_bytes": round(statistics.median(self.peaks_bytes)),
                "extra_peak_spread_bytes": round(spread(self.peaks_bytes)),
                "workspace_bytes": first.workspace_bytes, "plan": first.plan, **self.errors}

    def cells(self) -> list[str]:
        """One row of the table."""
        if self.failure:
            return [self.contender, "left out: " + self.failure]
        times = self.times_s
        cells = [self.contender, f"{statistics.median(times):.3f}", f"{min(times):.3f} to {max(times):.3f}",
                 f"{statistics.median(self.peaks_bytes) / MIB:.1f}", f"{self.measured[0].loss:.7g}"]
        return cells + [f"{self.errors[name]:.1e}" for name in ERRORS if name in self.errors]


def table(turns: list[Turns]) -> str:
    """The first column begins at the left, the others end at the right; a failure runs on past its column."""
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
