# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls that take turns in one process, with their times and their extra memory."""

import pathlib
import statistics
import sys
import time
from functools import partial

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from resident_memory import begin_peak, peak_above  # noqa: E402


def take_turns(calls, rounds, prepare=lambda: None):
    """Returns (seconds, MiB above what was resident before the call) for each call, as medians over the rounds.
    prepare() runs before each call, and the first round is not counted."""
    seconds, peaks = {name: [] for name in calls}, {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            prepare()
            before = begin_peak()
            started = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - started)
                peaks[name].append(peak_above(before) / 2**20)
    return {name: (statistics.median(seconds[name]), statistics.median(peaks[name])) for name in calls}


def compare_losses(calls, leaves, rounds):
    """Prints for each call, which returns a loss, the times and the memory of the loss and the gradients of leaves,
    and the relative differences from the first call's results."""
    results = {}

    def clear():
        for leaf in leaves:
            leaf.grad = torch.zeros_like(leaf)  # in memory before the call

    def step(name, call):
        loss = call()
        loss.backward()
        if name not in results:
            results[name] = [loss.detach().double(), *(leaf.grad.clone() for leaf in leaves)]

    medians = take_turns({name: partial(step, name, call) for name, call in calls.items()}, rounds, clear)
    first = next(iter(results.values()))
    print(f"{'':18} {'seconds':>8} {'extra MiB':>10}  off by (loss, gradients)")
    for name, got in results.items():
        pairs = [(a.double(), b.double()) for a, b in zip(got, first, strict=True)]
        errors = [((a - b).norm() / b.norm()).item() for a, b in pairs]
        seconds, mib = medians[name]
        print(f"{name:18} {seconds:8.3f} {mib:10.1f}  {', '.join(f'{error:.1e}' for error in errors)}")
