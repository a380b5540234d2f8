# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures logitless and its peers on the same tensors, read from one file. Each contender has its own
process. Contenders take turns in rounds, every other round in the opposite order. Loss and gradients are
compared with float64."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, TextIO

import machine
from contenders import BY_NAME
from job import DISTILLATION, DTYPE_BYTES, Shape, sequences_of
from results import disagreements, table
from runner import BUILD, ROOT, Clock, Team, measure_point, process_environment

# Without PyTorch the command alone can be measured (--unchecked), so what needs PyTorch is imported late.
if TYPE_CHECKING:
    import torch
    from reference import Reference

# Hidden size and vocabulary, as in configs/.
MODELS = {"smollm2-135m": (576, 49152), "qwen2.5-1.5b": (1536, 151936), "llama-3-8b": (4096, 128256)}
OUTPUTS = ("gradients", "loss")  # forward and backward, or forward only
PACKAGES = ("torch", "jax", "jaxlib", "trl", "liger_kernel", "tokamax", "numpy", "transformers")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", choices=list(MODELS), default=["smollm2-135m"], metavar="MODEL",
        help="heads: %(choices)s; smollm2-135m by default")
    add("--tokens", nargs="+", type=positive, default=[512, 2048], metavar="N", help="512 and 2048 by default")
    add("--dtypes", nargs="+", choices=list(DTYPE_BYTES), default=["float32"], metavar="DTYPE",
        help="%(choices)s; float32 by default")
    add("--tasks", nargs="+", choices=["cross_entropy", "policy_loss", *DISTILLATION], default=["cross_entropy"],
        metavar="TASK", help="%(choices)s; cross_entropy by default")
    add("--teacher-hidden", type=positive, default=4096, metavar="H",
        help="hidden size of the teacher of "
        f"{', '.join(DISTILLATION)}; 4096 by default")
    add("--outputs", nargs="+", choices=OUTPUTS, default=list(OUTPUTS), metavar="WHAT",
        help="gradients (with the loss) or loss (forward alone); both by default")
    add("--contenders", nargs="+", choices=list(BY_NAME), default=list(BY_NAME), metavar="NAME",
        help="%(choices)s; all by default")
    add("--rounds", type=positive, default=3, help="turns of each contender; 3 by default")
    add("--calls", type=positive, default=2, help="timed calls per turn, after an untimed one; 2 by default")
    add("--threads", nargs="+", type=positive, default=[len(os.sched_getaffinity(0))], metavar="N",
        help="of every contender; by default all cores. Several numbers take turns, too, and are points of their own")
    add("--minutes", type=float, default=math.inf,
        help="a turn that would end later is left out; by default there is no limit")
    add("--unchecked", action="store_true",
        help="no comparison with float64. The command's plans are measured by `logitless bench`, without the dense "
        "head that `compare` measures in turn with them")
    add("--workspace", metavar="SIZE", help="of the command's plans, --unchecked; by default its own default")
    add("--seed", type=int, default=0, help="of the tensors")
    add("--states", metavar="FILE", help="real hidden states and targets (safetensors) for the one model of --models")
    add("--lm-head", metavar="FILE", help="lm_head for --states (safetensors)")
    add("--command", default=str(ROOT / "build" / "release" / "bin" / "logitless"), metavar="FILE",
        help="the logitless command; by default that of build/release")
    add("-o", "--output", metavar="FILE", help="write JSON Lines, from which bench/report makes a page")
    return parser


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.states and set(options.tasks) & set(DISTILLATION):
        parser.error("--states has no teacher: it does not go with " + ", ".join(DISTILLATION))
    if bool(options.states) != bool(options.lm_head) or options.states and len(options.models) > 1:
        parser.error("--states needs --lm-head and one model, and --lm-head needs --states")
    if options.workspace and not options.unchecked:
        parser.error("--workspace needs --unchecked")
    if options.unchecked and (options.states or options.tasks != ["cross_entropy"]):
        parser.error("--unchecked measures cross_entropy alone, on drawn tensors: it does not go with --states or --tasks")
    cpus = len(os.sched_getaffinity(0))
    if len(set(options.threads)) < len(options.threads) or max(options.threads) > cpus:
        parser.error(f"--threads {' '.join(map(str, options.threads))}: must be different numbers of at most {cpus}, the "
                     "CPUs that this process may use")
    if not has_torch() and (not options.unchecked or any(peer(name) for name in options.contenders)):
        parser.error("PyTorch is not installed: only the command's contenders can be measured, with --unchecked")
    return options


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def peer(contender: str) -> bool:
    """Return whether a contender reads the file of tensors even if results are not checked."""
    return BY_NAME[contender].module != "logitless_command"


def command_line(options: argparse.Namespace) -> str:
    """Return a command that repeats the measurement: all options that differ from their defaults, except
    paths of files."""
    line = ["bench/peers/run"]
    for action in make_parser()._actions:
        value = getattr(options, action.dest, action.default)
        if value != action.default and action.dest not in ("command", "output"):
            line += [action.option_strings[0], *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(line)


def environment(options: argparse.Namespace) -> dict:
    """Return the command's own facts, and the peers' versions."""
    info = subprocess.run([options.command, "info", "--json"], capture_output=True, text=True, check=True)
    facts = json.loads(info.stdout)
    threads = max(options.threads)
    facts |= {"threads": threads, "python": platform.python_version()}
    built_with = ""
    if has_torch():
        import torch

        built_with = torch.__config__.show()
    facts |= machine.facts(built_with, process_environment(threads))
    for package in PACKAGES:
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def sweep_of(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the keys of a point, under their names in configs where a config has them."""
    threads = {"threads": [str(n) for n in options.threads]} if len(options.threads) > 1 else {}
    return {"model.name": options.models, "model.dtype": options.dtypes, "seq_len": [str(n) for n in options.tokens],
            "task": options.tasks, "outputs": options.outputs} | threads


def header(options: argparse.Namespace) -> dict:
    facts = environment(options)
    return {"type": "header", "schema": 1, "version": facts["version"], "command": command_line(options),
            "started": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "settings": [f"seed={options.seed}", f"rounds={options.rounds}", f"calls={options.calls}"],
            "sweep": [{"key": key, "values": values} for key, values in sweep_of(options).items()],
            "iters": options.rounds * options.calls, "warmup": options.rounds,
            "inputs": "real hidden states" if options.states else "random", "contenders": options.contenders,
            "environment": facts}


def tensors_of(options: argparse.Namespace, shape: Shape) -> dict[str, torch.Tensor]:
    import inputs

    if options.states:
        tensors = inputs.captured(options.states, options.lm_head, shape)
    else:
        tensors = inputs.drawn(shape, options.seed)
    if "policy_loss" in options.tasks:
        tensors |= inputs.policy_batch(tensors, shape.sequences, options.seed)
    return tensors


def write_line(file: TextIO, line: dict) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def point_of(team: Team, at: dict[str, str], shape: Shape, gradients: bool, truth: Reference | None) -> dict:
    """Return the line of a point."""
    sizes = {"tokens": shape.tokens, "hidden": shape.hidden, "vocab": shape.vocab, "dtype": shape.dtype,
             "layout": "vocab_hidden"}
    if at["task"] in DISTILLATION:
        sizes["teacher_hidden"] = shape.teacher_hidden
    gemm = {"gemm_rate_flops": statistics.median(team.rates), "gemm_rates_flops": team.rates} if team.rates else {}
    checked = {}
    if truth:
        checked = {"reference": {"loss": truth.loss, "rows": len(truth.rows), "entries": len(truth.entries)}}
    return {"type": "point", "at": at, "task": at["task"], "level": "fused", "shape": sizes, **checked, **gemm,
            "input_bytes": shape.input_bytes, "gradient_bytes": shape.gradient_bytes if gradients else 0,
            "contenders": [turns.to_json() for turns in team.turns.values()]}


def report(team: Team, title: str, truth: Reference | None, dtype: str) -> bool:
    """Print the table of a point. Return whether every contender that ran agrees with the reference."""
    if truth:
        title += f"; errors against float64, of {len(truth.rows)} rows of d_hidden and {len(truth.entries)} of d_weight"
    print(f"\n{title}\n{table(list(team.turns.values()))}", flush=True)
    wrong = [(turns.contender, one) for turns in team.turns.values() for one in disagreements(turns.errors, dtype)]
    for contender, complaint in wrong:
        print(f"{contender} DISAGREES: {complaint}")
    return not wrong


def measure(options: argparse.Namespace, output: TextIO) -> bool:
    """Measure all points. Return whether every contender that ran agrees with the reference."""
    write_line(output, header(options))
    clock, agree = Clock(options.minutes), True
    for model, dtype, tokens in itertools.product(options.models, options.dtypes, options.tokens):
        teacher = options.teacher_hidden if set(options.tasks) & set(DISTILLATION) else 0
        shape = Shape(tokens, *MODELS[model], dtype, sequences_of(tokens), teacher)
        file = str(BUILD / "inputs.safetensors")
        if not options.unchecked or any(peer(name) for name in options.contenders):
            import inputs

            inputs.write(file, tensors_of(options, shape))
        for task in options.tasks:
            truth = None
            if not options.unchecked:
                import reference

                print(f"{model}, {dtype}, {tokens} tokens, {task}: the reference", file=sys.stderr, flush=True)
                truth = reference.compute(file, task)
            for what in options.outputs:
                for team in measure_point(options, task, shape, file, what == "gradients", truth, clock):
                    at = {"model.name": model, "model.dtype": dtype, "seq_len": str(tokens), "task": task, "outputs": what}
                    title = f"{model}, {dtype}, {tokens} tokens, {task}, {what}"
                    if len(options.threads) > 1:
                        at["threads"] = str(team.threads)
                        title += f", {team.threads} threads"
                    write_line(output, point_of(team, at, shape, what == "gradients", truth))
                    agree &= report(team, title, truth, dtype)
        pathlib.Path(file).unlink(missing_ok=True)
    return agree


def main() -> int:
    options = parse()
    if not shutil.which(options.command):
        print(f"bench/peers/run: {options.command} is not there: build the target logitless_cli, or name it with "
              "--command", file=sys.stderr)
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        with open(options.output or os.devnull, "w", encoding="utf-8") as output:
            return 0 if measure(options, output) else 1
    except (OSError, ValueError) as error:
        print(f"bench/peers/run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
