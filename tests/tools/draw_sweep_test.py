# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/draw_sweep.py. What draws is skipped where matplotlib is missing."""

import contextlib
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).parents[2]
TOKENS = ROOT / "tests" / "data" / "tokens.jsonl"

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("draw_sweep", ROOT / "scripts" / "draw_sweep.py")
draw_sweep = importlib.util.module_from_spec(spec)
spec.loader.exec_module(draw_sweep)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_on(self, file):
        """The exit status, what stands on standard error, and the picture or None."""
        picture, error = self.folder / "picture.svg", io.StringIO()
        with mock.patch("sys.argv", ["draw_sweep.py", str(file), "-o", str(picture)]):
            with contextlib.redirect_stderr(error):
                status = draw_sweep.main()
        return status, error.getvalue(), picture.read_text(encoding="utf-8") if picture.exists() else None


class Reading(Folder):
    def test_points_go_by_tokens_and_failures_leave_no_mark(self):
        _, points = draw_sweep.read(TOKENS)

        def seconds(measurement):
            return measurement["median_s"]

        self.assertEqual(draw_sweep.marks(points, "two_pass", seconds), [[256, 1024, 4096], [1.3, 5.0, 20.4]])
        self.assertEqual(draw_sweep.marks(points, "dense", seconds), [[256, 1024], [1.0, 4.0]])
        self.assertEqual(draw_sweep.marks(points, "absent", seconds), [[], []])

    def test_a_torn_line_is_left_out(self):
        torn = self.folder / "torn.jsonl"
        torn.write_text(TOKENS.read_text()[:-9])
        self.assertEqual([point["shape"]["tokens"] for point in draw_sweep.read(torn)[1]], [256, 1024])

    def test_bad_files_get_one_line(self):
        for name, text in [("empty", ""), ("text", "hello\n"), ("list", "[]\n[]\n"), ("header", "{}\n")]:
            bad = self.folder / name
            bad.write_text(text)
            status, error, picture = self.run_on(bad)
            self.assertEqual((status, error.count("\n"), picture), (2, 1, None), error)
            self.assertIn(str(bad), error)
        self.assertEqual(self.run_on(self.folder / "absent")[0], 2)


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Drawing(Folder):
    def test_the_picture_names_all_and_is_the_same_every_time(self):
        status, error, picture = self.run_on(TOKENS)
        self.assertEqual((status, error), (0, ""))
        for text in ["Extra peak memory", "Time of one call", ">dense<", ">two_pass<", ">4,096<", " MiB<", "Haswell",
                     "151,936 vocabulary entries", "Example &lt;CPU&gt;"]:
            self.assertIn(text, picture)
        self.assertEqual(self.run_on(TOKENS)[2], picture)


if __name__ == "__main__":
    unittest.main()
