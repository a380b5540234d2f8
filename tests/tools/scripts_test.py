#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Scripts on small inputs: scripts/test, scripts/ci/arrows and scripts/ci/instruction_counts.

    scripts_test.py CLASS ...
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class BothSuites(unittest.TestCase):
    """scripts/test runs both the C++ and the Python tests, even if one fails, and its exit status covers both."""

    def run_with(self, *, ctest, python, build=0):
        """Return the lines and the exit status of scripts/test if its parts exit as given."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "scripts" / "ci").mkdir(parents=True)
            (root / "bin").mkdir()
            for script in ("scripts/test", "scripts/ci/ctest"):
                shutil.copy(ROOT / script, root / script)
            parts = {"scripts/setup": 0, "scripts/ci/python": python, "bin/cmake": build, "bin/ctest": ctest}
            for part, status in parts.items():
                (root / part).write_text(f"#!/bin/sh\necho {part}\nexit {status}\n")
                (root / part).chmod(0o755)
            environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"}
            done = subprocess.run([root / "scripts/test"], env=environment, capture_output=True, text=True)
            return done.stdout.split(), done.returncode

    def test_each_runs_whatever_the_other_does(self):
        for ctest in (0, 8):
            for python in (0, 1):
                ran, status = self.run_with(ctest=ctest, python=python)
                self.assertLessEqual({"bin/ctest", "scripts/ci/python"}, set(ran))
                self.assertEqual(status != 0, ctest != 0 or python != 0)
        ran, status = self.run_with(ctest=0, python=0, build=1)
        self.assertNotIn("bin/ctest", ran)
        self.assertNotEqual(status, 0)


SOURCES = {
    "include/logitless/plan.h": "",
    "src/core/checks.h": '#include "logitless/plan.h"\n',
    "src/engine/run.h": "",
    "src/engine/run.cc": '#include "engine/run.h"\n#include <logitless/plan.h>\n\n#include "core/checks.h"\n',
    "bench/main.cc": '#include "run.h"  // of this folder\n#include "hwy/highway.h"\n',
    "bench/run.h": "",
}
ARROWS = ["include", "src/core -> include", "src/engine -> include, src/core", "bench"]


class Arrows(unittest.TestCase):
    """scripts/ci/arrows accepts a small repository, and has a message for each kind of error."""

    def expect(self, messages, sources=None, arrows=None):
        """Run the script on SOURCES and `sources`, with `arrows` on the page."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {**SOURCES, **(sources or {})}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            (root / "docs").mkdir()
            block = "\n".join(["# Page", "```arrows", *(ARROWS if arrows is None else arrows), "```", "src/core -> bench"])
            (root / "docs/architecture.md").write_text(block)
            run = subprocess.run([sys.executable, ROOT / "scripts/ci/arrows", root], capture_output=True, text=True,
                                 check=False)
        self.assertEqual(run.stderr, "")
        self.assertEqual(run.returncode, 1 if messages else 0, run.stdout)
        if messages:
            self.assertEqual(run.stdout.splitlines(), messages)

    def test_what_is_stated_and_used_is_right(self):
        self.expect([])

    def test_each_error_has_its_message(self):
        self.expect(
            ["bench/main.cc:2: includes engine/run.h, but docs/architecture.md has no arrow bench -> src/engine: "
             "remove the include, or add the arrow"],
            sources={"bench/main.cc": '#include "run.h"\n  #  include "engine/run.h"\n#include "engine/run.h"\n'})
        self.expect(["docs/architecture.md:6: bench -> include: no #include uses this arrow: remove it"],
                    arrows=[*ARROWS[:3], "bench -> include"])
        back = {"src/core/checks.cc": '#include "engine/run.h"\n'}
        points_back = ("docs/architecture.md:5: src/core -> src/engine: this arrow points back, because src/engine comes "
                       "later: add the reason after a colon")
        no_reason = "docs/architecture.md:5: nothing follows the colon: write the reason, or remove the colon"
        for arrow, messages in (("src/core -> src/engine", [points_back]),
                                ("src/core -> src/engine:", [no_reason, points_back]),
                                ("src/core -> src/engine: it is a test", [])):
            self.expect(messages, sources=back, arrows=[*ARROWS[:2], arrow, *ARROWS[2:]])


sys.dont_write_bytecode = True  # the script has no suffix, so its bytecode would be written next to it
loader = importlib.machinery.SourceFileLoader("instruction_counts", str(ROOT / "scripts/ci/instruction_counts"))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader("instruction_counts", loader))
loader.exec_module(script)

PROFILE = """\
# callgrind format
version: 1
positions: line
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw
summary: 600 0 0 0 0 0 0 0 0

ob=(1) /any/where/build/release/bin/counted_calls
fl=(1) ???
fn=(1) fold(int)
12 100 40 20 3 5 2 0 1
15 7
cob=(2) /usr/lib/libopenblasp-r0.3.21.so
cfi=(1)
cfn=(2) cblas_sgemm
calls=2 0
16 400 99 99 99 99 99
cob=(3) /usr/lib/libc.so.6
cfn=(3) malloc
calls=8 0
16 50
fn=(4) gradient(int)
0 10 4 4 0 1
cob=(2)
cfn=(2)
calls=1 0
17 200 99 99 99 99 99

ob=(2)
fl=(1)
fn=(2)
0 400 99 99 99 99 99
cfn=(5) sgemm_nn
calls=2 0
0 7

ob=(1)
fl=(1)
fn=(1)
9 1
"""
BUILD = {"compiler": "GNU 12", "flags": "-O3 -DNDEBUG", "highway": "1.0.3", "simd": "AVX2"}


def call(instructions=1000, lines=10000, products=4):
    return {"instructions": instructions, "lines": lines, "products": products}


class Profiles(unittest.TestCase):
    def test_only_the_programs_own_code_counts(self):
        self.assertEqual(script.counts_of(PROFILE), {"instructions": 118, "lines": 8, "products": 3})


class Comparison(unittest.TestCase):
    def test_more_and_less_than_two_percent_do_not_pass(self):
        recorded = {"a": call(), "b": call(), "c": call(), "gone": call()}
        now = {"a": call(instructions=1021), "b": call(instructions=979), "c": call(instructions=1020), "new": call()}
        self.assertCountEqual(script.compare(recorded, now)[1], [
            "gone: is recorded, but is not a call of the program: remove it with --update",
            "new: is not recorded: record it with --update",
            "a: 1021 instructions instead of 1000, 1.0210 times as many: it costs more",
            "b: 979 instructions instead of 1000, 0.9790 times as many: better, record it with --update"])


class Record(unittest.TestCase):
    def test_it_is_as_the_script_writes_it(self):
        text = script.RECORD.read_text(encoding="utf-8")
        record = json.loads(text)
        self.assertEqual(text, script.text_of(record["build"], record["calls"]))
        self.assertEqual(set(record["build"]), set(BUILD))


if __name__ == "__main__":
    unittest.main()
