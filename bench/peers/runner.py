# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Runs contenders in processes of their own, in turns: for each number of threads, and within a limit of
time."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import machine
from contenders import BY_NAME
from job import Job, Measured, Shape
from results import Turns

# Without PyTorch the command alone can be measured, so what needs PyTorch is imported late.
if TYPE_CHECKING:
    from reference import Reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "peers"
GEMM_CALLS = 3  # per round


def process_environment(threads: int) -> dict[str, str]:
    own = {"TORCHINDUCTOR_CACHE_DIR": str(BUILD / "inductor"), "HF_HUB_OFFLINE": "1",
           # without it, the last line of a failure is a note about the filter
           "JAX_TRACEBACK_FILTERING": "off"}
    return {**os.environ, **own, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
            # XLA's pool has NPROC threads, but no more than the cores that the process may use.
            "NPROC": str(threads), "JAX_PLATFORMS": "cpu"}


def keep_to_cores(threads: int) -> None:
    """Restrict this process to its cores, before it becomes a contender's."""
    os.sched_setaffinity(0, machine.in_order_of_use(os.sched_getaffinity(0))[:threads])


def run(job: Job) -> Measured:
    """Run a job in its own process. Raises RuntimeError with the reason if it fails."""
    line = [sys.executable, "-B", str(pathlib.Path(__file__).with_name("worker.py")), job.to_json()]
    process = subprocess.run(line, capture_output=True, text=True, check=False, env=process_environment(job.threads),
                             preexec_fn=lambda: keep_to_cores(job.threads))
    if process.returncode < 0:
        raise RuntimeError(f"its process was killed by signal {-process.returncode}")
    if process.returncode:
        raise RuntimeError((process.stderr.strip().splitlines() or ["it failed without a message"])[-1])
    return Measured(**json.loads(process.stdout.splitlines()[-1]))


def gemm_rate(options: argparse.Namespace, dtype: str, threads: int) -> float | None:
    """Return the FLOP/s of one large GEMM, as `logitless bench` measures it; None if it reports none."""
    with tempfile.TemporaryDirectory() as folder:
        line = [options.command, "bench", str(ROOT / "configs" / "tiny.yaml"), "--contenders", "forward", "--iters",
                str(GEMM_CALLS), "--set", f"threads={threads}", "--set", f"model.dtype={dtype}", "-o",
                folder + "/rate.jsonl"]
        process = subprocess.run(line, capture_output=True, check=False, env=process_environment(threads),
                                 preexec_fn=lambda: keep_to_cores(threads))
        if process.returncode:
            return None
        with open(folder + "/rate.jsonl", encoding="utf-8") as file:
            return json.loads(file.readlines()[-1]).get("gemm_rate_flops")


class Clock:
    """Knows what is left of --minutes, and how long a turn will take: as long as the contender's last one, with
    its calls in inverse proportion to the threads."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes
        self.last: dict[str, tuple[int, float, float]] = {}  # threads, seconds of calls, other seconds

    def add(self, job: Job, seconds: float, measured: Measured) -> None:
        calls = min(seconds, (job.calls + 1) * statistics.median(measured.times_s))
        self.last[job.contender] = job.threads, calls, seconds - calls

    def refusal(self, job: Job) -> str:
        """Return why a turn would take too long; empty if it would not."""
        threads, calls, others = self.last.get(job.contender, (job.threads, 0.0, 0.0))
        needed = calls * max(1.0, threads / job.threads) + others
        left = max(0.0, self.end - time.monotonic())
        return f"it needs about {needed:.0f} s, and {left:.0f} s are left" if needed >= left else ""

    def forget(self) -> None:
        """Forget the turns of a point, because the next point takes another time."""
        self.last = {}


def turn(job: Job, turns: Turns, clock: Clock) -> bool:
    """Add a turn, or the reason why the contender is left out; return whether it ran."""
    needed = BY_NAME[job.contender].memory_needed(job.shape, job.gradients)
    available = machine.memory_bytes("MemAvailable")
    refusal = clock.refusal(job)
    if needed > available:
        refusal = f"it needs about {needed >> 20} MiB of memory, and {available >> 20} MiB are available"
    if not refusal:
        began = time.monotonic()
        try:
            turns.measured.append(run(job))
            clock.add(job, time.monotonic() - began, turns.measured[-1])
            return True
        except RuntimeError as error:
            refusal, turns.measured = str(error), []
    if not turns.measured:
        turns.failure = refusal
    return False


@dataclass
class Team:
    """The figures of one point, with one number of threads."""

    threads: int
    turns: dict[str, Turns]  # by contender
    rates: list[float] = field(default_factory=list)  # FLOP/s of a large GEMM

    def add_rate(self, rate: float | None) -> None:
        if rate:
            self.rates.append(rate)


def measure_point(options: argparse.Namespace, task: str, shape: Shape, file: str, gradients: bool,
                  truth: Reference | None, clock: Clock) -> list[Team]:
    """Return the figures for each number of threads."""
    names = [name for name in options.contenders if task in BY_NAME[name].tasks]
    teams = [Team(threads, {name: Turns(name) for name in names}) for threads in options.threads]
    clock.forget()
    for number in range(options.rounds):
        forward = number % 2 == 0
        for team in teams if forward else reversed(teams):
            if not options.unchecked:
                team.add_rate(gemm_rate(options, shape.dtype, team.threads))
            for name in names if forward else reversed(names):
                turns = team.turns[name]
                if turns.failure:
                    continue
                print(f"  round {number + 1} of {options.rounds}, {team.threads} threads: {name}", file=sys.stderr,
                      flush=True)
                # Results are checked only once, because each turn gives the same up to the last bits.
                wanted = truth and gradients and number == 0 and team is teams[0]
                results = BUILD / "results.safetensors" if wanted else None
                ran = turn(Job(name, task, shape, file, gradients, options.calls, team.threads, options.command,
                               str(results) if results else None, not options.unchecked, options.workspace), turns, clock)
                if ran:
                    team.add_rate(turns.measured[-1].gemm_rate_flops)
                if ran and truth:
                    add_errors(turns, truth, results)
    return teams


def add_errors(turns: Turns, truth: Reference, results: pathlib.Path | None) -> None:
    import reference

    if results:
        turns.errors = reference.errors(truth, str(results))
        results.unlink()
    elif "loss_error" not in turns.errors:
        loss = turns.measured[0].loss
        turns.errors["loss_error"] = abs(loss - truth.loss) / max(1.0, abs(truth.loss))
