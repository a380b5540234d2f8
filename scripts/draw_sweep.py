#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Draws memory and time against tokens from a file of `logitless bench`: a picture for a README (needs matplotlib).

    draw_sweep.py sweep.jsonl picture.svg

`logitless report` makes the page with everything else that the file holds."""

import json
import sys

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.backends import backend_svg


def draw(header, points, output):
    # Strict readers refuse a DOCTYPE; letters stay text, and the same file gives the same bytes.
    backend_svg.svgProlog = '<?xml version="1.0" encoding="utf-8"?>\n'
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "logitless", "font.size": 8})
    figure, (memory, time) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    for axes, title, key, size in ((memory, "Extra peak memory, MiB", "extra_peak_bytes", 2**20),
                                   (time, "Time of one call, s", "median_s", 1)):
        for contender, marker in zip(header["contenders"], "so^DPv*X"):
            ran = [(point["shape"]["tokens"], one[key] / size) for point in points for one in point["contenders"]
                   if one["name"] == contender and one["status"] == "ok"]
            axes.plot(*zip(*sorted(ran)) if ran else ([], []), marker=marker, label=contender)
        axes.set(title=title, xscale="log", yscale="log", xlabel="tokens")
        axes.set_xticks(sorted({point["shape"]["tokens"] for point in points}), minor=False)
        axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y", color="0.9")
    time.legend(frameon=False)
    shape, machine = points[0]["shape"], header["environment"]
    figure.suptitle(f"{shape['vocab']:,} vocabulary entries, hidden size {shape['hidden']:,}, {shape['dtype']}; "
                    f"logitless {header['version']}, {machine.get('cpu')}, {machine.get('threads')} threads, "
                    f"{machine.get('gemm_backend')} {machine.get('blas_core')}, {header['started'][:10]}", fontsize=7)
    figure.savefig(output, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        # An interruption may have torn the last line.
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    draw(lines[0], lines[1:], sys.argv[2])
