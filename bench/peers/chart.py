# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The picture of one point: columns of memory, whose top is the peak; columns of time below them; errors at the
bottom. Written without a library, so that every machine writes the same bytes."""

import math
from collections.abc import Callable
from xml.sax.saxutils import escape

import results
from contenders import BY_NAME
from recorded import Point, Result

LEFT, COLUMN, BAR = 64, 58, 30  # pixels: before the first column, from one to the next, of a bar
PANEL, GAP, NAMES = 120, 44, 90  # the height of a panel, above each, below the last
OWN, PEER, INK, FAINT = "#1f5fa8", "#9a9a9a", "#222222", "#dddddd"
BESIDE = 9  # pixels between the marks of one contender, or equal errors would hide one another
MARKS = {"loss_error": ("loss", "×"), "d_hidden_rel_l2": ("d_hidden", "●"), "d_weight_rel_l2": ("d_weight", "○")}


def short(figure: float) -> str:
    """Three digits or more."""
    if figure >= 1000:
        return f"{figure:,.0f}"
    if figure >= 100:
        return f"{figure:.1f}"
    return f"{figure:#.3g}" if figure else "0"


def text(x: float, y: float, words: str, size: int = 10, anchor: str = "middle", more: str = "") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{more}>'
            f"{escape(words)}</text>")


def line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


class Picture:
    def __init__(self, point: Point):
        self.point, self.results = point, point.in_order()
        self.width = max(LEFT + COLUMN * len(self.results) + 16, 420)
        self.elements: list[str] = []

    def middle(self, number: int) -> float:
        return LEFT + COLUMN * (number + 0.5)

    def frame(self, top: float, title: str, ticks: list[tuple[float, str]]) -> None:
        """A panel's title, and its ticks: a height in pixels above the bottom, and what it says."""
        self.elements.append(text(LEFT, top - 22, title, 11, "start", ' font-weight="bold"'))
        for height, words in ticks:
            y = top + PANEL - height
            self.elements += [line(LEFT, y, self.width - 8, y, FAINT), text(LEFT - 6, y + 3.5, words, anchor="end")]
        for number, one in enumerate(self.results):
            if one.failure:
                self.elements.append(text(self.middle(number), top + PANEL - 4, "left out", 9))

    def bars(self, top: float, title: str, size: Callable[[Result], float], most: float, whiskers: bool) -> None:
        self.frame(top, title, [(0, "0"), (PANEL / 2, short(most / 2)), (PANEL, short(most))] if most else [(0, "0")])
        scale = PANEL / most if most else 0
        for number, one in enumerate(self.results):
            if one.failure:
                continue
            x, height = self.middle(number), size(one) * scale
            above = height
            colour = OWN if BY_NAME[one.name].own else PEER
            bottom = top + PANEL
            self.elements.append(f'<rect x="{x - BAR / 2:.1f}" y="{bottom - height:.1f}" width="{BAR}" '
                                 f'height="{height:.1f}" fill="{colour}"/>')
            if whiskers:
                least, above = one.least_s * scale, one.most_s * scale
                self.elements.append(line(x, bottom - least, x, bottom - above, INK))
                self.elements += [line(x - 4, bottom - end, x + 4, bottom - end, INK) for end in (least, above)]
            self.elements.append(text(x, bottom - above - 4, short(size(one))))

    def errors(self, top: float) -> None:
        known = [error for one in self.results for error in one.errors if error]
        finite = [error for error in known if math.isfinite(error)]
        low = math.floor(math.log10(min(finite))) if finite else -8
        high = max(math.ceil(math.log10(max(finite))), low + 1) if finite else low + 1
        step = max(1, math.ceil((high - low) / 4))

        def height(error: float) -> float:
            return PANEL * (math.log10(error) - low) / (high - low) if error else 0

        kinds = [MARKS[key] for place, key in enumerate(results.ERRORS)
                 if any(one.errors and one.errors[place] is not None for one in self.results)]
        self.frame(top, "Error against float64: " + ", ".join(f"{mark} {name}" for name, mark in kinds),
                   [(height(10.0**power), f"1e{power}") for power in range(low, high + 1, step)])
        for number, one in enumerate(self.results):
            if any(one.disagrees):
                self.elements.append(text(self.middle(number), top - 6, "disagrees", 9))
            for place, error in enumerate(one.errors):
                if error is None:
                    continue
                x = self.middle(number) + BESIDE * (place - 1)
                if not math.isfinite(error):
                    self.elements.append(text(self.middle(number), top + 10, "not finite", 9))
                    continue
                mark = MARKS[results.ERRORS[place]][1]
                colour = OWN if BY_NAME[one.name].own else PEER
                y = top + PANEL - height(error)
                if mark == "×":
                    arms = ((-3.5, -3.5, 3.5, 3.5), (-3.5, 3.5, 3.5, -3.5))
                    self.elements += [line(x + a, y + b, x + c, y + d, INK) for a, b, c, d in arms]
                else:
                    fill = colour if mark == "●" else "#ffffff"
                    self.elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/>')

    def names(self, top: float) -> None:
        for number, one in enumerate(self.results):
            x = self.middle(number) + 4
            self.elements.append(text(x, top + 14, one.name, 10, "end", f' transform="rotate(-40 {x:.1f} {top + 14})"'))

    def svg(self) -> str:
        ran = [one for one in self.results if not one.failure]
        peak = max((one.extra_bytes / results.MIB for one in ran), default=0)
        whose = next((f"; the top is {one.name}'s" for one in ran if one.extra_bytes / results.MIB == peak), "")
        first = 8 + GAP
        self.bars(first, "Peak of extra memory, MiB" + whose, lambda one: one.extra_bytes / results.MIB, peak, False)
        self.bars(first + PANEL + GAP, "Time of one call, s: median, least, most", lambda one: one.median_s,
                  max((one.most_s for one in ran), default=0), True)
        self.errors(first + 2 * (PANEL + GAP))
        bottom = first + 3 * PANEL + 2 * GAP
        self.names(bottom)
        height = bottom + NAMES
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" '
                f'viewBox="0 0 {self.width} {height}" font-family="sans-serif">')
        return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head,
                          f'<rect width="{self.width}" height="{height}" fill="#ffffff"/>', *self.elements, "</svg>\n"])


def draw(point: Point) -> str:
    return Picture(point).svg()
