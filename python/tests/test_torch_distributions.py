# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Losses of distributions and sets of ids in logitless.torch: class probabilities as in PyTorch, unions of
top k, teachers that require gradients, and messages. test_generated_torch.py draws values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from logitless._torch_versions import linear_cross_entropy as of_pytorch
from logitless.lora import LoraWeight
from logitless.torch import (
    distillation_loss,
    id_logps,
    linear_cross_entropy,
    sample,
    set_distillation_loss,
    soft_cross_entropy,
    topk_logps,
    topk_union,
)

N, H, V, K = 10, 7, 53, 5


def tensors(dtype=torch.float64):
    torch.manual_seed(3)
    shapes = (N, H), (V, H), (V,)
    return [torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


IDS = (torch.arange(N * K) * 7 % V).view(N, K)
LOGPS = torch.full((N, K), -3.0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_probabilities_are_those_of_pytorch(reduction, recwarn):
    hidden, weight, bias = inputs = tensors()
    target = torch.rand(N, V, dtype=torch.float64)
    target[2] = 0
    for smoothing in (0.0, 0.2):
        for classes in (None, torch.rand(V, dtype=torch.float64)):
            options = dict(weight=classes, reduction=reduction, label_smoothing=smoothing)
            want = F.cross_entropy(F.linear(hidden, weight, bias), target, **options)
            got = linear_cross_entropy(hidden, weight, target, linear_bias=bias, **options)
            torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)
            upstream = torch.linspace(-1, 2, got.numel(), dtype=got.dtype).view_as(got)
            for one, other in zip(*(torch.autograd.grad(loss, inputs, upstream) for loss in (got, want))):
                torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert not recwarn.list, "PyTorch's own path ran"
    with torch.no_grad():
        one = linear_cross_entropy(hidden[0], weight, target[0])
        torch.testing.assert_close(one, F.cross_entropy(hidden[0] @ weight.T, target[0]))
        batch = linear_cross_entropy(hidden.view(2, 5, H), weight, target.view(2, 5, V), reduction="none")
        torch.testing.assert_close(batch.view(-1), F.cross_entropy(hidden @ weight.T, target, reduction="none"))


def test_class_probabilities_with_a_gradient_are_pytorchs():
    hidden, weight, _ = tensors()
    target = torch.rand(N, V, dtype=torch.float64).softmax(1).requires_grad_()
    with pytest.warns(UserWarning, match="class probabilities: PyTorch's own function"):
        got = linear_cross_entropy(hidden, weight, target)
    torch.testing.assert_close(got, of_pytorch(hidden, weight, target))


def test_the_union_of_a_students_own_topk_and_its_teachers():
    hidden, weight, bias = tensors()
    teacher, head = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(V, 6, dtype=torch.float64)
    own = topk_logps(hidden.view(2, 5, H), weight, K, bias=bias)[0]
    ids, offsets = topk_union(own, topk_logps(teacher, head, K)[0])
    of_teacher = (teacher @ head.T).log_softmax(-1).view(N, V)
    for i, (row, other) in enumerate(zip((hidden @ weight.T + bias).topk(K).indices, of_teacher.topk(K).indices)):
        assert set(ids[offsets[i] : offsets[i + 1]].tolist()) == {*row.tolist(), *other.tolist()}
    logps = id_logps(teacher, head, ids, id_offsets=offsets)
    rows = torch.arange(N).repeat_interleave(offsets.diff())
    torch.testing.assert_close(logps, of_teacher[rows, ids])
    loss = set_distillation_loss(hidden, weight, ids, logps, bias=bias, id_offsets=offsets, loss_type="reverse_kl")
    assert torch.autograd.grad(loss, hidden)[0].isfinite().all()


def test_a_lora_is_trained_beside_hidden_states_that_are_not():
    x, w, _ = (t.detach() for t in tensors())
    tx, tw = torch.randn(N, K, dtype=w.dtype), torch.randn(V, K, dtype=w.dtype)
    a, b = torch.ones(2, H, dtype=w.dtype, requires_grad=True), torch.zeros(V, 2, dtype=w.dtype, requires_grad=True)
    loss = distillation_loss(x, LoraWeight(w, a, b), tx, tw.clone().requires_grad_())
    loss.backward()
    assert b.grad.abs().sum() > 0 and loss == distillation_loss(x, w, tx, tw)
    lora = LoraWeight(tw, torch.ones(2, K, dtype=w.dtype).requires_grad_(), torch.zeros(V, 2, dtype=w.dtype))
    for teacher in (lora, tw.clone().requires_grad_()):
        with pytest.raises(ValueError, match="the teacher requires a gradient and the student does not"):
            distillation_loss(x, w, tx, teacher)


def test_a_teacher_never_gets_a_gradient():
    x, w, _ = tensors(torch.float32)
    tx, tw = torch.randn(N, K, requires_grad=True), torch.randn(V, K, requires_grad=True)
    distillation_loss(x, w, tx, tw).backward()
    assert w.grad is not None and tx.grad is None and tw.grad is None


def test_more_than_a_vocabulary():
    x, w, _ = tensors()
    ids, logps = topk_logps(x, w, 256)
    assert torch.equal(ids[:, :V], (x @ w.T).argsort(-1, descending=True)) and not logps.requires_grad
    assert (ids[:, V:] == -1).all() and (logps[:, V:] == -torch.inf).all()


X, W, TX, TW = (torch.ones(N, H), torch.ones(V, H), torch.ones(N, K), torch.ones(V, K))
P, COUNTS, LOGITS = torch.full((N, V), 1 / V), torch.ones(N, dtype=torch.int64), torch.ones(N, V)


@pytest.mark.parametrize(
    "call, error, message",
    [
        *(
            (lambda beside=beside: soft_cross_entropy(X, W, P, **beside), ValueError, "give probabilities, or ids and weights")
            for beside in ({"ids": IDS}, {"weights": LOGPS.exp()}, {"id_counts": COUNTS}, {"id_offsets": COUNTS})
        ),
        (lambda: soft_cross_entropy(X, W), ValueError, "give probabilities, or ids and weights"),
        (lambda: soft_cross_entropy(X, W, ids=IDS, weights=LOGPS), ValueError, "not a logarithm"),
        (lambda: soft_cross_entropy(X, W, P, reduction=None), ValueError, "^None is not a valid value for reduction$"),
        (lambda: set_distillation_loss(X, W, IDS, LOGPS, reduction=None), ValueError, "^None is not a valid value"),
        (lambda: distillation_loss(X, W, X, W, reduction=None), ValueError, "^None is not a valid value for reduction$"),
        (lambda: sample(X, W, top_p=0.9), ValueError, "top_p = 0.9 needs top_k"),
        (lambda: sample(X, W, shift=1), TypeError, "does not take shift: it has no targets"),
        (lambda: topk_logps(X, W, 257), ValueError, "k = 257 must be an integer from 1 to 256"),
        (lambda: topk_logps(X, W, 3, ignore_index=0), TypeError, "does not take ignore_index: it has no targets"),
        (lambda: set_distillation_loss(X, W, IDS, LOGPS.clone().requires_grad_()), ValueError, "gradient, but gets none"),
        (lambda: set_distillation_loss(X, W, IDS, LOGPS, id_counts=COUNTS + 0.7), TypeError, "^id_counts must be int64 or"),
        (lambda: distillation_loss(X, W, TX, TW, teacher_logits=LOGITS), ValueError, "teacher_logits replaces teacher_hid"),
    ],
)
def test_what_is_wrong_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_sample_draws_its_seed_from_pytorch():
    x, weight, _ = tensors()
    hidden, ids = x.detach().view(2, 5, H), torch.tensor([4, 0, 2])
    torch.manual_seed(5)
    first, second = (sample(hidden, weight, 40, temperature=1.5) for _ in range(2))
    torch.manual_seed(5)
    again = sample(hidden, weight, 40, temperature=1.5)
    assert first[0].shape == (2, 5, 40) and torch.equal(first[0], again[0]) and not torch.equal(first[0], second[0])
    part, _ = sample(hidden, weight, 40, seed=1, vocab_ids=ids, temperatures=torch.ones(2, 5))
    assert torch.equal(part, sample(hidden, weight[ids], 40, seed=1)[0]) and part.max() == 2
    greedy, logps = sample(hidden, weight, 2, temperature=0)
    own = topk_logps(hidden, weight, 1)
    assert torch.equal(greedy, own[0].expand(-1, -1, 2)) and torch.equal(logps, own[1].expand(-1, -1, 2))
