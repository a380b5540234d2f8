# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes the Markdown of a page about files of `logitless bench` and of bench/peers, and chooses its
pictures. The same files give the same text. In docs/, it writes the part of a page between two marks."""

import math
import re
import textwrap
from dataclasses import dataclass

from contenders import BY_NAME, CONTENDERS
from results import MIB
from runs import File, Point, Result, Run, number_of, printable

COLUMNS = 108
TOO_SLOW = 10  # times the fastest logitless: a peer that is slower than this is not used as a reference
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


Pictures = dict[str, Bars | Curves]  # by their paths in the folder of the page

BEGIN, END = "<!-- bench/report -->\n", "<!-- /bench/report -->\n"

OF_FILES = """\
Times are medians of n timed calls. Extra memory is what a call takes above its inputs and outputs. A ratio is a time
divided by the time of `dense` at the same point, which holds all logits. Where peers were measured, it is divided by
the time of the fastest peer whose results agree with float64. Below 1 is faster. Ratios within a table can be trusted
more than ratios across two tables, and those more than ratios across two files. Workspace is what a plan announces.
GEMM share is the rate of a contender's own products, divided by the rate of one large product in the same run.
"""

OF_TABLE = "A cell has a contender's time and its extra memory, both divided by the reference's."
CHECKED = " Contenders whose results do not agree with float64 are not compared."


def wrapped(words: str) -> str:
    return textwrap.fill(words, COLUMNS, break_long_words=False, break_on_hyphens=False) + "\n"


def plain(words) -> str:
    """Escape text from a file for Markdown."""
    return re.sub(r"([\\`*\[\]<>|#&])", r"\\\1", printable(str(words)))


def recorded(environment: dict, forms: dict[str, str]) -> list[str]:
    """Format each key that the header has."""
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


def slowness(point: Point, peer: Result) -> float:
    """Return the peer's time divided by the time of the fastest logitless contender; 1 if none ran."""
    own = next((one for one in agreeing(point) if is_own(one.name)), peer)
    return peer.median_s / own.median_s


def reference(point: Point) -> Result | None:
    """Return the contender that ratios refer to: the fastest peer unless it is too slow; without peers, dense."""
    if not point.checked:
        return next((one for one in agreeing(point) if one.name == "dense"), None)
    peer = fastest_peer(point)
    return peer if peer and slowness(point, peer) <= TOO_SLOW else None


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
    other = reference(point)
    columns = {"median s": lambda one: seconds(one.median_s),
               "n": lambda one: str(one.calls),
               "least to most": lambda one: f"{seconds(one.least_s)} to {seconds(one.most_s)}" if one.calls > 1 else "–",
               "ratio": lambda one: ratio(one.median_s, other.median_s) if other else "none",
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
        words += f"Errors cover {point.reference_rows:,} rows of d_hidden and {point.reference_entries:,} of " \
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
        self.add(f"![{words}]({self.folder}{path})\n")


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
    """Return one picture for each swept key of several numbers and each combination of the other keys."""
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


def span(values: list) -> str:
    """Return "1.2" for one value, or "1.2 to 3.4" for several."""
    known = sorted({value for value in values if isinstance(value, (int, float))})
    return " to ".join(f"{value:g}" for value in dict.fromkeys(known[:1] + known[-1:]))


def machine_text(facts: dict, loads: str) -> str:
    caches = bytes_of(facts, {"l1d_bytes": "L1d {}", "l2_bytes": "L2 {}", "l3_bytes": "L3 {}"})
    parts = recorded(facts, {"cpu": "{}", "cpu_id": "CPU type: {}", "cores": "{} cores"})
    parts += ["caches: " + ", ".join(caches)] if caches else []
    parts += bytes_of(facts, {"memory_bytes": "memory: {}"})
    instructions = listed(facts.get("cpu_instructions"))
    parts += ["instructions: " + " ".join(instructions)] if instructions else []
    parts += [f"load average before a run: {loads}"] if loads else []
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


def alike(run: Run) -> tuple:
    """Return what runs must have in common so that their machine and libraries are stated once."""
    facts = {key: value for key, value in run.environment.items() if key != "load_average"}
    return run.version, run.inputs, repr(sorted(facts.items()))


def add_runs(page: Page, file: File, group: list[Run]) -> None:
    """Add runs on the same machine, with the same libraries and flags: first what they share, then their
    points."""
    loads = span([run.environment.get("load_average") for run in group])
    facts = (machine_text(group[0].environment, loads), libraries_text(group[0]), flags_text(group[0]))
    page.add(*(wrapped(words) for words in facts))
    page.add("**Commands**, with the day on which they began:\n",
             "".join(f"    {run.command}  # {run.started[:10]}\n" for run in group))
    missing = sum(map(file.missing, group))
    if missing:
        page.add(wrapped(f"The run is not complete: {missing} of its points were not measured."))
    curves = [curve for run in group for curve in curves_of(run)]
    for place, picture in curves[:MOST_PICTURES]:
        page.show(file.name, place, picture, f"Time and memory against {plain(picture.key)}")
    points = sorted((point for run in group for point in run.points), key=lambda point: point.key)
    for number, point in enumerate(points):
        add_point(page, file.name, point, number < MOST_PICTURES)
    if max(len(curves), len(points)) > MOST_PICTURES:
        page.add(wrapped(f"Only the first {MOST_PICTURES} pictures of a kind are drawn; each point has its table."))


def add_file(page: Page, file: File) -> None:
    if file.torn:
        page.add(f"Line {file.torn} has no end and was left out: the run was interrupted.\n")
    groups: dict[tuple, list[Run]] = {}
    for run in file.runs:
        groups.setdefault(alike(run), []).append(run)
    for group in groups.values():
        add_runs(page, file, group)


def reference_cell(point: Point) -> str:
    """Name what ratios refer to, or say why there are none."""
    other, peer = reference(point), fastest_peer(point)
    if other:
        peers = [one for one in agreeing(point) if not is_own(one.name)]
        return plain(other.name) + (", the only peer" if point.checked and len(peers) == 1 else "")
    if not point.checked:
        return "none: `dense` did not run"
    slow = peer and f"{plain(peer.name)} takes {slowness(point, peer):.0f} times as long as logitless"
    return f"none: {slow or 'no peer ran and agrees'}"


def overview_cell(point: Point, name: str) -> str:
    other, one = reference(point), next((one for one in agreeing(point) if one.name == name), None)
    if not one or not other:
        return "–"
    if one == other:
        return "1"
    memory = ratio(one.extra_bytes, other.extra_bytes, ".2g") if other.extra_bytes else "no ratio"
    return f"{ratio(one.median_s, other.median_s)}, {memory}"


def add_overview(page: Page, files: list[File], what: str, link: str) -> None:
    """Add a table with one row per point and file, and one column per contender of logitless."""
    found = sorted(((point, file.name) for file in files for run in file.runs for point in run.points),
                   key=lambda one: (one[0].key, one[1]))
    names = list(dict.fromkeys(one.name for point, _ in found for one in point.results if is_own(one.name)))
    names.sort(key=lambda name: [*BY_NAME, name].index(name))
    lines = [row("point", what, "n", "reference", *map(shown, names)), "|---|---|---:|---|" + "---:|" * len(names)]
    before = ""
    for point, file in found:
        calls = span([one.calls for one in agreeing(point)]) or "–"
        cells = [overview_cell(point, name) for name in names]
        title = plain(point.title)
        lines.append(row("" if title == before else title, f"[{file}]({link.format(file)})", calls,
                         reference_cell(point), *cells))
        before = title
    page.add(wrapped(OF_TABLE + CHECKED * any(point.checked for point, _ in found)), "\n".join(lines) + "\n")


def add_summary(page: Page, files: list[File]) -> None:
    """Add a table with one row per contender of logitless: its ratios to the reference over all points."""
    found = [(one, reference(point)) for file in files for run in file.runs for point in run.points
             for one in agreeing(point) if reference(point) and is_own(one.name)]
    lines = [row("contender", "points", "time ÷ reference", "extra memory ÷ reference"), "|---|---:|---:|---:|"]
    for name in [name for name in BY_NAME if any(one.name == name for one, _ in found)]:
        pairs = [(one, other) for one, other in found if one.name == name]
        times = sorted(one.median_s / other.median_s for one, other in pairs)
        memories = sorted(one.extra_bytes / other.extra_bytes for one, other in pairs if other.extra_bytes)
        memory = f"{memories[0]:.2g} to {memories[-1]:.2g}" if memories else "no ratio"
        lines.append(row(shown(name), str(len(pairs)), f"{times[0]:.2f} to {times[-1]:.2f}", memory))
    page.add("\n".join(lines) + "\n")


def make_page(files: list[File], folder: str) -> tuple[str, Pictures]:
    """Return the user's page; its pictures are in `folder`, next to it."""
    page = Page(folder + "/")
    page.add("# logitless and its contenders\n", wrapped(OF_FILES), "## All points\n")
    add_overview(page, files, "file", "#{}")
    for file in files:
        page.add(f"## {file.name}\n")
        add_file(page, file)
    return "\n".join(page.parts), page.pictures


def make_docs(files: list[File]) -> tuple[dict[str, str], Pictures]:
    """Return the generated parts of docs/benchmarks.md and docs/benchmarks/<file>.md by their paths in docs/,
    and the pictures by their paths in docs/benchmarks/."""
    overview = Page("")
    if files:
        add_summary(overview, files)
        add_overview(overview, files, "machine", "benchmarks/{}.md")
    else:
        overview.add("No machine has been measured yet: `bench/results` has no file.\n")
    parts, pictures = {"benchmarks.md": "\n".join(overview.parts)}, {}
    for file in files:
        page = Page("")
        add_file(page, file)
        parts[f"benchmarks/{file.name}.md"] = "\n".join(page.parts)
        pictures |= page.pictures
    return parts, pictures


def with_part(text: str, name: str, part: str) -> str:
    """Return a page of docs/ with its generated part replaced; a page that does not exist yet gets its title."""
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        text = text or f"# {name}\n"
        return f"{text}\n{BEGIN}{part}{END}"
    return text[:begin] + BEGIN + part + text[end:]
