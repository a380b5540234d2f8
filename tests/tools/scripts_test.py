#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""scripts/test runs both the C++ and the Python tests, even if one fails, and its exit status covers both."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class BothSuites(unittest.TestCase):
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


if __name__ == "__main__":
    unittest.main()
