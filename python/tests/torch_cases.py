# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tensors for the tests of logitless.torch."""

import pytest

torch = pytest.importorskip("torch")
import torch.utils.checkpoint  # noqa: E402, F401

F = torch.nn.functional

N, H, V = 13, 7, 41


def tensors(dtype):
    torch.manual_seed(0)
    x, w, b = (torch.randn(*shape, dtype=torch.float64).to(dtype) for shape in ((N, H), (V, H), (V,)))
    y = torch.randint(0, V, (N,))
    y[3] = y[7] = -100
    return x, w, b, y
