# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tests the parts of bench/peers that need only Python."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import contenders
import logitless_command
import results
from job import Job, Measured, Shape

SHAPE = Shape(tokens=1024, hidden=8, vocab=4096, dtype="bfloat16", sequences=2)


class Command(unittest.TestCase):
    def test_the_first_call_is_one_more(self):
        job = Job("one_pass", "cross_entropy", SHAPE, "in.safetensors", True, 2, 3, "logitless", None)
        line = logitless_command.arguments(job)
        self.assertEqual(line[:4], ["logitless", "compare", "--repeat", "3"])
        report = {"fused": {"loss": 2.5, "plan": "one_pass", "workspace_bytes": 7},
                  "details": {"fused_times_s": [9, 1, 2], "fused_extra_peaks_bytes": [90, 10, 20]}}
        self.assertEqual(logitless_command.measured(report, "fused"), Measured(2.5, 9, [1, 2], [10, 20], "one_pass", 7))


class Memory(unittest.TestCase):
    def test_a_dense_contender_needs_its_logits(self):
        dense, chunked = contenders.BY_NAME["torch_dense"], contenders.BY_NAME["trl_chunked"]
        logits = 1024 * 4096 * 4
        self.assertGreater(dense.memory_needed(SHAPE, True), 3 * logits)
        self.assertLess(chunked.memory_needed(SHAPE, True), logits)
        self.assertLess(dense.memory_needed(SHAPE, False), dense.memory_needed(SHAPE, True))


class Results(unittest.TestCase):
    def turns(self):
        return results.Turns("a", [Measured(2.5, 9.0, [1.0, 4.0], [2**20, 2**20]),
                                   Measured(2.5, 8.0, [2.0, 3.0], [2**20, 3 * 2**20])], {"loss_error": 1e-7})

    def test_a_failure_says_why(self):
        failed = results.Turns("b", failure="out of memory")
        self.assertEqual(failed.to_json(), {"name": "b", "status": "error", "message": "out of memory"})
        lines = results.table([self.turns(), failed]).splitlines()
        self.assertIn("1.000 to 4.000", lines[1])
        self.assertEqual(lines[2], "b  left out: out of memory")


if __name__ == "__main__":
    unittest.main()
