# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Policy losses as in docs/losses-policy.md, written with autograd."""

import torch

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "rloo", "ppo")


def sampler_ratio(o, logps, c):
    """Return r of "Sampler correction" in docs/losses-policy.md; [B, T] or [B, 1]. TRL computes it while
    sampling."""
    if o.sampler_correction == "none":
        return None
    old = logps.detach() if c.old is None else c.old
    log_ratio = torch.where(c.mask, (old - c.sampling).nan_to_num(nan=0.0), 0.0)
    if o.sampler_correction.startswith("sequence"):
        log_ratio = log_ratio.sum(1, keepdim=True)
    r = log_ratio.exp()
    if o.sampler_correction.endswith("truncate"):
        return r.clamp(o.sampler_clip_min, o.sampler_clip_max)
    low = 0.0 if o.sampler_clip_min is None else o.sampler_clip_min
    high = float("inf") if o.sampler_clip_max is None else o.sampler_clip_max
    return torch.where((r >= low) & (r <= high), r, 0.0)


class Formula:
    """The formulas of docs/losses-policy.md, as they are written there."""

    def __init__(self, o, c, logps, entropies):
        self.o, self.c, self.mask = o, c, c.mask
        self.n_s = c.mask.sum(1, keepdim=True)
        self.advantages = c.advantages if c.advantages.dim() == 2 else c.advantages[:, None]
        self.logps, self.entropies = logps, entropies
        old = logps.detach() if c.old is None else c.old
        self.old = old
        self.difference = logps - old
        clamp = 300.0 if o.log_ratio_clamp is None else o.log_ratio_clamp
        self.held = lambda x: x.clamp(-clamp, clamp)
        if o.loss_type == "rloo":
            w = self.sequence_sum(self.difference)
        elif o.importance_sampling_level == "sequence":
            w = self.sequence_sum(self.difference) / self.n_s.clamp(min=1)
        else:
            w = self.difference
        self.ratio = self.held(w).exp().expand_as(logps)

    def sequence_sum(self, x):
        return torch.where(self.mask, x, 0.0).sum(1, keepdim=True)

    def clipped_surrogate(self):
        o, a = self.o, self.advantages
        free = self.ratio if o.delta is None else self.ratio.clamp(max=o.delta)
        self.is_low = (free < 1 - o.epsilon_low) & (a < 0)
        self.is_high = (free > 1 + o.epsilon_high) & (a > 0)
        return -torch.min(free * a, self.ratio.clamp(1 - o.epsilon_low, 1 + o.epsilon_high) * a)

    def vespo(self):
        o, a = self.o, self.advantages
        lowest = torch.log(torch.tensor(1e-8, dtype=torch.float64))
        terms = self.held(self.difference.detach())
        r = sampler_ratio(o, self.logps, self.c)
        if r is not None:
            terms = terms + r.log().clamp(lowest, 20.0)
        w = self.sequence_sum(terms).clamp(lowest, 20.0)
        k = torch.where(a >= 0, o.vespo_k_pos, o.vespo_k_neg)
        rate = torch.where(a >= 0, o.vespo_lambda_pos, o.vespo_lambda_neg).clamp(min=1e-4)
        return -(rate + k * w - rate * w.exp()).exp() * a * self.logps

    def variant_loss(self):
        o, a = self.o, self.advantages
        self.is_low = self.is_high = torch.zeros_like(self.mask)
        if o.loss_type in CLIPPED:
            return self.clipped_surrogate()
        if o.loss_type == "cispo":
            self.is_high = (self.ratio > o.epsilon_high) & (a > 0)
            return -self.ratio.clamp(max=o.epsilon_high).detach() * a * self.logps
        if o.loss_type == "sapo":
            tau = torch.where(a > 0, o.sapo_temperature_pos, o.sapo_temperature_neg)
            return -4 / tau * torch.sigmoid(tau * (self.ratio - 1)) * a
        if o.loss_type == "vespo":
            return self.vespo()
        assert o.loss_type == "reinforce"
        return -a * self.logps

    def factors(self):
        o, c = self.o, self.c
        factor = torch.ones_like(self.logps)
        self.top = self.mask
        if o.off_policy_mask_threshold is not None:
            q = self.old if c.sampling is None else c.sampling
            drift = self.sequence_sum((q - self.logps.detach()).nan_to_num(nan=0.0)) / self.n_s.clamp(min=1)
            factor = factor * ((self.advantages >= 0) | (drift <= o.off_policy_mask_threshold))
        if o.top_entropy_quantile < 1:
            chosen = self.entropies.detach()[self.mask]
            bound = torch.quantile(chosen, 1 - o.top_entropy_quantile)
            self.top = self.mask & (self.entropies >= bound)
            factor = factor * self.top
        if o.sampler_correction != "none" and o.loss_type != "vespo":
            factor = factor * sampler_ratio(o, self.logps, c)
        return factor.detach()

    def kl(self):
        d = self.c.ref - self.logps
        held = self.held(d)
        k = {"k1": -d, "k2": d * d / 2, "k3": held.exp() - held - 1}[self.o.kl_estimator]
        return k * self.ratio if self.o.use_bias_correction_kl else k

    def normalised(self, per_token):
        o, b, n = self.o, self.mask.shape[0], self.mask.sum()
        if o.loss_type in ("grpo", "sapo", "rloo"):
            return (per_token.sum(1) / self.n_s[:, 0].clamp(min=1)).sum() / b
        if o.loss_type in ("bnpo", "ppo"):
            return per_token.sum() / n
        if o.loss_type == "dr_grpo":
            return per_token.sum() / (b * o.max_completion_length)
        if o.loss_type in ("luspo", "reinforce"):
            return per_token.sum() / b
        return per_token.sum() / (n if o.num_items_in_batch is None else o.num_items_in_batch)

    def evaluate(self):
        o = self.o
        per_token = self.variant_loss() * self.factors()
        if o.beta:
            per_token = per_token + o.beta * self.kl()
        per_token = torch.where(self.mask, per_token, 0.0)
        loss = self.normalised(per_token)
        if o.entropy_bonus:
            loss = loss - o.entropy_bonus * (self.entropies * self.top).sum() / self.top.sum()
        return o.loss_scale * loss, per_token

    def metrics(self):
        o, mask = self.o, self.mask
        token_mean = lambda x: x.detach()[mask].double().mean().item()  # noqa: E731
        of_sequence = o.importance_sampling_level == "sequence" or o.loss_type == "rloo"
        by_sequence = of_sequence and self.c.advantages.dim() == 1
        # A sequence's ratio is the same at each of its tokens, so the first one is used.
        first = mask & (mask.cumsum(1) == 1)
        ratio_mean = (lambda x: x.detach()[first].double().mean().item()) if by_sequence else token_mean
        return {
            "tokens": int(mask.sum()),
            "mean_ratio": ratio_mean(self.ratio),
            "clip_fraction_low": ratio_mean(self.is_low.expand_as(mask)),
            "clip_fraction_high": ratio_mean(self.is_high.expand_as(mask)),
            "clip_fraction": ratio_mean((self.is_low | self.is_high).expand_as(mask)),
            "mean_kl": token_mean(self.kl()) if o.beta else None,
            "mean_entropy": token_mean(self.entropies) if o.want_entropy else None,
            "mean_logp": token_mean(self.logps),
        }
