# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads with a LoRA in logitless.torch: sampled gradients, compilation and messages. test_generated_torch.py
draws values and gradients."""

import pytest

torch = pytest.importorskip("torch")

import logitless  # noqa: E402
import logitless.torch as lt  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402

N, H, V, R = 12, 8, 90, 3
torch.manual_seed(7)
HIDDEN, WEIGHT = torch.randn(N, H), torch.randn(V, H)
A, B, SCALE = torch.randn(R, H), torch.randn(V, R), 1.5
TARGETS = torch.arange(N) * 7 % V


def leaves(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


# With the same seed, a LoRA head and its merged weight sample the same parts of the vocabulary.
@pytest.mark.parametrize("backward", [dict(backward="sampled", theta=0.3, seed=4), dict(backward="certified", tolerance=0.6)])
def test_gradients_of_a_sample(backward):
    vocab, rows = 3000, 40
    weight, b = torch.randn(vocab, H, dtype=torch.float64), torch.randn(vocab, R, dtype=torch.float64)
    hidden, a = torch.randn(rows, H, dtype=torch.float64), torch.randn(R, H, dtype=torch.float64)
    targets = torch.arange(rows) * 37 % vocab
    got, want = leaves(hidden, weight, a, b), leaves(hidden, weight, a, b)
    lt.linear_cross_entropy(got[0], LoraWeight(*got[1:], SCALE), targets, **backward).backward()
    lt.linear_cross_entropy(want[0], want[1] + SCALE * want[3] @ want[2], targets, **backward).backward()
    exact = leaves(hidden)[0]
    lt.linear_cross_entropy(exact, weight + SCALE * b @ a, targets).backward()
    assert not torch.allclose(got[0].grad, exact.grad, rtol=1e-3)
    for x, y in zip(got, want):
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-7, atol=1e-10)
    with pytest.raises(ValueError, match="the noise of its gradients is not estimated: give theta"):
        lt.linear_cross_entropy(got[0], LoraWeight(*got[1:], SCALE), targets, backward="sampled").backward()


def test_under_compile_and_checkpoint():
    compiled = torch.compile(lambda x, a, b: lt.linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), TARGETS))
    results = []
    for run in (
        lambda x, a, b: lt.linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), TARGETS),
        compiled,
        lambda *t: torch.utils.checkpoint.checkpoint(
            lambda x, a, b: lt.linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), TARGETS), *t, use_reentrant=False
        ),
    ):
        tensors = leaves(HIDDEN, A, B)
        loss = run(*tensors)
        loss.backward()
        results.append([loss.detach(), *(t.grad for t in tensors)])
    for other in results[1:]:
        for got, want in zip(other, results[0]):
            assert torch.equal(got, want)


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"b has shape \(90, 2\): it must be \(90, 3\)"):
        LoraWeight(WEIGHT, A, B[:, :2])
    with pytest.raises(ValueError, match="a has 7 columns but weight has 8"):
        LoraWeight(WEIGHT, A[:, :7], B)
    with pytest.raises(ValueError, match=r"weight has shape \(1, 90, 8\): it must be a tensor of 2 axes"):
        LoraWeight(WEIGHT[None], A, B)
    with pytest.raises(ValueError, match="weight is 'x': it must be a tensor of 2 axes"):
        LoraWeight("x", A, B)
    with pytest.raises(ValueError, match="a has 8 columns but hidden has 6"):
        lt.linear_cross_entropy(HIDDEN[:, :6], LoraWeight(WEIGHT, A, B), TARGETS)
    with pytest.raises(ValueError, match="a is on meta: logitless computes on the CPU"):
        lt.linear_cross_entropy(HIDDEN, LoraWeight(WEIGHT, A.to("meta"), B), TARGETS)
    with pytest.raises(ValueError, match="a is on meta: logitless computes on the CPU"):
        lt.distillation_loss(HIDDEN, WEIGHT, HIDDEN, LoraWeight(WEIGHT, A.to("meta"), B))
    with pytest.raises(ValueError, match="lora_scale is given, and weight is a LoraWeight, which has its own"):
        logitless.cross_entropy(HIDDEN, LoraWeight(WEIGHT, A, B), TARGETS, lora_scale=5.0)
    for scale in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^scale = {scale} must be a finite number$"):
            LoraWeight(WEIGHT, A, B, scale)
    assert LoraWeight(WEIGHT, A, B) != LoraWeight(WEIGHT, A, B)
    with pytest.raises(ValueError, match="sampled cannot run: the head has a LoRA"):
        lt.linear_cross_entropy(HIDDEN.clone().requires_grad_(), LoraWeight(WEIGHT, A, B), TARGETS, backward="sampled")
