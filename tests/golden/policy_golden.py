# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Policy losses: TRL's own functions on small seeded batches, Liger-Kernel, and docs/losses.md written out.
Up to three evaluations per case:

  trl      GRPOTrainer._compute_loss (and RLOOTrainer's), called on a stand-in for the trainer
  liger    LigerFusedLinearGRPOFunction.ppo_loss_fn
  formula  docs/losses-policy.md (policy_formula.py): cases that the others lack, and per-token losses

They must agree. The expected values are TRL's if TRL has the case.
"""

import torch
from common import (
    Accelerator,
    Options,
    Training,
    expect_equal,
    gradient,
    new_metrics,
    numbers,
    token_statistics,
)
from liger_kernel.chunked_loss.grpo_loss import LigerFusedLinearGRPOFunction
from policy_formula import Formula, sampler_ratio
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

VOCAB = 11
LENGTHS = [9, 6, 4, 0, 7, 5, 2, 8]
HOLES = [(0, 3), (0, 4), (4, 0), (7, 5)]  # (sequence, position): a tool's answers among a model's words
ADVANTAGES = [1.25, -0.75, 0.5, 2.0, -1.5, 0.875, -0.375, 0.625]  # the fourth belongs to an empty sequence
# Mean of logp - old per sequence. Both signs of the advantage occur on both sides of the clip range.
DRIFT = [0.45, -0.5, -0.3, 0.0, 0.4, 0.05, -0.1, 0.4]

DEFAULTS = Options(
    loss_type="grpo",
    temperature=1.0,
    importance_sampling_level="token",
    epsilon_low=0.2,
    epsilon_high=None,
    delta=None,
    log_ratio_clamp=20.0,
    beta=0.0,
    kl_estimator="k3",
    use_bias_correction_kl=False,
    entropy_bonus=0.0,
    top_entropy_quantile=1.0,
    off_policy_mask_threshold=None,
    sampler_correction="none",
    sampler_clip_min=None,
    sampler_clip_max=3.0,
    num_items_in_batch=None,
    max_completion_length=None,
    sapo_temperature_pos=1.0,
    sapo_temperature_neg=1.05,
    vespo_k_pos=2.0,
    vespo_lambda_pos=3.0,
    vespo_k_neg=3.0,
    vespo_lambda_neg=2.0,
    loss_scale=1.0,
    want_entropy=True,
)


def make_batch():
    g = torch.Generator().manual_seed(20260101)
    b, t = len(LENGTHS), max(LENGTHS)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    def decimals(x):
        return (x * 1e6).round() / 1e6

    mask = torch.arange(t)[None] < torch.tensor(LENGTHS)[:, None]
    for s, position in HOLES:
        mask[s, position] = False
    logits = (normal(b, t, VOCAB) * 1.5 * 64).round() / 64  # multiples of 1/64: the same in float32
    ids = torch.randint(0, VOCAB, (b, t), generator=g)
    logps, _ = token_statistics(logits, ids, mask)
    old = decimals(logps - torch.tensor(DRIFT, dtype=torch.float64)[:, None] - 0.25 * normal(b, t))
    ref = decimals(logps + 0.4 * normal(b, t))
    sampling = decimals(old + 0.35 * normal(b, t))
    sampling[4, 2] = float("nan")  # a token that counts, but that the sampler could not score
    # At two of three positions the advantage has the sign of the policy's change, so that many tokens are
    # clipped; at the third it has the other sign.
    way = torch.where((logps > old) == (torch.arange(t) % 3 != 2), 1.0, -1.0)
    per_token = way * (normal(b, t) * 64).abs().ceil() / 64
    per_token[0, 1] = 0.0
    return Options(
        logits=logits, ids=ids, mask=mask, old=old, ref=ref, sampling=sampling,
        advantages=torch.tensor(ADVANTAGES, dtype=torch.float64), advantages_per_token=per_token,
    )  # fmt: skip


def batch_to_json(batch):
    """Write null (NaN), 1e30 or an invalid token id under false masks, where nothing must be read."""
    out, nan = {}, float("nan")
    odd = (torch.arange(batch.mask.numel()).view_as(batch.mask) % 2).bool()
    hole = torch.where(odd, nan, 1e30)
    for name, values in [("old_logps", batch.old), ("ref_logps", batch.ref), ("sampling_logps", batch.sampling),
                         ("advantages_per_token", batch.advantages_per_token)]:  # fmt: skip
        out[name] = numbers(torch.where(batch.mask, values, hole), 17)
    advantages = torch.where(batch.mask.any(1), batch.advantages, nan)
    logits = torch.where(batch.mask[..., None], batch.logits, hole[..., None])
    ids = torch.where(batch.mask, batch.ids, torch.where(odd, -7, 999))
    return {"logits": numbers(logits, 17), "chosen_ids": numbers(ids), "mask": batch.mask.int().tolist(),
            "advantages": numbers(advantages, 17), **out}  # fmt: skip


class GrpoStandIn:
    """The attributes of a trainer that GRPOTrainer._compute_loss and RLOOTrainer._compute_loss read."""

    get_high_entropy_mask = GRPOTrainer.get_high_entropy_mask
    get_off_policy_mask = staticmethod(GRPOTrainer.get_off_policy_mask)
    get_gamma_weights = staticmethod(GRPOTrainer.get_gamma_weights)
    accelerator = Accelerator()
    model = Training()
    aux_loss_enabled = False
    use_adaptive_entropy = False
    current_gradient_accumulation_steps = 1

    def __init__(self, o, logps, entropies):
        self.args = Options(o, steps_per_generation=1)
        # ppo is bnpo with one advantage per token.
        self.loss_type = "bnpo" if o.loss_type == "ppo" else o.loss_type
        for name in ("importance_sampling_level", "epsilon_low", "epsilon_high", "beta", "top_entropy_quantile",
                     "off_policy_mask_threshold", "max_completion_length"):  # fmt: skip
            setattr(self, name, o[name])
        self.entropy_coef = o.entropy_bonus
        self._entropy_bonus_enabled = o.entropy_bonus != 0
        self.use_vllm = self.vllm_importance_sampling_correction = o.sampler_correction != "none"
        self._metrics = new_metrics()
        self._get_per_token_logps_and_entropies = lambda *args, **kwargs: (logps, entropies, None)


def trl_inputs(o, c, logps):
    nothing = torch.zeros(c.mask.shape[0], 0, dtype=torch.long)
    n = c.mask.sum() if o.num_items_in_batch is None else torch.tensor(float(o.num_items_in_batch))
    inputs = {"prompt_ids": nothing, "prompt_mask": nothing, "completion_ids": c.ids, "completion_mask": c.mask.long(),
              "advantages": c.advantages, "num_items_in_batch": n}  # fmt: skip
    if c.old is not None:
        inputs["old_per_token_logps"] = c.old
    if c.ref is not None:
        inputs["ref_per_token_logps"] = c.ref
    if c.sampling is not None:
        inputs["sampling_per_token_logps"] = c.sampling
    r = sampler_ratio(o, logps, c)
    if r is not None:
        inputs["importance_sampling_ratio"] = r
    return inputs


def rows(c, chosen):
    return Options({k: v[chosen] if torch.is_tensor(v) else v for k, v in c.items()})


def trl_metrics(o, kept):
    last = {name: values[-1] for name, values in kept["train"].items()}
    metrics = {"clip_fraction_low": "clip_ratio/low_mean", "clip_fraction_high": "clip_ratio/high_mean",
               "clip_fraction": "clip_ratio/region_mean", "mean_kl": "kl", "mean_entropy": "entropy"}  # fmt: skip
    metrics = {ours: last[theirs] for ours, theirs in metrics.items() if theirs in last}
    if o.loss_type == "cispo":
        metrics["clip_fraction"] = metrics["clip_fraction_high"] = last["cispo_clip_ratio"]
    return metrics


def trl(o, c, logps, entropies):
    """Return TRL's (loss, metrics), or None if TRL lacks the case."""
    full = c.mask.any(1)
    if o.loss_type == "reinforce" or o.kl_estimator != "k3":
        return None
    if o.loss_type == "rloo":
        # RLOOTrainer has no penalty in the loss, no factors and no per-token advantages.
        extra = o.beta or o.entropy_bonus or o.sampler_correction != "none" or o.delta
        if extra or o.top_entropy_quantile < 1 or o.off_policy_mask_threshold is not None or c.advantages.dim() == 2:
            return None
        # An empty sequence adds nothing (docs/losses-policy.md, "Aggregation"), so take TRL's mean over the
        # others times their share of B.
        kept = rows(c, full)
        stand_in = GrpoStandIn(o, logps[full], entropies[full])
        inputs = trl_inputs(o, kept, logps[full])
        old = logps[full].detach() if c.old is None else kept.old
        inputs["old_logps"] = torch.where(kept.mask, old, 0.0).sum(1)
        loss = RLOOTrainer._compute_loss(stand_in, None, inputs) * (full.sum() / full.numel())
        return o.loss_scale * loss, trl_metrics(o, stand_in._metrics)
    stand_in = GrpoStandIn(o, logps, entropies)
    loss = GRPOTrainer._compute_loss(stand_in, None, trl_inputs(o, c, logps))
    # Metrics of sequence ratios do not count empty sequences (docs/losses-policy.md, "Metrics"; TRL counts
    # them as unclipped).
    stand_in = GrpoStandIn(o, logps[full].detach(), entropies[full].detach())
    GRPOTrainer._compute_loss(stand_in, None, trl_inputs(o, rows(c, full), logps[full].detach()))
    return o.loss_scale * loss, trl_metrics(o, stand_in._metrics)


def liger(o, c, logps):
    """Return Liger-Kernel's loss, or None if it lacks the case."""
    if o.loss_type in ("reinforce", "rloo") or o.kl_estimator != "k3" or c.advantages.dim() == 2:
        return None
    if o.entropy_bonus or o.top_entropy_quantile < 1 or o.off_policy_mask_threshold is not None:
        return None
    if o.importance_sampling_level == "sequence" and o.loss_type in ("cispo", "sapo"):
        return None
    if o.loss_type == "luspo" and (o.importance_sampling_level == "token" or o.beta or "token" in o.sampler_correction):
        return None  # per-token terms of luspo: Liger's mean includes the padding
    mask = c.mask.double()
    loss, _ = LigerFusedLinearGRPOFunction.ppo_loss_fn(
        logps, mask, c.advantages, mask, ref_per_token_logps=c.ref, old_per_token_logps=c.old,
        epsilon_low=o.epsilon_low, epsilon_high=o.epsilon_high, beta=o.beta,
        loss_type="bnpo" if o.loss_type == "ppo" else o.loss_type, max_completion_length=o.max_completion_length,
        importance_sampling_level=o.importance_sampling_level, sapo_temperature_pos=o.sapo_temperature_pos,
        sapo_temperature_neg=o.sapo_temperature_neg, vllm_is_ratio=sampler_ratio(o, logps, c), delta=o.delta,
        use_bias_correction_kl=o.use_bias_correction_kl, vespo_k_pos=o.vespo_k_pos,
        vespo_lambda_pos=o.vespo_lambda_pos, vespo_k_neg=o.vespo_k_neg, vespo_lambda_neg=o.vespo_lambda_neg,
        num_items_in_batch=o.num_items_in_batch,
    )  # fmt: skip
    return o.loss_scale * loss


def leaves(logps, entropies):
    return logps.detach().requires_grad_(), entropies.detach().requires_grad_()


def gradients(loss, of):
    return [torch.zeros_like(x) if g is None else g
            for x, g in zip(of, torch.autograd.grad(loss, of, allow_unused=True))]  # fmt: skip


def make_case(batch, name, advantages="advantages", old=True, sampling=False, **options):
    o = Options(DEFAULTS, **options)
    if o.epsilon_high is None:
        o["epsilon_high"] = 5.0 if o.loss_type == "cispo" else 0.3
    c = Options(mask=batch.mask, ids=batch.ids, advantages=batch[advantages], old=batch.old if old else None,
                ref=batch.ref if o.beta else None, sampling=batch.sampling if sampling else None)  # fmt: skip

    logits = batch.logits.clone().requires_grad_()
    logps, entropies = token_statistics(logits, batch.ids, batch.mask, o.temperature)

    formula = Formula(o, c, *leaves(logps, entropies))
    loss, per_token = formula.evaluate()
    token_gradients = gradients(loss, (formula.logps, formula.entropies))
    metrics = formula.metrics()
    source, checked = "autograd", []

    at = leaves(logps, entropies)
    if (by_liger := liger(o, c, at[0])) is not None:
        expect_equal(f"{name}: loss by Liger", by_liger, loss)
        expect_equal(f"{name}: d_logps by Liger", gradients(by_liger, at)[0], token_gradients[0])
        checked.append("liger")
    at = leaves(logps, entropies)
    if (by_trl := trl(o, c, *at)) is not None:
        expect_equal(f"{name}: loss by TRL", by_trl[0], loss)
        loss, source, of_formula = by_trl[0], "trl", token_gradients
        token_gradients = gradients(loss, at)
        for what, theirs, ours in zip(("d_logps", "d_entropies"), token_gradients, of_formula):
            expect_equal(f"{name}: {what} by TRL", theirs, ours)
        for metric, value in by_trl[1].items():
            if metrics[metric] is not None:
                expect_equal(f"{name}: {metric} by TRL", value, metrics[metric], 1e-6)  # fractions in float32
        loss_of_logits = trl(o, c, logps, entropies)[0]
        checked.append("autograd")
    else:
        loss_of_logits = Formula(o, c, logps, entropies).evaluate()[0]
    (d_logits,) = torch.autograd.grad(loss_of_logits, logits)

    case = {"name": name, "source": source, "checked": checked, "options": options, "advantages": advantages,
            "old_logps": old, "ref_logps": bool(o.beta), "sampling_logps": sampling}  # fmt: skip
    expected = {"loss": numbers(loss, 12), "metrics": {k: numbers(v) for k, v in metrics.items()},
                "per_token_loss": numbers(per_token), "d_logps": numbers(token_gradients[0]),
                "d_logits": gradient(d_logits)}  # fmt: skip
    if o.entropy_bonus:
        expected["d_entropies"] = numbers(token_gradients[1])
    return {**case, "expected": expected}


def make_cases(batch):
    cases = []

    def case(name, **options):
        cases.append(make_case(batch, name, **options))

    length = {"dr_grpo": {"max_completion_length": 9}}
    for v in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo", "reinforce", "rloo", "ppo"):
        more = dict(length.get(v, {}), loss_type=v)
        case(v, **more)
        kl = dict(more, beta=0.04)
        if v == "cispo":
            kl["epsilon_high"] = 1.2
        case(f"{v}_kl_per_token_advantages", advantages="advantages_per_token", **kl)
        # These differ from grpo or dapo only in their divisor.
        if v not in ("bnpo", "dr_grpo", "luspo", "ppo"):
            case(f"{v}_on_policy", old=False, **more)

    case("grpo_epsilons", epsilon_low=0.1, epsilon_high=0.15)
    case("grpo_no_log_ratio_clamp", log_ratio_clamp=None, beta=0.04)
    case("grpo_loss_scale", loss_scale=0.25, beta=0.04, entropy_bonus=0.02)
    case("grpo_temperature", temperature=0.75, beta=0.04, entropy_bonus=0.02)
    for estimator in ("k1", "k2"):
        case(f"grpo_{estimator}", beta=0.04, kl_estimator=estimator)
        case(f"grpo_{estimator}_bias_correction", beta=0.04, kl_estimator=estimator, use_bias_correction_kl=True)
    case("grpo_kl_bias_correction", beta=0.04, use_bias_correction_kl=True)
    case("cispo_kl_bias_correction", loss_type="cispo", epsilon_high=1.2, beta=0.04, use_bias_correction_kl=True)
    case("rloo_kl", loss_type="rloo", beta=0.04)

    case("grpo_delta", delta=1.5)
    case("grpo_delta_within_clip_range", delta=1.1)
    case("dapo_delta_kl_bias_correction", loss_type="dapo", delta=1.5, beta=0.04, use_bias_correction_kl=True)

    sequence = {"importance_sampling_level": "sequence"}
    for v in ("grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo"):
        more = {"epsilon_high": 1.2} if v == "cispo" else {}
        case(f"{v}_sequence", loss_type=v, **sequence, **length.get(v, {}), **more)
    case("grpo_sequence_kl_bias_correction", beta=0.04, use_bias_correction_kl=True, **sequence)
    case("grpo_sequence_per_token_advantages", advantages="advantages_per_token", **sequence)
    case("grpo_sequence_on_policy", old=False, **sequence)
    case("luspo_sequence_kl_delta", loss_type="luspo", beta=0.04, delta=1.5, **sequence)

    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        clip = {"sampler_correction": mode, "sampler_clip_min": 0.6, "sampler_clip_max": 1.5, "sampling": True}
        case(f"grpo_{mode}", beta=0.04, **clip)
    case("grpo_token_truncate_defaults", sampler_correction="token_truncate", sampling=True)
    case("grpo_token_mask_without_max", sampler_correction="token_mask", sampler_clip_min=0.8, sampler_clip_max=None,
         sampling=True)  # fmt: skip
    case("reinforce_token_truncate_on_policy", loss_type="reinforce", old=False, sampler_correction="token_truncate",
         sampler_clip_max=1.2, sampling=True)  # fmt: skip
    case("rloo_token_truncate", loss_type="rloo", sampler_correction="token_truncate", sampler_clip_max=1.2,
         sampling=True)  # fmt: skip
    case("vespo_token_truncate", loss_type="vespo", sampler_correction="token_truncate", sampler_clip_min=0.6,
         sampler_clip_max=1.2, sampling=True, beta=0.04)  # fmt: skip
    case("vespo_token_mask", loss_type="vespo", sampler_correction="token_mask", sampler_clip_max=1.9, sampling=True)
    case("vespo_parameters", loss_type="vespo", vespo_k_pos=1.5, vespo_lambda_pos=0.5, vespo_k_neg=0.75,
         vespo_lambda_neg=0.0)  # fmt: skip
    case("sapo_temperatures", loss_type="sapo", sapo_temperature_pos=2.0, sapo_temperature_neg=0.5)

    case("grpo_off_policy_mask", off_policy_mask_threshold=0.3, beta=0.04)
    case("grpo_off_policy_mask_sampling", off_policy_mask_threshold=0.1, sampling=True)
    case("grpo_off_policy_mask_per_token_advantages", off_policy_mask_threshold=0.3, advantages="advantages_per_token")
    case("grpo_top_entropy", top_entropy_quantile=0.35)
    case("dapo_top_entropy_kl_bonus", loss_type="dapo", top_entropy_quantile=0.35, beta=0.04, entropy_bonus=0.02)
    case("dapo_entropy_bonus", loss_type="dapo", entropy_bonus=0.02)
    case("rloo_entropy_bonus", loss_type="rloo", entropy_bonus=-0.02)
    for v in ("dapo", "cispo", "vespo"):
        case(f"{v}_num_items_in_batch", loss_type=v, num_items_in_batch=100.0)
    case("grpo_everything", delta=1.5, beta=0.04, use_bias_correction_kl=True, entropy_bonus=0.02,
         top_entropy_quantile=0.7, off_policy_mask_threshold=0.3, sampler_correction="sequence_truncate",
         sampler_clip_max=1.5, sampling=True, temperature=0.95, loss_scale=2.0, **sequence)  # fmt: skip
    return cases
