#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""scripts/ci/instruction_counts: parsing profiles, accepting small differences, and its messages."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True  # the script has no suffix, so its bytecode would be written next to it
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "ci" / "instruction_counts"
loader = importlib.machinery.SourceFileLoader("instruction_counts", str(SCRIPT))
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


class Runs(unittest.TestCase):
    def run_with(self, *arguments, build, calls=None):
        """Return the exit status, the output and the record of a run in which valgrind found `calls`."""
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "record.json"
            path.write_text(script.text_of(BUILD, {"gone": call()}))
            out = io.StringIO()
            with mock.patch.multiple(script, RECORD=path, build_program=mock.Mock(), build_of_program=lambda: build,
                                     measure=lambda: calls), \
                 mock.patch.object(sys, "argv", ["instruction_counts", *arguments]), contextlib.redirect_stdout(out):
                try:
                    status = script.main()
                except SystemExit as end:
                    status = end.code
            return status, out.getvalue(), json.loads(path.read_text())

    def test_another_build_is_skipped_and_says_why(self):
        status, out, _ = self.run_with(build={**BUILD, "compiler": "Clang 14"})
        self.assertEqual(status, 0)
        self.assertRegex(out, r"(?m)^[ \t]+[0-9]+ - .* \(Skipped\)$")  # as .ci/run counts skipped tests
        self.assertIn("compiler 'Clang 14' in place of 'GNU 12'", out)

    def test_an_update_records(self):
        found = {"b": call(), "a": call(instructions=7)}
        status, _, record = self.run_with("--update", build=BUILD, calls=found)
        self.assertEqual((status, record), (0, {"build": BUILD, "calls": found}))


class Record(unittest.TestCase):
    def test_it_is_as_the_script_writes_it(self):
        text = script.RECORD.read_text(encoding="utf-8")
        record = json.loads(text)
        self.assertEqual(text, script.text_of(record["build"], record["calls"]))
        self.assertEqual(set(record["build"]), set(BUILD))


if __name__ == "__main__":
    unittest.main()
