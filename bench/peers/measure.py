# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Time and memory of a call in this process, counted as tools/cli/measure/one_call.cc counts them."""

import time
from collections.abc import Callable
from typing import TypeVar

from job import Job, Measured
from resident_memory import begin_peak, peak_above, peak_method

Result = TypeVar("Result")


def measure(call: Callable[[], Result]) -> tuple[Result, float, int]:
    """Return the call's result, its seconds, and the rise of resident memory above the level before the call."""
    before = begin_peak()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    return result, seconds, peak_above(before)


def measure_calls(job: Job, call: Callable[[], Result], loss_of: Callable[[Result], float],
                  output_bytes: int) -> tuple[Measured, Result]:
    """Measure the calls of a job; return the figures and the last result. Each result is freed before the
    next call begins; `output_bytes` are not counted as extra memory."""
    result, first_s, _ = measure(call)
    times_s, peaks = [], []
    for _ in range(job.calls):
        del result
        result, seconds, peak = measure(call)
        times_s.append(seconds)
        peaks.append(max(0, peak - output_bytes))
    return Measured(loss_of(result), first_s, times_s, peaks, peak_method=peak_method()), result
