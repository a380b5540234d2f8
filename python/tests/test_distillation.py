# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Distillation from NumPy and PyTorch: sums over micro-batches, edges, and what is refused."""

import numpy as np
import pytest

import logitless

torch = pytest.importorskip("torch")

from logitless.lora import LoraWeight  # noqa: E402
from logitless.torch import distillation_loss  # noqa: E402

N, H, K, V = 12, 10, 14, 67


def inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    student = (normal(N, H), normal(V, H), normal(V))
    teacher = (normal(N, K), normal(V, K), normal(V))
    target = torch.randint(0, V, (N,), generator=generator)
    target[3] = -100
    return student, teacher, target


@pytest.mark.parametrize("mean_over", ["tokens", "sequences", "sequence_means"])
def test_unequal_micro_batches_add_up(mean_over):
    (x, w, b), (tx, tw, tb), target = inputs()
    x, tx, target = x.view(4, 3, H), tx.view(4, 3, K), target.view(4, 3)
    target[2, :2] = -100  # sequences of 3, 2, 1 and 3 tokens

    def run(part, num_items_in_batch=None):
        leaf = w.clone().requires_grad_()
        loss = distillation_loss(
            x[part],
            leaf,
            tx[part],
            tw,
            target[part],
            bias=b,
            teacher_bias=tb,
            loss_type="jsd",
            hard_weight=0.5,
            mean_over=mean_over,
            num_items_in_batch=num_items_in_batch,
        )
        loss.backward()
        return loss.detach(), leaf.grad

    count = 9 if mean_over == "tokens" else 4
    parts = [run(slice(0, 1), count), run(slice(1, 4), count)]
    for got, want in zip(map(sum, zip(*parts)), run(slice(0, 4))):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("plan", ["one_pass", "two_pass"])
@pytest.mark.parametrize("temperature", [0.05, 0.03, 0.01])
def test_where_all_mass_is_in_one_entry_no_rounding_is_left(plan, temperature):
    """Only s - t pulls such a student; the other divergences' gradient is about 1e-68."""
    x = np.repeat(np.array([[1, 0, 0.3, 0.1]], np.float32), 3, 0)
    teacher = np.repeat(np.array([[0, 1, 0.2, 0.4]], np.float32), 3, 0)
    weight = np.array([[10, 0, 1, 2], [0, 10, 3, 1], [-3, 1, 2, 5], [2, 3, 1, 1]], np.float32)
    context = logitless.Context(plan=plan)
    kinds = [("skew_kl", "skew"), ("skew_reverse_kl", "skew"), ("jsd", "beta")]
    cases = [{"loss_type": kind, name: x} for kind, name in kinds for x in (1e-6, 0.1, 0.3, 0.7, 1 - 1e-6)]
    for options in [*cases, {"loss_type": "reverse_kl"}, {"loss_type": "total_variation"}]:
        for rows in (1, 3):
            d_hidden, d_weight, d_logits = np.ones((rows, 4), "f4"), np.ones((4, 4), "f4"), np.ones((rows, 4), "f4")
            logitless.distillation_loss(
                x[:rows],
                weight,
                teacher[:rows],
                weight,
                temperature=temperature,
                d_hidden=d_hidden,
                d_weight=d_weight,
                context=context,
                **options,
            )
            logitless.distillation_loss(
                logits=x[:rows] @ weight.T,
                teacher_logits=teacher[:rows] @ weight.T,
                temperature=temperature,
                d_logits=d_logits,
                **options,
            )
            for gradient in (d_hidden, d_weight, d_logits):
                assert np.abs(gradient).max() < 1e-30, options


def test_a_teacher_never_gets_a_gradient():
    (x, w, _), (tx, tw, _), _ = inputs(torch.float32)
    w, tx, tw = (t.requires_grad_() for t in (w, tx, tw))
    distillation_loss(x, w, tx, tw).backward()
    assert w.grad is not None and tx.grad is None and tw.grad is None


def test_a_student_that_is_its_teacher_learns_nothing():
    (x, w, _), _, _ = inputs(torch.float32)
    leaf = w.clone().requires_grad_()
    loss = distillation_loss(x, leaf, x, w, loss_type="reverse_kl")
    loss.backward()
    assert loss.item() == 0 and leaf.grad.abs().max() < 1e-6


def test_a_lora_is_trained_beside_hidden_states_that_are_not():
    (x, w, _), (tx, tw, _), _ = inputs()
    a, b = torch.ones(2, H, dtype=w.dtype, requires_grad=True), torch.zeros(V, 2, dtype=w.dtype, requires_grad=True)
    other = torch.zeros(V, 2, dtype=w.dtype), torch.ones(2, K, dtype=w.dtype)
    loss = distillation_loss(x, LoraWeight(w, a, b), tx, tw.clone().requires_grad_())
    loss.backward()
    assert b.grad.abs().sum() > 0 and loss == distillation_loss(x, w, tx, tw)
    with pytest.raises(ValueError, match="the teacher requires a gradient and the student does not"):
        distillation_loss(x, w, tx, LoraWeight(tw, other[1].requires_grad_(), other[0]))


def test_types_may_differ():
    (x, w, _), (tx, tw, _), _ = inputs(torch.float32)
    loss = distillation_loss(x, w, tx.bfloat16(), tw.bfloat16())
    want = distillation_loss(x, w, tx.bfloat16().float(), tw.bfloat16().float())
    torch.testing.assert_close(loss, want, rtol=1e-5, atol=1e-6)


def test_mistakes_are_told():
    (x, w, _), (tx, tw, _), target = inputs(torch.float32)
    with pytest.raises(ValueError, match="teacher_weight has 66 vocabulary entries but (linear_)?weight has 67"):
        distillation_loss(x, w, tx, tw[:-1])
    with pytest.raises(ValueError, match="the teacher requires a gradient and the student does not"):
        distillation_loss(x, w, tx, tw.clone().requires_grad_())
    with pytest.raises(ValueError, match="float64 mixes with no other type"):
        distillation_loss(x, w, tx.double(), tw.double())
    with pytest.raises(ValueError, match="expected teacher_hidden"):
        distillation_loss(x, w, tx[:-1], tw)
    with pytest.raises(ValueError, match="expected targets"):
        distillation_loss(x, w, tx, tw, target[:-1])
    with pytest.raises(ValueError, match="hard_weight = 1 needs targets"):
        distillation_loss(x, w, tx, tw, hard_weight=1.0)
    with pytest.raises(ValueError, match="beta = 2 must be a number from 0 to 1"):
        distillation_loss(x, w, tx, tw, loss_type="jsd", beta=2.0)
    with pytest.raises(ValueError, match="loss_type = 'kl' is none of forward_kl"):
        distillation_loss(x, w, tx, tw, loss_type="kl")
    with pytest.raises(TypeError, match="unexpected keyword argument 'lamda'"):
        distillation_loss(x, w, tx, tw, lamda=0.5)
    with pytest.raises(ValueError, match="teacher_hidden is missing"):
        logitless.distillation_loss(x, w, None, tw)
    with pytest.raises(ValueError, match="teacher has no logits: beside a student of finished logits"):
        logitless.distillation_loss(teacher_hidden=tx, teacher_weight=tw, logits=x @ w.T)
    with pytest.raises(ValueError, match="teacher_logits is given, and teacher_hidden or teacher_weight beside it"):
        logitless.distillation_loss(x, w, tx, tw, teacher_logits=tx @ tw.T)
    with pytest.raises(ValueError, match="teacher_logits takes the place of teacher_hidden"):
        distillation_loss(x, w, tx, tw, teacher_logits=tx @ tw.T)
    with pytest.raises(ValueError, match="give teacher_hidden and teacher_weight, or teacher_logits"):
        distillation_loss(x, w, tx)
    with pytest.raises(ValueError, match="expected teacher_logits of shape"):
        distillation_loss(x, w, teacher_logits=(tx @ tw.T)[:-1])
    with pytest.raises(ValueError, match="teacher_logits has 66 vocabulary entries but (linear_)?weight has 67"):
        distillation_loss(x, w, teacher_logits=(tx @ tw.T)[:, :-1])
