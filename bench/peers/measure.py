# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Time and memory of a call in this process, counted as tools/cli/measure/one_call.cc counts them."""

import ctypes
import gc
import time
from collections.abc import Callable
from typing import TypeVar

from job import Job, Measured

Result = TypeVar("Result")


def status_bytes(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def measure(call: Callable[[], Result]) -> tuple[Result, float, int]:
    """What the call returned, its seconds, and how far resident memory rose above what it was before."""
    # What the allocator holds goes back to the system, or the call would reuse pages that nobody counts.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets VmHWM
    before = status_bytes("VmRSS")
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    return result, seconds, max(0, status_bytes("VmHWM") - before)


def measure_calls(job: Job, call: Callable[[], Result], loss_of: Callable[[Result], float],
                  output_bytes: int) -> tuple[Measured, Result]:
    """Measures the calls of a job, and gives the last result as well. One call's result is gone before the next
    call begins; `output_bytes` of it are no extra memory."""
    result, first_s, _ = measure(call)
    times_s, peaks = [], []
    for _ in range(job.calls):
        del result
        result, seconds, peak = measure(call)
        times_s.append(seconds)
        peaks.append(max(0, peak - output_bytes))
    return Measured(loss_of(result), first_s, times_s, peaks), result
