# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Runs the ranks of torch.distributed, each in its own process."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")


def test_three_processes():
    program = pathlib.Path(__file__).with_name("torch_ranks.py")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("ranks have the bits of one process\n")
