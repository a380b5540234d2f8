# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch against PyTorch's own functions."""

import itertools
import random
import subprocess
import sys

import pytest
from torch_cases import BOUND, F, H, N, V, both, tensors, torch

from logitless.torch import (
    LinearCrossEntropyLoss,
    linear_cross_entropy,
    set_options,
    topk_logps,
)


GRID = {
    "layout": ["rows", "columns", "strided"],
    "wants": [(True, True, True), (True, False, False), (False, True, False), (False, False, True), (False, False, False)],
    "bias": [False, True],
    "weights": [False, True],
    "smoothing": [0.0, 0.1],
    "ignored": [None, 5],
}


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_grid(dtype, reduction):
    """A sample of all combinations."""
    cases = random.Random(f"{dtype} {reduction}").sample(list(itertools.product(*GRID.values())), 20)
    for case in cases:
        layout, wants, bias, weights, smoothing, ignored = case
        x, w, b, y = tensors(dtype, layout, bias)
        if ignored is not None:
            y = torch.where(y < 0, ignored, y)
        weight = (
            (torch.rand(V) + 0.5).to(dtype) if weights else None
        )  # PyTorch's has the dtype; ours rounds it to float32
        upstream = torch.rand(N) if reduction == "none" else torch.tensor(0.75)
        (loss, grads), (want_loss, want_grads) = both(
            x,
            w,
            b,
            y,
            wants,
            upstream,
            weight=weight,
            reduction=reduction,
            label_smoothing=smoothing,
            ignore_index=ignored,
        )
        assert loss.dtype == dtype and loss.shape == want_loss.shape, case
        scale = max(1.0, want_loss.abs().max().item())
        torch.testing.assert_close(loss.double(), want_loss, atol=BOUND[dtype] * scale, rtol=0, msg=str(case))
        for grad, want, tensor in zip(grads, want_grads, (x, w, b)):
            assert (grad is None) == (want is None), case
            if grad is not None:
                assert grad.dtype == dtype and grad.shape == tensor.shape
                scale = max(1.0, want.abs().max().item())
                torch.testing.assert_close(
                    grad.double(), want, atol=BOUND[dtype] * scale, rtol=0, msg=str(case)
                )


def test_the_type_of_the_loss():
    x, w, _, y = tensors(torch.bfloat16)
    want = F.cross_entropy(x.double() @ w.double().T, y)
    x.requires_grad_()
    loss = linear_cross_entropy(x, w, y, loss_dtype=torch.float32)
    assert loss.dtype == torch.float32 and linear_cross_entropy(x, w, y).dtype == torch.bfloat16
    torch.testing.assert_close(loss.double(), want, rtol=1e-6, atol=0)
    (grad,) = torch.autograd.grad(loss, x)
    (same,) = torch.autograd.grad(linear_cross_entropy(x, w, y), x)
    assert grad.dtype == torch.bfloat16 and torch.equal(grad, same)


def test_topk_logps():
    x, w, _, _ = tensors(torch.float64)
    ids, got = topk_logps(x[:12].view(3, 4, H), w, 1)
    assert ids.shape == got.shape == (3, 4, 1) and topk_logps(x[0], w, 2)[0].shape == (2,)
    assert topk_logps(x[:0], w, 3)[0].shape == (0, 3)
    ids, got = topk_logps(x.requires_grad_(), w, 256)
    assert torch.equal(ids[:, :V], (x @ w.T).argsort(-1, descending=True)) and not got.requires_grad
    assert (ids[:, V:] == -1).all() and (got[:, V:] == -torch.inf).all()
    for wrong in (0, 257):
        with pytest.raises(ValueError, match=f"k = {wrong} must be an integer from 1 to 256"):
            topk_logps(x, w, wrong)
    with pytest.raises(TypeError, match="does not take ignore_index: it has no targets"):
        topk_logps(x, w, 3, ignore_index=0)


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


def test_tied_weights_and_non_leaves():
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(V, H).double()
    ids = torch.randint(0, V, (5, 6))
    results = []
    for function in (linear_cross_entropy, F.linear_cross_entropy):
        embedding.zero_grad()
        states = torch.tanh(embedding(ids))
        function(states[:, :-1].reshape(-1, H), embedding.weight, ids[:, 1:].reshape(-1)).backward()
        results.append(embedding.weight.grad.clone())
    torch.testing.assert_close(*results)


def test_autocast():
    x, w, b, y = tensors(torch.float32)
    w.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(x, w, y, linear_bias=b)
        want = F.linear_cross_entropy(x, w, y, linear_bias=b)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), want.double(), atol=5e-2, rtol=0)
    loss.backward()
    assert w.grad.dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_checkpoint(reduction):
    x, w, _, y = tensors(torch.float64)
    results = []
    for function in (linear_cross_entropy, F.linear_cross_entropy):
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
    want = F.linear_cross_entropy(x, w, p)
    monkeypatch.setattr(F, "linear_cross_entropy", linear_cross_entropy)
    torch.testing.assert_close(F.linear_cross_entropy(x, w, p), want)


def test_module_and_training_beside_pytorch():
    """PyTorch's threads and ours take turns in one process, for a few steps of a small model."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    losses = []
    for fused in (True, False):
        torch.manual_seed(0)
        body = torch.nn.Sequential(
            torch.nn.Embedding(V, 32), torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, H)
        )
        head = LinearCrossEntropyLoss(H, V)
        optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2)
        ids = torch.randint(0, V, (8, 33), generator=torch.Generator().manual_seed(3))
        curve = []
        for _ in range(20):
            optimizer.zero_grad()
            states, targets = body(ids[:, :-1]), ids[:, 1:]
            if fused:
                loss = head(states, targets)
            else:
                loss = F.cross_entropy(head.linear(states).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(curve)
    assert torch.get_num_threads() == threads
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_a_normaliser_takes_the_place_of_the_number_of_tokens():
    x, w, b, y = tensors(torch.float64)
    want = F.linear_cross_entropy(x, w, y, linear_bias=b, reduction="sum") / 29
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


def test_options_of_the_context():
    x, w, _, y = tensors(torch.float32)
    want = linear_cross_entropy(x, w, y)
    try:
        set_options(plan="two_pass", workspace_bytes=1 << 20, threads=1)
        torch.testing.assert_close(linear_cross_entropy(x, w, y), want)
        with pytest.raises(ValueError, match="three_pass"):
            set_options(plan="three_pass")
    finally:
        set_options()


def test_an_older_pytorch_is_named():
    """`logitless.torch` needs PyTorch 2.6."""
    older = "import torch; torch.__version__ = '2.5.1'; import logitless.torch"
    result = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert result.returncode == 1
    assert "ImportError: logitless.torch needs PyTorch 2.6 or later, not 2.5.1" in result.stderr
