# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The text of a page about files of `logitless bench` and of bench/peers, as Markdown, and which pictures it shows. The
same files give the same text."""

import math
import re
import textwrap
from dataclasses import dataclass

from contenders import BY_NAME, CONTENDERS
from results import MIB
from runs import File, Point, Result, Run, number_of, printable

COLUMNS = 108
MOST_MESSAGE = 160  # characters of the reason why a contender was left out
MOST_PICTURES = 24  # per kind and run, so that a page stays readable


@dataclass(frozen=True)
class Bars:
    """A picture of one point."""

    point: Point
    reference: Result | None


@dataclass(frozen=True)
class Curves:
    """A picture of points along a swept key, at one combination of the other keys."""

    key: str
    others: str
    places: list[float]
    points: list[Point]


Pictures = dict[str, Bars | Curves]  # by their place in the folder of the page

OF_PEERS = """\
This page compares logitless with its peers on each machine that somebody has measured. Every call gets the same
tensors, and [bench/peers/README.md](../bench/peers/README.md) says who takes part and how each figure is found. A
picture has the seconds of one call at the left, then **extra memory**, which is what a call takes above its inputs
and outputs, and the error of its results against float64, because a fast wrong answer is worth nothing. A bar whose
figure begins with » is cut: it is longer than four times the median. Blue and **bold** are logitless; the rest are
peers. The ratio is a contender's time divided by that of the fastest peer whose results agree with float64, which is
the reference: below 1 it is faster. Trust ratios within a table. Two machines differ in cores and libraries, so
compare their ratios, not their seconds. To add a machine, call these two commands on it, after `bench/peers/setup`
and while it does nothing else; the file has the name of the CPU type:
"""

COMMANDS = """\
    bench/peers/run -o bench/results/amd-epyc-zen4.jsonl    # measures; --help lists models, types and tasks
    python3 bench/report                                    # makes this page again

`bench/report` makes this file, so change that and not the text here.
"""

OF_FILES = """\
Times are medians of the timed calls, and extra memory is what a call takes above its inputs and outputs. A ratio is
a time divided by that of `dense` at the same point, which holds all logits, or of the fastest peer whose results
agree with float64 where peers were measured: below 1 it is faster. Trust ratios within a table more than ratios
across two tables, and those more than ratios across two files. Workspace is what a plan announces, and the GEMM share
is the rate of a contender's own products, divided by that of one large product in the same run.
"""

# What a cell of the overview holds, by whether bench/peers measured the point.
CELLS = {
    True: "Each cell holds logitless against the fastest peer, by time and by extra memory: its fastest fused "
          "contender (fused: without all logits in memory) and, if it is another, the one that takes the least "
          "memory. Only contenders whose results agree with float64 count. `dense`, which is logitless with all "
          "logits in memory, is in the tables further down.",
    False: "A cell whose figures are of `dense` holds all contenders against it, by time and by extra memory. "
           "`forward` computes no gradients.",
}


def wrapped(words: str) -> str:
    return textwrap.fill(words, COLUMNS, break_long_words=False, break_on_hyphens=False) + "\n"


def plain(words) -> str:
    """Escape text from a file for Markdown."""
    return re.sub(r"([\\`*\[\]<>|#&])", r"\\\1", printable(str(words)))


def recorded(environment: dict, forms: dict[str, str]) -> list[str]:
    """A text for each key that the header has."""
    known = {key: environment.get(key) for key in forms}
    return [forms[key].format(plain(value)) for key, value in known.items() if value not in (None, "")]


def bytes_text(value: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1024:.3g} KiB"


def bytes_of(environment: dict, forms: dict[str, str]) -> list[str]:
    values = {key: environment.get(key) for key in forms}
    return [forms[key].format(bytes_text(value)) for key, value in values.items()
            if isinstance(value, (int, float)) and 0 < value < math.inf]


def listed(value) -> list[str]:
    return list(map(plain, value)) if isinstance(value, list) else []


def seconds(value: float) -> str:
    """Format with at least three significant digits."""
    return f"{value:.{3 if value >= 0.1 else 2 - math.floor(math.log10(value))}f}"


def mebibytes(value: float) -> str:
    return f"{value / MIB:,.1f}"


def base(name: str) -> str:
    """Return the name without the contender's own keys: one_pass of one_pass:threads=1."""
    return name.split(":")[0]


def is_own(name: str) -> bool:
    return base(name) not in BY_NAME or BY_NAME[base(name)].own


def shown(name: str) -> str:
    return f"**{plain(name)}**" if is_own(name) else plain(name)


def agreeing(point: Point) -> list[Result]:
    """Return the contenders that ran and agree with float64, fastest first."""
    return [one for one in point.in_order() if not one.failure and not any(one.disagrees)]


def fastest_peer(point: Point) -> Result | None:
    return next((one for one in agreeing(point) if not is_own(one.name)), None)


def reference(point: Point) -> Result | None:
    """Return the contender that ratios refer to: the fastest peer, or dense if no peer ran."""
    dense = next((one for one in agreeing(point) if one.name == "dense"), None)
    return fastest_peer(point) if point.checked else dense


def fused(point: Point) -> list[Result]:
    """Return the fastest logitless contender that does not store all logits and, if different, the smallest."""
    ran = [one for one in agreeing(point) if is_own(one.name) and base(one.name) != "dense"]
    least = min(ran, key=lambda one: one.extra_bytes, default=None)
    return [one for one in ran if one in (ran[0], least)]


def error_cell(one: Result, place: int) -> str:
    error = one.errors[place]
    if error is None:
        return "not measured"
    figure = f"{error:.1e}" if math.isfinite(error) else "not finite"
    return figure + (", disagrees" if one.disagrees[place] else "")


def ratio(one: float, other: float | None, digits: str = ".2f") -> str:
    return f"{one / other:{digits}}" if other else "none"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(point: Point) -> str:
    """Return a table with one row per contender; a column is a heading and a function of the result."""
    other, nothing = reference(point), "no peer" if point.checked else "none"
    columns = {"median s": lambda one: seconds(one.median_s),
               "least to most": lambda one: f"{seconds(one.least_s)} to {seconds(one.most_s)}",
               "ratio": lambda one: ratio(one.median_s, other.median_s) if other else nothing,
               "extra MiB": lambda one: mebibytes(one.extra_bytes)}
    if point.checked:
        columns["error of loss"] = lambda one: error_cell(one, 0)
        if point.outputs == "gradients":
            columns["of d_hidden"] = lambda one: error_cell(one, 1)
            columns["of d_weight"] = lambda one: error_cell(one, 2)
    else:
        columns["memory ratio"] = lambda one: ratio(one.extra_bytes, other and other.extra_bytes, ".3g")
        columns["workspace MiB"] = lambda one: "none" if one.workspace_bytes is None else mebibytes(one.workspace_bytes)
        columns["first call s"] = lambda one: seconds(one.first_s)
        columns["GEMM share"] = lambda one: "none" if one.gemm_share is None else f"{one.gemm_share:.2f}"
        columns["loss"] = lambda one: "not finite" if one.loss is None else f"{one.loss:.8g}"
        columns["plan"] = lambda one: plain(one.plan)
    lines = [row("contender", *columns), "|---|" + "---:|" * len(columns)]
    for one in point.in_order():
        if one.failure:
            why = textwrap.shorten(plain(one.failure), MOST_MESSAGE, placeholder=" ...")
            lines.append(row(shown(one.name), "left out: " + why, *[""] * (len(columns) - 1)))
        else:
            lines.append(row(shown(one.name), *(cell(one) for cell in columns.values())))
    return "\n".join(lines) + "\n"


def not_measured(point: Point) -> str:
    """Return the contenders of bench/peers that support the task but were not measured."""
    had = {one.name for one in point.results}
    return ", ".join(each.name for each in CONTENDERS if point.task in each.tasks and each.name not in had)


def sizes(point: Point) -> str:
    words = (f"H = {point.hidden:,}, " if point.hidden else "") + f"V = {point.vocab:,}. "
    if point.checked:
        inputs = "not recorded" if point.input_bytes is None else f"{mebibytes(point.input_bytes)} MiB"
        words += f"Inputs: {inputs}; gradients: {mebibytes(point.gradient_bytes)} MiB; all"
    else:
        words += ", ".join(filter(None, [f"Level {plain(point.level)}", plain(point.layout)])) + ". All"
    words += f" logits in float32 would be {mebibytes(4 * point.tokens * point.vocab)} MiB. "
    if point.checked and point.outputs == "gradients":
        words += f"Errors are of {point.reference_rows:,} rows of d_hidden and {point.reference_entries:,} of " \
                 "d_weight. "
    if not point.gemm_rate:
        return words + ("GEMM rate: not recorded." if point.checked else "")
    words += f"GEMM rate: {point.gemm_rate / 1e9:.0f} GFLOP/s"
    if len(point.gemm_rates) > 1:
        words += f" ({min(point.gemm_rates) / 1e9:.0f} to {max(point.gemm_rates) / 1e9:.0f})"
    return words + "."


class Page:
    """The parts of a page, and its pictures."""

    def __init__(self, folder: str):
        self.folder, self.parts, self.pictures = folder, [], {}

    def add(self, *parts: str) -> None:
        self.parts += parts

    def show(self, name: str, place: str, picture: Bars | Curves, words: str) -> None:
        """Add a picture. If `place` is taken, choose another name."""
        place = re.sub(r"[^\w.-]+", "-", place, flags=re.ASCII)[:100]
        number = 1 + sum(taken.startswith(f"{name}/{place}") for taken in self.pictures)
        path = f"{name}/{place}.svg" if number == 1 else f"{name}/{place}.{number}.svg"
        self.pictures[path] = picture
        self.add(f"![{words}]({self.folder}/{path})\n")


def add_point(page: Page, name: str, point: Point, drawn: bool) -> None:
    missing = not_measured(point) if point.checked else ""
    page.add(f"### {plain(point.title)}\n", wrapped(sizes(point)), table(point))
    if missing:
        page.add(wrapped(f"Not measured: {missing}."))
    if drawn:
        task = f"{point.task}{point.teacher_hidden or ''}"
        place = [point.model, str(point.tokens), point.dtype, task, point.outputs]
        place += [point.at[key] for key in point.at if key not in point.said]
        words = "Memory, time and error of each\ncontender" if point.checked else "Memory and time of each contender"
        page.show(name, "-".join(filter(None, place)), Bars(point, reference(point)), words)


def curves_of(run: Run) -> list[tuple[str, Curves]]:
    """For each swept key of several numbers, a picture for each combination of the other keys."""
    found = []
    for key, values in run.sweep.items():
        if len(values) == 1 or any(number_of(value) is None for value in values):
            continue
        groups: dict[tuple, list[Point]] = {}
        for point in run.points:
            groups.setdefault(tuple(item for item in point.at.items() if item[0] != key), []).append(point)
        for others, points in groups.items():
            points.sort(key=lambda point: number_of(point.at[key]))
            if len(points) > 1:
                place = "-".join([key, *(value for _, value in others)])
                words = ", ".join(f"{other} = {value}" for other, value in others)
                found.append((place, Curves(key, words, [number_of(point.at[key]) for point in points], points)))
    return found


def machine_text(facts: dict) -> str:
    caches = bytes_of(facts, {"l1d_bytes": "L1d {}", "l2_bytes": "L2 {}", "l3_bytes": "L3 {}"})
    parts = recorded(facts, {"cpu": "{}", "cpu_id": "CPU type: {}", "cores": "{} cores"})
    parts += ["caches: " + ", ".join(caches)] if caches else []
    parts += bytes_of(facts, {"memory_bytes": "memory: {}"})
    instructions = listed(facts.get("cpu_instructions"))
    parts += ["instructions: " + " ".join(instructions)] if instructions else []
    parts += recorded(facts, {"load_average": "load average before the run: {}"})
    return "**Machine:** " + "; ".join(parts) + "."


def libraries_text(run: Run) -> str:
    facts = run.environment
    own = [", ".join(recorded(facts, {"gemm_backend": "{}", "blas_config": "{}", "blas_core": "core {}"})),
           *recorded(facts, {"simd_target": "SIMD {}"})]
    if "gemm_bf16" in facts:
        own.append("bfloat16 products: " + plain(facts["gemm_bf16"] or "widened to float32"))
    torch = ", ".join(recorded(facts, {"torch_mkl": "MKL {}", "torch_onednn": "oneDNN {}",
                                       "torch_capability": "capability {}"}))
    others = ", ".join(recorded(facts, {key: key + " {}" for key in (
        "jax", "jaxlib", "trl", "transformers", "liger_kernel", "tokamax", "numpy", "python")}))
    parts = [f"logitless {plain(run.version)} ({'; '.join(filter(None, own))})",
             *recorded(facts, {"torch": f"torch {{}} ({torch})"}), others]
    return "**Libraries:** " + "; ".join(filter(None, parts)) + "."


def flags_text(run: Run) -> str:
    parts = recorded(run.environment, {"threads": "{} threads"})
    variables = run.environment.get("variables")
    if isinstance(variables, dict):
        words = " ".join(f"{name}={value}" for name, value in variables.items()) or "no variable is set"
        parts.append("environment: " + plain(words))
    warnings = listed(run.environment.get("warnings"))
    said = f" Warnings of `logitless info`: {' '.join(warnings)}." if warnings else ""
    return "**Flags:** " + "; ".join([*parts, "inputs: " + plain(run.inputs)]) + "." + said


def add_run(page: Page, file: File, run: Run) -> None:
    page.add(*(wrapped(words) for words in (machine_text(run.environment), libraries_text(run), flags_text(run))),
             f"**Command**, begun on {run.started[:10]}:\n", "    " + run.command + "\n")
    missing = file.missing(run)
    if missing:
        page.add(wrapped(f"The run is not complete: {missing} of its points were not measured."))
    curves = curves_of(run)
    for place, picture in curves[:MOST_PICTURES]:
        page.show(file.name, place, picture, f"Time and memory against {plain(picture.key)}")
    for number, point in enumerate(sorted(run.points, key=lambda point: point.key)):
        add_point(page, file.name, point, number < MOST_PICTURES)
    if max(len(curves), len(run.points)) > MOST_PICTURES:
        page.add(wrapped(f"Only the first {MOST_PICTURES} pictures of a kind are drawn; each point has its table."))


def overview_cell(point: Point) -> str:
    other = reference(point)
    own = fused(point) if point.checked else [one for one in agreeing(point) if one != other]
    if not own or not other:
        if not point.checked:
            return "`dense` did not run" if own else "no other contender ran"
        return "no " + ("peer" if own else "fused contender") + " that ran and agrees"
    parts = []
    for one in own:
        memory = ratio(one.extra_bytes, other.extra_bytes, ".2g") if other.extra_bytes else "no ratio"
        parts.append(f"**{plain(one.name)}** time {ratio(one.median_s, other.median_s)}, memory {memory}")
    return "; ".join(parts) + f" (of {plain(other.name)})"


def add_overview(page: Page, files: list[File]) -> None:
    """Add a table with one row per point and one column per file."""
    points = {file.name: {point.key: point for run in file.runs for point in run.points} for file in files}
    every = {key: point for of_file in points.values() for key, point in of_file.items()}
    lines = [row("point", *(f"[{name}](#{name})" for name in points)), "|---|" + "---|" * len(points)]
    for key in sorted(every):
        cells = [overview_cell(of_file[key]) if key in of_file else "not measured" for of_file in points.values()]
        lines.append(row(plain(every[key].title), *cells))
    kinds = {point.checked for point in every.values()}
    page.add("## All machines\n" if True in kinds else "## All points\n")
    page.add(*(wrapped(CELLS[checked]) for checked in sorted(kinds)), "\n".join(lines) + "\n")


def make_page(files: list[File], folder: str, docs: bool) -> tuple[str, Pictures]:
    """The page, whose pictures are in `folder` beside it. `docs`: docs/benchmarks.md and not a page of a user."""
    page = Page(folder)
    if docs:
        page.add("# Benchmarks by CPU type\n", wrapped(OF_PEERS), COMMANDS)
    else:
        page.add("# logitless beside its contenders\n", wrapped(OF_FILES))
    if not files:
        page.add("No machine has been measured yet: `bench/results` has no file.\n")
        return "\n".join(page.parts), page.pictures
    add_overview(page, files)
    for file in files:
        page.add(f"## {file.name}\n")
        if file.torn:
            page.add(f"Line {file.torn} has no end and was left out: the run was interrupted.\n")
        for run in file.runs:
            add_run(page, file, run)
    return "\n".join(page.parts), page.pictures
