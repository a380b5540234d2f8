# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Further results of logitless.torch: predicted ids, lse, accuracy, z-loss; packed documents; and uses of
results."""

import pytest
from torch_cases import H, N, V, tensors, torch

from logitless import _core
from logitless.torch import (
    LinearCrossEntropyLoss,
    distillation_loss,
    id_logps,
    linear_cross_entropy,
    policy_loss,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
    topk_logps,
)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_stats_beside_the_loss(monkeypatch, reduction):
    x, w, b, y = tensors(torch.float32)
    x.requires_grad_(), w.requires_grad_()
    options = dict(linear_bias=b, reduction=reduction, z_loss=0.01, temperature=0.7, label_smoothing=0.1)
    calls = []
    for name in ("cross_entropy", "cross_entropy_forward", "token_stats"):
        counted = lambda *a, f=getattr(_core, name): calls.append(f) or f(*a)  # noqa: E731
        monkeypatch.setattr(_core, name, counted)
    loss, stats = linear_cross_entropy(x, w, y, return_stats=True, **options)
    assert len(calls) == 1  # one pass over the vocabulary
    assert torch.equal(loss, linear_cross_entropy(x, w, y, **options))
    taken, count = y >= 0, N - 2
    assert stats.tokens == count and stats.accuracy == (stats.predicted_ids == y)[taken].double().mean().item()
    assert stats.mean_nll == pytest.approx(-stats.logps.double().sum().item() / count)
    z = 0.01 * (stats.lse[taken].double() ** 2).sum().item()
    assert stats.z_loss == pytest.approx(z / count if reduction == "mean" else z)
    assert (stats.predicted_ids[~taken] == -1).all() and not (stats.lse[~taken]).any()
    assert not any(t.requires_grad for t in (stats.predicted_ids, stats.lse, stats.logps))


def test_stats_of_other_heads_and_shapes():
    x, w, _, y = tensors(torch.float32)
    y = y.clamp(min=0)
    part = torch.arange(5, 25)
    got = linear_cross_entropy(x, w, y % 20, vocab_ids=part, return_stats=True)[1]
    assert torch.equal(got.predicted_ids, (x @ w[part].T).argmax(-1))  # indices into vocab_ids
    cube = x[:12].view(3, 4, H)
    assert linear_cross_entropy(cube, w, y[:12].view(3, 4), return_stats=True)[1].lse.shape == (3, 4)
    assert linear_cross_entropy(x[0], w, y[0], return_stats=True)[1].predicted_ids.shape == ()
    none = linear_cross_entropy(x[:0], w, y[:0], return_stats=True)[1]
    assert none.predicted_ids.shape == none.lse.shape == (0,) and none.tokens == 0
    loss, stats = LinearCrossEntropyLoss(H, V, return_stats=True)(x, y)
    assert loss.requires_grad and stats.tokens == N
    compiled = torch.compile(lambda x: linear_cross_entropy(x, w, y, return_stats=True))(x)
    assert torch.equal(compiled[1].lse, linear_cross_entropy(x, w, y, return_stats=True)[1].lse)
    for probabilities in (torch.rand(N, V), torch.rand(N, V, requires_grad=True)):
        with pytest.raises(ValueError, match="^return_stats is not supported if target holds class probabilities"):
            linear_cross_entropy(x, w, probabilities, return_stats=True)


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        ([0, N], TypeError, "offsets must be a torch.Tensor, not list"),
        (torch.tensor([0.0, N]), TypeError, "offsets is torch.float32: it must be torch.int64 or torch.int32"),
        (torch.tensor([[0, N]]), ValueError, r"offsets has shape \(1, 2\): it must be \[B \+ 1\]"),
        (torch.tensor([], dtype=torch.int64), ValueError, r"offsets has shape \(0,\): it must be \[B \+ 1\]"),
        (torch.tensor([1, N]), ValueError, r"offsets\[0\] = 1 must be 0"),
        (torch.tensor([0, N - 1]), ValueError, rf"offsets\[1\] = {N - 1} must be the number of rows of input, {N}"),
    ],
)
def test_bad_offsets(offsets, error, message):
    x, w, _, y = tensors(torch.float32)
    with pytest.raises(error, match=f"^{message}"):
        linear_cross_entropy(x, w, y, offsets=offsets, shift=True)
    with pytest.raises(ValueError, match=r"^offsets are given and input has shape \(1, 13, 7\): it must be \[N, H\]"):
        linear_cross_entropy(x[None], w, y[None], offsets=torch.tensor([0, N]), shift=True)


def results():
    """{name: function of hidden states} of all functions that return more than one number."""
    _, w, _, y = tensors(torch.float64)
    y = y.clamp(min=0)
    ids = y[:, None]
    out = {
        "token_logps": lambda x: token_logps(x, w, y),
        "token_logps and entropy": lambda x: token_logps(x, w, y, entropy=True)[0],
        "entropy": lambda x: token_logps(x, w, y, entropy=True)[1],
        "lse": lambda x: token_logps(x, w, y, lse=True)[1],
        "token_logps [B, T]": lambda x: token_logps(x[:12].view(3, 4, H), w, y[:12].view(3, 4)).view(-1),
        "id_logps": lambda x: id_logps(x, w, ids),
        "cross-entropy": lambda x: linear_cross_entropy(x, w, y, reduction="none"),
        "cross-entropy float32": lambda x: linear_cross_entropy(x, w, y, reduction="none", loss_dtype=torch.float32),
        "soft": lambda x: soft_cross_entropy(x, w, ids=ids, weights=ids / V, reduction="none"),
        "sets": lambda x: set_distillation_loss(x, w, ids, -2.0 - ids, reduction="none"),
        "distillation": lambda x: distillation_loss(x, w, 2 * x, w, reduction="none"),
        "mean": lambda x: linear_cross_entropy(x, w, y),
        "policy": lambda x: policy_loss(x, w, y, torch.ones(1)),
    }
    return out


def add_(t):
    t += 1
    return t


IN_PLACE = {
    "+=": add_,
    "mul_": lambda t: t.mul_(3),
    "clamp_": lambda t: t.clamp_(-2, 2),
    "neg_": lambda t: t.neg_(),
    "masked_fill_": lambda t: t.masked_fill_(t > 1, 0),
    "index": lambda t: t.view(-1).__setitem__(0, 0.5) or t,
}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("name", results())
def test_results_can_be_changed_in_place(name, change):
    x = tensors(torch.float64)[0].requires_grad_()
    function, operation = results()[name], IN_PLACE[change]
    got = torch.autograd.grad(operation(function(x)).sum(), x)
    want = torch.autograd.grad(operation(function(x).clone()).sum(), x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_transforms_are_refused_with_what_to_do():
    x, w, _, y = tensors(torch.float32)
    y = y.clamp(min=0)
    transforms = {
        "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(x),
        "vmap": lambda f: torch.vmap(f)(torch.stack([x, x])),
        "jacrev": lambda f: torch.func.jacrev(f)(x),
        "jvp": lambda f: torch.func.jvp(f, (x,), (x,)),
        "functional_call": lambda f: torch.func.vjp(f, x),
    }
    functions = {
        "mean": lambda x: linear_cross_entropy(x, w, y),
        "none": lambda x: linear_cross_entropy(x, w, y, reduction="none"),
        "logps": lambda x: token_logps(x, w, y),
        "top k": lambda x: topk_logps(x, w, 2)[1],
        "policy": lambda x: policy_loss(x, w, y, torch.ones(1)),
        "probabilities": lambda x: linear_cross_entropy(x, w, torch.full((N, V), 1 / V)),
    }
    for transform in transforms.values():
        for function in functions.values():
            with pytest.raises(RuntimeError, match="^logitless.torch does not run inside torch.func's transforms"):
                transform(function)
    x.requires_grad_()
    for name in ("mean", "none", "logps"):
        result = functions[name](x)
        with pytest.raises(RuntimeError, match="^logitless computes one gradient at a time: is_grads_batched=True"):
            torch.autograd.grad(result, x, torch.ones(2, *result.shape, dtype=result.dtype), is_grads_batched=True)
