# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed, which are processes of their own."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")


def test_four_processes():
    program = pathlib.Path(__file__).with_name("torch_ranks.py")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("ranks have the bits of one process\n")
