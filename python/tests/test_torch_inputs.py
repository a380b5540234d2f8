# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The tensors that logitless.torch accepts, changes before a backward, and messages. test_generated_torch.py
draws layouts, types, in-place changes and mistaken tensors for every function."""

import gc
from types import SimpleNamespace

import pytest
from torch_cases import H, N, V, tensors, torch

from logitless._torch_versions import linear_cross_entropy as of_pytorch
from logitless.packed import PackedWeight
from logitless.torch import (
    distillation_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
)


@pytest.mark.parametrize(
    "change",
    [
        dict(input=torch.zeros(())),
        dict(linear_weight=torch.zeros(H)),
        dict(linear_bias=torch.zeros(V + 1)),
        dict(target=torch.zeros(N + 1, dtype=torch.int64)),
        dict(target=torch.full((N,), -1)),
        dict(weight=torch.ones(V - 1)),
        dict(reduction="average"),
        dict(target=torch.zeros(N, V, dtype=torch.int64)),
        dict(label_smoothing=1.5),
    ],
    ids=lambda change: next(iter(change)),
)
def test_bad_input_has_pytorchs_exceptions(change):
    x, w, _, y = tensors(torch.float32)
    arguments = {"input": x, "linear_weight": w, "target": y, **change}
    with pytest.raises(Exception) as want:
        of_pytorch(**arguments)
    with pytest.raises(want.type):
        linear_cross_entropy(**arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, w, y: (x, w, y.float()), RuntimeError, "target of dtype torch.int64, got torch.float32"),
        (lambda x, w, y: (x[None], w, y[None].float()), RuntimeError, "torch.int64, got torch.float32"),
        (lambda x, w, y: (x.to("meta"), w, y), ValueError, "input is on meta: logitless computes on the CPU"),
        (lambda x, w, y: (x[:, 1:], w, y), RuntimeError, r"in_features.*got 6 and 7"),
        (lambda x, w, y: (x, w, y + 2**40), IndexError, r"10995116277\d\d is outside \[0, 41\)"),
        (lambda x, w, y: (x, w, y.int()), RuntimeError, "target of dtype torch.int64, got torch.int32"),
        (lambda x, w, y: (x, w.T, y), RuntimeError, "in_features.*got 7 and 41"),
        (lambda x, w, y: (x.bfloat16(), w, y), RuntimeError, "one dtype, got torch.bfloat16, torch.float32"),
        (lambda x, w, y: (x.numpy(), w, y), TypeError, "input must be a torch.Tensor, not ndarray"),
        (lambda x, w, y: (x, w, y.tolist()), TypeError, "target must be a torch.Tensor, not list"),
    ],
)
def test_mistakes_are_named(change, error, message):
    """The table in docs/pytorch.md."""
    x, w, _, y = tensors(torch.float32)
    with pytest.raises(error, match=message):
        linear_cross_entropy(*change(x, w, y))


@pytest.mark.parametrize("wrong", [torch.int64, torch.complex64, "float32"], ids=str)
def test_the_type_of_a_loss_is_one_of_floating_point(wrong):
    x, w, _, y = tensors(torch.float32)
    y, p = y.clamp(min=0), torch.full((N, V), 1 / V)
    for call in (
        lambda: linear_cross_entropy(x, w, y, loss_dtype=wrong),
        lambda: linear_cross_entropy(x, w, p, loss_dtype=wrong),
        lambda: soft_cross_entropy(x, w, p, dtype=wrong, reduction="none"),
        lambda: distillation_loss(x, w, x, w, dtype=wrong),
        lambda: set_distillation_loss(x, w, y[:, None], -torch.ones(N, 1), dtype=wrong),
    ):
        with pytest.raises(TypeError, match=r"^(loss_)?dtype = .* must be a floating-point torch.dtype, such as"):
            call()


def test_shapes_are_those_of_tokens_or_of_sequences():
    x, w, _, y = tensors(torch.float32)
    x, y, each = x[:12].view(3, 4, H), y[:12].abs().view(3, 4) % V, torch.linspace(0.5, 2, 12).view(3, 4)
    for wrong in (each.t(), each[:2], each[None], each.view(2, 6)):
        for name, call in (("temperatures", token_logps), ("token_weights", linear_cross_entropy), ("mask", policy_loss)):
            more = (torch.ones(3),) if call is policy_loss else ()
            with pytest.raises(ValueError, match=rf"^expected {name} of shape .*\(3, 4\) or \(12,\), got "):
                call(x, w, y, *more, **{name: wrong if name != "mask" else wrong > 1})
    advantages = torch.tensor([1.0, -2, 0.5])
    assert torch.equal(policy_loss(x, w, y, advantages), policy_loss(x, w, y, advantages[:, None]))
    for wrong in (advantages[None], advantages[:2], advantages[0]):
        with pytest.raises(ValueError, match=r"^expected advantages of shape \(3,\) or \(3, 1\)"):
            policy_loss(x, w, y, wrong)


def test_ids_changed_before_the_backward_of_one_number():
    """A change of vocab_ids must not move the gradient to other rows."""
    weight, chosen = torch.randn(9, 4, requires_grad=True), torch.tensor([1, 2, 3])
    loss = linear_cross_entropy(torch.randn(3, 4), weight, torch.tensor([0, 1, 2]), vocab_ids=chosen)
    chosen.copy_(torch.tensor([6, 7, 8]))
    with pytest.raises(RuntimeError, match="^vocab_ids was changed in place between the loss and its backward"):
        loss.backward()
    assert weight.grad is None
    x, w, _, y = tensors(torch.float64)
    losses = linear_cross_entropy(x, w.requires_grad_(), y, reduction="none")
    y.zero_()
    with pytest.raises(RuntimeError, match="targets was changed in place"):
        losses.sum().backward()


def test_what_one_number_does_not_read_again_may_change():
    """The backward of a loss that is one number reads neither targets nor options: a trainer may reuse its
    buffers."""
    x, w, _, y = tensors(torch.float32)
    x, y = x[:12].view(4, 3, H).requires_grad_(), y[:12].abs().view(4, 3) % V
    losses, weights, logps = ["sigmoid", "ipo"], [1.0, 0.5], -torch.rand(4, 3)

    def loss_of():
        return preference_loss(x, w, y, loss_type=losses, loss_weights=weights, ref_logps=logps)

    (want,) = torch.autograd.grad(loss_of(), x)
    loss = loss_of()
    losses[0], weights[0] = "hinge", 3.0
    for tensor in (logps, y):
        tensor.zero_()
    assert torch.equal(torch.autograd.grad(loss, x)[0], want)


def test_views_that_negate():
    x, w, b, y = tensors(torch.float32)
    got = linear_cross_entropy(torch._neg_view(x), torch._neg_view(w), y, linear_bias=torch._neg_view(b))
    torch.testing.assert_close(got, of_pytorch(x, w, y, linear_bias=-b))


def test_bytes_are_targets():
    x, w, _, y = tensors(torch.float32)
    y = y.clamp(min=0)
    assert linear_cross_entropy(x, w, y.byte()) == linear_cross_entropy(x, w, y)


def test_the_graph_keeps_alive_what_its_backward_reads():
    x, w, _, y = tensors(torch.float32)
    hidden = x.clone().requires_grad_()
    held = hidden
    loss = linear_cross_entropy(hidden, w.clone(), y.clone(), reduction="none").sum()
    del hidden
    gc.collect()
    loss.backward()
    x.requires_grad_()
    of_pytorch(x, w, y, reduction="sum").backward()
    torch.testing.assert_close(held.grad, x.grad)


def test_an_entry_that_stands_twice():
    x, w, _, y = tensors(torch.bfloat16)
    ids = torch.tensor([4, 7, 4, 40])
    weights = [w.clone().requires_grad_() for _ in range(2)]
    linear_cross_entropy(x, weights[0], y.clamp(min=0) % 4, vocab_ids=ids).backward()
    linear_cross_entropy(x, weights[1][ids], y.clamp(min=0) % 4).backward()
    assert torch.equal(weights[0].grad, weights[1].grad)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"vocab_ids": torch.arange(3).int()}, TypeError, "^vocab_ids is torch.int32: it must be a tensor of torch.int64$"),
        ({"target": torch.rand(N, 8)}, ValueError, "^linear_weight is a PackedWeight: class probabilities, "),
        ({"linear_weight": torch.ones(2, V, H), "vocab_ids": torch.arange(3)}, ValueError, "has 3 axes, and must have 2$"),
    ],
)
def test_mistakes_of_heads_are_named(options, error, message):
    packed = PackedWeight(torch.ones(V, H, dtype=torch.int8), "int8", torch.ones(V, 1))
    with pytest.raises(error, match=message):
        linear_cross_entropy(**{"input": torch.ones(N, H), "linear_weight": packed, "target": torch.arange(N), **options})


def test_options_of_pytorch_have_no_effect_or_are_refused():
    x, w, _, y = tensors(torch.bfloat16)
    want = linear_cross_entropy(x, w, y)
    for fields in ({}, {"batch_chunk_size": 4, "acc_policy": "compact"}, {"acc_dtype": torch.float32}):
        assert torch.equal(linear_cross_entropy(x, w, y, options=SimpleNamespace(**fields)), want)
    with pytest.raises(ValueError, match="^options.acc_dtype = torch.bfloat16 is not supported for an input of torch.bf"):
        linear_cross_entropy(x, w, y, options=SimpleNamespace(acc_dtype=torch.bfloat16))
