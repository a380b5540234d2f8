# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Packed heads, parts of a vocabulary and frozen heads in logitless.torch: plans, compilation and messages.
test_generated_torch.py draws values and gradients."""

import numpy as np
import pytest

from logitless.packed import PackedWeight

torch = pytest.importorskip("torch")

from logitless import _core  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.torch import linear_cross_entropy, set_options, token_logps  # noqa: E402

B, T, H, V = 4, 5, 32, 90
random = np.random.default_rng(7)
INTEGERS = random.integers(-127, 128, (V, H)).astype(np.int8)
SCALES = random.uniform(0.001, 0.005, (V, 2)).astype(np.float32)
PACKED = PackedWeight(INTEGERS, "int8", SCALES)
MATRIX = INTEGERS.astype(np.float32) * SCALES.repeat(H // 2, axis=1)
torch.manual_seed(0)
HIDDEN = torch.randn(B, T, H)
BIAS = torch.randn(V)
IDS = torch.arange(0, V, 3)
K = len(IDS)
TARGET = torch.arange(B * T).view(B, T) * 7 % K


def same(got, want):
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert (one is None and other is None) or torch.equal(one, other)


def test_an_entry_that_stands_twice():
    ids = torch.tensor([4, 7, 4, 80])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        weights = [torch.tensor(MATRIX).to(dtype).requires_grad_() for _ in range(2)]
        linear_cross_entropy(HIDDEN.to(dtype), weights[0], TARGET % 4, vocab_ids=ids).backward()
        linear_cross_entropy(HIDDEN.to(dtype), weights[1][ids], TARGET % 4).backward()
        assert torch.equal(weights[0].grad, weights[1].grad)


def test_which_plan_a_backward_half_has(monkeypatch):
    """With a frozen head, the forward half keeps expected rows, and the backward half computes no products."""
    ran = []
    function = _core.token_stats_backward
    monkeypatch.setattr(_core, "token_stats_backward", lambda *given: ran.append(function(*given)) or ran[-1])

    def kind_of(weight=torch.tensor(MATRIX), **given):
        result = token_logps(HIDDEN.clone().requires_grad_(), weight, TARGET, **given)
        (sum(part.sum() for part in result) if isinstance(result, tuple) else result.sum()).backward()
        return ran.pop().kind

    a, b = torch.randn(3, H, requires_grad=True), torch.randn(V, 3)
    matrix = torch.tensor(MATRIX)
    assert kind_of() == kind_of(LoraWeight(matrix, a, b)) == kind_of(PACKED) == "expected_row"
    assert kind_of(LoraWeight(matrix, a, b.requires_grad_())) == kind_of(matrix.requires_grad_()) == "two_pass"
    assert kind_of(entropy=True) == "two_pass"
    set_options(plan="two_pass")
    try:
        assert kind_of() == "two_pass"
    finally:
        set_options()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled():
    def plain(hidden, weight, vocab_ids):
        return linear_cross_entropy(hidden * 2, weight, TARGET, vocab_ids=vocab_ids) * 3

    compiled = torch.compile(plain)
    for weight, ids in ((PACKED, None), (PACKED, IDS), (torch.tensor(MATRIX), IDS)):
        results = []
        for function in (plain, compiled):
            hidden = HIDDEN.clone().requires_grad_()
            loss = function(hidden, weight, ids)
            loss.backward()
            results.append([loss.detach(), hidden.grad])
        same(*results)


def test_not_traced():
    from torch._subclasses.fake_tensor import FakeTensorMode

    message = "^linear_weight is a PackedWeight: such calls are not an operator, so fake tensors and tracers cannot run them$"
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, pytest.raises(ValueError, match=message):
        linear_cross_entropy(mode.from_tensor(HIDDEN), PACKED, mode.from_tensor(TARGET))


@pytest.mark.parametrize(
    "weight, options, error, message",
    [
        (BIAS, {}, RuntimeError, "expected linear_weight with dimensionality at least 2, got 1"),
        (PACKED, {"vocab_ids": IDS.int()}, TypeError, "^vocab_ids is torch.int32: it must be a tensor of torch.int64$"),
        (PACKED, {"target": HIDDEN[..., :8]}, ValueError, r"^linear_weight is a PackedWeight: class probabilities, "),
        (HIDDEN, {"vocab_ids": IDS}, ValueError, "^vocab_ids is given: linear_weight has 3 axes, and must have 2$"),
    ],
)
def test_says_what_is_wrong(weight, options, error, message):
    with pytest.raises(error, match=message) as raised:
        linear_cross_entropy(HIDDEN, weight, **{"target": TARGET, **options})
    assert "\n" not in str(raised.value)
