# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tables of a file of bench/cores: seconds, and which share of a core's work is left with more threads."""

import json
import pathlib
from dataclasses import dataclass, field

FEWER = 0.85  # efficiencies below this are marked


@dataclass
class Column:
    """One contender, or the rate of a large GEMM."""

    name: str
    seconds: dict[int, float] = field(default_factory=dict)  # by threads
    losses: set[float] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)

    def efficiency(self, threads: int) -> float:
        """Return the time that the fewest threads need together, divided by the time of `threads` threads
        together."""
        fewest = min(self.seconds)
        return self.seconds[fewest] * fewest / (self.seconds[threads] * threads)


@dataclass
class Shape:
    title: str
    columns: dict[str, Column] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)  # FLOP/s of a large GEMM, by threads


@dataclass
class File:
    machine: str
    shapes: list[Shape]


def read(path: pathlib.Path) -> File:
    shapes: dict[str, Shape] = {}
    machine, all_threads = "", 0
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["type"] == "header":
            machine, all_threads = describe(line), line["environment"]["threads"]
            continue
        at, sizes = line["at"], line["shape"]
        title = f"{at['model.name']}, {sizes['dtype']}, {sizes['tokens']:,} tokens: loss and both gradients"
        shape = shapes.setdefault(title, Shape(title))
        threads = int(at.get("threads", all_threads))
        if "gemm_rate_flops" in line:
            shape.rates[threads] = line["gemm_rate_flops"]
        for one in line["contenders"]:
            column = shape.columns.setdefault(one["name"], Column(one["name"]))
            if one["status"] == "ok":
                column.seconds[threads] = one["median_s"]
                column.losses.add(one["loss"])
            else:
                column.failures[threads] = one["message"]
    return File(machine, list(shapes.values()))


def describe(header: dict) -> str:
    facts = header["environment"]
    counts = {"cpus": "CPU", "physical_cores": "core", "sockets": "socket", "numa_nodes": "NUMA node"}
    known = [f"{facts[key]} {word}{'s' * (facts[key] != 1)}" for key, word in counts.items() if key in facts]
    parts = [facts["cpu"], facts.get("cpu_id"), ", ".join(known), facts.get("simd_target"), facts.get("gemm_float32"),
             facts.get("gemm_bf16"), f"logitless {header['version']}",
             f"PyTorch {facts['torch']}" if facts.get("torch", "not installed") != "not installed" else None]
    return "; ".join(part for part in parts if part)


def cell(column: Column, threads: int) -> str:
    if threads not in column.seconds:
        return "left out" if threads in column.failures else ""
    share = column.efficiency(threads)
    return f"{column.seconds[threads]:.3f} ({share:.2f}{'*' if share < FEWER else ''})"


def rate_cell(rates: dict[int, float], threads: int) -> str:
    if threads not in rates:
        return ""
    fewest = min(rates)
    return f"{rates[threads] / 1e9:.0f} ({rates[threads] / threads * fewest / rates[fewest]:.2f})"


def table_of(shape: Shape) -> list[str]:
    threads = sorted({n for column in shape.columns.values() for n in (*column.seconds, *column.failures)})
    rows = [["threads", "GEMM, GFLOP/s", *shape.columns]]
    rows += [[str(n), rate_cell(shape.rates, n), *(cell(column, n) for column in shape.columns.values())] for n in threads]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [shape.title, *("  ".join(text.rjust(width) for text, width in zip(row, widths)).rstrip() for row in rows)]
    for column in shape.columns.values():
        for n, why in column.failures.items():
            lines.append(f"  {column.name}, {n} threads: {why}")
        if not column.name.startswith("torch") and len(column.losses) > 1:
            lines.append(f"  {column.name}: the loss is not the same for every number of threads: {sorted(column.losses)}")
    return lines


def text_of(file: File) -> str:
    head = [file.machine, "Seconds, and in brackets the efficiency: threads x seconds, in the column's first row with a time "
            f"divided by this row; * below {FEWER}.", "The efficiency of the GEMM, one large product, is what the machine allows."]
    return "\n".join(head + [line for shape in file.shapes for line in ["", *table_of(shape)]])
