# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Sets of token ids and soft targets, in NumPy and under PyTorch's autograd, against PyTorch on materialised logits."""

import logitless
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from logitless.torch import (
    distillation_loss,
    id_logps,
    linear_cross_entropy,
    set_distillation_loss,
    soft_cross_entropy,
)

N, H, V, K = 11, 7, 53, 5


def tensors(dtype=torch.float64):
    torch.manual_seed(3)
    hidden = torch.randn(N, H, dtype=torch.float64)
    weight = torch.randn(V, H, dtype=torch.float64)
    bias = torch.randn(V, dtype=torch.float64)
    return [t.to(dtype).requires_grad_() for t in (hidden, weight, bias)]


def draw_ids():
    torch.manual_seed(4)
    ids = torch.randint(0, V, (N, K))
    ids[3] = ids[3, 0]  # one id over and over
    ids[4, 1] = ids[4, 0]
    return ids


def expect_same(ours, theirs, inputs, tolerance=1e-11):
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=tolerance, atol=tolerance)
    upstream = torch.linspace(-1, 2, ours.numel(), dtype=ours.dtype).view_as(ours)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream.to(theirs.dtype))
    ):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_a_replayed_sampling_mask_gives_the_samplers_ratio():
    hidden, weight, _ = tensors()
    kept = (hidden @ weight.T).topk(K, -1).indices
    sampler = torch.log_softmax((hidden @ weight.T).gather(1, kept), -1)
    chosen = kept[:, 2]
    sets = torch.cat([chosen[:, None], kept], -1)
    logps = id_logps(hidden, weight, sets, normalise_over="set")[:, 0]
    torch.testing.assert_close(torch.exp(logps - sampler[:, 2]), torch.ones(N, dtype=torch.float64))
    unmasked = id_logps(hidden, weight, chosen[:, None])[:, 0]
    assert (torch.exp(unmasked - sampler[:, 2]) < 1).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_class_probabilities_are_those_of_pytorch(reduction, smoothing, weighted, recwarn):
    hidden, weight, bias = inputs = tensors()
    target = torch.rand(N, V, dtype=torch.float64)
    target[2] = 0
    classes = torch.rand(V, dtype=torch.float64) if weighted else None
    theirs = F.cross_entropy(
        F.linear(hidden, weight, bias), target, weight=classes, reduction=reduction, label_smoothing=smoothing
    )
    ours = linear_cross_entropy(
        hidden,
        weight,
        target,
        linear_bias=bias,
        weight=classes,
        reduction=reduction,
        label_smoothing=smoothing,
    )
    expect_same(ours, theirs, inputs)
    assert not recwarn.list, "PyTorch's own path ran"


def test_class_probabilities_of_one_row_and_of_a_batch():
    hidden, weight, _ = tensors(torch.float32)
    target = torch.rand(10, V)
    one = linear_cross_entropy(hidden[0], weight, target[0])
    torch.testing.assert_close(one, F.cross_entropy(hidden[0] @ weight.T, target[0]))
    batch = linear_cross_entropy(hidden[:10].view(2, 5, H), weight, target.view(2, 5, V), reduction="none")
    assert batch.shape == (2, 5)
    torch.testing.assert_close(
        batch.flatten(), F.cross_entropy(hidden[:10] @ weight.T, target, reduction="none")
    )


def test_class_probabilities_with_a_gradient_are_pytorchs():
    hidden, weight, _ = tensors(torch.float32)
    target = torch.rand(N, V).requires_grad_()
    with pytest.warns(UserWarning, match="PyTorch's own path"):
        linear_cross_entropy(hidden, weight, target)


def test_what_is_refused():
    hidden, weight, _ = tensors(torch.float32)
    ids = draw_ids()
    with pytest.raises(ValueError, match=r"row 2, entry 1, = 53 is outside \[0, 53\)"):
        bad = ids.clone()
        bad[2, 1] = V
        id_logps(hidden, weight, bad)
    with pytest.raises(ValueError, match="no logarithm"):
        soft_cross_entropy(hidden, weight, ids=ids, weights=torch.log(torch.full((N, K), 0.5)))
    with pytest.raises(ValueError, match="probabilities, or ids and weights"):
        soft_cross_entropy(hidden, weight)
    shares, counts = torch.full((N, K), 1 / K), torch.ones(N, dtype=torch.int64)
    for beside in ({"ids": ids}, {"weights": shares}, {"id_counts": counts}, {"id_offsets": counts}):
        with pytest.raises(ValueError, match="give probabilities, or ids and weights"):
            soft_cross_entropy(hidden, weight, torch.rand(N, V), **beside)
    for call in (
        lambda **more: soft_cross_entropy(hidden, weight, torch.rand(N, V), **more),
        lambda **more: set_distillation_loss(hidden, weight, ids, -torch.ones(N, K), **more),
        lambda **more: distillation_loss(hidden, weight, hidden, weight, **more),
    ):
        with pytest.raises(ValueError, match="^None is not a valid value for reduction$"):
            call(reduction=None)
    with pytest.raises(ValueError, match="requires a gradient"):
        soft_cross_entropy(hidden, weight, torch.rand(N, V).requires_grad_())
    with pytest.raises(ValueError, match="as hidden has"):
        id_logps(hidden, weight, ids[:4])
    with pytest.raises(TypeError, match="ignore_index"):
        id_logps(hidden, weight, ids, ignore_index=3)
    with pytest.raises(ValueError, match="z_loss"):
        linear_cross_entropy(hidden, weight, torch.rand(N, V), z_loss=0.1)


def test_a_policy_over_the_ids_that_its_sampler_kept():
    """Ratios on-policy are 1, and [N, K] with counts says what offsets say."""
    random = np.random.default_rng(4)
    hidden, weight = random.standard_normal((9, 7)), random.standard_normal((41, 7))
    ids = np.stack([random.permutation(41)[:5] for _ in range(9)])
    counts = np.arange(9) % 4 + 2
    chosen, advantages = ids[:, 1].copy(), random.standard_normal(9)
    arguments = {"kept_ids": ids, "kept_counts": counts}
    logps = logitless.id_logps(hidden, weight, ids, id_counts=counts, normalise_over="set").logps
    logps = logps.reshape(9, 5)[:, 1].copy()
    on_policy = logitless.policy_loss(hidden, weight, chosen, advantages=advantages, old_logps=logps, **arguments)
    np.testing.assert_array_equal(on_policy.per_token_logps, logps)
    assert on_policy.metrics["mean_ratio"] == 1
    d_hidden = np.empty_like(hidden)
    old = logps + 0.1
    padded = logitless.policy_loss(
        hidden, weight, chosen, advantages=advantages, old_logps=old, d_hidden=d_hidden, **arguments
    )
    flat = np.concatenate([row[:count] for row, count in zip(ids, counts)])
    offsets = np.concatenate([[0], counts.cumsum()])
    other = np.empty_like(hidden)
    by_offsets = logitless.policy_loss(
        hidden, weight, chosen, advantages=advantages, old_logps=old, d_hidden=other, kept_ids=flat, kept_offsets=offsets
    )
    assert by_offsets.loss == padded.loss
    np.testing.assert_array_equal(other, d_hidden)
    with pytest.raises(ValueError, match="kept_ids of row 0 does not have chosen_ids"):
        logitless.policy_loss(hidden, weight, ids[:, 4].copy(), advantages=advantages, **arguments)
