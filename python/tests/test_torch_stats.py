# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Further results of logitless.torch: predicted ids, lse, accuracy, z-loss; packed documents; and uses of
results."""

import pytest
from torch_cases import H, N, V, tensors, torch

from logitless import _core
from logitless.torch import LinearCrossEntropyLoss, linear_cross_entropy, token_logps
from test_torch_settings import callers


@pytest.mark.parametrize("reduction", ["mean", "none"])
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
    with pytest.raises(ValueError, match="^return_stats is not supported if target holds class probabilities"):
        linear_cross_entropy(x, w, torch.rand(N, V), return_stats=True)


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        ([0, N], TypeError, "offsets must be a torch.Tensor, not list"),
        (torch.tensor([0.0, N]), TypeError, "offsets is torch.float32: it must be torch.int64 or torch.int32"),
        (torch.tensor([], dtype=torch.int64), ValueError, r"offsets has shape \(0,\): it must be \[B \+ 1\]"),
        (torch.tensor([0, N - 1]), ValueError, rf"offsets\[1\] = {N - 1} must be the number of rows of input, {N}"),
    ],
)
def test_bad_offsets(offsets, error, message):
    x, w, _, y = tensors(torch.float32)
    with pytest.raises(error, match=f"^{message}"):
        linear_cross_entropy(x, w, y, offsets=offsets, shift=True)
    with pytest.raises(ValueError, match=r"^offsets are given and input has shape \(1, 13, 7\): it must be \[N, H\]"):
        linear_cross_entropy(x[None], w, y[None], offsets=torch.tensor([0, N]), shift=True)


CALLS = {
    **{name: call for name, call in callers().items() if name not in ("module", "topk_logps")},
    "entropy": lambda x, w: token_logps(x, w, torch.arange(12).view(4, 3), entropy=True)[1],
    "lse": lambda x, w: token_logps(x, w, torch.arange(12).view(4, 3), lse=True)[1],
}


def add_(t):
    t += 1
    return t


def set_first_(t):
    t.view(-1)[0] = 0.5
    return t


IN_PLACE = {"+=": add_, "masked_fill_": lambda t: t.masked_fill_(t > 1, 0), "index": set_first_}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("name", CALLS)
def test_results_can_be_changed_in_place(name, change):
    x, w = torch.randn(4, 3, 6, requires_grad=True), torch.randn(40, 6)
    found = []
    for copied in (False, True):
        torch.manual_seed(0)
        result = CALLS[name](x, w)
        found.append(torch.autograd.grad(IN_PLACE[change](result.clone() if copied else result).sum(), x))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_transforms_are_refused_with_what_to_do():
    x, w = torch.randn(4, 3, 6), torch.randn(40, 6)
    transforms = {
        "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(x),
        "vmap": lambda f: torch.vmap(f)(torch.stack([x, x])),
        "jvp": lambda f: torch.func.jvp(f, (x,), (x,)),
        "functional_call": lambda f: torch.func.vjp(f, x),
    }
    names = "cross-entropy mean", "cross-entropy none", "token_logps none", "topk_logps", "policy", "class probabilities"
    made = callers()
    for name in names:
        for transform in transforms.values():
            with pytest.raises(RuntimeError, match="^logitless.torch does not run inside torch.func's transforms"):
                transform(lambda x: made[name](x, w))  # noqa: B023
    x.requires_grad_()
    for name in names[:3]:
        result = made[name](x, w)
        with pytest.raises(RuntimeError, match="^logitless computes one gradient at a time: is_grads_batched=True"):
            torch.autograd.grad(result, x, torch.ones(2, *result.shape, dtype=result.dtype), is_grads_batched=True)
