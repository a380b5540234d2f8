# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""bench/cores and bench/work_order.py.

    cores_test.py CLASS ... [COMMAND]    the class Packed needs the logitless command
"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "bench" / folder) for folder in ("", "peers", "report", "cores")]

import machine
import runs
import scaling
import work_order
from job import Job, Measured, Shape
from results import Turns
from runner import Clock, turn

COMMAND = sys.argv.pop() if len(sys.argv) > 1 and os.sep in sys.argv[-1] else ""


class Affinity(unittest.TestCase):
    def test_teams_fill_cores_and_sockets_before_hyper_threads(self):
        with tempfile.TemporaryDirectory() as root:
            # Two sockets of two cores; CPUs 4 to 7 are the second hyper-threads of CPUs 0 to 3.
            for cpu in range(8):
                folder = pathlib.Path(root, f"devices/system/cpu/cpu{cpu}/topology")
                folder.mkdir(parents=True)
                (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
                (folder / "physical_package_id").write_text(f"{cpu % 2}\n")
                (folder / "core_id").write_text(f"{cpu % 4 // 2}\n")
            self.assertEqual(machine.in_order_of_use({7, 6, 5, 4, 3, 2, 1, 0}, root), [0, 2, 1, 3, 4, 6, 5, 7])
            self.assertEqual(machine.topology(range(8), root),
                             {"cpus": 8, "physical_cores": 4, "sockets": 2, "numa_nodes": 1})
        # A system without these files, such as gVisor.
        self.assertEqual(machine.in_order_of_use({2, 0, 1}, "/nowhere"), [0, 1, 2])
        self.assertEqual(machine.cpu_list("0-2,8\n"), [0, 1, 2, 8])


class Limit(unittest.TestCase):
    def test_a_turn_that_would_end_too_late_is_left_out(self):
        clock = Clock(1)
        job = lambda threads: Job("one_pass", "cross_entropy", Shape(16, 8, 64, "float32"), "", True, 1, threads, "/nowhere")
        # Two calls of 10 s, and 5 s that more threads do not shorten.
        clock.add(job(4), 25, Measured(1.0, 10, [10], [0]))
        self.assertEqual(clock.refusal(job(2)), "")
        turns = Turns("one_pass")
        self.assertFalse(turn(job(1), turns, clock))
        self.assertRegex(turns.failure, "it needs about 85 s, and (59|60) s are left")


class Tables(unittest.TestCase):
    def test_efficiency_is_relative_to_the_fewest_threads(self):
        def point(threads, rate, *contenders):
            return {"type": "point", "at": {"model.name": "a", "threads": str(threads)}, "gemm_rate_flops": rate,
                    "shape": {"dtype": "float32", "tokens": 2048}, "contenders": list(contenders)}

        def ran(name, seconds, loss=2.5):
            return {"name": name, "status": "ok", "median_s": seconds, "loss": loss}

        failed = {"name": "two_pass", "status": "error", "message": "it needs about 9 s, and 8 s are left"}
        header = {"type": "header", "version": "0.3.0", "environment": {"cpu": "CPU", "threads": 8, "cpus": 8, "sockets": 1}}
        lines = [header, point(8, 720e9, ran("one_pass", 0.25), ran("two_pass", 0.5)),
                 point(1, 100e9, ran("one_pass", 1.6, 2.25), failed)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "cores.jsonl")
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            text = scaling.text_of(scaling.read(path))
        self.assertIn("CPU; 8 CPUs, 1 socket; logitless 0.3.0\n", text)
        self.assertIn("a, float32, 2,048 tokens: loss and both gradients\n", text)
        self.assertIn("      1     100 (1.00)   1.600 (1.00)      left out\n", text)
        self.assertIn("      8     720 (0.90)  0.250 (0.80*)  0.500 (1.00)\n", text)
        self.assertIn("  two_pass, 1 threads: it needs about 9 s, and 8 s are left", text)
        self.assertIn("  one_pass: the loss is not the same for every number of threads: [2.25, 2.5]", text)


@unittest.skipUnless(COMMAND, "no command")
class Packed(unittest.TestCase):
    def test_it_runs_alone_and_writes_what_bench_report_reads(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            call = [sys.executable, "-B", ROOT / "bench" / "cores", "pack", "--command", COMMAND, "-o", folder / "cores"]
            subprocess.run(call, check=True, capture_output=True)
            refused = subprocess.run(call, check=False, capture_output=True, text=True)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("is there already", refused.stderr)
            team = min(2, len(os.sched_getaffinity(0)))
            line = [folder / "cores" / "run", "--shapes", "smollm2-135m/bfloat16", "--tokens", "16", "--threads",
                    *map(str, range(team, 0, -1)), "--contenders", "two_pass", "--rounds", "1"]
            done = subprocess.run(line, cwd=folder, env={"PATH": os.environ["PATH"], "PYTHON": sys.executable}, check=False,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"\n +1 +\d+ \(1\.00\) +\d+\.\d{3} \(1\.00\)\n")
            self.assertNotIn("not the same", done.stdout)
            points = runs.read_file(folder / "cores.jsonl", "cores").runs[0].points
            self.assertEqual([point.results[0].plan for point in points], ["two_pass"] * team)
            self.assertGreater(min(point.gemm_rate for point in points), 0)
            # Libraries that the command loads come from the folder, and the C library from the machine.
            shown = subprocess.run(["ldd", folder / "cores/lib/logitless"], capture_output=True, text=True, check=True,
                                   env={**os.environ, "LD_LIBRARY_PATH": str(folder / "cores/lib")}).stdout
            self.assertIn(f"{folder}/cores/lib/libopenblas", shown)
            self.assertFalse(list((folder / "cores/lib").glob("libc.so*")))


class Order(unittest.TestCase):
    """Simulated calls with products of one second for a tile, however wide."""

    TABLE = {"products": {"576": {"float32": {name: {"576": 1.0} for name in ("logits", "d_hidden", "d_weight")}}},
             "rows": {"fold": 0.0, "gradient": 0.0}}

    def call(self, threads, order=work_order.with_tasks, **rules):
        rates = work_order.Rates(self.TABLE, 576, "float32")
        rules = work_order.Rules(**{"workspace": 1 << 30, **rules})
        cut = work_order.Cut(512, 576, 49152, "float32", "one_pass", threads, rates, rules)
        return cut, *work_order.simulate(cut, threads, order, jitter=0)

    def test_one_thread_is_never_idle(self):
        for order in (work_order.with_tasks, work_order.with_barriers):
            cut, team, *_ = self.call(1, order)
            self.assertAlmostEqual(team.efficiency(), 1)
            self.assertAlmostEqual(team.time, 3 * 48)  # of each of 48 tiles: logits, d_hidden, d_weight

    def test_a_chain_bounds_a_large_team(self):
        # Two chains of d_hidden, because H allows two parts of 256: each takes 48 half products.
        cut, team, forward, backward = self.call(48)
        self.assertEqual((cut.hidden_chains(), cut.longest_hidden()), (2, 24))
        self.assertGreaterEqual(team.time, 1 + 24)
        self.assertEqual(work_order.why(cut, 48, forward, backward, team.time), "2 chains of d_hidden (1 row blocks)")
        # With more sums their chains are shorter.
        more, faster, *_ = self.call(48, sums=4)
        self.assertEqual((more.hidden_chains(), more.longest_hidden()), (8, 6))
        self.assertLess(faster.time, team.time)

    def test_chunks_and_a_workspace_that_is_too_small(self):
        self.assertEqual(work_order.chunks_of(2048, 576, 49152, "float32", 256 << 20), 2)
        self.assertEqual(work_order.chunks_of(2048, 576, 49152, "bfloat16", 256 << 20), 3)
        with self.assertRaises(ValueError):
            work_order.chunks_of(2048, 1536, 151936, "bfloat16", 256 << 20)

    def test_the_table_of_this_repository_serves_every_head(self):
        printed = io.StringIO()
        sys.argv[1:] = ["--threads", "16", "--tokens", "512"]
        with contextlib.redirect_stdout(printed):
            work_order.main()
        lines = printed.getvalue().splitlines()
        self.assertEqual(len(lines), 2 + 8)
        self.assertRegex(lines[0], r"^products of .+, \d{4}-\d\d-\d\d$")
        self.assertIn("1536 x 151936 bfloat16  one_pass     512      16", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
