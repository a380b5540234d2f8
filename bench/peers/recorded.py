# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Reads what `bench/peers/run -o` wrote. A file holds one run or several of one machine, each a header and its
points. Whatever the page would need and a line lacks is refused with file and line."""

import json
import math
import pathlib
import re
from dataclasses import dataclass, field

import results
from contenders import BY_NAME

STEM = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")  # a heading's anchor, a folder's name
NAME = re.compile(r"\w[\w.-]*", re.ASCII)  # a part of a picture's name
MOST = 1e18  # of a figure: a quotient of any two can be printed


class Broken(Exception):
    """A message that begins with file and line."""


@dataclass(frozen=True)
class Result:
    """One contender at one point. Errors are in the order of results.ERRORS: None where none was computed, NaN
    where the result was not finite."""

    name: str
    failure: str = ""
    median_s: float = 0
    least_s: float = 0
    most_s: float = 0
    extra_bytes: int = 0
    errors: tuple[float | None, ...] = ()
    disagrees: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Point:
    model: str
    tokens: int
    dtype: str
    task: str
    outputs: str
    hidden: int
    vocab: int
    teacher_hidden: int
    input_bytes: int | None
    gradient_bytes: int
    reference_rows: int
    reference_entries: int
    gemm_rate: float | None
    gemm_rates: tuple[float, ...]
    results: tuple[Result, ...]

    @property
    def key(self) -> tuple:
        """What a point is, on any machine; points stand in this order."""
        return (self.hidden * self.vocab, self.model, self.tokens, self.dtype != "float32", self.task,
                self.teacher_hidden, self.outputs)

    def in_order(self) -> list[Result]:
        """The fastest first; those that failed last."""
        return sorted(self.results, key=lambda one: (bool(one.failure), one.median_s, one.name))


@dataclass
class Run:
    version: str
    started: str
    command: str
    inputs: str
    environment: dict
    points: list[Point] = field(default_factory=list)


class Fields:
    """One JSON object and where it stands."""

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

    def text(self, key: str, pattern: re.Pattern | None = None) -> str:
        value = self.value.get(key)
        if not isinstance(value, str) or pattern and not pattern.fullmatch(value):
            self.reject(key, "a text" if pattern is None else "a name of letters, digits and ._-")
        return value

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

    def object(self, key: str) -> "Fields":
        if not isinstance(self.value.get(key), dict):
            self.reject(key, "an object")
        return Fields(self.value[key], self.place, f"{self.prefix}.{key}" if self.prefix else key)

    def objects(self, key: str) -> list["Fields"]:
        value = self.value.get(key)
        if not isinstance(value, list):
            self.reject(key, "a list")
        return [Fields(one, self.place, f"{key}[{number}]") for number, one in enumerate(value)]


def is_size(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= MOST


def read_result(fields: Fields, dtype: str) -> Result:
    name = fields.text("name")
    if name not in BY_NAME:
        fields.reject("name", "a contender of bench/peers/contenders.py")
    status = fields.text("status")
    if status == "error":
        return Result(name, failure=fields.text("message") or "it failed without a message")
    if status != "ok":
        fields.reject("status", '"ok" or "error"')
    times = [fields.size(key) for key in ("least_s", "median_s", "most_s")]
    if times != sorted(times):
        fields.reject("median_s", "between least_s and most_s")
    errors = []
    for key in results.ERRORS:
        if key not in fields.value:
            errors.append(None)
        elif fields.value[key] is None:
            errors.append(math.nan)
        elif fields.value[key] == 0 or is_size(fields.value[key]):
            errors.append(float(fields.value[key]))
        else:
            fields.reject(key, "a number of at least 0, or null")
    if errors[0] is None:
        fields.reject("loss_error", "a number of at least 0, or null")
    disagrees = [bool(key in fields.value and results.disagreements({key: fields.value[key]}, dtype))
                 for key in results.ERRORS]
    return Result(name, "", times[1], times[0], times[2], fields.count("extra_peak_bytes"), tuple(errors),
                  tuple(disagrees))


def read_point(line: Fields) -> Point:
    at, shape, reference = line.object("at"), line.object("shape"), line.object("reference")
    dtype = at.text("model.dtype")
    if dtype not in results.LOSS_TOLERANCE:
        at.reject("model.dtype", " or ".join(results.LOSS_TOLERANCE))
    rates = line.value.get("gemm_rates_flops") or []
    if not isinstance(rates, list) or not all(map(is_size, rates)):
        line.reject("gemm_rates_flops", "a list of numbers above 0")
    found = [read_result(one, dtype) for one in line.objects("contenders")]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise Broken(f"{line.place}: {name} stands twice among the contenders")
    return Point(model=at.text("model.name", NAME), tokens=shape.count("tokens", 1), dtype=dtype,
                 task=at.text("task", NAME), outputs=at.text("outputs", NAME), hidden=shape.count("hidden", 1),
                 vocab=shape.count("vocab", 1),
                 teacher_hidden=shape.count("teacher_hidden") if shape.has("teacher_hidden") else 0,
                 input_bytes=line.count("input_bytes") if line.has("input_bytes") else None,
                 gradient_bytes=line.count("gradient_bytes"), reference_rows=reference.count("rows"),
                 reference_entries=reference.count("entries"),
                 gemm_rate=line.size("gemm_rate_flops") if line.has("gemm_rate_flops") else None,
                 gemm_rates=tuple(rates), results=tuple(found))


def read_header(line: Fields) -> Run:
    if line.value.get("schema") != 1:
        line.reject("schema", "1")
    environment = line.object("environment")
    environment.text("cpu")
    environment.count("threads", 1)
    started = line.text("started")
    if not re.match(r"\d{4}-\d\d-\d\d", started):
        line.reject("started", "a date")
    return Run(line.text("version"), started, line.text("command") if line.has("command") else "",
               line.text("inputs"), environment.value)


def no_constant(name: str):
    raise ValueError(f"{name} is not JSON")


def parse_line(text: bytes, place: str) -> Fields:
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise Broken(f"{place}: is not JSON: {str(error).splitlines()[0]}") from error
    return Fields(value, place)


def read_file(path: pathlib.Path) -> list[Run]:
    """Throws Broken."""
    if not STEM.fullmatch(path.stem):
        raise Broken(f"{path}:1: a file is named after its CPU type: at most 30 of a-z, 0-9 and -")
    runs: list[Run] = []
    stands: dict[tuple, str] = {}
    lines = path.read_bytes().split(b"\n")
    if lines[-1]:
        raise Broken(f"{path}:{len(lines)}: the line does not end: its run was interrupted")
    if len(lines) == 1:
        raise Broken(f"{path}:1: the file is empty")
    for number, text in enumerate(lines[:-1], 1):
        line = parse_line(text, f"{path}:{number}")
        kind = line.value.get("type")
        if kind == "header":
            runs.append(read_header(line))
            if runs[-1].environment["cpu"] != runs[0].environment["cpu"]:
                line.object("environment").reject("cpu", "that of the first line: a file has one machine")
        elif kind == "point" and runs:
            point = read_point(line)
            if point.key in stands:
                raise Broken(f"{line.place}: this point stands in {stands[point.key]} already")
            stands[point.key] = f"line {number}"
            runs[-1].points.append(point)
        else:
            line.reject("type", '"header" or "point"' if runs else '"header" on the first line')
    for run in runs:
        if not run.points:
            raise Broken(f"{path}:{len(lines) - 1}: the run of {run.started} has no point")
    return runs
