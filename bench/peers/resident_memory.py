# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The peak of this process's resident memory, as tools/cli/measure/one_call.cc counts it."""

import ctypes
import gc


_could_reset = True


def _status_bytes(field: str) -> int:
    """Return a field of this process's status; 0 on a system without it, such as gVisor."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":")), 0)


def begin_peak() -> int:
    """Reset the peak; return the bytes that are resident now."""
    global _could_reset
    # Return the allocator's free pages to the system; otherwise the call would reuse them uncounted.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        _could_reset = False
    return _status_bytes("VmRSS")


def peak_above(before: int) -> int:
    return max(0, _status_bytes("VmHWM") - before)


def peak_method() -> str:
    """Return how peaks were measured, if this system does not permit a reset."""
    return "" if _could_reset else "VmHWM minus VmRSS before the call: the reset was not permitted"
