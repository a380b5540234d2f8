# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Packs the command, the shared libraries that it loads, and the scripts of bench/peers and bench/cores."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The C library belongs to the loader of the machine. One that is newer than here runs these programs, too.
OF_SYSTEM = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|nss_\w+)\.so\.)")
FILES = ("bench/peers/*.py", "bench/cores/*.py", "configs/tiny.yaml", "LICENSE")
# The libraries must not reach Python, which may load other versions of them.
COMMAND = """#!/bin/sh
here=$(cd "$(dirname "$0")/../../.." && pwd)
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/lib/logitless" "$@"
"""
RUN = """#!/bin/sh
# Measures, writes cores.jsonl into the current folder and prints the tables; --help lists the options.
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH="$here/site${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" -B "$here/bench/cores" run "$@"
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=pathlib.Path, default=ROOT / "build" / "cores", metavar="FOLDER",
                        help="a new folder, or an archive FOLDER.tar.gz; build/cores by default")
    parser.add_argument("--command", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "logitless",
                        metavar="FILE", help="the logitless command; by default that of build/release")
    parser.add_argument("--wheels", type=pathlib.Path, nargs="+", default=[], metavar="FILE",
                        help="unpacked next to the command, for a machine without PyTorch: PyTorch's wheel and the "
                        "wheels that it needs, and safetensors")


def libraries_of(command: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the shared libraries that a program loads, by the names under which it asks for them."""
    listed = subprocess.run(["ldd", str(command)], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r"^\s*(\S+) => not found", listed, re.MULTILINE)
    if missing:
        raise ValueError(f"{command} does not find {', '.join(missing)}")
    found = re.findall(r"^\s*(\S+) => (/\S+)", listed, re.MULTILINE)
    return {name: pathlib.Path(path) for name, path in found if not OF_SYSTEM.match(name)}


def write_script(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def fill(folder: pathlib.Path, command: pathlib.Path, wheels: list[pathlib.Path]) -> None:
    for pattern in FILES:
        for path in ROOT.glob(pattern):
            to = folder / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    (folder / "lib").mkdir()
    shutil.copy(command, folder / "lib" / "logitless")
    for name, path in libraries_of(command).items():
        shutil.copy(path, folder / "lib" / name)  # what a link points to, under the link's name
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder / "site")
    # Where bench/peers looks for the command.
    write_script(folder / "build" / "release" / "bin" / "logitless", COMMAND)
    write_script(folder / "run", RUN)


def pack(options: argparse.Namespace) -> int:
    output, name = options.output, options.output.name.removesuffix(".tar.gz")
    try:
        if output.exists():
            raise ValueError(f"{output} is there already: remove it, or name another one with -o")
        with tempfile.TemporaryDirectory(dir=output.parent) as work:
            folder = pathlib.Path(work, name)
            folder.mkdir()
            fill(folder, options.command, options.wheels)
            if name != output.name:
                with tarfile.open(output, "w:gz") as archive:
                    archive.add(folder, name)
            else:
                os.rename(folder, output)
    except (OSError, ValueError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        print(f"bench/cores: {error}", file=sys.stderr)
        return 2
    print(f"{output}: start {name}/run there")
    return 0
