# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of logitless.torch: tensors, and calls compared with PyTorch's function."""

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
if not hasattr(F, "linear_cross_entropy"):
    pytest.skip("this PyTorch has no linear_cross_entropy to compare with", allow_module_level=True)

from logitless.torch import linear_cross_entropy  # noqa: E402

N, H, V = 13, 7, 41
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


PYTORCHS = {"hidden": "input", "weight": "linear_weight", "bias": "linear_bias", "targets": "target", "class_weights": "weight"}


def named(function, given):
    """The arguments of a call, with PyTorch's names for linear_cross_entropy."""
    return {PYTORCHS.get(n, n): v for n, v in given.items()} if function is linear_cross_entropy else given


def tensors(dtype, layout="rows", bias=True, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(N, H, dtype=torch.float64).to(dtype)
    w = torch.randn(V, H, dtype=torch.float64).to(dtype)
    b = torch.randn(V, dtype=torch.float64).to(dtype) if bias else None
    if layout == "columns":
        x = x.T.contiguous().T
        w = w.T.contiguous().T
    elif layout == "strided":
        x = torch.stack([x, x], dim=-1).flatten(1)[:, ::2]
        w = torch.cat([w, w], dim=1)[:, :H]
    y = torch.randint(0, V, (N,))
    y[3] = y[7] = -100
    return x, w, b, y


def both(x, w, b, y, wants, upstream=None, **options):
    """(loss, gradients) of our function, and of PyTorch's function on the same numbers in float64."""
    results = []
    for ours in (True, False):
        leaves = [
            (
                None
                if t is None
                else (t.detach().clone(memory_format=torch.preserve_format) if ours else t.detach().double())
            )
            for t in (x, w, b)
        ]
        for leaf, want in zip(leaves, wants):
            if leaf is not None:
                leaf.requires_grad_(want)
        given = dict(options)
        if not ours and given.get("weight") is not None:
            given["weight"] = given["weight"].double()
        function = linear_cross_entropy if ours else F.linear_cross_entropy
        loss = function(leaves[0], leaves[1], y, linear_bias=leaves[2], **given)
        if loss.requires_grad:
            loss.backward(None if upstream is None else upstream.to(loss.dtype))
        results.append((loss.detach(), [None if t is None else t.grad for t in leaves]))
    return results
