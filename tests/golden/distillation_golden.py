# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Distillation losses: TRL's and Liger-Kernel's functions on small seeded logits, and the written-out
formulas.

  trl      GKDTrainer.generalized_jsd_loss: jsd with its two special cases, which are the two KL
  liger    LigerFusedLinearJSDFunction.distillation_loss_fn, and its whole function if there is a hard loss
  autograd docs/losses.md written out, for cases that the others lack

They must agree. The expected values are TRL's if TRL has the case.
"""

import torch
from common import IGNORE_INDEX, Options, expect_equal, gradient, numbers
from liger_kernel.chunked_loss.jsd_loss import LigerFusedLinearJSDFunction
from trl.experimental.gkd.gkd_trainer import GKDTrainer

VOCAB = 11
BATCH, LENGTH = 4, 7
# One sequence has no tokens.
IGNORED = [(0, 5), (0, 6), (1, 0), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5), (3, 6)]

DEFAULTS = Options(
    loss_type="forward_kl",
    temperature=1.0,
    teacher_temperature=None,
    beta=0.5,
    skew=0.1,
    forward_weight=0.5,
    acceptance_decay=3.0,
    divergence_weight=1.0,
    temperature_squared=False,
    hard_weight=0.0,
    hard_temperature=1.0,
    reduction="mean",
    mean_over="tokens",
    num_items_in_batch=None,
    loss_scale=1.0,
)


def make_batch():
    g = torch.Generator().manual_seed(20260301)

    def logits(scale):
        draw = torch.randn(BATCH, LENGTH, VOCAB, generator=g, dtype=torch.float64)
        return (draw * scale * 64).round() / 64  # multiples of 1/64: the same in float32

    student = logits(1.5)
    teacher = (student * 0.75 * 64).round() / 64 + logits(1.0)
    labels = torch.randint(0, VOCAB, (BATCH, LENGTH), generator=g)
    for s, position in IGNORED:
        labels[s, position] = IGNORE_INDEX
    return Options(student=student, teacher=teacher, labels=labels)


def batch_to_json(batch):
    """Write null (NaN) in ignored rows, whose logits must not be read."""
    mask = (batch.labels != IGNORE_INDEX)[..., None]
    nan = float("nan")
    return {"logits": numbers(torch.where(mask, batch.student, nan), 17),
            "teacher_logits": numbers(torch.where(mask, batch.teacher, nan), 17),
            "targets": numbers(batch.labels)}  # fmt: skip


def mixture(log_a, log_b, weight):
    """Return log(weight · a + (1 - weight) · b); for weight 1 or 0, exactly log a or log b."""
    if weight == 1:
        return log_a
    if weight == 0:
        return log_b
    first, second = torch.tensor(weight), torch.tensor(1 - weight)
    return torch.logaddexp(log_a + first.log(), log_b + second.log())


def kl(log_a, log_b):
    return (log_a.exp() * (log_a - log_b)).sum(-1)


def divergence(o, log_s, log_t):
    """Return the divergences, [B, T], by docs/losses.md."""
    overlap = torch.minimum(log_s, log_t).exp().sum(-1)
    variation = 0.5 * (log_s.exp() - log_t.exp()).abs().sum(-1)
    match o.loss_type:
        case "forward_kl":
            return kl(log_t, log_s)
        case "reverse_kl":
            return kl(log_s, log_t)
        case "jsd":
            if o.beta == 0:
                return kl(log_t, log_s)
            if o.beta == 1:
                return kl(log_s, log_t)
            m = mixture(log_t, log_s, o.beta)
            return o.beta * kl(log_t, m) + (1 - o.beta) * kl(log_s, m)
        case "skew_kl":
            return kl(log_t, mixture(log_t, log_s, o.skew))
        case "skew_reverse_kl":
            return kl(log_s, mixture(log_s, log_t, o.skew))
        case "total_variation":
            return variation
        case "mixed_kl":
            return o.forward_weight * kl(log_t, log_s) + (1 - o.forward_weight) * kl(log_s, log_t)
        case "acceptance":
            return -overlap.log()
        case "lk_hybrid":
            share = torch.exp(-o.acceptance_decay * overlap.detach())
            return share * kl(log_t, log_s) + (1 - share) * variation
    raise ValueError(o.loss_type)


def mean(o, per_token, mask):
    per_token = torch.where(mask, per_token, 0.0)
    if o.reduction == "sum":
        return o.loss_scale * per_token.sum()
    if o.num_items_in_batch is not None:
        return o.loss_scale * per_token.sum() / o.num_items_in_batch
    if o.mean_over == "sequences":
        return o.loss_scale * per_token.sum() / len(per_token)
    if o.mean_over == "sequence_means":
        counts = mask.sum(1).clamp_min(1)
        return o.loss_scale * (per_token.sum(1) / counts).mean()
    return o.loss_scale * per_token.sum() / mask.sum()


def by_formula(o, batch, logits):
    """Return (loss, losses per token, divergences, overlaps)."""
    mask = batch.labels != IGNORE_INDEX
    log_s = torch.log_softmax(logits / o.temperature, -1)
    log_t = torch.log_softmax(batch.teacher / (o.teacher_temperature or o.temperature), -1)
    apart = divergence(o, log_s, log_t)
    per_token = o.divergence_weight * apart * (o.temperature**2 if o.temperature_squared else 1)
    if o.hard_weight:
        hard = torch.log_softmax(logits / o.hard_temperature, -1)
        ids = torch.where(mask, batch.labels, 0)[..., None]
        per_token = per_token - o.hard_weight * hard.gather(-1, ids)[..., 0]
    overlap = torch.minimum(log_s, log_t).exp().sum(-1)
    zero = torch.zeros(())
    return (mean(o, per_token, mask), o.loss_scale * torch.where(mask, per_token, zero),
            torch.where(mask, apart, zero), torch.where(mask, overlap, zero))  # fmt: skip


def jsd_beta(o):
    """Return the beta that selects a divergence in TRL and Liger, or None."""
    return {"forward_kl": 0, "reverse_kl": 1, "jsd": o.beta}.get(o.loss_type)


def by_trl(o, batch, logits):
    beta = jsd_beta(o)
    plain = o.teacher_temperature is None and not o.temperature_squared and not o.hard_weight
    if beta is None or not plain or o.mean_over != "tokens":
        return None
    scale = o.loss_scale * o.divergence_weight
    if o.reduction == "sum":
        return scale * GKDTrainer.generalized_jsd_loss(logits, batch.teacher, batch.labels, beta, o.temperature, "sum")
    count = None if o.num_items_in_batch is None else torch.tensor(o.num_items_in_batch)
    return scale * GKDTrainer.generalized_jsd_loss(logits, batch.teacher, batch.labels, beta, o.temperature,
                                                   num_items_in_batch=count)  # fmt: skip


def by_liger(o, batch, logits):
    """Call Liger's whole function. Identity heads turn its hidden states into logits. Its hard loss has no
    temperature."""
    beta = jsd_beta(o)
    plain = o.teacher_temperature is None and not o.temperature_squared and o.reduction == "mean"
    plain = plain and o.mean_over == "tokens" and o.num_items_in_batch is None
    if beta is None or not plain or o.hard_temperature != 1:
        return None
    if o.temperature != 1 and o.hard_weight:
        return None  # versions differ in whether the temperature divides the hard loss's logits
    flat = logits.view(-1, VOCAB)
    eye = torch.eye(VOCAB)
    # The arguments: student and teacher, heads, labels, biases, weights of the two losses, beta, ignored id,
    # temperature, compiled.
    loss = LigerFusedLinearJSDFunction.apply(
        flat, eye, batch.teacher.view(-1, VOCAB), eye, batch.labels.view(-1), None, None,
        o.hard_weight, o.divergence_weight, beta, IGNORE_INDEX, o.temperature, False,
    )  # fmt: skip
    if isinstance(loss, tuple):
        loss = loss[0]
    return o.loss_scale * loss


def make_case(batch, name, **options):
    o = Options(DEFAULTS, **options)
    logits = batch.student.clone().requires_grad_()
    loss, per_token, apart, overlap = by_formula(o, batch, logits)
    (d_logits,) = torch.autograd.grad(loss, logits)
    source, checked = "autograd", []
    for other, theirs in (("liger", by_liger(o, batch, logits)), ("trl", by_trl(o, batch, logits))):
        if theirs is None:
            continue
        # Liger computes its hard loss from float32 logits.
        tolerance = 1e-6 if other == "liger" and o.hard_weight else 1e-9
        expect_equal(f"{name}: loss by {other}", theirs, loss, tolerance)
        (d_theirs,) = torch.autograd.grad(theirs, logits)
        expect_equal(f"{name}: d_logits by {other}", d_theirs, d_logits, tolerance)
        checked.append(other)
        if other == "trl":
            loss, d_logits, source = theirs, d_theirs, "trl"
    expected = {"loss": numbers(loss, 12), "per_token_loss": numbers(per_token), "divergences": numbers(apart),
                "overlaps": numbers(overlap), "d_logits": gradient(d_logits)}  # fmt: skip
    return {"name": name, "source": source, "checked": checked, "options": options, "expected": expected}


def name_of(value):
    """Format a number for a name."""
    return f"{value:g}".replace(".", "_").replace("-", "_")


def make_cases(batch):
    cases = []

    def case(name, **options):
        cases.append(make_case(batch, name, **options))

    kinds = ("forward_kl", "reverse_kl", "jsd", "skew_kl", "skew_reverse_kl", "total_variation", "mixed_kl",
             "acceptance", "lk_hybrid")  # fmt: skip
    for kind in kinds:
        case(kind, loss_type=kind)
        case(f"{kind}_temperatures", loss_type=kind, temperature=2.0, teacher_temperature=0.75)
        case(f"{kind}_hard", loss_type=kind, divergence_weight=0.5, hard_weight=0.5, temperature_squared=True,
             temperature=1.5, hard_temperature=0.8)  # fmt: skip
    for kind in ("forward_kl", "reverse_kl", "jsd"):
        case(f"{kind}_temperature", loss_type=kind, temperature=0.9)
        case(f"{kind}_with_half_hard", loss_type=kind, divergence_weight=0.5, hard_weight=0.5)
    for beta in (0.0, 1e-6, 0.1, 0.9, 1 - 1e-6, 1.0):
        case(f"jsd_beta_{name_of(beta)}", loss_type="jsd", beta=beta)
    for skew in (0.0, 0.5, 0.999):
        case(f"skew_kl_{name_of(skew)}", loss_type="skew_kl", skew=skew)
        case(f"skew_reverse_kl_{name_of(skew)}", loss_type="skew_reverse_kl", skew=skew)
    for weight in (0.0, 0.25, 1.0):
        case(f"mixed_kl_{name_of(weight)}", loss_type="mixed_kl", forward_weight=weight)
    for decay in (0.0, 1.0):
        case(f"lk_hybrid_{name_of(decay)}", loss_type="lk_hybrid", acceptance_decay=decay)
    case("jsd_sum", loss_type="jsd", reduction="sum")
    case("jsd_sequences", loss_type="jsd", mean_over="sequences")
    case("jsd_sequence_means", loss_type="jsd", mean_over="sequence_means")
    case("jsd_num_items_in_batch", loss_type="jsd", num_items_in_batch=40.0)
    case("reverse_kl_loss_scale", loss_type="reverse_kl", loss_scale=0.25)
    return cases
