# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Distillation from a teacher's log-probabilities at sets of ids."""

import functools

import logitless
import logitless.torch as fused
import pytest
import torch

B, T, H, V, K = 2, 5, 16, 61, 7


def problem(dtype=torch.float64):
    g = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    hidden, weight, bias = normal(B, T, H), normal(V, H) * 0.5, normal(V)
    teacher = torch.log_softmax(normal(B, T, V) * 1.5, -1)
    ids = torch.stack([torch.randperm(V, generator=g)[:K] for _ in range(B * T)]).view(B, T, K)
    targets = torch.randint(0, V, (B, T), generator=g)
    targets[0, 1] = -100
    return hidden, weight, bias, ids, teacher.gather(-1, ids), targets


def kl(x, y, whole):
    return x * (x.log() - y.log()) + (y - x if whole else 0)


def reference(logits, ids, teacher_logps, outside, divergence):
    s = torch.softmax(logits, -1).gather(-1, ids)
    t = teacher_logps.exp()
    if outside == "tail":
        s = torch.cat([s, 1 - s.sum(-1, keepdim=True)], -1)
        t = torch.cat([t, 1 - t.sum(-1, keepdim=True)], -1)
    if outside in ("renormalised", "teacher_renormalised"):
        t = t / t.sum(-1, keepdim=True)
    if outside == "renormalised":
        s = s / s.sum(-1, keepdim=True)
    whole = outside == "generalised"
    if divergence == "forward_kl":
        return kl(t, s, whole).sum(-1)
    if divergence == "reverse_kl":
        return kl(s, t, whole).sum(-1)
    m = (s + t) / 2
    return (kl(t, m, whole) / 2 + kl(s, m, whole) / 2).sum(-1)


@pytest.mark.parametrize("divergence", ["reverse_kl", "mixed_kl"])
def test_a_row_without_a_tail_stops_no_step(divergence):
    hidden, weight, bias, ids, logps, targets = problem()
    logps = logps.clone()
    logps[1, 3] = (torch.softmax(logps[1, 3], -1) * (1 + 2e-11)).log()
    call = functools.partial(fused.set_distillation_loss, loss_type=divergence, bias=bias)
    with pytest.raises(ValueError, match=r"row 8 are of probabilities that sum to 1\.00000000002.*Set tail_floor"):
        call(hidden, weight, ids, logps, targets)
    leaf = weight.clone().requires_grad_()
    got = call(hidden, leaf, ids, logps, targets, tail_floor=1e-3)
    got.backward()
    other = weight.clone().requires_grad_()
    s = torch.softmax(hidden @ other.T + bias, -1).gather(-1, ids)
    s = torch.cat([s, 1 - s.sum(-1, keepdim=True)], -1)
    t = torch.cat([logps.exp(), (1 - logps.exp().sum(-1, keepdim=True)).clamp_min(1e-3)], -1)
    want = kl(s, t, True).sum(-1)
    if divergence == "mixed_kl":
        want = (want + kl(t, s, True).sum(-1)) / 2
    want = want[targets != -100].mean()
    want.backward()
    torch.testing.assert_close(got, want.detach())
    torch.testing.assert_close(leaf.grad, other.grad)


def test_what_is_wrong_is_named():
    hidden, weight, _, ids, logps, targets = problem()
    call = fused.set_distillation_loss
    with pytest.raises(ValueError, match="must be a log-probability: at most 0"):
        call(hidden, weight, ids, logps.exp())
    with pytest.raises(ValueError, match="requires a gradient, and none flows to it"):
        call(hidden, weight, ids, logps.clone().requires_grad_())
    with pytest.raises(ValueError, match="expected teacher_logps of shape"):
        call(hidden, weight, ids, logps[..., :3])
    with pytest.raises(TypeError, match="^id_counts must be int64 or int32, not torch.float32$"):
        call(hidden, weight, ids, logps, id_counts=torch.full(ids.shape[:-1], 2.7))
    with pytest.raises(ValueError, match="expected targets of shape"):
        call(hidden, weight, ids, logps, targets[:, :2])
    with pytest.raises(ValueError, match="is not a sum over token ids"):
        call(hidden, weight, ids, logps, loss_type="acceptance")
    with pytest.raises(ValueError, match="twice"):
        call(hidden, weight, torch.zeros_like(ids), logps)
    with pytest.raises(ValueError, match="teacher_logps is missing"):
        logitless.set_distillation_loss(hidden.view(-1, H).numpy(), weight.numpy(), ids.view(-1, K).numpy())


def test_the_union_of_a_students_own_topk_and_its_teachers():
    hidden, weight, bias, _, _, _ = problem()
    g = torch.Generator().manual_seed(8)
    teacher, head = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((B, T, 6), (V, 6)))
    own, _ = fused.topk_logps(hidden, weight, K, bias=bias)
    ids, offsets = fused.topk_union(own, fused.topk_logps(teacher, head, K)[0])
    logps = fused.id_logps(teacher, head, ids, id_offsets=offsets)
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    got = fused.set_distillation_loss(
        hidden, weight, ids, logps, bias=bias, id_offsets=offsets, outside="tail", loss_type="reverse_kl"
    )
    logits, of_teacher = hidden @ weight.T + bias, (teacher @ head.T).log_softmax(-1)
    losses = []
    for i in range(B * T):
        row = logits.view(-1, V)[i]
        union = set(row.topk(K).indices.tolist()) | set(of_teacher.view(-1, V)[i].topk(K).indices.tolist())
        assert set(ids[offsets[i] : offsets[i + 1]].tolist()) == union
        at = torch.tensor(sorted(union))
        losses.append(reference(row, at, of_teacher.view(-1, V)[i][at], "tail", "reverse_kl"))
    want = torch.stack(losses).mean()
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    for a, b in zip(torch.autograd.grad(got, leaves), torch.autograd.grad(want, leaves)):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
