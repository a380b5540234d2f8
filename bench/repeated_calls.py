# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures the overhead of a repeated call from NumPy and from PyTorch, and whether memory grows: one row of
16 numbers, 16 logits. `build/release/bin/parts calls` measures it for C++.

    python bench/repeated_calls.py
    python bench/repeated_calls.py --calls 100000 --turns 10    # a million of each: does memory grow?
"""

import argparse
import resource
import statistics
import time

import logitless
import numpy as np
import torch
from logitless.torch import linear_cross_entropy
from torch.nn.functional import cross_entropy, linear

HIDDEN = VOCAB = 16


def measured(call, calls, turns):
    """Return the median microseconds per call over the turns, each of `calls` calls, and by how many MiB the
    largest resident memory of the process has grown since the first turn, which warms up."""
    found = []
    for turn in range(turns + 1):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - begin) / calls * 1e6)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB
        if turn == 0:
            warm = peak
    return statistics.median(found[1:]), peak - warm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="per turn; 2000 by default")
    parser.add_argument("--turns", type=int, default=7, help="7 by default")
    options = parser.parse_args()

    hidden, weight = np.full((1, HIDDEN), 0.1, np.float32), np.full((VOCAB, HIDDEN), 0.2, np.float32)
    d_hidden, d_weight, targets = np.empty_like(hidden), np.empty_like(weight), np.array([3])
    states, head, ids = map(torch.from_numpy, (hidden, weight, targets))
    trained, trained_head = states.clone().requires_grad_(), head.clone().requires_grad_()

    def without_gradients(loss):
        with torch.no_grad():
            loss()

    calls = {
        "NumPy, token_stats": lambda: logitless.token_stats(hidden, weight, targets),
        "NumPy, loss and both gradients":
            lambda: logitless.cross_entropy(hidden, weight, targets, d_hidden=d_hidden, d_weight=d_weight),
        "PyTorch, loss": lambda: without_gradients(lambda: linear_cross_entropy(states, head, ids)),
        "PyTorch, loss and both gradients": lambda: linear_cross_entropy(trained, trained_head, ids).backward(),
        "PyTorch's own, loss": lambda: without_gradients(lambda: cross_entropy(linear(states, head), ids)),
        "PyTorch's own, loss and both gradients":
            lambda: cross_entropy(linear(trained, trained_head), ids).backward(),
    }
    for name, call in calls.items():
        time_of_call, growth = measured(call, options.calls, options.turns)
        print(f"{name:40}{time_of_call:8.1f} us per call, memory + {growth:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
