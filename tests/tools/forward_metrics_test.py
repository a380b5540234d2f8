# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/forward_metrics.py. Classes that need a package are skipped where it is missing."""

import contextlib
import importlib.util
import io
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "forward_metrics.py"
TRAIN_LM = os.environ.get("TRAIN_LM", "")

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("forward_metrics", SCRIPT)
forward_metrics = importlib.util.module_from_spec(spec)
spec.loader.exec_module(forward_metrics)

POINTS = [
    (1, "fused/loss", 9.03125),
    (1, "fused/learning_rate", 0.0003),
    (2, "fused/loss", math.nan),
    (300, "fused/peak_bytes", 14680064.0),
    (1, "dense/loss", -1e-30),
    (2, "dense/loss", 7.0),
]


def line(step, name, value):
    return json.dumps({"step": step, "name": name, "value": None if math.isnan(value) else value}) + "\n"


def text_of(points):
    return "".join(line(*point) for point in points)


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="forward-metrics-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "run.jsonl"

    def refused(self, *arguments):
        """What the script, run in this process, says when it refuses."""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(forward_metrics.main([str(argument) for argument in arguments]), 2)
        self.assertEqual(errors.getvalue().count("\n"), 1)
        return errors.getvalue()

    def assert_points(self, found, expected):
        # repr: NaN is NaN, 1 is not 1.0, and no digit is lost.
        self.assertEqual([repr(tuple(point)) for point in found], [repr(tuple(point)) for point in expected])


class Parsing(InFolder):
    def read(self, text):
        self.file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return forward_metrics.MetricsFile(str(self.file)).read(last_line_may_be_open=False)

    def test_lines_become_points(self):
        self.assert_points(self.read(text_of(POINTS)), POINTS)
        self.assert_points(self.read('{"value": 3, "name": "é", "step": 0}'), [(0, "é", 3.0)])
        self.assert_points(self.read(""), [])

    def test_a_bad_line_is_named(self):
        good = line(1, "loss", 2.0)
        for bad, complaint in [
            ("loss 3", "not JSON"),
            ("", "not JSON"),
            ('{"step": 1, "name": "loss"', "not JSON"),
            ('{"step": 1, "name": "loss", "value": NaN}', "not JSON: NaN (write null)"),
            ('{"step": 1, "name": "loss", "value": -Infinity}', "not JSON: -Infinity"),
            ("[" * 100000, "not JSON"),
            (b'{"step": 1, "name": "\xff", "value": 1}', "not JSON"),
            ("3", "must be an object"),
            ('["step", "name", "value"]', "must be an object"),
            ('{"step": 1, "name": "loss"}', "must be an object"),
            ('{"step": 1, "name": "loss", "value": 1, "more": 1}', "must be an object"),
            ('{"step": -1, "name": "loss", "value": 1}', '"step" must be a whole number from 0 to 2^63 - 1, not -1'),
            ('{"step": 1.5, "name": "loss", "value": 1}', '"step" must be a whole number'),
            ('{"step": true, "name": "loss", "value": 1}', '"step" must be a whole number'),
            ('{"step": 9223372036854775808, "name": "loss", "value": 1}', '"step" must be a whole number'),
            ('{"step": 1, "name": "", "value": 1}', '"name" must be a text'),
            ('{"step": 1, "name": "step", "value": 1}', '"name" must be a text'),
            ('{"step": 1, "name": 7, "value": 1}', '"name" must be a text'),
            ('{"step": 1, "name": "loss", "value": "2"}', '"value" must be a finite number or null, not "2"'),
            ('{"step": 1, "name": "loss", "value": true}', '"value" must be a finite number'),
            ('{"step": 1, "name": "loss", "value": 1e999}', '"value" must be a finite number'),
            ('{"step": 1, "name": "loss", "value": 1' + "0" * 400 + "}", '"value" must be a finite number'),
        ]:
            bad = bad if isinstance(bad, bytes) else bad.encode()
            with self.subTest(bad[:60]), self.assertRaises(forward_metrics.BadInput) as refusal:
                self.read(2 * good.encode() + bad + b"\n" + good.encode())
            self.assertIn(f"{self.file}:3: {complaint}", str(refusal.exception))
            self.assertNotIn("\n", str(refusal.exception))

    def test_a_growing_file_is_read_once_and_line_by_line(self):
        text = text_of(POINTS)
        file = forward_metrics.MetricsFile(str(self.file))
        found = []
        with open(self.file, "w") as out:
            for start in range(0, len(text), 7):
                out.write(text[start : start + 7])
                out.flush()
                found += file.read(last_line_may_be_open=True)
        self.assert_points(found, POINTS)
        with open(self.file, "a") as out:
            out.write("oops\n")
        with self.assertRaisesRegex(forward_metrics.BadInput, f":{len(POINTS) + 1}: not JSON"):
            file.read(last_line_may_be_open=True)

    def test_a_file_that_shrinks_is_refused(self):
        self.file.write_text(text_of(POINTS))
        file = forward_metrics.MetricsFile(str(self.file))
        file.read(last_line_may_be_open=True)
        self.file.write_text(text_of(POINTS[:1]))
        with self.assertRaisesRegex(forward_metrics.BadInput, "has become shorter"):
            file.read(last_line_may_be_open=True)

    def test_rows_gather_a_step_and_lose_nothing(self):
        points = [(1, "a", 1.0), (1, "b", 2.0), (2, "a", 3.0), (2, "a", 4.0), (1, "a", 5.0)]
        rows = list(forward_metrics.rows_of([forward_metrics.Point(*point) for point in points]))
        self.assertEqual(
            rows,
            [{"step": 1, "a": 1.0, "b": 2.0}, {"step": 2, "a": 3.0}, {"step": 2, "a": 4.0}, {"step": 1, "a": 5.0}],
        )


class CommandLine(InFolder):
    def test_what_is_wrong_is_named_and_nothing_is_made(self):
        logs = self.folder / "logs"
        self.assertIn(f"{self.file}: No such file", self.refused(self.file, "--tensorboard", logs))
        self.file.write_text("oops\n")
        self.assertIn(f"{self.file}:1: not JSON", self.refused(self.file, "--tensorboard", logs))
        self.assertFalse(logs.exists())

    def test_a_missing_package_is_named_with_the_line_that_installs_it(self):
        self.file.write_text(text_of(POINTS))
        logs = self.folder / "logs"
        with mock.patch.dict(sys.modules, {"wandb": None, "tensorboard": None, "tensorboard.summary": None}):
            self.assertIn("pip install wandb\n", self.refused(self.file, "--wandb", "project"))
            self.assertIn("pip install tensorboard\n", self.refused(self.file, "--tensorboard", logs))
        self.assertFalse(logs.exists())

    def test_options_that_make_no_sense_name_the_flag(self):
        for arguments, flag in [([], "--tensorboard"), (["--tensorboard", "logs", "--name", "run"], "--name")]:
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as refusal:
                forward_metrics.main([str(self.file)] + arguments)
            self.assertEqual(refusal.exception.code, 2)
            self.assertIn(flag, errors.getvalue().splitlines()[-1])

    def test_follow_forwards_what_arrives_until_it_is_stopped(self):
        class Sink:
            points = []

            def write(self, points):
                self.points += points

        stopped = threading.Event()
        file = forward_metrics.MetricsFile(str(self.file))
        with mock.patch.object(forward_metrics, "POLL_SECONDS", 0.001):
            thread = threading.Thread(target=forward_metrics.follow, args=(file, [Sink()], stopped))
            thread.start()
            with open(self.file, "w") as out:  # it did not exist before
                for point in POINTS:
                    text = line(*point)
                    out.write(text[:5])
                    out.flush()
                    time.sleep(0.002)
                    out.write(text[5:])
                    out.flush()
                out.write('{"step": 3')  # the writer is cut off
            stopped.set()
            thread.join()
        self.assert_points(Sink.points, POINTS)


@unittest.skipUnless(TRAIN_LM, "TRAIN_LM does not name the example trainer")
class Trainer(InFolder):
    def train(self, *arguments):
        size = ["--steps", "3", "--batch-tokens", "32", "--hidden", "8", "--embedding", "4", "--vocab-size", "300"]
        command = [TRAIN_LM, *size, "--quiet", "--metrics", str(self.file), *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_what_it_writes_is_read(self):
        step_names = ["loss", "learning_rate", "tokens_per_s", "head_ms"]
        run_names = ["final_loss", "unigram_entropy", "peak_bytes", "head_extra_peak_bytes", "workspace_bytes"]
        for head, prefixes in [("fused", [""]), ("dense", [""]), ("both", ["fused/", "dense/"])]:
            with self.subTest(head):
                self.assertEqual(self.train("--head", head).returncode, 0)
                points = forward_metrics.MetricsFile(str(self.file)).read(last_line_may_be_open=False)
                expected = [(s, p + name) for p in prefixes for s in (1, 2, 3) for name in step_names]
                expected += [(3, p + name) for p in prefixes for name in run_names]
                self.assertEqual([(point.step, point.name) for point in points], expected)
                self.assertTrue(all(point.value >= 0 for point in points))

    def test_a_file_that_cannot_be_written_is_named(self):
        self.file = self.folder / "missing" / "run.jsonl"
        for head in ("fused", "both"):
            finished = self.train("--head", head)
            self.assertEqual(finished.returncode, 1)
            self.assertEqual(finished.stderr, f"train_lm: --metrics {self.file}: cannot be written\n")


def has_package(name):
    return importlib.util.find_spec(name) is not None


@unittest.skipUnless(has_package("tensorboard"), "tensorboard is not installed")
class TensorBoard(InFolder):
    def read_back(self, folder):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util import tensor_util

        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        return [
            (event.step, name, tensor_util.make_ndarray(event.tensor_proto).item())
            for name in events.Tags()["tensors"]
            for event in events.Tensors(name)
        ]

    def assert_events(self, folder, points):
        # TensorBoard keeps float32.
        expected = [(step, name, struct.unpack("f", struct.pack("f", value))[0]) for step, name, value in points]
        self.assert_points(sorted(self.read_back(folder), key=str), sorted(expected, key=str))

    def test_events_equal_the_file(self):
        self.file.write_text(text_of(POINTS))
        self.assertEqual(forward_metrics.main([str(self.file), "--tensorboard", str(self.folder / "logs")]), 0)
        self.assert_events(self.folder / "logs", POINTS)

    def test_following_ends_with_the_signal_and_the_last_line(self):
        command = [sys.executable, SCRIPT, self.file, "--tensorboard", self.folder / "logs", "--follow"]
        self.file.write_text(text_of(POINTS[:4]))
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            deadline = time.monotonic() + 60
            while not (self.folder / "logs").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            with open(self.file, "a") as out:
                out.write(text_of(POINTS[4:]))
            child.send_signal(signal.SIGTERM)
            self.assertEqual(child.communicate()[1], "")
            self.assertEqual(child.returncode, 0)
        self.assert_events(self.folder / "logs", POINTS)

    def test_a_folder_that_cannot_be_made_is_named(self):
        self.file.write_text(text_of(POINTS))
        self.assertIn(f"--tensorboard {self.file}: ", self.refused(self.file, "--tensorboard", self.file))


def wandb_history(path):
    """The rows of a .wandb file: a LevelDB log of Record messages after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        length, kind = struct.unpack_from("<HB", data, position + 4)
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record, parts = Record.FromString(parts), b""
            if record.WhichOneof("record_type") == "history":
                items = [("/".join(i.nested_key) or i.key, json.loads(i.value_json)) for i in record.history.item]
                yield {name: value for name, value in items if not name.startswith("_")}


@unittest.skipUnless(has_package("wandb"), "wandb is not installed")
class Wandb(InFolder):
    def test_an_offline_run_holds_the_file(self):
        self.file.write_text(text_of(POINTS))
        environment = dict(os.environ, WANDB_MODE="offline", WANDB_DIR=str(self.folder), HOME=str(self.folder))
        command = [sys.executable, SCRIPT, self.file, "--wandb", "logitless-test", "--name", "run-of-a-test"]
        finished = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        (run,) = self.folder.glob("wandb/offline-run-*/*.wandb")
        found = []
        for row in wandb_history(run):
            step = row.pop("step")
            found += [(step, name, float(value)) for name, value in row.items()]
        self.assert_points(sorted(found, key=str), sorted(POINTS, key=str))

    def test_without_a_key_the_reason_is_told(self):
        self.file.write_text(text_of(POINTS))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
        environment.update(WANDB_MODE="online", WANDB_DIR=str(self.folder), HOME=str(self.folder))
        command = [sys.executable, SCRIPT, self.file, "--wandb", "logitless-test"]
        finished = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(finished.returncode, 2)
        self.assertRegex(finished.stderr.splitlines()[-1], "^forward_metrics.py: --wandb logitless-test: .*API key")


if __name__ == "__main__":
    unittest.main()
