# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of a page with matplotlib, as SVG. With the same matplotlib, the same data give the same
bytes."""

import io
import math
import statistics
import warnings
from collections.abc import Callable

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends import backend_svg
from matplotlib.figure import Figure

from page import Bars, Curves, is_own, reference, seconds
from results import ERRORS, MIB
from runs import Result

# No DOCTYPE, because strict readers refuse it. Text stays text, and $ in a name does not start a formula.
backend_svg.svgProlog = '<?xml version="1.0" encoding="utf-8"?>\n'
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "logitless", "font.sans-serif": ["DejaVu Sans"],
                            "font.size": 8, "axes.titlesize": 8, "text.parse_math": False, "axes.spines.top": False,
                            "axes.spines.right": False})
warnings.filterwarnings("ignore", "Glyph .* missing")

OWN, PEER, INK = "#1f5fa8", "#9a9a9a", "#222222"
MARKS = {"loss_error": "x", "d_hidden_rel_l2": "o", "d_weight_rel_l2": "s"}
MOST_OF_MEDIAN = 4  # Longer bars are cut, so that one outlier does not flatten the others.


def short(figure: float) -> str:
    """Format with at least three significant digits."""
    if figure >= 100:
        return f"{figure:,.{int(figure < 1000)}f}"
    return f"{figure:#.3g}" if figure else "0"


def times(figure: float, other: float) -> str:
    return f"  ({figure / other:{'.2f' if figure >= 0.1 * other else '.2g'}})" if other else ""


def bars(axes: Axes, ran: list[Result], spans: list[tuple[float, float, float]], other: float,
         text: Callable[[float], str]) -> float:
    """Draw one bar per contender, labelled with its figure and ratio; a span is (least, figure, most). A bar that is cut
    has a gap before its end. Return the length at which bars are cut."""
    figures = [figure for _, figure, _ in spans]
    limit = min(max(most for _, _, most in spans), MOST_OF_MEDIAN * (statistics.median_low(figures) or math.inf)) or 1
    labels = [("» " if figure > limit else "") + text(figure) + times(figure, other) for figure in figures]
    spans = [tuple(min(end, limit) for end in span) for span in spans]
    around = [[figure - least for least, figure, _ in spans], [most - figure for _, figure, most in spans]]
    drawn = axes.barh(range(len(ran)), [figure for _, figure, _ in spans], height=0.7, xerr=around, ecolor=INK,
                      color=[OWN if is_own(one.name) else PEER for one in ran])
    axes.bar_label(drawn, labels, padding=4, fontsize=7)
    for row, figure in enumerate(figures):
        if figure > limit:
            for place in (0.93, 0.95):
                axes.plot([place * limit, (place + 0.02) * limit], [row + 0.45, row - 0.45], color="white", linewidth=1.5)
    axes.set_xlim(0, 1.7 * limit)  # room for the figures
    axes.set_xticks([0, limit / 2, limit], ["0", short(limit / 2), short(limit)])
    return limit


def draw_errors(axes: Axes, ran: list[Result]) -> None:
    for place, mark in enumerate(MARKS[key] for key in ERRORS):
        known = [(one.errors[place], row + 0.2 * (place - 1)) for row, one in enumerate(ran)
                 if one.errors[place] and math.isfinite(one.errors[place])]
        if known:
            axes.plot(*zip(*known), mark, color=INK, markersize=4, fillstyle="none")
    axes.set(xscale="log", xlabel="× loss, ○ d_hidden, □ d_weight")
    axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(numticks=5))
    axes.xaxis.set_major_formatter("{x:.0e}")
    axes.minorticks_off()
    # To the right of the panel.
    for row, one in enumerate(ran):
        words = [] if all(error is None or math.isfinite(error) for error in one.errors) else ["not finite"]
        words += ["disagrees"] if any(one.disagrees) else []
        axes.annotate(", ".join(words), (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)


def draw_bars(picture: Bars) -> Figure:
    point, other = picture.point, picture.reference
    order = point.in_order()
    ran = [one for one in order if not one.failure]
    panels = 3 if point.checked else 2
    figure = Figure((3.5 * panels, 0.9 + 0.24 * max(len(order), 3)), layout="constrained")
    time, memory, *errors = figure.subplots(1, panels, sharey=True)
    of = f" (÷ {other.name})" if other else ""
    time.set_title(f"Time of one call, s{of}", loc="left")
    memory.set_title(f"Extra peak memory, MiB{of}", loc="left")
    if ran:
        bars(time, ran, [(one.least_s, one.median_s, one.most_s) for one in ran], other.median_s if other else 0,
             seconds)
        sizes = [(one.extra_bytes, one.extra_bytes, max(one.extra_bytes, one.workspace_bytes or 0)) for one in ran]
        limit = bars(memory, ran, [tuple(size / MIB for size in span) for span in sizes],
                     other.extra_bytes / MIB if other else 0, short)
        planned = [(one.workspace_bytes / MIB, row) for row, one in enumerate(ran)
                   if one.workspace_bytes is not None and one.workspace_bytes / MIB <= limit]
        if planned:
            memory.plot(*zip(*planned), "|", color=INK, markersize=11)
            memory.set_xlabel("│ workspace of the plan")
        time.set_xlabel("─ from the least to the most")
    for axes in errors:
        axes.set_title("Error against float64", loc="left")
        draw_errors(axes, ran)
    for row in range(len(ran), len(order)):
        for axes in (time, memory):
            axes.annotate("left out", (0.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    time.set_yticks(range(len(order)), [one.name for one in order])
    time.set_ylim(len(order) - 0.4, -0.6)
    return figure


def draw_curves(picture: Curves) -> Figure:
    names = dict.fromkeys(one.name for point in picture.points for one in point.results)
    others = [reference(point) for point in picture.points]
    of = next((other.name for other in others if other), "")
    figure = Figure((8.4, 6.2), layout="constrained")
    panels = {"Time of one call, s": lambda one, other: one.median_s,
              "Extra peak memory, MiB": lambda one, other: one.extra_bytes / MIB,
              f"Time ÷ {of or 'reference'}": lambda one, other: one.median_s / other.median_s if other else None,
              "Workspace, MiB": lambda one, other: None if one.workspace_bytes is None else one.workspace_bytes / MIB}
    for axes, (title, value) in zip(figure.subplots(2, 2, sharex=True).flat, panels.items()):
        for number, name in enumerate(names):
            found = [(place, value(one, other)) for place, point, other in zip(picture.places, picture.points, others)
                     for one in point.results if one.name == name and not one.failure]
            # A logarithmic axis has no zero.
            found = [(place, figure) for place, figure in found if figure]
            axes.plot(*zip(*found) if found else ([], []), "-" + "so^DPv*X"[number % 8], label=name, markersize=4)
        axes.set_title(title, loc="left")
        axes.set(yscale="log", xscale="log" if min(picture.places) > 0 else "linear")
        ticks = (1, 1.2, 1.5, 2, 3, 5, 7) if "÷" in title else (1, 2, 5)
        axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=ticks))
        if len(picture.places) <= 12:
            axes.set_xticks(picture.places, minor=False)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y", color="0.9")
    for axes in figure.axes[2:]:
        axes.set_xlabel(picture.key)
    figure.axes[0].legend(frameon=False, fontsize=7)
    figure.suptitle(picture.others, fontsize=8)
    return figure


def svg(picture: Bars | Curves) -> bytes:
    figure = draw_bars(picture) if isinstance(picture, Bars) else draw_curves(picture)
    text = io.BytesIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return text.getvalue()
