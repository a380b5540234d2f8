#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Forwards a metrics file to TensorBoard, to Weights & Biases, or to both.

A metrics file holds one JSON object a line, as --metrics writes it:
    {"step": 1, "name": "loss", "value": 9.03}
A value of null stands for one that is not a finite number and is forwarded as NaN.
"""

import argparse
import contextlib
import importlib
import json
import math
import os
import signal
import sys
import threading
from typing import NamedTuple

POLL_SECONDS = 0.5

EXAMPLES = """Without --follow a file with an error is refused before anything is forwarded. With --follow the file may
not exist yet; SIGINT (Ctrl-C) or SIGTERM ends it, after what is in the file by then.

Exit status: 0 done, 2 a bad option or file, or a package that is missing.

Examples:
  forward_metrics.py run.jsonl --tensorboard logs/run
  forward_metrics.py run.jsonl --wandb my-project --follow & train_lm --metrics run.jsonl; kill $!; wait
  WANDB_MODE=offline forward_metrics.py run.jsonl --wandb my-project"""


class BadInput(Exception):
    """One line for the user."""


class Point(NamedTuple):
    step: int
    name: str
    value: float


def refuse_constant(word):
    raise ValueError(f"{word} (write null)")


def parse_line(line, place):
    """The Point of one line of bytes; `place` is FILE:LINE, for errors."""
    try:
        fields = json.loads(line.decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place}: not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.keys() != {"step", "name", "value"}:
        raise BadInput(f'{place}: must be an object of "step", "name" and "value", and of nothing else')
    step, name, value = fields["step"], fields["name"], fields["value"]
    if type(step) is not int or not 0 <= step < 2**63:
        raise BadInput(f'{place}: "step" must be a whole number from 0 to 2^63 - 1, not {json.dumps(step)}')
    if not isinstance(name, str) or name in ("", "step"):
        raise BadInput(f'{place}: "name" must be a text, neither empty nor "step", not {json.dumps(name)}')
    if value is not None and not (type(value) in (int, float) and abs(value) <= sys.float_info.max):
        raise BadInput(f'{place}: "value" must be a finite number or null, not {json.dumps(value)}')
    return Point(step, name, math.nan if value is None else float(value))


class MetricsFile:
    """Reads a file that may grow."""

    def __init__(self, path):
        self.path = path
        self.position = 0  # of the first line that has not been read
        self.lines = 0

    def read(self, last_line_may_be_open):
        """The points that are new since the last call. A last line without its end is left for the next call, or taken
        for a whole one."""
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self.position:
                    raise BadInput(f"{self.path}: has become shorter while it was read; start again")
                file.seek(self.position)
                text = file.read()
        except OSError as error:
            raise BadInput(f"{self.path}: {error.strerror}") from None
        if last_line_may_be_open:
            text = text[: text.rfind(b"\n") + 1]
        self.position += len(text)
        lines = text.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        first = self.lines + 1
        self.lines += len(lines)
        return [parse_line(line, f"{self.path}:{number}") for number, line in enumerate(lines, first)]


class TensorBoard:
    def __init__(self, summary, folder):
        try:
            self.writer = summary.Writer(folder)
        except OSError as error:
            raise BadInput(f"--tensorboard {folder}: {error.strerror}") from None

    def write(self, points):
        for point in points:
            self.writer.add_scalar(point.name, point.value, point.step)
        self.writer.flush()

    def close(self):
        self.writer.close()


def rows_of(points):
    """Points of one step that follow one another, as one row: {"step": 1, "loss": 9.03, "learning_rate": 0.003}."""
    row = {}
    for point in points:
        if row and (row["step"] != point.step or point.name in row):
            yield row
            row = {}
        row["step"] = point.step
        row[point.name] = point.value
    if row:
        yield row


class Wandb:
    def __init__(self, wandb, project, name):
        try:
            self.run = wandb.init(project=project, name=name, settings=wandb.Settings(console="off"))
        except wandb.Error as error:
            raise BadInput(f"--wandb {project}: {error}") from None
        # The service's own step only rises; ours may start again, as when one file holds two runs.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def write(self, points):
        for row in rows_of(points):
            self.run.log(row)

    def close(self):
        self.run.finish()


def imported(module, option):
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BadInput(f"{option} needs the package {package} ({error}): pip install {package}") from None


def command_line(arguments):
    parser = argparse.ArgumentParser(
        prog="forward_metrics.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the metrics file")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="writes an event file into FOLDER")
    parser.add_argument("--wandb", metavar="PROJECT", help="makes a run in PROJECT; WANDB_MODE=offline needs no network")
    parser.add_argument("--name", metavar="RUN", help="of the run that --wandb makes")
    parser.add_argument("--follow", action="store_true", help="goes on while the file grows, until interrupted")
    options = parser.parse_args(arguments)
    if not options.tensorboard and not options.wandb:
        parser.error("nowhere to forward to: give --tensorboard FOLDER or --wandb PROJECT")
    if options.name and not options.wandb:
        parser.error("--name needs --wandb")
    return options


def open_sinks(options, stack):
    # Every package is looked for before the first run or folder is made.
    wandb = imported("wandb", "--wandb") if options.wandb else None
    summary = imported("tensorboard.summary", "--tensorboard") if options.tensorboard else None
    sinks = []
    if wandb:
        sinks.append(stack.enter_context(contextlib.closing(Wandb(wandb, options.wandb, options.name))))
    if summary:
        sinks.append(stack.enter_context(contextlib.closing(TensorBoard(summary, options.tensorboard))))
    return sinks


def forward(points, sinks):
    for sink in sinks:
        sink.write(points)


def follow(file, sinks, stopped):
    while not stopped.wait(POLL_SECONDS):
        if file.position > 0 or os.path.exists(file.path):
            forward(file.read(last_line_may_be_open=True), sinks)
    forward(file.read(last_line_may_be_open=True), sinks)


def run(options):
    file = MetricsFile(options.file)
    stopped = threading.Event()
    if options.follow:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
    points = [] if options.follow else file.read(last_line_may_be_open=False)
    with contextlib.ExitStack() as stack:
        sinks = open_sinks(options, stack)
        forward(points, sinks)
        if options.follow:
            follow(file, sinks, stopped)


def main(arguments=None):
    try:
        run(command_line(arguments))
    except BadInput as error:
        print(f"forward_metrics.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
