# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The peak of this process's resident memory, as tools/cli/measure/one_call.cc counts it."""

import ctypes
import gc


def _status_bytes(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def begin_peak() -> int:
    """Reset the peak; return the bytes that are resident now."""
    # Return the allocator's free pages to the system; otherwise the call would reuse them uncounted.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return _status_bytes("VmRSS")


def peak_above(before: int) -> int:
    return max(0, _status_bytes("VmHWM") - before)
