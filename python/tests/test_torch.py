# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch against PyTorch's own functions."""

import itertools
import random
import subprocess
import sys

import pytest
from torch_cases import F, N, V, tensors, torch

from logitless._torch_versions import linear_cross_entropy as of_pytorch
from logitless.torch import linear_cross_entropy


BOUND = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
GRID = {
    "wants": [(True, True, True), (True, False, False), (False, True, False), (False, False, True), (False, False, False)],
    "bias": [False, True],
    "weights": [False, True],
    "smoothing": [0.0, 0.1],
    "ignored": [-100, 5],
}


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_grid(dtype, reduction):
    """A sample of all combinations, compared with PyTorch's function in float64."""
    for case in random.Random(f"{dtype} {reduction}").sample(list(itertools.product(*GRID.values())), 20):
        wants, bias, weights, smoothing, ignored = case
        results = []
        for function, kind in ((linear_cross_entropy, dtype), (of_pytorch, torch.float64)):
            *leaves, y = tensors(dtype)
            x, w, b = (leaf.to(kind).requires_grad_(want) for leaf, want in zip(leaves, wants))
            leaves = [leaf for leaf in (x, w, b if bias else y) if leaf.requires_grad]
            classes = torch.linspace(0.5, 1.5, V).to(dtype).to(kind) if weights else None
            options = dict(weight=classes, reduction=reduction, label_smoothing=smoothing, ignore_index=ignored)
            loss = function(x, w, torch.where(y < 0, ignored, y), linear_bias=b if bias else None, **options)
            upstream = torch.linspace(0.5, 1, loss.numel(), dtype=loss.dtype).view_as(loss)
            results.append([loss.detach(), *(torch.autograd.grad(loss, leaves, upstream) if leaves else ())])
        for got, want in zip(*results, strict=True):
            assert got.dtype == dtype and got.shape == want.shape, case
            bound = BOUND[dtype] * max(1.0, want.abs().max().item())
            torch.testing.assert_close(got.double(), want, atol=bound, rtol=0, msg=str(case))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_of_float16_are_rounded_once_they_are_scaled(reduction, frozen):
    """A loss scale preserves gradients that float16 would underflow, and the upstream gradient undoes the
    scale."""
    x, w, _, y = tensors(torch.float16)
    leaves = [x.requires_grad_(), *([] if frozen else [w.requires_grad_()])]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    logits = wide[0] @ (w.double() if frozen else wide[1]).T
    want = torch.autograd.grad(F.cross_entropy(logits, y, reduction=reduction).sum(), wide)
    for scale in (1e-9, 1e9):
        loss = linear_cross_entropy(x, w, y, reduction=reduction, loss_scale=scale, loss_dtype=torch.float32)
        for got, exact in zip(torch.autograd.grad(loss.sum() / scale, leaves), want):
            torch.testing.assert_close(got.double(), exact, atol=1e-3, rtol=2e-3)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_checkpoint(reduction):
    x, w, _, y = tensors(torch.float64)
    results = []
    for function in (linear_cross_entropy, of_pytorch):
        for use_reentrant in (False, True):
            leaf = x.clone().requires_grad_()

            def loss(rows, function=function):
                return function(torch.tanh(rows), w, y, reduction=reduction).sum()

            torch.utils.checkpoint.checkpoint(loss, leaf, use_reentrant=use_reentrant).backward()
            results.append(leaf.grad)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_in_the_place_of_pytorchs(monkeypatch):
    x, w, _, y = tensors(torch.float64)
    p = torch.rand(N, V, dtype=torch.float64).softmax(1)
    want = of_pytorch(x, w, p)
    monkeypatch.setattr(F, "linear_cross_entropy", linear_cross_entropy, raising=False)
    torch.testing.assert_close(F.linear_cross_entropy(x, w, p), want)


def test_a_normaliser_takes_the_place_of_the_number_of_tokens():
    x, w, b, y = tensors(torch.float64)
    want = of_pytorch(x, w, y, linear_bias=b, reduction="sum") / 29
    for items in (29, 29.0, torch.tensor(29), torch.tensor([29.0])):
        torch.testing.assert_close(linear_cross_entropy(x, w, y, linear_bias=b, num_items_in_batch=items), want)
    with pytest.raises(ValueError, match="num_items_in_batch"):
        linear_cross_entropy(x, w, y, num_items_in_batch=29, reduction="sum")
    with pytest.raises(ValueError, match="num_items_in_batch requires a gradient"):
        linear_cross_entropy(x, w, y, num_items_in_batch=torch.tensor(29.0, requires_grad=True))
    p = (x @ w.T).softmax(1)
    want = F.cross_entropy(3 * torch.tanh((x @ w.T) / 3), p, reduction="sum") / 29
    torch.testing.assert_close(linear_cross_entropy(x, w, p, num_items_in_batch=29, softcap=3.0), want)
    with pytest.raises(ValueError, match="z_loss is not supported if target holds class prob"):
        linear_cross_entropy(x, w, p, z_loss=0.1)


def test_an_older_pytorch_is_named():
    """`logitless.torch` needs PyTorch 2.6."""
    older = "import torch; torch.__version__ = '2.5.1'; import logitless.torch"
    result = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert result.returncode == 1
    assert "ImportError: logitless.torch needs PyTorch 2.6 or later, not 2.5.1" in result.stderr
