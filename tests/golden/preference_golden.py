# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Preference losses: TRL's own functions on small seeded pairs, and Liger-Kernel's.

  trl      DPOTrainer._compute_loss and KTOTrainer._compute_loss, called on a stand-in for the trainer; CPOTrainer.cpo_loss;
           ORPOTrainer.odds_ratio_loss (float32 inside: a check only)
  liger    preference_loss_fn of the fused DPO, CPO, SimPO, ORPO and KTO losses

A pair with an empty side is ignored (docs/losses-preference.md): TRL and Liger are called without such pairs.
"""

import torch
from common import IGNORE_INDEX, Options, expect_equal, gradient, numbers, token_statistics
from liger_kernel.chunked_loss.cpo_loss import LigerFusedLinearCPOFunction
from liger_kernel.chunked_loss.dpo_loss import LigerFusedLinearDPOFunction
from liger_kernel.chunked_loss.kto_loss import LigerFusedLinearKTOFunction
from liger_kernel.chunked_loss.orpo_loss import LigerFusedLinearORPOFunction
from liger_kernel.chunked_loss.simpo_loss import LigerFusedLinearSimPOFunction
from preference_projects_golden import fused, inputs_of, trainer
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_trainer import KTOTrainer

VOCAB = 11
# First position of the completion, and the one after its last. Two pairs have an empty side.
CHOSEN = [(1, 6), (0, 3), (2, 7), (1, 4), (0, 6), (3, 3), (2, 6), (0, 4)]
REJECTED = [(1, 5), (0, 5), (2, 2), (1, 7), (0, 2), (3, 6), (2, 5), (0, 7)]
# The means of a and b of docs/losses-preference.md. Their differences have both signs, and some are above 1
# (the hinge's corner).
CHOSEN_DRIFT = [2.5, 1.75, 0.0, 1.0, -3.0, 0.0, 0.25, 1.5]
REJECTED_DRIFT = [-1.0, 1.5, 0.0, 0.75, -0.5, 0.0, -0.5, 2.5]

DEFAULTS = Options(
    beta=0.1,
    label_smoothing=0.0,
    average_log_prob=False,
    discopop_tau=0.05,
    simpo_gamma=0.5,
    nll_weight=None,
    temperature=1.0,
    loss_scale=1.0,
    want_entropy=True,
)
KTO_DEFAULTS = Options(
    beta=0.1,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    average_log_prob=False,
    temperature=1.0,
    loss_scale=1.0,
    want_entropy=True,
)
WITHOUT_REFERENCE = ("sft", "orpo", "simpo", "cpo")
OF_LIGER_DPO = ("sigmoid", "hinge", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero", "apo_down",
                "discopop")  # fmt: skip


def make_batch():
    g = torch.Generator().manual_seed(20260202)
    spans = torch.tensor(CHOSEN + REJECTED)
    b, t = len(spans), int(spans.max())

    def normal(*shape):
        return torch.randn(*shape, generator=g)

    def decimals(x):
        return (x * 1e6).round() / 1e6

    at = torch.arange(t)[None]
    mask = (at >= spans[:, :1]) & (at < spans[:, 1:])
    mask[4, 2] = False  # a tool's answer within the completion
    logits = normal(b, t, VOCAB) * 1.5
    ids = torch.randint(0, VOCAB, (b, t), generator=g)
    # The model is certain of some pairs, so that 1 - exp(mean logp) of orpo matters.
    sure = (torch.arange(b) % 8 % 3 == 0)[:, None, None]
    logits += sure * 5 * torch.nn.functional.one_hot(ids, VOCAB)
    logits = (logits * 64).round() / 64  # multiples of 1/64: the same in float32
    logps, _ = token_statistics(logits, ids, mask)
    drift = torch.tensor(CHOSEN_DRIFT + REJECTED_DRIFT)[:, None] / mask.sum(1, keepdim=True).clamp(min=1)
    ref = decimals(logps - drift - 0.2 * normal(b, t))
    kl_ref = decimals(-10 + 2 * normal(5))
    return Options(logits=logits, ids=ids, mask=mask, ref=torch.where(mask, ref, 0.0), kl_ref=kl_ref,
                   kl=decimals(kl_ref + 0.6 + 0.5 * normal(5)))  # fmt: skip


def batch_to_json(batch):
    """Write null (NaN) where nothing must be read."""
    nan = float("nan")
    return {"logits": numbers(torch.where(batch.mask[..., None], batch.logits, nan), 17),
            "targets": numbers(torch.where(batch.mask, batch.ids, IGNORE_INDEX)),
            "ref_logps": numbers(torch.where(batch.mask, batch.ref, nan), 17),
            "ref_sequence_logps": numbers(torch.where(batch.mask.any(1), batch.ref.sum(1), nan), 17),
            "kl_logps": numbers(batch.kl, 17), "kl_ref_logps": numbers(batch.kl_ref, 17)}  # fmt: skip


def last(of, name):
    return of._metrics["train"][name][-1]


def take_average(logps, mask):
    """Scale tokens so that their sum is the sequence's mean."""
    return logps / mask.sum(1, keepdim=True).clamp(min=1)


def direct_preference(o, c, terms, logps):
    """Return DPOTrainer's loss for these terms, and its metrics."""
    names = [t["loss"] for t in terms]
    assert not (o.average_log_prob and {"ipo", "sft"} & set(names))
    dpo = trainer(DPOTrainer, loss_types=names, loss_weights=[t.get("weight", 1.0) for t in terms], beta=o.beta,
                  label_smoothing=o.label_smoothing, ld_alpha=None, f_divergence_type="reverse_kl", use_weighting=False,
                  precompute_ref_logps=True, args=Options(discopop_tau=o.discopop_tau))  # fmt: skip
    scaled = take_average if o.average_log_prob else lambda x, _: x
    ref_chosen, ref_rejected = scaled(c.ref, c.mask).sum(1).chunk(2)
    chosen, rejected = scaled(logps, c.mask).sum(1).chunk(2)
    inputs = dict(inputs_of(c.mask), ref_chosen_logps=ref_chosen, ref_rejected_logps=ref_rejected)
    loss = dpo._compute_loss(fused(scaled(logps, c.mask), c.mask, entropies=c.entropies), inputs, False)
    metrics = {"chosen_reward": "rewards/chosen", "rejected_reward": "rewards/rejected", "margin": "rewards/margins",
               "accuracy": "rewards/accuracies", "chosen_logp": "logps/chosen", "rejected_logp": "logps/rejected",
               "mean_entropy": "entropy"}  # fmt: skip
    metrics = {ours: last(dpo, theirs) for ours, theirs in metrics.items()}
    pairs = len(ref_chosen)
    metrics["accuracy"] = round(metrics["accuracy"] * pairs) / pairs  # TRL's is float32
    return loss, metrics


def without_reference(o, c, name, logps):
    """Return the loss of CPO, SimPO or ORPO."""
    averages = name != "cpo" or o.average_log_prob
    chosen, rejected = (take_average(logps, c.mask) if averages else logps).sum(1).chunk(2)
    of = trainer(ORPOTrainer if name == "orpo" else CPOTrainer, beta=o.beta, label_smoothing=o.label_smoothing,
                 simpo_gamma=o.simpo_gamma, alpha=0.0, loss_type="simpo" if name == "simpo" else "sigmoid")  # fmt: skip
    if name == "orpo":
        loss, *rewards = LigerFusedLinearORPOFunction.preference_loss_fn(chosen, rejected, c.mask, o.beta)[:3]
        by_trl = -of.odds_ratio_loss(chosen, rejected)[0].mean()
        expect_equal("orpo by TRL", by_trl, loss, 1e-6)
    else:
        losses, *rewards = of.cpo_loss(chosen, rejected)
        loss = losses.mean()
        if name == "cpo":
            by_liger = LigerFusedLinearCPOFunction.preference_loss_fn(chosen, rejected, c.mask, o.beta,
                                                                      o.label_smoothing)  # fmt: skip
        else:
            by_liger = LigerFusedLinearSimPOFunction.preference_loss_fn(chosen, rejected, c.mask, o.beta, o.simpo_gamma,
                                                                        o.label_smoothing)  # fmt: skip
        expect_equal(f"{name} by Liger", by_liger[0], loss)
    return loss, reward_metrics(*rewards, chosen, rejected)


def reward_metrics(chosen_rewards, rejected_rewards, chosen, rejected):
    values = {"chosen_reward": chosen_rewards, "rejected_reward": rejected_rewards,
              "margin": chosen_rewards - rejected_rewards,
              "accuracy": (chosen_rewards > rejected_rewards).to(chosen.dtype), "chosen_logp": chosen,
              "rejected_logp": rejected}  # fmt: skip
    return {name: value.mean().item() for name, value in values.items()}


def check_by_liger(o, c, name, loss, logps):
    chosen, rejected = logps.sum(1).chunk(2)
    ref_chosen, ref_rejected = c.ref.sum(1).chunk(2)
    by_liger = LigerFusedLinearDPOFunction.preference_loss_fn(
        chosen, rejected, c.mask, ref_chosen, ref_rejected, o.beta, name, o.label_smoothing, o.discopop_tau)  # fmt: skip
    expect_equal(f"{name} by Liger", by_liger[0], loss)


def pair_loss(o, c, terms, logps):
    """Return (loss, metrics, source) from DPOTrainer's terms, the others, and the likelihood of the chosen
    tokens."""
    names = [t["loss"] for t in terms]
    by_dpo = [t for t in terms if t["loss"] == "sft" or t["loss"] not in WITHOUT_REFERENCE]
    others = [t for t in terms if t not in by_dpo]
    chosen_mask = c.mask.chunk(2)[0]
    nll = -logps.chunk(2)[0][chosen_mask].mean()
    nll_weight = (1.0 if {"orpo", "cpo"} & set(names) else 0.0) if o.nll_weight is None else o.nll_weight
    loss, metrics = nll_weight * nll, {}
    if by_dpo:
        part, metrics = direct_preference(o, c, by_dpo, logps)
        loss = loss + part
        if names[0] in OF_LIGER_DPO and len(terms) == 1 and not o.average_log_prob:
            check_by_liger(o, c, names[0], part, logps)
    for term in others:
        part, other_metrics = without_reference(o, c, term["loss"], logps)
        loss = loss + term.get("weight", 1.0) * part
        if not by_dpo:
            metrics = other_metrics
    if all(name in WITHOUT_REFERENCE for name in names) and by_dpo:
        # Only sft: rewards are beta times the log-probability, without a reference.
        chosen, rejected = logps.sum(1).chunk(2)
        metrics = reward_metrics(o.beta * chosen, o.beta * rejected, chosen, rejected)
    elif by_dpo and {"orpo", "simpo"} & set(names):
        # With orpo or simpo among the terms, metrics are computed from averages.
        chosen, rejected = take_average(logps, c.mask).sum(1).chunk(2)
        ref_chosen, ref_rejected = take_average(c.ref, c.mask).sum(1).chunk(2)
        metrics = reward_metrics(o.beta * (chosen - ref_chosen), o.beta * (rejected - ref_rejected), chosen, rejected)
    return o.loss_scale * loss, dict(metrics, nll=nll.item()), "liger" if names[0] == "orpo" else "trl"


def gradients_of(batch, part, temperature, loss_of):
    """Return (d_logps, d_logits) of a loss of the [B, T] log-probabilities of the sequences that count."""
    logits = batch.logits.clone().requires_grad_()
    logps, _ = token_statistics(logits, batch.ids, batch.mask, temperature)
    leaf = logps.detach().requires_grad_()
    # Ignored tokens have log-probability 0, so that sums may include them.
    (d_logps,) = torch.autograd.grad(loss_of(torch.where(batch.mask, leaf, 0.0)[part]), leaf)
    (d_logits,) = torch.autograd.grad(loss_of(logps[part]), logits)
    return d_logps, d_logits


def make_pair_case(batch, name, terms, reference="token", **options):
    o = Options(DEFAULTS, **options)
    both = batch.mask.any(1).view(2, -1).all(0)
    part = torch.cat([both, both])
    logps, entropies = token_statistics(batch.logits, batch.ids, batch.mask, o.temperature)
    c = Options(mask=batch.mask[part], ref=batch.ref[part], entropies=entropies[part])
    names = [t["loss"] for t in terms]
    if all(n in WITHOUT_REFERENCE for n in names):
        reference = "none"

    loss, metrics, source = pair_loss(o, c, terms, logps[part])
    d_logps, d_logits = gradients_of(batch, part, o.temperature, lambda x: pair_loss(o, c, terms, x)[0])
    averages = o.average_log_prob or {"orpo", "simpo"} & set(names)
    sequence_logps = (take_average(logps, batch.mask) if averages else logps).sum(1)
    entropy = entropies[part][c.mask].mean().item()
    expect_equal(f"{name}: entropy", metrics.get("mean_entropy", entropy), entropy, 1e-6)
    metrics = dict(metrics, pairs=int(both.sum()), tokens=int(c.mask.sum()), mean_entropy=entropy)
    nan = float("nan")
    return {
        "name": name, "kind": "pairs", "source": source, "terms": terms, "options": options, "reference": reference,
        "expected": {
            "loss": numbers(loss, 12), "metrics": {k: numbers(v) for k, v in metrics.items()},
            "sequence_logps": numbers(torch.where(part, sequence_logps, nan)),
            "d_logps": numbers(d_logps), "d_logits": gradient(d_logits),
        },
    }  # fmt: skip


def kto_loss(o, c, logps):
    """Return KTOTrainer's loss and metrics. Check them against Liger if its single weight and baseline
    suffice."""
    scaled = take_average if o.average_log_prob else lambda x, _: x
    kto = trainer(KTOTrainer, beta=o.beta, loss_type="kto", desirable_weight=o.desirable_weight,
                  undesirable_weight=o.undesirable_weight, precompute_ref_logps=True, calculate_KL=c.kl is not None,
                  _compute_kl_logps=lambda *_: c.kl)  # fmt: skip
    labels = torch.tensor(c.labels, dtype=torch.bool)
    ref = scaled(c.ref, c.mask).sum(1)
    inputs = dict(inputs_of(c.mask), label=labels, ref_logps=ref, ref_KL_logps=c.kl_ref)
    logps = scaled(logps, c.mask)
    loss = kto._compute_loss(fused(logps, c.mask, entropies=c.entropies), inputs, False)
    if o.desirable_weight == o.undesirable_weight == 1:
        kl = torch.tensor(last(kto, "kl"))
        by_liger = LigerFusedLinearKTOFunction.preference_loss_fn(logps.sum(1), labels, c.mask, ref, o.beta, kl)
        expect_equal("kto by Liger", by_liger[0], loss)
    return o.loss_scale * loss, kto


def make_kto_case(batch, name, labels, kl="positive", reference="token", **options):
    o = Options(KTO_DEFAULTS, **options)
    part = batch.mask.any(1)
    logps, entropies = token_statistics(batch.logits, batch.ids, batch.mask, o.temperature)
    kls = {"positive": (batch.kl, batch.kl_ref), "negative": (batch.kl_ref, batch.kl), "none": (None, None)}
    kept = [label for label, takes_part in zip(labels, part) if takes_part]
    c = Options(mask=batch.mask[part], ref=batch.ref[part], entropies=entropies[part], labels=kept, kl=kls[kl][0],
                kl_ref=kls[kl][1])  # fmt: skip

    loss, kto = kto_loss(o, c, logps[part])
    d_logps, d_logits = gradients_of(batch, part, o.temperature, lambda x: kto_loss(o, c, x)[0])
    sequence_logps = (take_average(logps, batch.mask) if o.average_log_prob else logps).sum(1)
    ref = (take_average(batch.ref, batch.mask) if o.average_log_prob else batch.ref).sum(1)
    desirable = torch.tensor(labels, dtype=torch.bool)
    sign = torch.where(desirable, 1.0, -1.0)
    weight = torch.where(desirable, o.desirable_weight, o.undesirable_weight)
    losses = weight * (1 - torch.sigmoid(sign * o.beta * (sequence_logps - ref - last(kto, "kl"))))
    expect_equal(f"{name}: mean of sequences", o.loss_scale * losses[part].mean(), loss)

    metrics = {"kl": "kl", "desirable_reward": "rewards/chosen", "undesirable_reward": "rewards/rejected",
               "margin": "rewards/margins", "desirable_logp": "logps/chosen", "undesirable_logp": "logps/rejected",
               "mean_entropy": "entropy"}  # fmt: skip
    kept_metrics = kto._metrics["train"]
    metrics = {ours: kept_metrics[theirs][-1] if kept_metrics[theirs] else None for ours, theirs in metrics.items()}
    counts = {"desirable": sum(kept), "undesirable": len(kept) - sum(kept), "tokens": int(c.mask.sum())}
    nan = float("nan")
    return {
        "name": name, "kind": "kto", "source": "trl", "options": options, "labels": labels, "kl": kl,
        "reference": reference,
        "expected": {
            "loss": numbers(loss, 12), "metrics": dict(counts, **{k: numbers(v) for k, v in metrics.items()}),
            "sequence_losses": numbers(torch.where(part, losses, 0.0)),
            "sequence_logps": numbers(torch.where(part, sequence_logps, nan)),
            "d_logps": numbers(d_logps), "d_logits": gradient(d_logits),
        },
    }  # fmt: skip


def make_cases(batch):
    cases = []

    def pairs(name, *losses, **options):
        terms = [{"loss": x} if isinstance(x, str) else {"loss": x[0], "weight": x[1]} for x in losses or (name,)]
        cases.append(make_pair_case(batch, name, terms, **options))

    def kto(name, labels=(1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0), **options):
        cases.append(make_kto_case(batch, name, list(labels), **options))

    smoothed = {"exo_pair": 0.1}
    for name in ("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero",
                 "apo_down", "aot", "aot_unpaired", "discopop", "sft", "orpo", "simpo", "cpo"):  # fmt: skip
        more = {"label_smoothing": smoothed[name]} if name in smoothed else {}
        pairs(name, **more)
    for name in ("robust", "aot", "aot_unpaired", "simpo", "cpo"):
        pairs(f"{name}_label_smoothing", name, label_smoothing=0.15, beta=0.5)
    for name in ("sigmoid", "hinge", "apo_down", "discopop", "orpo"):
        pairs(f"{name}_beta", name, beta=1.0, reference="sequence")
    for name in ("sigmoid", "sppo_hard", "apo_zero", "aot", "cpo"):
        pairs(f"{name}_average_log_prob", name, average_log_prob=True, beta=0.5,
              reference="token" if name == "sigmoid" else "sequence")  # fmt: skip
    pairs("discopop_tau", "discopop", beta=0.5, discopop_tau=0.5)
    pairs("sigmoid_nll", "sigmoid", nll_weight=0.3)
    pairs("simpo_nll_gamma", "simpo", nll_weight=0.5, simpo_gamma=1.5, beta=2.0)
    pairs("cpo_no_nll", "cpo", nll_weight=0.0)
    pairs("orpo_nll", "orpo", nll_weight=0.25)
    pairs("mixed_preference", ("sigmoid", 0.8), ("bco_pair", 0.2), ("sft", 1.0), reference="sequence")
    pairs("weighted_sum", ("robust", 0.5), ("ipo", 0.01), ("aot", -0.25), label_smoothing=0.1, loss_scale=2.0,
          temperature=0.8)  # fmt: skip
    pairs("sigmoid_and_simpo", ("sigmoid", 0.7), ("simpo", 0.3), beta=0.5)

    kto("kto")
    kto("kto_weights", desirable_weight=1.25, undesirable_weight=0.75, beta=0.5, reference="sequence")
    kto("kto_negative_baseline", kl="negative")
    kto("kto_no_baseline", kl="none", temperature=0.8, loss_scale=0.5)
    kto("kto_average_log_prob", average_log_prob=True, beta=1.0, reference="sequence")
    kto("kto_desirable_only", labels=[1] * 16)
    return cases
