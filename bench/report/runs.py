# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Reads files of `logitless bench` and of bench/peers (docs/bench.md). A file holds one or several runs of
one machine, each a header and its points. A line that lacks what the page needs is refused with file and
line."""

import json
import math
import pathlib
import re
import shlex
from dataclasses import dataclass, field

import results

MOST = 1e18  # largest figure; with LEAST it bounds every quotient, so that it can be printed and drawn
LEAST = 1e-12


class Broken(Exception):
    """An error whose message begins with file and line."""

    def __init__(self, message: str):
        super().__init__(printable(message))


@dataclass(frozen=True)
class Result:
    """One contender at one point. Errors are in the order of results.ERRORS: None if not computed, NaN if the
    result was not finite."""

    name: str
    failure: str = ""
    median_s: float = 0
    least_s: float = 0
    most_s: float = 0
    calls: int = 0  # timed ones
    first_s: float = 0
    extra_bytes: int = 0
    workspace_bytes: int | None = None  # None: a contender of another program
    plan: str = ""
    loss: float | None = None  # None: not finite
    gemm_share: float | None = None
    errors: tuple[float | None, ...] = (None,) * len(results.ERRORS)
    disagrees: tuple[bool, ...] = (False,) * len(results.ERRORS)


@dataclass(frozen=True)
class Point:
    at: dict[str, str]
    task: str
    level: str
    layout: str
    tokens: int
    hidden: int
    vocab: int
    dtype: str
    teacher_hidden: int
    checked: bool  # against float64, by bench/peers
    input_bytes: int | None
    gradient_bytes: int
    reference_rows: int
    reference_entries: int
    gemm_rate: float | None
    gemm_rates: tuple[float, ...]
    results: tuple[Result, ...]

    @property
    def model(self) -> str:
        return self.at.get("model.name") or (f"H = {self.hidden:,}, " if self.hidden else "") + f"V = {self.vocab:,}"

    @property
    def outputs(self) -> str:
        return self.at.get("outputs", "")

    @property
    def said(self) -> set[str]:
        """Return the swept keys that the title mentions anyway."""
        return {"model.name", "model.dtype", "task", "outputs", *([] if "batch_size" in self.at else ["seq_len"])}

    @property
    def title(self) -> str:
        teacher = f" from H = {self.teacher_hidden:,}" if self.teacher_hidden else ""
        others = [f"{key} = {value}" for key, value in self.at.items() if key not in self.said]
        words = [self.model, f"{self.tokens:,} tokens", self.dtype, self.task + teacher, self.outputs, *others]
        return ", ".join(filter(None, words))

    @property
    def key(self) -> tuple:
        """Return a key that identifies the point on any machine; pages sort by it."""
        return (self.hidden * self.vocab, self.model, self.tokens, self.dtype != "float32", self.dtype, self.task,
                self.teacher_hidden, self.outputs, self.hidden, self.vocab,
                *(ordered(value) for key, value in self.at.items() if key not in self.said))

    def in_order(self) -> list[Result]:
        """Sort the fastest first and failed ones last."""
        return sorted(self.results, key=lambda one: (bool(one.failure), one.median_s, one.name))


@dataclass
class Run:
    version: str
    started: str
    command: str
    sweep: dict[str, list[str]]
    inputs: str
    environment: dict
    points: list[Point] = field(default_factory=list)

    def holds(self, point: Point) -> bool:
        return point.at.keys() == self.sweep.keys() and all(point.at[key] in self.sweep[key] for key in self.sweep)


@dataclass
class File:
    name: str
    runs: list[Run]
    torn: int = 0  # the number of the last line if it was cut by an interruption

    def missing(self, run: Run) -> int:
        """Return how many points of the sweep are missing in the file."""
        found = {tuple(point.at[key] for key in run.sweep)
                 for other in self.runs for point in other.points if run.holds(point)}
        return math.prod(len(values) for values in run.sweep.values()) - len(found)


def number_of(value: str) -> float | None:
    """Return the value of a swept key as a number, or None if it is text."""
    try:
        return float(value) if math.isfinite(float(value)) else None
    except ValueError:
        return None


def ordered(value: str) -> tuple:
    number = number_of(value)
    return (1, 0.0, value) if number is None else (0, number, value)


def printable(words: str) -> str:
    """Return the text as one line without control characters."""
    return "".join(one if one.isprintable() else "\ufffd" for one in " ".join(words.split()))


class Fields:
    """One JSON object and its place for messages."""

    def __init__(self, value, place: str, prefix: str = ""):
        self.value, self.place, self.prefix = value, place, prefix
        if not isinstance(value, dict):
            raise Broken(f"{place}: {prefix or 'the line'} is not an object")

    def reject(self, key: str, rule: str):
        shown = json.dumps(self.value[key]) if key in self.value else "left out"
        path = f"{self.prefix}.{key}" if self.prefix else key
        raise Broken(f"{self.place}: {path} must be {rule}, not {shown if len(shown) <= 60 else shown[:57] + '...'}")

    def has(self, key: str) -> bool:
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        value = self.value.get(key)
        if not isinstance(value, str):
            self.reject(key, "a text")
        return printable(value)

    def texts(self, key: str) -> list[str]:
        value = self.value.get(key)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.reject(key, "a list of texts")
        return list(map(printable, value))

    def count(self, key: str, least: int = 0) -> int:
        value = self.value.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            self.reject(key, f"an integer of at least {least}")
        return value

    def size(self, key: str) -> float:
        value = self.value.get(key)
        if not is_size(value):
            self.reject(key, "a number above 0")
        return value

    def sizes(self, key: str) -> list[float]:
        value = self.value.get(key)
        if not isinstance(value, list) or not value or not all(map(is_size, value)):
            self.reject(key, "a list of numbers above 0")
        return value

    def object(self, key: str) -> "Fields":
        if not isinstance(self.value.get(key), dict):
            self.reject(key, "an object")
        return Fields(self.value[key], self.place, f"{self.prefix}.{key}" if self.prefix else key)

    def objects(self, key: str) -> list["Fields"]:
        value = self.value.get(key)
        if not isinstance(value, list):
            self.reject(key, "a list")
        return [Fields(one, self.place, f"{key}[{number}]") for number, one in enumerate(value)]


def is_number(value, least: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= MOST


def is_size(value) -> bool:
    return is_number(value, LEAST)


def read_error(fields: Fields, key: str) -> float | None:
    if key not in fields.value:
        return None
    value = fields.value[key]
    if value is not None and not is_number(value, 0):
        fields.reject(key, "a number of at least 0, or null")
    return math.nan if value is None else float(value)


def read_result(fields: Fields, dtype: str, checked: bool) -> Result:
    name = fields.text("name")
    status = fields.text("status")
    if status == "error":
        return Result(name, failure=fields.text("message") or "it failed without a message")
    if status != "ok":
        fields.reject("status", '"ok" or "error"')
    times, median = fields.sizes("times_s"), fields.size("median_s")
    if not min(times) <= median <= max(times):
        fields.reject("median_s", "between the least and the most of times_s")
    errors = [read_error(fields, key) for key in results.ERRORS]
    if checked and errors[0] is None:
        fields.reject("loss_error", "a number of at least 0, or null")
    disagrees = [error is not None and bool(results.disagreements({key: error}, dtype))
                 for key, error in zip(results.ERRORS, errors)]
    if fields.has("loss") and not is_number(fields.value["loss"], -MOST):
        fields.reject("loss", "a number, or null")
    plan, workspace = fields.text("plan"), fields.count("workspace_bytes")
    return Result(name, "", median, min(times), max(times), len(times), fields.size("first_s"), fields.count("extra_peak_bytes"),
                  workspace if plan else None, plan, fields.value.get("loss"),
                  fields.size("gemm_efficiency") if fields.has("gemm_efficiency") else None, tuple(errors),
                  tuple(disagrees))


def read_point(line: Fields, run: Run) -> Point:
    at, shape = line.object("at"), line.object("shape")
    place = {}
    for key, values in run.sweep.items():
        place[key] = at.text(key)
        if place[key] not in values:
            at.reject(key, "a value of the header's sweep")
    if len(at.value) != len(place):
        raise Broken(f"{line.place}: at names a key that the header does not sweep")
    checked = line.has("reference")
    reference = line.object("reference") if checked else None
    dtype = shape.text("dtype")
    if checked and dtype not in results.LOSS_TOLERANCE:
        shape.reject("dtype", " or ".join(results.LOSS_TOLERANCE))
    found = [read_result(one, dtype, checked) for one in line.objects("contenders")]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise Broken(f"{line.place}: there are two contenders {name}")
    return Point(at=place, task=line.text("task"), level=line.text("level"),
                 layout=shape.text("layout"), tokens=shape.count("tokens", 1), hidden=shape.count("hidden"),
                 vocab=shape.count("vocab", 1), dtype=dtype,
                 teacher_hidden=shape.count("teacher_hidden") if shape.has("teacher_hidden") else 0, checked=checked,
                 input_bytes=line.count("input_bytes") if line.has("input_bytes") else None,
                 gradient_bytes=line.count("gradient_bytes") if checked else 0,
                 reference_rows=reference.count("rows") if reference else 0,
                 reference_entries=reference.count("entries") if reference else 0,
                 gemm_rate=line.size("gemm_rate_flops") if line.has("gemm_rate_flops") else None,
                 gemm_rates=tuple(line.sizes("gemm_rates_flops")) if line.has("gemm_rates_flops") else (),
                 results=tuple(found))


def command_of(line: Fields, sweep: dict[str, list[str]]) -> str:
    """Return the command that repeats the measurement."""
    if line.has("command"):
        return line.text("command")
    words = ["logitless", "bench"]
    for setting in line.texts("settings"):
        words += ["--set", setting] if setting.split("=")[0] not in sweep else []
    for key, values in sweep.items():
        words += ["--sweep", f"{key}={','.join(values)}"]
    words += ["--contenders", ",".join(line.texts("contenders")), "--warmup", str(line.count("warmup"))]
    return shlex.join([*words, "--iters", str(line.count("iters", 1)), "--inputs", line.text("inputs")])


def read_header(line: Fields) -> Run:
    if line.value.get("schema") != 1:
        line.reject("schema", "1")
    environment = line.object("environment")
    environment.text("cpu")
    environment.count("threads", 1)
    started = line.text("started")
    if not re.match(r"\d{4}-\d\d-\d\d", started):
        line.reject("started", "a date")
    sweep = {swept.text("key"): swept.texts("values") for swept in line.objects("sweep")}
    return Run(line.text("version"), started, command_of(line, sweep), sweep, line.text("inputs"), environment.value)


def no_constant(name: str):
    raise ValueError(f"{name} is not JSON")


def parse_line(text: bytes, place: str) -> Fields:
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise Broken(f"{place}: is not JSON: {str(error).splitlines()[0]}") from error
    return Fields(value, place)


def read_file(path: pathlib.Path, name: str) -> File:
    """Read a file. Raises Broken and OSError."""
    lines = path.read_bytes().split(b"\n")
    if len(lines) == 1:
        raise Broken(f"{path}:1: the file is empty" if not lines[0] else f"{path}:1: the line does not end")
    file = File(name, [], torn=len(lines) if lines[-1] else 0)
    numbers: dict[tuple, int] = {}
    for number, text in enumerate(lines[:-1], 1):
        line = parse_line(text, f"{path}:{number}")
        kind = line.value.get("type")
        if kind == "header":
            file.runs.append(read_header(line))
            if file.runs[-1].environment["cpu"] != file.runs[0].environment["cpu"]:
                line.object("environment").reject("cpu", "that of the first line: a file has one machine")
        elif kind == "point" and file.runs:
            point = read_point(line, file.runs[-1])
            if point.key in numbers:
                raise Broken(f"{line.place}: line {numbers[point.key]} holds this point already")
            numbers[point.key] = number
            file.runs[-1].points.append(point)
        else:
            line.reject("type", '"header" or "point"' if file.runs else '"header" on the first line')
    for run in file.runs:
        if not run.points:
            raise Broken(f"{path}:{len(lines) - 1}: the run of {run.started} has no point")
    return file
