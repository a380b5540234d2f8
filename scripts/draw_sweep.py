#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Draws memory and time against tokens from a file of `logitless bench`: a picture for a README (needs matplotlib).

`logitless report` makes the page with everything else that the file holds."""

import argparse
import json
import sys

# As in tools/report/page.css: colour, line and marker of a contender, and of one that is not known here.
LOOKS = {
    "dense": ("#57606a", "-", "s"),
    "one_pass": ("#0067a5", "-", "o"),
    "two_pass": ("#b84c00", "-", "^"),
    "forward": ("#00765a", "--", "D"),
    "auto": ("#a2317e", ":", "P"),
}
OTHER = ("#7a6200", "-.", "v")
INK = "#4a525a"


def read(path):
    """The header and the points; a last line that an interruption tore is left out."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    points = [line for line in lines[1:] if line["type"] == "point"]
    if not points:
        raise ValueError("there is no point after the header: nothing to draw")
    return lines[0], sorted(points, key=lambda point: point["shape"]["tokens"])


def marks(points, contender, value):
    """The tokens and values of a contender, where it ran."""
    ran = [
        (point["shape"]["tokens"], value(measurement))
        for point in points
        for measurement in point["contenders"]
        if measurement["name"] == contender and measurement["status"] == "ok"
    ]
    return [list(column) for column in zip(*ran)] or [[], []]


def draw_axes(axes, title, unit, header, points, value):
    from matplotlib.ticker import LogLocator

    for contender in header["contenders"]:
        colour, line, marker = LOOKS.get(contender, OTHER)
        tokens, values = marks(points, contender, value)
        axes.plot(tokens, values, color=colour, linestyle=line, marker=marker, markersize=5, label=contender)
    axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
    axes.set(xscale="log", yscale="log", xlabel="tokens")
    axes.set_xticks(sorted({point["shape"]["tokens"] for point in points}))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g} " + unit)
    axes.grid(axis="y", color="#e6e8eb")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8)
    axes.xaxis.label.set_size(8)


def draw(header, points, output):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # Letters stay text, and the same file gives the same bytes.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "logitless"})
    pyplot.rcParams.update({key: INK for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")})
    figure, (memory, time) = pyplot.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    draw_axes(memory, "Extra peak memory", "MiB", header, points, lambda of: of["extra_peak_bytes"] / 2**20)
    draw_axes(time, "Time of one call", "s", header, points, lambda of: of["median_s"])
    time.legend(frameon=False, fontsize=9)
    shape, machine = points[0]["shape"], header["environment"]
    figure.suptitle(f"{shape['vocab']:,} vocabulary entries, hidden size {shape['hidden']:,}, {shape['dtype']}. "
                    f"logitless {header['version']}, {machine.get('cpu')}, {machine.get('threads')} threads, "
                    f"{machine.get('gemm_backend')} {machine.get('blas_core')}, {header['started'][:10]}",
                    x=0.01, ha="left", fontsize=8)
    figure.savefig(output, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="JSON Lines that bench wrote, of a sweep over seq_len or batch_size")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="writes the SVG")
    options = parser.parse_args()
    try:
        draw(*read(options.file), options.output)
    except (OSError, ImportError, ValueError, KeyError, TypeError, IndexError) as error:
        print(f"draw_sweep.py: {options.file}: {error!r}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
