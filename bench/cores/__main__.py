# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""How a call scales with cores: the README's heads with 1, 2, 4, ... threads, next to PyTorch. It is bench/peers
with several numbers of threads, packed so that it runs on a machine without network and compilers.

    python3 bench/cores pack -o cores.tar.gz    # the command of build/release, its libraries, these scripts
    tar -xf cores.tar.gz && cores/run           # there; needs Python 3.11, and PyTorch for its columns
    python3 bench/cores table cores.jsonl       # prints the tables again
    python3 bench/report cores.jsonl -o cores.html

`run` writes cores.jsonl, in which each number of threads is a point. It begins with all cores: if the time does
not suffice, the slowest points are missing, which have one thread. A team of N threads may use N CPUs: one per
core, socket by socket, and the second hyper-threads last.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import packing
import scaling

ROOT = packing.ROOT

# For each head and type: the limit of the plans' memory, and the share of the time. The default limit is
# 256 MiB, and one pass of Qwen's head in bfloat16 needs more.
SHAPES = {
    "smollm2-135m/float32": ("256MiB", 2),
    "smollm2-135m/bfloat16": ("256MiB", 1),
    "qwen2.5-1.5b/bfloat16": ("2GiB", 4),
}
CONTENDERS = ("one_pass", "two_pass", "torch_dense", "torch_compile")


def teams(cpus: int) -> list[int]:
    """Return all CPUs, and the powers of two below, the largest first."""
    return [cpus, *(1 << bit for bit in reversed(range(cpus.bit_length())) if 1 << bit < cpus)]


def runnable() -> list[str]:
    """Return the contenders that can run here, and say which cannot."""
    left_out = {}
    if importlib.util.find_spec("torch") is None:
        left_out = dict.fromkeys(("torch_dense", "torch_compile"), "PyTorch is not installed")
    elif not shutil.which(os.environ.get("CXX", "g++")):
        left_out = {"torch_compile": "there is no C++ compiler"}
    for name, why in left_out.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    return [name for name in CONTENDERS if name not in left_out]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("cores.jsonl"), metavar="FILE",
                        help="JSON Lines, as bench/peers writes them; cores.jsonl by default")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES), metavar="HEAD/TYPE",
                        help="%(choices)s; all by default")
    parser.add_argument("--tokens", type=int, default=2048, help="2048 by default; the README also has 4096")
    parser.add_argument("--threads", type=int, nargs="+", default=teams(len(os.sched_getaffinity(0))), metavar="N",
                        help="all CPUs and the powers of two below by default")
    parser.add_argument("--contenders", nargs="+", default=None, metavar="NAME",
                        help=f"of bench/peers; by default {', '.join(CONTENDERS)}, as far as they can run")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender; 3 by default, if there is time")
    parser.add_argument("--minutes", type=float, default=7, help="of all runs together; 7 by default")
    parser.add_argument("--command", default=str(ROOT / "build" / "release" / "bin" / "logitless"), metavar="FILE",
                        help="the logitless command; by default that of build/release")


def run(options: argparse.Namespace) -> int:
    contenders = options.contenders or runnable()
    end = time.monotonic() + 60 * options.minutes
    options.output.write_text("", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for place, name in enumerate(options.shapes):
            model, dtype = name.split("/")
            workspace, share = SHAPES[name]
            left = (end - time.monotonic()) / 60 * share / sum(SHAPES[one][1] for one in options.shapes[place:])
            part = pathlib.Path(folder, f"{place}.jsonl")
            line = [sys.executable, "-B", str(ROOT / "bench" / "peers" / "main.py"), "--unchecked", "--outputs",
                    "gradients", "--models", model, "--dtypes", dtype, "--tokens", str(options.tokens), "--threads",
                    *map(str, options.threads), "--contenders", *contenders, "--rounds", str(options.rounds), "--calls",
                    "1", "--minutes", f"{max(left, 0):.2f}", "--workspace", workspace, "--command", options.command,
                    "-o", str(part)]
            done = subprocess.run(line, stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                return done.returncode
            with open(options.output, "a", encoding="utf-8") as output:
                output.write(part.read_text(encoding="utf-8"))
    return table(options.output)


def table(file: pathlib.Path) -> int:
    try:
        print(scaling.text_of(scaling.read(file)))
    except (OSError, ValueError, KeyError) as error:
        print(f"bench/cores: {file}: {error!r}: not a file of bench/cores", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/cores", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    add_options(verbs.add_parser("run", help="measure, and print the tables"))
    verbs.add_parser("table", help="print the tables of a file").add_argument("file", type=pathlib.Path)
    packing.add_options(verbs.add_parser("pack", help="make a folder or an archive that runs elsewhere"))
    options = parser.parse_args()
    if options.verb == "run":
        return run(options)
    return table(options.file) if options.verb == "table" else packing.pack(options)


if __name__ == "__main__":
    sys.exit(main())
