# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Losses of distributions and sets of ids in logitless.torch: class probabilities as in PyTorch, unions of
top k, teachers that require gradients, and messages. test_generated_torch.py draws values and gradients."""

import logitless
import pytest
import torch
import torch.nn.functional as F
from logitless.lora import LoraWeight
from logitless.torch import (
    distillation_loss,
    id_logps,
    linear_cross_entropy,
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
    torch.testing.assert_close(got, F.linear_cross_entropy(hidden, weight, target))


def test_a_number_of_items_and_what_goes_with_no_class_probabilities():
    x, w, _ = tensors()
    p = (x @ w.T).softmax(1).detach()
    want = F.cross_entropy(3 * torch.tanh((x @ w.T) / 3), p, reduction="sum") / 29
    torch.testing.assert_close(linear_cross_entropy(x, w, p, num_items_in_batch=29, softcap=3.0), want)
    with pytest.raises(ValueError, match="z_loss is not supported if target holds class prob"):
        linear_cross_entropy(x, w, p, z_loss=0.1)


def test_a_replayed_sampling_mask_gives_the_samplers_ratio():
    hidden, weight, _ = tensors()
    kept = (hidden @ weight.T).topk(K, -1).indices
    sampler = torch.log_softmax((hidden @ weight.T).gather(1, kept), -1)
    sets = torch.cat([kept[:, 2:3], kept], -1)
    logps = id_logps(hidden, weight, sets, normalise_over="set")[:, 0]
    torch.testing.assert_close(torch.exp(logps - sampler[:, 2]), torch.ones(N, dtype=torch.float64))


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


def test_what_is_wrong_with_a_set_is_named():
    hidden, weight, _ = (t.detach() for t in tensors(torch.float32))
    bad = IDS.clone()
    bad[2, 1] = V
    with pytest.raises(ValueError, match=r"row 2, entry 1, = 53 is outside \[0, 53\)"):
        id_logps(hidden, weight, bad)
    with pytest.raises(ValueError, match="not a logarithm"):
        soft_cross_entropy(hidden, weight, ids=IDS, weights=LOGPS)
    p, counts = torch.rand(N, V), torch.ones(N, dtype=torch.int64)
    for beside in ({}, {"ids": IDS}, {"weights": LOGPS.exp()}, {"id_counts": counts}, {"id_offsets": counts}):
        with pytest.raises(ValueError, match="give probabilities, or ids and weights"):
            soft_cross_entropy(hidden, weight, p if beside else None, **beside)
    for call in (
        lambda **more: soft_cross_entropy(hidden, weight, p, **more),
        lambda **more: set_distillation_loss(hidden, weight, IDS, LOGPS, **more),
        lambda **more: distillation_loss(hidden, weight, hidden, weight, **more),
    ):
        with pytest.raises(ValueError, match="^None is not a valid value for reduction$"):
            call(reduction=None)
    with pytest.raises(ValueError, match="requires a gradient"):
        soft_cross_entropy(hidden, weight, p.clone().requires_grad_())
    with pytest.raises(ValueError, match="as hidden has"):
        id_logps(hidden, weight, IDS[:4])
    with pytest.raises(TypeError, match="ignore_index"):
        id_logps(hidden, weight, IDS, ignore_index=3)
    call = set_distillation_loss
    with pytest.raises(ValueError, match="must be a log-probability: at most 0"):
        call(hidden, weight, IDS, LOGPS.exp())
    with pytest.raises(ValueError, match="requires a gradient, but gets none"):
        call(hidden, weight, IDS, LOGPS.clone().requires_grad_())
    with pytest.raises(ValueError, match="expected teacher_logps of shape"):
        call(hidden, weight, IDS, LOGPS[..., :3])
    with pytest.raises(TypeError, match="^id_counts must be int64 or int32, not torch.float32$"):
        call(hidden, weight, IDS, LOGPS, id_counts=torch.full((N,), 2.7))
    with pytest.raises(ValueError, match="expected targets of shape"):
        call(hidden, weight, IDS, LOGPS, counts[:2])
    with pytest.raises(ValueError, match="is not a sum over token ids"):
        call(hidden, weight, IDS, LOGPS, loss_type="acceptance")
    with pytest.raises(ValueError, match="twice"):
        call(hidden, weight, torch.zeros_like(IDS), LOGPS)
    with pytest.raises(ValueError, match="teacher_logps is missing"):
        logitless.set_distillation_loss(hidden.numpy(), weight.numpy(), IDS.numpy())


def test_what_is_wrong_with_a_teacher_is_named():
    x, w, _ = (t.detach() for t in tensors(torch.float32))
    tx, tw = torch.randn(N, K), torch.randn(V, K)
    logits = tx @ tw.T
    with pytest.raises(ValueError, match="teacher_weight has 52 vocabulary entries but (linear_)?weight has 53"):
        distillation_loss(x, w, tx, tw[:-1])
    with pytest.raises(ValueError, match="float64 cannot be mixed with other types"):
        distillation_loss(x, w, tx.double(), tw.double())
    with pytest.raises(ValueError, match="expected teacher_hidden"):
        distillation_loss(x, w, tx[:-1], tw)
    with pytest.raises(ValueError, match="hard_weight = 1 needs targets"):
        distillation_loss(x, w, tx, tw, hard_weight=1.0)
    with pytest.raises(ValueError, match="loss_type = 'kl' is none of forward_kl"):
        distillation_loss(x, w, tx, tw, loss_type="kl")
    with pytest.raises(TypeError, match="unexpected keyword argument 'lamda'"):
        distillation_loss(x, w, tx, tw, lamda=0.5)
    with pytest.raises(ValueError, match="teacher_hidden is missing"):
        logitless.distillation_loss(x, w, None, tw)
    with pytest.raises(ValueError, match="teacher has no logits: if the student's logits are finished"):
        logitless.distillation_loss(teacher_hidden=tx, teacher_weight=tw, logits=x @ w.T)
    with pytest.raises(ValueError, match="teacher_logits is given together with teacher_hidden or teacher_weight: give one"):
        logitless.distillation_loss(x, w, tx, tw, teacher_logits=logits)
    with pytest.raises(ValueError, match="teacher_logits replaces teacher_hidden"):
        distillation_loss(x, w, tx, tw, teacher_logits=logits)
    with pytest.raises(ValueError, match="give teacher_hidden and teacher_weight, or teacher_logits"):
        distillation_loss(x, w, tx)
    with pytest.raises(ValueError, match="teacher_logits has 52 vocabulary entries but (linear_)?weight has 53"):
        distillation_loss(x, w, teacher_logits=logits[:, :-1])
