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
    def wrong(self, recorded, now):
        return script.compare({"a": recorded}, {"a": now})[1]

    def test_more_and_less_than_two_percent_do_not_pass(self):
        for instructions in (980, 1020):
            self.assertEqual(self.wrong(call(), call(instructions=instructions)), [])
        self.assertEqual(self.wrong(call(), call(instructions=1021)),
                         ["a: 1021 instructions instead of 1000, 1.0210 times as many: it costs more"])
        self.assertEqual(self.wrong(call(), call(instructions=979)),
                         ["a: 979 instructions instead of 1000, 0.9790 times as many: better, record it with --update"])

    def test_calls_that_only_one_side_has(self):
        rows, wrong = script.compare({"gone": call(), "kept": call()}, {"kept": call(), "new": call()})
        self.assertEqual(wrong, ["gone: is recorded, but is not a call of the program: remove it with --update",
                                 "new: is not recorded: record it with --update"])
        self.assertEqual({row.split()[0] for row in rows}, {"kept"})


class Runs(unittest.TestCase):
    def run_with(self, *arguments, build=None, calls=None, record=None):
        """Return the exit status, the output and the record of a run in which valgrind found `calls`."""
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "record.json"
            if record is not None:
                path.write_text(script.text_of(BUILD, record))
            out = io.StringIO()
            with mock.patch.multiple(script, RECORD=path, build_program=mock.Mock(),
                                     build_of_program=lambda: {**BUILD, **(build or {})}, measure=lambda: calls), \
                 mock.patch.object(sys, "argv", ["instruction_counts", *arguments]), contextlib.redirect_stdout(out):
                try:
                    status = script.main()
                except SystemExit as end:
                    status = end.code
            return status, out.getvalue(), json.loads(path.read_text()) if path.exists() else None

    def test_another_build_is_skipped_and_says_why(self):
        for build, reason in (({"compiler": "Clang 14"}, "compiler 'Clang 14' in place of 'GNU 12'"),
                              ({"flags": "-O2"}, "flags '-O2' in place of '-O3 -DNDEBUG'"),
                              ({"simd": "none"}, "this CPU has no AVX2")):
            status, out, _ = self.run_with(build=build, record={"a": call()})
            self.assertEqual(status, 0)
            self.assertRegex(out, r"(?m)^[ \t]+[0-9]+ - .* \(Skipped\)$")  # as .ci/run counts skipped tests
            self.assertIn(reason, out)

    def test_an_update_records(self):
        found = {"b": call(), "a": call(instructions=7)}
        status, _, record = self.run_with("--update", calls=found, record={"gone": call()})
        self.assertEqual((status, record), (0, {"build": BUILD, "calls": found}))
        status, _, record = self.run_with("--update", calls=found)
        self.assertEqual((status, record["calls"]), (0, found))


class Record(unittest.TestCase):
    def test_it_is_as_the_script_writes_it(self):
        text = script.RECORD.read_text(encoding="utf-8")
        record = json.loads(text)
        self.assertEqual(text, script.text_of(record["build"], record["calls"]))
        self.assertEqual(set(record["build"]), set(BUILD))


if __name__ == "__main__":
    unittest.main()
