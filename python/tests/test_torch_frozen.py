# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads that require no gradient: the forward half leaves what makes the gradient of hidden states, and the backward
half multiplies nothing."""

import pytest
import torch

from logitless import _core
from logitless.lora import LoraWeight
from logitless.torch import id_logps, linear_cross_entropy, policy_loss, set_options, token_logps

N, H, V = 33, 12, 301


def tensors(dtype=torch.float64, head_requires_grad=False):
    torch.manual_seed(3)
    hidden = torch.randn(N, H, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, H, dtype=dtype, requires_grad=head_requires_grad)
    return hidden, weight, torch.randint(V, (N,))


def plans(monkeypatch):
    """The plans of backward halves, as they run."""
    ran = []
    function = _core.token_stats_backward

    def watched(*arguments):
        plan = function(*arguments)
        ran.append(plan.kind)
        return plan

    monkeypatch.setattr(_core, "token_stats_backward", watched)
    return ran


def dense(hidden, weight, targets):
    return torch.log_softmax(hidden @ weight.T, -1).gather(1, targets[:, None])[:, 0]


@pytest.mark.parametrize("softcap", [0.0, 4.0])
def test_a_loss_of_token_logps(monkeypatch, softcap):
    hidden, weight, targets = tensors()
    ran = plans(monkeypatch)
    logps = token_logps(hidden, weight, targets, softcap=softcap)
    (logps * torch.linspace(-1, 2, N)).sum().backward()
    ours, hidden.grad = hidden.grad, None
    logits = hidden @ weight.T
    logits = softcap * torch.tanh(logits / softcap) if softcap else logits
    wanted = torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0]
    (wanted * torch.linspace(-1, 2, N)).sum().backward()
    torch.testing.assert_close(ours, hidden.grad)
    assert ran == ["expected_row"]


@pytest.mark.parametrize("trains_b", [False, True])
def test_a_head_with_a_lora(monkeypatch, trains_b):
    hidden, weight, targets = tensors()
    a, b = torch.randn(3, H, dtype=hidden.dtype, requires_grad=True), torch.randn(V, 3, dtype=hidden.dtype)
    b.requires_grad_(trains_b)
    ran = plans(monkeypatch)
    wanted = (hidden, a, b) if trains_b else (hidden, a)
    ours = torch.autograd.grad(token_logps(hidden, LoraWeight(weight, a, b, 1.5), targets).sum(), wanted)
    theirs = torch.autograd.grad(dense(hidden, weight + 1.5 * b @ a, targets).sum(), wanted)
    torch.testing.assert_close(ours, theirs)
    assert ran == ["two_pass" if trains_b else "expected_row"]


def test_who_leaves_expected_rows(monkeypatch):
    ran = plans(monkeypatch)

    def kind_of(head_requires_grad=False, **given):
        hidden, weight, targets = tensors(head_requires_grad=head_requires_grad)
        result = token_logps(hidden, weight, targets, **given)
        (sum(part.sum() for part in result) if isinstance(result, tuple) else result.sum()).backward()
        return ran.pop()

    assert kind_of() == "expected_row"
    assert kind_of(head_requires_grad=True) == "two_pass"
    assert kind_of(entropy=True) == "two_pass"
    set_options(plan="two_pass")
    try:
        assert kind_of() == "two_pass"
    finally:
        set_options()


def test_no_gradient_leaves_none():
    hidden, weight, targets = tensors(torch.float32)
    with torch.no_grad():
        logps = token_logps(hidden, weight, targets)
    torch.testing.assert_close(logps.float(), dense(hidden, weight, targets).detach(), rtol=1e-4, atol=1e-4)


def test_a_loss_a_token():
    hidden, weight, targets = tensors()
    upstream = torch.linspace(0, 1, N, dtype=torch.float64)
    (linear_cross_entropy(hidden, weight, targets, reduction="none", z_loss=0.01) * upstream).sum().backward()
    ours, hidden.grad = hidden.grad, None
    lse = torch.logsumexp(hidden @ weight.T, -1)
    ((-dense(hidden, weight, targets) + 0.01 * lse**2) * upstream).sum().backward()
    torch.testing.assert_close(ours, hidden.grad)


def test_a_loss_a_token_compiled():
    hidden, weight, targets = tensors()
    loss = torch.compile(lambda h: linear_cross_entropy(h, weight, targets, reduction="none"))
    loss(hidden).sum().backward()
    ours, hidden.grad = hidden.grad, None
    (-dense(hidden, weight, targets)).sum().backward()
    torch.testing.assert_close(ours, hidden.grad)


def test_sets_of_ids():
    hidden, weight, _ = tensors()
    ids = torch.randint(V, (N, 5))
    id_logps(hidden, weight, ids).sum().backward()
    ours, hidden.grad = hidden.grad, None
    torch.log_softmax(hidden @ weight.T, -1).gather(1, ids).sum().backward()
    torch.testing.assert_close(ours, hidden.grad)


def test_losses_in_one_call():
    hidden, weight, targets = tensors()
    linear_cross_entropy(hidden, weight, targets, label_smoothing=0.1).backward()
    ours, hidden.grad = hidden.grad, None
    torch.nn.functional.cross_entropy(hidden @ weight.T, targets, label_smoothing=0.1).backward()
    torch.testing.assert_close(ours, hidden.grad)
    hidden.grad = None
    policy_loss(hidden, weight, targets, torch.tensor([0.5]), loss_type="reinforce").backward()
    ours, hidden.grad = hidden.grad, None
    (-0.5 * dense(hidden, weight, targets)).sum().backward()
    torch.testing.assert_close(ours, hidden.grad)
