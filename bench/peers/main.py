# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures logitless and its peers on the same tensors, read from one file. Each contender has its own
process. Contenders take turns in rounds, every other round in the opposite order. Loss and gradients are
compared with float64."""

import argparse
import datetime
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import TextIO

import torch

import inputs
import machine
import reference
from contenders import BY_NAME
from job import DISTILLATION, DTYPE_BYTES, Job, Measured, Shape
from results import Turns, disagreements, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "peers"

# Hidden size and vocabulary, as in configs/.
MODELS = {"smollm2-135m": (576, 49152), "qwen2.5-1.5b": (1536, 151936), "llama-3-8b": (4096, 128256)}
GEMM_CALLS = 3  # per round
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
    add("--threads", type=positive, default=len(os.sched_getaffinity(0)),
        help="of every contender; by default all cores")
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
    return options


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
    facts |= {"threads": options.threads, "python": platform.python_version()}
    facts |= machine.facts(torch.__config__.show(), process_environment(options.threads))
    for package in PACKAGES:
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def sweep_of(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the keys of a point, under their names in configs where a config has them."""
    return {"model.name": options.models, "model.dtype": options.dtypes, "seq_len": [str(n) for n in options.tokens],
            "task": options.tasks, "outputs": options.outputs}


def header(options: argparse.Namespace) -> dict:
    facts = environment(options)
    return {"type": "header", "schema": 1, "version": facts["version"], "command": command_line(options),
            "started": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "settings": [f"seed={options.seed}", f"rounds={options.rounds}", f"calls={options.calls}"],
            "sweep": [{"key": key, "values": values} for key, values in sweep_of(options).items()],
            "iters": options.rounds * options.calls, "warmup": options.rounds,
            "inputs": "real hidden states" if options.states else "random", "contenders": options.contenders,
            "environment": facts}


def process_environment(threads: int) -> dict[str, str]:
    own = {"TORCHINDUCTOR_CACHE_DIR": str(BUILD / "inductor"), "HF_HUB_OFFLINE": "1",
           # without it, the last line of a failure is a note about the filter
           "JAX_TRACEBACK_FILTERING": "off"}
    return {**os.environ, **own, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
            # XLA's pool has NPROC threads, but no more than the cores that the process may use.
            "NPROC": str(threads), "JAX_PLATFORMS": "cpu"}


def keep_to_cores(threads: int) -> None:
    """Restrict this process to its cores, before it becomes a contender's."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def run(job: Job) -> Measured:
    """Run a job in its own process. Raises RuntimeError with the reason if it fails."""
    line = [sys.executable, "-B", str(pathlib.Path(__file__).with_name("worker.py")), job.to_json()]
    process = subprocess.run(line, capture_output=True, text=True, check=False, env=process_environment(job.threads),
                             preexec_fn=lambda: keep_to_cores(job.threads))
    if process.returncode < 0:
        raise RuntimeError(f"its process was killed by signal {-process.returncode}")
    if process.returncode:
        raise RuntimeError((process.stderr.strip().splitlines() or ["it failed without a message"])[-1])
    return Measured(**json.loads(process.stdout.splitlines()[-1]))


def gemm_rate(options: argparse.Namespace, dtype: str) -> float | None:
    """Return the FLOP/s of one large GEMM, as `logitless bench` measures it; None if it reports none."""
    with tempfile.TemporaryDirectory() as folder:
        line = [options.command, "bench", str(ROOT / "configs" / "tiny.yaml"), "--contenders", "forward", "--iters",
                str(GEMM_CALLS), "--set", f"threads={options.threads}", "--set", f"model.dtype={dtype}", "-o",
                folder + "/rate.jsonl"]
        process = subprocess.run(line, capture_output=True, check=False, env=process_environment(options.threads),
                                 preexec_fn=lambda: keep_to_cores(options.threads))
        if process.returncode:
            return None
        with open(folder + "/rate.jsonl", encoding="utf-8") as file:
            return json.loads(file.readlines()[-1]).get("gemm_rate_flops")


def turn(job: Job, turns: Turns) -> None:
    needed = BY_NAME[job.contender].memory_needed(job.shape, job.gradients)
    available = machine.memory_bytes("MemAvailable")
    if needed > available:
        turns.failure = f"it needs about {needed >> 20} MiB of memory, and {available >> 20} MiB are available"
        return
    try:
        turns.measured.append(run(job))
    except RuntimeError as error:
        turns.failure = str(error)


def measure_point(options: argparse.Namespace, task: str, shape: Shape, file: str, gradients: bool,
                  truth: reference.Reference) -> tuple[list[Turns], list[float]]:
    """Return the turns of each contender, and the rate of a large GEMM before each round."""
    names = [name for name in options.contenders if task in BY_NAME[name].tasks]
    all_turns = {name: Turns(name) for name in names}
    rates = []
    for number in range(options.rounds):
        rates.append(gemm_rate(options, shape.dtype))
        for name in names if number % 2 == 0 else reversed(names):
            turns = all_turns[name]
            if turns.failure:
                continue
            print(f"  round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            # Results are checked only once, because each turn gives the same up to the last bits.
            results = BUILD / "results.safetensors" if gradients and number == 0 else None
            turn(Job(name, task, shape, file, gradients, options.calls, options.threads, options.command,
                     str(results) if results else None), turns)
            if results and not turns.failure:
                turns.errors = reference.errors(truth, str(results))
                results.unlink()
            elif not turns.failure and "loss_error" not in turns.errors:
                loss = turns.measured[0].loss
                turns.errors["loss_error"] = abs(loss - truth.loss) / max(1.0, abs(truth.loss))
    return list(all_turns.values()), [rate for rate in rates if rate]


def tensors_of(options: argparse.Namespace, shape: Shape) -> dict[str, torch.Tensor]:
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


def measure(options: argparse.Namespace, output: TextIO) -> bool:
    """Measure all points. Return whether every contender that ran agrees with the reference."""
    write_line(output, header(options))
    agree = True
    for model, dtype, tokens in itertools.product(options.models, options.dtypes, options.tokens):
        teacher = options.teacher_hidden if set(options.tasks) & set(DISTILLATION) else 0
        shape = Shape(tokens, *MODELS[model], dtype, inputs.sequences_of(tokens), teacher)
        file = str(BUILD / "inputs.safetensors")
        inputs.write(file, tensors_of(options, shape))
        for task in options.tasks:
            print(f"{model}, {dtype}, {tokens} tokens, {task}: the reference", file=sys.stderr, flush=True)
            truth = reference.compute(file, task)
            for what in options.outputs:
                all_turns, rates = measure_point(options, task, shape, file, what == "gradients", truth)
                at = {"model.name": model, "model.dtype": dtype, "seq_len": str(tokens), "task": task, "outputs": what}
                sizes = {"tokens": tokens, "hidden": shape.hidden, "vocab": shape.vocab, "dtype": dtype,
                         "layout": "vocab_hidden"}
                if task in DISTILLATION:
                    sizes["teacher_hidden"] = shape.teacher_hidden
                checked = {"loss": truth.loss, "rows": len(truth.rows), "entries": len(truth.entries)}
                gemm = {"gemm_rate_flops": statistics.median(rates), "gemm_rates_flops": rates} if rates else {}
                write_line(output, {"type": "point", "at": at, "task": task, "level": "fused", "shape": sizes,
                                    "reference": checked, **gemm, "input_bytes": shape.input_bytes,
                                    "gradient_bytes": shape.gradient_bytes if what == "gradients" else 0,
                                    "contenders": [turns.to_json() for turns in all_turns]})
                print(f"\n{model}, {dtype}, {tokens} tokens, {task}, {what}; errors against float64, of "
                      f"{checked['rows']} rows of d_hidden and {checked['entries']} of d_weight\n{table(all_turns)}")
                for turns in all_turns:
                    for complaint in disagreements(turns.errors, dtype):
                        print(f"{turns.contender} DISAGREES: {complaint}")
                        agree = False
        pathlib.Path(file).unlink()
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
