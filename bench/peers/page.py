# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Makes docs/benchmarks.md and its pictures from all files of bench/results: the same files give the same bytes. A
line that is wrong is refused with its file and number, and then nothing is written."""

import argparse
import math
import pathlib
import re
import sys
import textwrap

import chart
from contenders import BY_NAME, CONTENDERS
from recorded import Broken, Point, Result, Run, read_file
from results import ERRORS, MIB

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = 108
MOST_MESSAGE = 160  # characters of why a contender was left out

Machines = dict[str, list[Run]]  # by the name of the file

INTRODUCTION = """\
This page compares logitless with its peers on each machine that somebody has measured. Every call gets the same
tensors, and [bench/peers/README.md](../bench/peers/README.md) says who takes part and how each figure is found. In
a picture, the columns at the top are **extra memory**: what a call takes above its inputs and outputs, and the axis
ends at the largest peak. Below them are the seconds of one call, and at the bottom the error of its results against
float64, because a fast wrong answer is worth nothing. Blue and **bold** are logitless; the rest are peers. The
ratio is a contender's time divided by that of the fastest peer whose results agree with float64: below 1 it is
faster. Trust ratios within a table. Two machines differ in cores and libraries, so compare their ratios, not their
seconds. To add a machine, call these two commands on it, after `bench/peers/setup` and while it does nothing else;
the file has the name of the CPU type:
"""

COMMANDS = """\
    bench/peers/run -o bench/results/amd-epyc-zen4.jsonl    # measures; --help lists models, types and tasks
    bench/peers/page                                        # makes this page again

`bench/peers/page` makes this file, so change that and not the text here.
"""


def wrapped(words: str) -> str:
    return textwrap.fill(words, COLUMNS, break_long_words=False, break_on_hyphens=False) + "\n"


def plain(words) -> str:
    """Text of a file, so that no character of it is markup."""
    return re.sub(r"([\\`*\[\]<>|#])", r"\\\1", " ".join(str(words).split()))


def known(environment: dict, key: str, form="{}") -> str:
    value = environment.get(key)
    return "not recorded" if value in (None, "") else form.format(plain(value))


def bytes_text(value) -> str:
    if not isinstance(value, (int, float)) or value <= 0:
        return "not recorded"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1024:.3g} KiB"


def seconds(value: float) -> str:
    return f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"


def mebibytes(value: int) -> str:
    return f"{value / MIB:,.1f}"


def shown(name: str) -> str:
    return f"**{name}**" if BY_NAME[name].own else name


def agreeing(point: Point) -> list[Result]:
    """Those whose results agree with float64, the fastest first."""
    return [one for one in point.in_order() if not one.failure and not any(one.disagrees)]


def fastest_peer(point: Point) -> Result | None:
    return next((one for one in agreeing(point) if not BY_NAME[one.name].own), None)


def fused(point: Point) -> list[Result]:
    """The fastest of logitless without all logits in memory and, if it is another, that of least memory."""
    ran = [one for one in agreeing(point) if BY_NAME[one.name].fused]
    least = min(ran, key=lambda one: one.extra_bytes, default=None)
    return [one for one in ran if one in (ran[0], least)]


def title(point: Point) -> str:
    teacher = f" from H = {point.teacher_hidden:,}" if point.teacher_hidden else ""
    return f"{point.model}, {point.tokens:,} tokens, {point.dtype}, {point.task}{teacher}, {point.outputs}"


def error_cell(one: Result, place: int) -> str:
    error = one.errors[place]
    if error is None:
        return "not measured"
    figure = f"{error:.1e}" if math.isfinite(error) else "not finite"
    return figure + (", disagrees" if one.disagrees[place] else "")


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(point: Point) -> str:
    places = [place for place in range(len(ERRORS))
              if place == 0 or point.outputs == "gradients"]
    names = ("error of loss", "of d_hidden", "of d_weight")
    lines = [row("contender", "median s", "least to most", "ratio", "extra MiB", *(names[place] for place in places)),
             "|---|" + "---:|" * (4 + len(places))]
    peer = fastest_peer(point)
    for one in point.in_order():
        if one.failure:
            why = textwrap.shorten(plain(one.failure), MOST_MESSAGE, placeholder=" ...")
            lines.append(row(shown(one.name), "left out: " + why, *[""] * (3 + len(places))))
            continue
        ratio = f"{one.median_s / peer.median_s:.2f}" if peer else "no peer"
        lines.append(row(shown(one.name), seconds(one.median_s), f"{seconds(one.least_s)} to {seconds(one.most_s)}",
                         ratio, mebibytes(one.extra_bytes), *(error_cell(one, place) for place in places)))
    return "\n".join(lines) + "\n"


def not_measured(point: Point) -> str:
    """Contenders that know the task and had no turn."""
    had = {one.name for one in point.results}
    return ", ".join(each.name for each in CONTENDERS if point.task in each.tasks and each.name not in had)


def sizes(point: Point) -> str:
    words = f"H = {point.hidden:,}, V = {point.vocab:,}. "
    inputs = "not recorded" if point.input_bytes is None else f"{mebibytes(point.input_bytes)} MiB"
    words += f"Inputs: {inputs}; gradients: {mebibytes(point.gradient_bytes)} MiB; all logits in float32 would be " \
             f"{mebibytes(4 * point.tokens * point.vocab)} MiB. "
    if point.outputs == "gradients":
        words += f"Errors are of {point.reference_rows:,} rows of d_hidden and {point.reference_entries:,} of " \
                 "d_weight. "
    if not point.gemm_rate:
        return words + "GEMM rate: not recorded."
    words += f"GEMM rate: {point.gemm_rate / 1e9:.0f} GFLOP/s"
    if len(point.gemm_rates) > 1:
        words += f" ({min(point.gemm_rates) / 1e9:.0f} to {max(point.gemm_rates) / 1e9:.0f})"
    return words + "."


def picture_name(point: Point) -> str:
    task = f"{point.task}{point.teacher_hidden or ''}"
    return f"{point.model}-{point.tokens}-{point.dtype}-{task}-{point.outputs}.svg"


def point_section(stem: str, folder: str, point: Point) -> str:
    missing = not_measured(point)
    parts = [f"### {title(point)}\n", wrapped(sizes(point)), table(point)]
    parts += [wrapped(f"Not measured: {missing}.")] if missing else []
    parts.append(f"![Memory, time and error of each\ncontender]({folder}/{stem}/{picture_name(point)})\n")
    return "\n".join(parts)


def list_text(value) -> str:
    return " ".join(map(plain, value)) if isinstance(value, list) and value else "not recorded"


def machine_text(facts: dict) -> str:
    caches = ", ".join(f"{name} {bytes_text(facts.get(key))}"
                       for name, key in (("L1d", "l1d_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes")))
    return (f"**Machine:** {known(facts, 'cpu')}; CPU type: {known(facts, 'cpu_id')}; {known(facts, 'cores')} cores; "
            f"caches: {caches}; memory: {bytes_text(facts.get('memory_bytes'))}; instructions: "
            f"{list_text(facts.get('cpu_instructions'))}; load average before the run: {known(facts, 'load_average')}.")


def libraries_text(run: Run) -> str:
    facts = run.environment
    blas = f"{known(facts, 'gemm_backend')}, {known(facts, 'blas_config')}, core {known(facts, 'blas_core')}"
    products = facts.get("gemm_bf16") or "widened to float32" if "gemm_bf16" in facts else "not recorded"
    torch = ", ".join(f"{name} {known(facts, key)}" for name, key in (("MKL", "torch_mkl"), ("oneDNN", "torch_onednn"),
                                                                     ("capability", "torch_capability")))
    others = ", ".join(f"{key} {known(facts, key)}"
                       for key in ("jax", "jaxlib", "trl", "transformers", "liger_kernel", "tokamax", "numpy",
                                   "python"))
    return (f"**Libraries:** logitless {plain(run.version)} ({blas}; SIMD {known(facts, 'simd_target')}; bfloat16 "
            f"products: {plain(products)}); torch {known(facts, 'torch')} ({torch}); {others}.")


def flags_text(run: Run) -> str:
    variables = run.environment.get("variables")
    if isinstance(variables, dict):
        words = " ".join(f"{name}={value}" for name, value in variables.items()) or "no variable is set"
    else:
        words = "not recorded"
    warnings = run.environment.get("warnings")
    said = f" Warnings of `logitless info`: {list_text(warnings)}." if warnings else ""
    return (f"**Flags:** {known(run.environment, 'threads')} threads; environment: {plain(words)}; inputs: "
            f"{plain(run.inputs)}.{said}")


def run_section(run: Run) -> str:
    parts = [wrapped(words) for words in (machine_text(run.environment), libraries_text(run), flags_text(run))]
    command = "    " + (" ".join(run.command.split()) or "the command was not recorded") + "\n"
    return "\n".join([*parts, f"**Command**, begun on {run.started[:10]}:\n", command])


def overview_cell(point: Point) -> str:
    own, peer = fused(point), fastest_peer(point)
    if not own or not peer:
        return "no " + ("peer" if own else "fused contender") + " that ran and agrees"
    parts = []
    for one in own:
        memory = f"{one.extra_bytes / peer.extra_bytes:.2g}" if peer.extra_bytes else "no ratio"
        parts.append(f"**{one.name}** time {one.median_s / peer.median_s:.2f}, memory {memory}")
    return "; ".join(parts) + f" (of {peer.name})"


def overview(machines: Machines) -> str:
    """One row a point of any machine, one column a machine."""
    points = {stem: {point.key: point for run in runs for point in run.points} for stem, runs in machines.items()}
    every = {key: point for of_machine in points.values() for key, point in of_machine.items()}
    lines = [row("point", *(f"[{stem}](#{stem})" for stem in machines)), "|---|" + "---|" * len(machines)]
    for key in sorted(every):
        cells = []
        for stem in machines:
            point = points[stem].get(key)
            cells.append(overview_cell(point) if point else "not measured")
        lines.append(row(title(every[key]), *cells))
    about = wrapped("Each cell holds logitless against the fastest peer, by time and by extra memory: its fastest fused "
                    "contender (fused: without all logits in memory) and, if it is another, the one that takes the least "
                    "memory. Only contenders whose results agree with float64 count. `dense`, which is logitless with "
                    "all logits in memory, is in the tables further down.")
    return "\n".join(["## All machines\n", about, "\n".join(lines) + "\n"])


def make_page(machines: Machines, folder: str) -> tuple[str, dict[str, str]]:
    """The page, and its pictures by their place in `folder`."""
    parts = ["# Benchmarks by CPU type\n", wrapped(INTRODUCTION), COMMANDS]
    pictures = {}
    if not machines:
        parts.append("No machine has been measured yet: `bench/results` has no file.\n")
        return "\n".join(parts), pictures
    parts.append(overview(machines))
    for stem, runs in machines.items():
        parts.append(f"## {stem}\n")
        for run in runs:
            parts.append(run_section(run))
            for point in sorted(run.points, key=lambda point: point.key):
                parts.append(point_section(stem, folder, point))
                pictures[f"{stem}/{picture_name(point)}"] = chart.draw(point)
    return "\n".join(parts), pictures


def write(page: pathlib.Path, text: str, pictures: dict[str, str]) -> None:
    """Pictures lie beside the page, in a folder of its name. Those of an earlier page go."""
    folder = page.with_suffix("")
    for picture in folder.glob("*/*.svg"):
        picture.unlink()
    for place, drawing in pictures.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(drawing.encode())
    page.write_bytes(text.encode())


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/peers/page", description=__doc__)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results", metavar="FOLDER",
                        help="of files of `bench/peers/run -o`, one a CPU type; bench/results by default")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "docs" / "benchmarks.md", metavar="FILE",
                        help="the page; docs/benchmarks.md by default. Its pictures replace those in the folder of its "
                        "name")
    options = parser.parse_args()
    try:
        machines = {path.stem: read_file(path) for path in sorted(options.results.glob("*.jsonl"))}
        text, pictures = make_page(machines, options.output.stem)
        write(options.output, text, pictures)
    except (Broken, OSError) as error:
        print(f"bench/peers/page: {error}", file=sys.stderr)
        return 2
    files = f"{len(machines)} file" + "s" * (len(machines) != 1)
    print(f"{options.output}: from {files}, with {len(pictures)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
