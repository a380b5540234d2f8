# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch against PyTorch's own functions."""

import itertools
import subprocess
import sys

import pytest
from torch_cases import BOUND, F, H, N, V, both, tensors, torch

from logitless.torch import (
    LinearCrossEntropyLoss,
    linear_cross_entropy,
    policy_loss,
    set_options,
    token_logps,
    topk_logps,
)


GRID = list(
    itertools.product(
        [torch.float64, torch.float32, torch.bfloat16, torch.float16],
        ["mean", "sum", "none"],
        ["rows", "columns", "strided"],
        [
            (True, True, True),
            (True, False, False),
            (False, True, False),
            (False, False, True),
            (False, False, False),
        ],
        [False, True],  # bias
        [None, "weights"],
        [0.0, 0.1],  # label smoothing
        [None, 5],  # ignore_index
    )
)


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_grid(dtype, reduction):
    cases = 0
    for case in GRID:
        if case[0] != dtype or case[1] != reduction:
            continue
        _, _, layout, wants, bias, weights, smoothing, ignored = case
        x, w, b, y = tensors(dtype, layout, bias)
        if ignored is not None:
            y = torch.where(y < 0, ignored, y)
        weight = (
            (torch.rand(V) + 0.5).to(dtype) if weights else None
        )  # float32 numbers: ours rounds them to that
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
        cases += 1
    assert cases == len(GRID) // 12


def test_leading_axes_and_vectors():
    x, w, b, y = tensors(torch.float64)
    x, y = x[:12], y[:12]
    want = F.linear_cross_entropy(x, w, y, reduction="none")
    for shape in [(12,), (3, 4), (2, 2, 3), (1, 3, 2, 2)]:
        got = linear_cross_entropy(x.view(*shape, H), w, y.view(shape), reduction="none")
        assert got.shape == shape
        torch.testing.assert_close(got.flatten(), want)
    one = linear_cross_entropy(x[0], w, y[0])
    torch.testing.assert_close(one, F.linear_cross_entropy(x[0], w, y[0]))


def test_gradcheck():
    x, w, b, y = tensors(torch.float64)
    x, w, b = (t.requires_grad_() for t in (x, w, b))
    for reduction in ("mean", "sum", "none"):
        for beyond in ({}, {"softcap": 3.0, "temperature": 0.7, "z_loss": 0.01}):
            assert torch.autograd.gradcheck(
                lambda x, w, b: linear_cross_entropy(x, w, y, linear_bias=b, reduction=reduction, **beyond),
                (x, w, b),
            )
    assert torch.autograd.gradcheck(
        lambda x, w, b: token_logps(x, w, y, bias=b, entropy=True), (x, w, b)
    )


def test_beyond_pytorch():
    x, w, _, y = tensors(torch.float64)
    logits = 3 * torch.tanh(x @ w.T / 3) / 0.7
    want = F.cross_entropy(logits, y) + 0.01 * logits.logsumexp(1)[y >= 0].square().mean()
    got = linear_cross_entropy(x, w, y, softcap=3.0, temperature=0.7, z_loss=0.01)
    torch.testing.assert_close(got, want)
    shifted = linear_cross_entropy(x[:12].view(3, 4, H), w, y[:12].view(3, 4), shift=True)
    want = F.linear_cross_entropy(
        x[:12].view(3, 4, H)[:, :-1].reshape(-1, H), w, y[:12].view(3, 4)[:, 1:].reshape(-1)
    )
    torch.testing.assert_close(shifted, want)


@pytest.mark.parametrize("by", [0, 1, 2, 4, 9])
def test_a_shift_of_several_positions(by):
    x, w, y = torch.randn(3, 4, H), torch.randn(V, H), torch.randint(V, (3, 4))
    got = linear_cross_entropy(x, w, y, shift=by)
    left = max(4 - by, 0)
    want = F.linear_cross_entropy(x[:, :left].reshape(-1, H), w, y[:, 4 - left :].reshape(-1)) if left else got * 0
    torch.testing.assert_close(got, want)


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


def test_token_logps():
    x, w, b, y = tensors(torch.float64)
    logps = F.log_softmax(x @ w.T + b, dim=1)
    got, entropy = token_logps(x, w, y, bias=b, entropy=True)
    taken = y >= 0
    torch.testing.assert_close(got[taken], logps[torch.arange(N)[taken], y[taken]])
    torch.testing.assert_close(entropy[taken], -(logps.exp() * logps).sum(1)[taken])
    assert (got[~taken] == 0).all()


def test_topk_logps():
    x, w, b, _ = tensors(torch.float64)
    x.requires_grad_()
    logps = F.log_softmax((x @ w.T + b) / 0.5, dim=1)
    want = torch.topk(logps, 5, dim=1)
    ids, got = topk_logps(x, w, 5, bias=b, temperature=0.5)
    assert torch.equal(ids, want.indices) and not got.requires_grad
    torch.testing.assert_close(got, want.values)
    ids, got = topk_logps(x[:12].view(3, 4, H), w, 1)
    assert ids.shape == got.shape == (3, 4, 1) and topk_logps(x[0], w, 2)[0].shape == (2,)
    assert torch.equal(ids[..., 0], (x[:12] @ w.T).argmax(-1).view(3, 4))
    assert topk_logps(x[:0], w, 3)[0].shape == (0, 3)
    ids, got = topk_logps(x, w, 256)
    assert (ids[:, V:] == -1).all() and (got[:, V:] == -torch.inf).all()
    for wrong in (0, 257):
        with pytest.raises(ValueError, match=f"k = {wrong} must be an integer from 1 to 256"):
            topk_logps(x, w, wrong)
    with pytest.raises(TypeError, match="does not take ignore_index: it has no targets"):
        topk_logps(x, w, 3, ignore_index=0)


def test_half_precision_keeps_small_gradients():
    """A gradient scaler's factor reaches gradients that float16 alone would have lost."""
    x, w, _, y = tensors(torch.float16)
    x.requires_grad_()
    (1e-9 * linear_cross_entropy(x, w, y).float() * 1e9).backward()
    assert x.grad.abs().sum() > 0


def test_backward_twice_and_accumulation():
    x, w, _, y = tensors(torch.float64)
    w.requires_grad_()
    loss = linear_cross_entropy(x, w, y)
    loss.backward(torch.tensor(2.0, dtype=torch.float64), retain_graph=True)
    first = w.grad.clone()
    loss.backward()
    torch.testing.assert_close(w.grad, 1.5 * first)


def test_targets_changed_in_place_are_noticed():
    x, w, _, y = tensors(torch.float64)
    w.requires_grad_()
    losses = linear_cross_entropy(x, w, y, reduction="none")
    y.zero_()
    with pytest.raises(RuntimeError, match="targets was changed in place"):
        losses.sum().backward()


def test_double_backward_is_refused():
    x, w, _, y = tensors(torch.float64)
    w.requires_grad_()
    (grad,) = torch.autograd.grad(linear_cross_entropy(x, w, y), w, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.sum().backward()


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


def test_all_ignored_is_zero():
    x, w, _, y = tensors(torch.float32)
    x.requires_grad_()
    loss = linear_cross_entropy(x, w, torch.full_like(y, -100))
    loss.backward()
    assert loss.item() == 0 and (x.grad == 0).all()


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


def test_inference_mode():
    x, w, _, y = tensors(torch.float32)
    with torch.inference_mode():
        got, want = linear_cross_entropy(x, w, y.clone()), F.linear_cross_entropy(x, w, y.clone())
        torch.testing.assert_close(got, want)
        policy_loss(x, w, y.clamp(min=0), torch.ones(1), old_logps=torch.zeros(N))


def test_in_the_place_of_pytorchs(monkeypatch):
    x, w, _, y = tensors(torch.float64)
    p = torch.rand(N, V, dtype=torch.float64).softmax(1)
    want = F.linear_cross_entropy(x, w, p)
    monkeypatch.setattr(F, "linear_cross_entropy", linear_cross_entropy)
    torch.testing.assert_close(F.linear_cross_entropy(x, w, p), want)


def test_module_and_training_beside_pytorch():
    """PyTorch's threads and ours take turns in one process, for some steps of a small model."""
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
    with pytest.raises(ValueError, match="z_loss cannot be had where target holds class prob"):
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
    """`logitless.torch` is made of what PyTorch 2.13 brings."""
    older = "import torch; torch.__version__ = '2.8.0'; del torch.nn.LinearCrossEntropyLoss; import logitless.torch"
    result = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert result.returncode == 1
    assert "ImportError: logitless.torch needs PyTorch 2.13 or later, and this is 2.8.0" in result.stderr
