# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Draws the loss curves that other examples in this folder write with -o, several runs over each other.

    pip install matplotlib
    python examples/python/curves.py plain.json fused.json --title "GRPO, SmolLM2-135M" -o curves.png

The legend has each run's median seconds per step and its peak memory. The small axis at the bottom shows the
differences between the losses of the other runs and the first. Rewards have their own axis if all runs
recorded them.
"""

import argparse
import json
import os
import statistics

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import matplotlib.ticker as ticker  # noqa: E402
from matplotlib.backends import backend_svg  # noqa: E402

# Strict readers of SVG refuse a DOCTYPE.
backend_svg.svgProlog = '<?xml version="1.0" encoding="utf-8"?>\n'

# Wide and light first, thin and dark last, so that curves remain visible where they agree.
LINES = [
    {"color": "#9ecae1", "linewidth": 5.0},
    {"color": "#7f2704", "linewidth": 1.2},
    {"color": "#31a354", "linewidth": 1.2, "linestyle": "--"},
    {"color": "#54278f", "linewidth": 1.2, "linestyle": ":"},
]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def label(run):
    """Return the head, its seconds and its memory. The first step does not count, because it sets up memory."""
    seconds = statistics.median(run["seconds"][1:] or run["seconds"])
    return f"{run['head']}: {seconds:.2f} s per step, {run['peak_mib']:,.0f} MiB at most"


def draw(axis, values, line, name=None):
    axis.plot(range(1, len(values) + 1), values, label=name, **line)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", help="JSON files; the first is what the others are compared with")
    parser.add_argument("--title", default="")
    parser.add_argument(
        "--loss", default="loss", help='name and unit of the loss, as "loss (nats per token)"'
    )
    parser.add_argument("-o", "--output", default="curves.png")
    options = parser.parse_args()
    if len(options.runs) > len(LINES):
        parser.error(f"{len(options.runs)} runs are given, but there are line styles for only {len(LINES)}")
    runs = [read(path) for path in options.runs]

    has_rewards = all("rewards" in run for run in runs)
    heights = [3, 1.5, 1] if has_rewards else [3, 1]
    figure, axes = plt.subplots(
        len(heights),
        1,
        sharex=True,
        figsize=(8, 1.25 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    losses, differences = axes[0], axes[-1]
    losses.set(title=options.title, ylabel=options.loss)
    for run, line in zip(runs, LINES):
        draw(losses, run["losses"], line, label(run))
        if has_rewards:
            draw(axes[1], run["rewards"], line)
            axes[1].set_ylabel("mean reward")
    for run, line in zip(runs[1:], LINES[1:]):
        difference = [other - first for first, other in zip(runs[0]["losses"], run["losses"])]
        largest = max(map(abs, difference))
        draw(differences, difference, line, f"{run['head']} − {runs[0]['head']}: at most {largest:.1e}")
    differences.axhline(0, **LINES[0], zorder=0)
    differences.set(ylabel="difference", xlabel="step")
    differences.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    differences.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
    for axis in axes:
        axis.grid(color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize="small")
    is_svg = options.output.endswith(".svg")
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type")) if is_svg else None
    figure.savefig(options.output, dpi=150, metadata=metadata)
    print(f"{os.path.basename(options.output)}: {', '.join(label(run) for run in runs)}")


if __name__ == "__main__":
    main()
