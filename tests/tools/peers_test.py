# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tests of those parts of bench/peers that need nothing but Python."""

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


def job(contender="one_pass", task="cross_entropy", gradients=True, written=None):
    return Job(contender, task, SHAPE, "in.safetensors", gradients, 2, 3, "logitless", written)


def settings(line):
    return {value for option, value in zip(line, line[1:]) if option == "--set"}


class Command(unittest.TestCase):
    def test_a_job_survives_its_way_to_the_process(self):
        self.assertEqual(Job.from_json(job(written="out").to_json()), job(written="out"))

    def test_plans_are_settings(self):
        self.assertNotIn("kernel.plan", "".join(settings(logitless_command.arguments(job("dense")))))
        self.assertIn("kernel.plan=two_pass", settings(logitless_command.arguments(job("two_pass"))))

    def test_the_first_call_is_one_more(self):
        line = logitless_command.arguments(job())
        self.assertEqual(line[:4], ["logitless", "compare", "--repeat", "3"])
        report = {"fused": {"loss": 2.5, "plan": "one_pass", "workspace_bytes": 7},
                  "details": {"fused_times_s": [9, 1, 2], "fused_extra_peaks_bytes": [90, 10, 20]}}
        self.assertEqual(logitless_command.measured(report, "fused"), Measured(2.5, 9, [1, 2], [10, 20], "one_pass", 7))

    def test_a_forward_asks_for_no_gradient_and_writes_nothing(self):
        line = logitless_command.arguments(job(gradients=False))
        self.assertLessEqual({"gradients.d_hidden=false", "gradients.d_weight=false"}, settings(line))
        self.assertNotIn("-o", line)
        self.assertEqual(logitless_command.arguments(job(written="out"))[-2:], ["-o", "out"])
        self.assertEqual(logitless_command.arguments(job("dense", written="out"))[-2:], ["--dense-output", "out"])

    def test_grpo_brings_its_batch(self):
        line = logitless_command.arguments(job(task="policy_loss"))
        self.assertEqual(line[line.index("--old-logps") + 1], "in.safetensors:old_logps")
        self.assertLessEqual({"task=policy_loss", "batch_size=2", "policy_loss.beta=0.04"}, settings(line))
        self.assertNotIn("--advantages", logitless_command.arguments(job()))


class Memory(unittest.TestCase):
    def test_a_dense_contender_needs_its_logits(self):
        dense, chunked = contenders.BY_NAME["torch_dense"], contenders.BY_NAME["trl_chunked"]
        logits = 1024 * 4096 * 4
        self.assertGreater(dense.memory_needed(SHAPE, True), 3 * logits)
        self.assertLess(chunked.memory_needed(SHAPE, True), logits)
        self.assertLess(dense.memory_needed(SHAPE, False), dense.memory_needed(SHAPE, True))

    def test_names_are_told_apart(self):
        self.assertEqual(len(contenders.BY_NAME), len(contenders.CONTENDERS))


class Results(unittest.TestCase):
    def turns(self):
        return results.Turns("a", [Measured(2.5, 9.0, [1.0, 4.0], [2**20, 2**20]),
                                   Measured(2.5, 8.0, [2.0, 3.0], [2**20, 3 * 2**20])], {"loss_error": 1e-7})

    def test_quartiles_lie_between_values(self):
        self.assertEqual(results.quantile([3, 1, 2], 0.5), 2)
        self.assertEqual(results.quantile([1, 2, 3, 4], 0.25), 1.75)
        self.assertEqual(results.spread([1, 2, 3, 4]), 0.75)
        self.assertEqual(results.spread([5]), 0)

    def test_rounds_are_joined(self):
        json = self.turns().to_json()
        self.assertEqual((json["median_s"], json["times_s"]), (2.5, [1.0, 4.0, 2.0, 3.0]))
        self.assertEqual((json["first_s"], json["extra_peak_bytes"]), (9.0, 2**20))
        self.assertEqual(json["loss_error"], 1e-7)

    def test_a_failure_says_why(self):
        failed = results.Turns("b", failure="out of memory")
        self.assertEqual(failed.to_json(), {"name": "b", "status": "error", "message": "out of memory"})
        lines = results.table([self.turns(), failed]).splitlines()
        self.assertIn("1.000 to 4.000", lines[1])
        self.assertEqual(lines[2], "b  left out: out of memory")


if __name__ == "__main__":
    unittest.main()
