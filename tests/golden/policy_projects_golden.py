# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes policy_projects.json: policy losses of other projects on many small batches.

A recipe is one call of a project's own function (project_imports.py), and the equivalent options of ours.
Each recipe runs on two batches, in float64, and autograd computes its gradient by the log-probabilities. See
README.md.
"""

import argparse
import collections
import dataclasses
import importlib.metadata
import itertools
import pathlib
import random

import project_imports
import torch
from common import numbers, short, write
from project_imports import COMMITS, NEMO, SEQUENCE, TOKEN, UNIT, View

PLAIN_BATCHES, OTHER_BATCHES = 30, 5
MARGIN = 1e-6  # least relative distance of numbers from the bounds that they are compared with
OLD, SAMPLER, REFERENCE = ("old_logps",), ("old_logps", "sampling_logps"), ("old_logps", "ref_logps")
KL = 0.05  # weight of the KL penalty
OFF = 1e9  # a bound that never binds
FREE = (OFF, OFF, None)

# Bounds: low, high, and the largest ratio.
CLIPS = [(0.2, 0.2, 3.0), (0.1, 0.28, 1.5), (0.3, 0.05, 10.0)]
MOVES = [(0.2, 0.2, 3.0), (0.05, 0.1, 20.0), (0.12, 0.03, 1.5)]
DIVERGENCES = [(0.2, 0.2, 3.0), (0.05, 0.02, 20.0), (0.004, 0.01, 1.5)]
COVARIANCES = [(0.05, 5.0), (0.2, 1.5), (0.02, 0.6)]
DRIFTS, MOMENTS = [0.05, 0.2], [0.01, 0.04, 0.08]
WEIGHTS = [0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.25, 1.4, 1.5, 2.0]
TEMPERATURES = [(1.0, 1.05), (0.8, 2.0)]


def draw(r, with_empty):
    lengths = [r.randint(0, 7) for _ in range(r.randint(3, 6))]
    offsets = [0, *itertools.accumulate(lengths)]
    count = offsets[-1]
    mask = [int(r.random() < 0.85) for _ in range(count)]
    if with_empty:
        mask[: lengths[0]] = [0] * lengths[0]
    logps = [-(r.randint(52, 370) if r.random() < 0.5 else r.randint(200, 4500)) for _ in range(count)]

    def near(values, spread):
        """Return other values at distances of both signs. The distances differ in size and are not 0."""
        out, sizes = [], {0}
        for value in values:
            step = 0
            while abs(step) in sizes or not -7000 < value + step < -20:
                step = round(r.gauss(0, spread * r.choice((1, 1, 1, 2.5))))
            sizes.add(abs(step))
            out.append(value + step)
        return out

    old = near(logps, 400)
    # Most advantages have the sign of the policy's change, so that many tokens reach a bound.
    way = [(1 if new > before else -1) * r.choice((1, 1, 1, -1)) for new, before in zip(logps, old)]
    of_tokens = [sign * r.randint(1, 2048) for sign in way]
    of_sequences = [r.choice((-1, 1)) * r.randint(1, 2048) for _ in lengths]
    if count:
        of_tokens[r.randrange(count)] = 0
    of_sequences[r.randrange(len(lengths))] *= r.randint(0, 1)
    return {"offsets": offsets, "mask": mask, "logps": logps, "old_logps": old, "ref_logps": near(logps, 500),
            "sampling_logps": near(old, 220), "teacher_logps": near(logps, 500), SEQUENCE: of_sequences,
            TOKEN: of_tokens, "scores": [512 * r.randint(-3, 3) for _ in lengths]}  # fmt: skip


def is_clear(batch):
    """Return whether all compared numbers keep their distance, and sorted numbers have no ties."""
    if sum(batch["mask"]) < 6:
        return False
    v = View(batch)
    x, m, full = v.x.detach(), v.m, v.tokens > 0

    def away(values, bounds):
        return all(((values - b).abs() > MARGIN * max(abs(b), MARGIN)).all() for b in bounds)

    def of_sequences(d):
        sums = (d * v.mask).sum(1)[full]
        return sums, sums / v.tokens[full]

    def signed(rows):
        return [sign * b for low, high, _ in rows for b in (low, high) for sign in (-1, 1)]

    ratios = WEIGHTS + [b for low, high, most in CLIPS + MOVES for b in (1 - low, 1 + high, most)]
    p, q = x.exp(), v.o.exp()
    kl = q * (v.o - x) + (1 - q) * ((1 - q) / (1 - p)).log()
    moments = (v.o - v.s)[m].square().sort().values
    checks = [(torch.cat([d[m], *of_sequences(d)]).exp(), ratios) for d in (x - v.o, v.o - v.s)]
    means = moments.cumsum(0) / torch.arange(1, len(moments) + 1)
    checks += [((x - v.o)[m], signed(CLIPS)), ((p - q)[m], signed(MOVES)), (kl[m], signed(DIVERGENCES)),
               (of_sequences(v.o - x)[1], DRIFTS), (means, MOMENTS), (moments.diff(), [0.0])]  # fmt: skip
    for a in (v.A[m], View(batch, TOKEN).A[m]):
        covariance = ((a - a.mean()) * (x[m] - x[m].mean())).sort().values
        checks += [(covariance, [b for row in COVARIANCES for b in row]), (covariance.diff(), [0.0])]
    return all(away(*check) for check in checks) and (v.r - x)[m].max() < 2.5  # no KL reaches its clamp


def make_batches():
    """Return batches, and the indices of each kind. on_sampler: old = sampling; taught: also without
    advantages."""
    r, batches, kinds = random.Random(20260101), [], collections.defaultdict(list)
    while len(batches) < PLAIN_BATCHES + 2 * OTHER_BATCHES:
        batch = draw(r, with_empty=len(batches) % 3 == 0)
        if not is_clear(batch):
            continue
        kind = "plain" if len(batches) < PLAIN_BATCHES else ("on_sampler", "taught")[len(batches) % 2]
        if kind != "plain":
            batch["sampling_logps"] = batch["old_logps"]
        if kind == "taught":
            batch[SEQUENCE] = [0] * len(batch[SEQUENCE])
        kinds[kind].append(len(batches))
        batches.append(batch)
    return batches, kinds


@dataclasses.dataclass
class Recipe:
    function: str
    call: dict  # how to call the project's loss
    options: dict  # ours; a value may be a function of a View and the project's loss
    reads: tuple = OLD
    off: dict = None  # changes to `call` that remove the bounds, if it has any
    advantages: tuple = (SEQUENCE, TOKEN)
    kind: str = "plain"  # of batches


# Variants that differ only in their mean, which recipes set.
clipped = itertools.cycle(["grpo", "bnpo", "dapo", "ppo", "luspo", "dr_grpo"]).__next__


def clip(low, high, **more):
    return dict(loss_type=clipped(), epsilon_low=low, epsilon_high=high, **more)


def truncate(low, high):
    return dict(loss_type="cispo", epsilon_low=low, epsilon_high=1 + high)


def sapo(positive, negative):
    return dict(loss_type="sapo", sapo_temperature_pos=positive, sapo_temperature_neg=negative)


def corrected(name, low, high):
    return dict(sampler_correction=name, sampler_clip_min=low, sampler_clip_max=high)


def penalty(estimator, **more):
    return dict(beta=KL, kl_estimator=estimator, **more)


def verl_losses():
    names = ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
    for row, (least, most) in zip(CLIPS, COVARIANCES):
        (low, high, largest), config = row, dict(zip(names, row))
        yield "vanilla", config, clip(low, high, delta=largest)
        yield "cispo", config, truncate(low, high)
        yield "gspo", config, clip(low, high, importance_sampling_level="sequence")
        yield "geo_mean", config, clip(low, high) | dict(loss_type="gmpo")
        # All candidates are chosen; otherwise the choice would be random.
        covariances = dict(clip_cov_ratio=1.0, clip_cov_lb=least, clip_cov_ub=most)
        ours = dict(loss_type="clip_cov", cov_share=1.0, cov_low=least, cov_high=most)
        yield "clip_cov", config | covariances, clip(low, high) | ours
    for region, row in [("tv", row) for row in MOVES] + [("kl", row) for row in DIVERGENCES]:
        ours = dict(trust_region=region, trust_region_low=row[0], trust_region_high=row[1])
        yield "dppo_" + region, dict(zip(names, row)), dict(ours, loss_type="dppo", epsilon_high=row[2])
    for share, weight in ((0.1, 0.1), (0.3, 0.5), (0.5, 1.0)):
        ours = dict(loss_type="kl_cov", cov_share=share, cov_kl_weight=weight)
        yield "kl_cov", dict(kl_cov_ratio=share, ppo_kl_coef=weight), ours
    for pair in TEMPERATURES:
        yield "sapo", dict(zip(("tau_pos", "tau_neg"), pair)), sapo(*pair)
    for beta in (0.1, 0.7):
        yield "dro", dict(dro_beta=beta), dict(loss_type="dro", dro_tau=beta)
    yield "gpg", {}, dict(loss_type="reinforce")


def verl():
    given = dict(dp_size=2, batch_num_tokens=100, global_batch_size=16, loss_scale_factor=40)
    means = [("token-mean", {}, {}), ("token-mean", given, dict(num_items_in_batch=50)),
             ("token-sum", {}, {}), ("token-sum", given, dict(loss_scale=2))]  # fmt: skip
    for mode in ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"):
        norm, length = mode.endswith("norm"), "max_completion_length"
        means += [(mode, {}, dict(count_empty_sequences=False, **{length: lambda v, _: v.width} if norm else {})),
                  (mode, given, dict(num_sequences=8, **{length: 40} if norm else {}))]  # fmt: skip
    rollouts = [(("token", 1.2), corrected("token_truncate", None, 1.2)),
                (("token", "0.8_1.25"), corrected("token_mask", 0.8, 1.25)),
                (("sequence", 1.5), corrected("sequence_truncate", None, 1.5)),
                (("sequence", "0.5_2.0"), corrected("sequence_mask", 0.5, 2.0))]  # fmt: skip
    free = dict(clip_ratio_low=OFF, clip_ratio_high=OFF, clip_ratio_c=OFF, clip_cov_lb=OFF, ppo_kl_coef=0.0)

    def recipe(function, config, ours, mean, reads=OLD, **how):
        mode, info, normaliser = mean
        if function != "geo_mean":  # has its own mean
            normaliser = dict(normaliser, aggregation=mode.replace("-", "_"))
        call = dict(function=function, mode=mode, info=info, config=config, **how)
        off = None if function in ("sapo", "dro", "gpg") else dict(config=config | free)
        levels = (SEQUENCE,) if function == "gspo" else (SEQUENCE, TOKEN)
        return Recipe(function, call, ours | normaliser, reads, off, levels)

    losses = list(verl_losses())
    for number, (function, config, ours) in enumerate(losses):
        theirs = {"gspo": means[4:6], "sapo": means[4:6], "geo_mean": [("", {}, {})]}.get(function, means)
        for mean in theirs:
            yield recipe(function, config, ours, mean)
        for k, (rollout, correction) in enumerate(rollouts):
            if function not in ("gspo", "geo_mean") or rollout[0] == "sequence":
                mean = theirs[(number + 3 * k) % len(theirs)]
                yield recipe(function, config, ours | correction, mean, SAMPLER, rollout=rollout)
    estimators = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3",
                  "kl+": "k1_plus", "k1+": "k1_plus", "mse+": "k2", "k2+": "k2", "low_var_kl+": "k3_plus",
                  "k3+": "k3_plus"}  # fmt: skip
    for k, (name, estimator) in enumerate(estimators.items()):
        for j, mean in enumerate(means[k % 2 :: 2]):
            function, config, ours = (losses[0], losses[-1])[j % 2]
            yield recipe(function, config, ours | penalty(estimator), mean, REFERENCE, kl=(name, KL))


def prime_rl():
    means = [(1, dict(aggregation="token_sum")), ("count", dict(aggregation="token_mean")),
             (64, dict(aggregation="token_mean", num_items_in_batch=64))]  # fmt: skip
    free = dict.fromkeys(("dppo_mask_low", "dppo_mask_high", "ipo_threshold"), OFF)
    for (scale, mean), (low, high, _) in itertools.product(means, MOVES):
        ours = dict(mean, loss_type="importance_sampling", trust_region_high=high)
        for tau, kl in ((1.0, 0.0), (1.0, 1e-3), (1.5, 0.02)):
            config = dict(adv_tau=tau, kl_tau=kl, dppo_mask_low=low, dppo_mask_high=high, ipo_threshold=high)
            ours |= dict(loss_scale=tau, sampler_penalty=kl / tau)
            more = dict(reads=SAMPLER if kl else OLD, kind="on_sampler" if kl else "plain")
            for function, region, least in (("default", "tv", low), ("ipo", "tv_both", high)):
                options = dict(ours, trust_region=region, trust_region_low=least)
                call = dict(function=function, config=config, scale=scale)
                yield Recipe(function, call, options, off=dict(config=config | free), **more)
        options = dict(trust_region="tv_both", trust_region_low=0.2, trust_region_high=1.0)
        options |= dict(mean, loss_type="importance_sampling", teacher_weight=1.0, sampler_penalty=1e-3)
        call = dict(function="ref_kl", config={}, scale=scale)
        yield Recipe("ref_kl", call, options, (*SAMPLER, "teacher_logps"), advantages=(SEQUENCE,), kind="taught")


def nemo_losses():
    for by_token in (True, False):
        for low, high, most in CLIPS:
            config = dict(NEMO, token_level_loss=by_token, ratio_clip_min=low, ratio_clip_max=high)
            yield "clip", config, clip(low, high)
            yield "dual_clip", config | dict(ratio_clip_c=most), clip(low, high, delta=most)
            if by_token:
                yield "cispo", config | dict(use_cispo=True), truncate(low, high)
            else:
                theirs = config | dict(sequence_level_importance_ratios=True)
                yield "sequence_ratio", theirs, clip(low, high, importance_sampling_level="sequence")
        yield "no_ratio", config | dict(disable_ppo_ratio=True), dict(loss_type="reinforce")
        yield "on_policy", config | dict(force_on_policy_ratio=True), dict(loss_type=clipped())


def nemo_rl():
    names = ("type", "ratio_min", "ratio")
    corrections = [None, (None, None, None), ("tis", None, 1.2), ("tis", 0.7, 1.5), ("icepop", 0.8, 1.25),
                   ("seq-mask-tis", 0.9, 1.2)]  # fmt: skip

    def recipe(function, config, ours, reads, n, **how):
        counts, rejects = (16, 100) if n % 2 else None, n % 3 == 0
        by_token = config["token_level_loss"]
        ours = dict(ours, aggregation="token_mean" if by_token else "seq_mean_token_mean")
        if counts:
            ours |= dict(num_items_in_batch=100) if by_token else dict(num_sequences=16)
        elif rejects and not by_token:
            ours |= dict(count_empty_sequences=False)
        off, truncated = None, bool(config["truncated_importance_sampling_type"])
        if truncated or function not in ("no_ratio", "on_policy"):
            off = config | dict(ratio_clip_min=OFF, ratio_clip_max=OFF, ratio_clip_c=None)
            off = dict(config=off | dict(truncated_importance_sampling_ratio=OFF if truncated else None,
                                         truncated_importance_sampling_ratio_min=0.0))  # fmt: skip
        call = dict(config=config, counts=counts, rejects=rejects, **how)
        return Recipe(function, call, ours, tuple(reads), off)

    kinds, number = itertools.cycle(["k1", "k2", "k3"]), itertools.count()
    kl_of = lambda kind: dict(reference_policy_kl_penalty=KL, reference_policy_kl_type=kind)  # noqa: E731
    for function, config, ours in nemo_losses():
        on_policy, of_sequences = function == "on_policy", function == "sequence_ratio"
        for correction in corrections[: 5 if of_sequences else 6]:
            theirs, options, n = config, ours, next(number)
            reads = [] if on_policy else ["old_logps"]
            if correction:
                theirs = theirs | {f"truncated_importance_sampling_{k}": b for k, b in zip(names, correction)}
                theirs |= dict(use_importance_sampling_correction=True)
                kind, low, high = correction
                level = "sequence_" if of_sequences else "token_"
                name = level + ("mask" if kind == "icepop" else "truncate")
                options = options | corrected("geometric_mask" if kind == "seq-mask-tis" else name, low, high)
                reads.append("sampling_logps")
            if on_policy or n % 3 == 1:
                # The factor e^(logp − sg(logp)) of their KL is a ratio of 1 that has a gradient.
                kind = next(kinds) if on_policy else "k3"
                theirs = theirs | kl_of(kind)
                options = options | penalty(kind if on_policy else "k3_plus", use_bias_correction_kl=on_policy)
                reads.append("ref_logps")
            if n % 4 == 2:
                theirs = theirs | dict(positive_example_nll_weight=0.1)
                options = options | dict(positive_nll_weight=0.1)
                reads.append("scores")
            yield recipe(function, theirs, options, reads, n)
        # If the old policy is the sampler, the weight of the KL is the ratio.
        if function in ("clip", "no_ratio"):
            for kind in ("k1", "k2", "k3"):
                theirs = config | kl_of(kind) | dict(use_on_policy_kl_approximation=True, kl_output_clamp_value=None)
                options = ours | penalty(kind, use_bias_correction_kl=True)
                yield recipe(function, theirs, options, REFERENCE, next(number), sampler="o")


def slime():
    of_tokens = dict(aggregation="token_mean", num_items_in_batch=lambda v, _: int(v.tokens.clamp(min=1).sum()))
    means = [(False, None, dict(aggregation="seq_mean_token_mean")), (True, None, of_tokens),
             (False, 16, dict(aggregation="seq_mean_token_mean", num_sequences=16))]  # fmt: skip

    def mis(level="token", mode="truncate", low=0.0, high=OFF, rejects=False):
        return dict(mis=dict(use_tis=True, use_rs=rejects, tis_level=level, tis_mode=mode, tis_lower_bound=low,
                             tis_upper_bound=high, rs_level="geometric", rs_lower_bound=0.9, rs_upper_bound=1.2,
                             rs_veto_threshold=None, tis_batch_normalize=False))  # fmt: skip

    corrections = [
        (dict(tis=("vanilla_tis_function", 0.0, 1.2)), corrected("token_truncate", 0.0, 1.2)),
        (dict(tis=("icepop_function", 0.8, 1.25)), corrected("token_mask", 0.8, 1.25)),
        (mis("token", "clip", 0.8, 1.25), corrected("token_truncate", 0.8, 1.25)),
        (mis("token", "mask", 0.8, 1.25), corrected("token_mask", 0.8, 1.25)),
        (mis("sequence", "truncate", 0.5, 1.5), corrected("sequence_truncate", 0.0, 1.5)),
        (mis("sequence", "mask", 0.5, 2.0), corrected("sequence_mask", 0.5, 2.0)),
        (mis(rejects=True), corrected("geometric_mask", 0.9, 1.2)),
    ]

    def recipe(function, bounds, ours, mean, reads=OLD, **how):
        per_token, rollouts, normaliser = mean
        off = dict(bounds=FREE, drift=OFF if how.get("drift") else None)
        call = dict(function=function, bounds=bounds, per_token=per_token, rollouts=rollouts, **how)
        return Recipe(function, call, ours | normaliser, reads, off)

    losses = []
    for low, high, most in CLIPS:
        bounds = (low, high, None)
        losses += [("policy", bounds, clip(low, high)), ("policy", (low, high, most), clip(low, high, delta=most)),
                   ("gspo", bounds, clip(low, high, importance_sampling_level="sequence")),
                   ("cispo", bounds, truncate(low, high))]  # fmt: skip
    for number, loss in enumerate(losses):
        function, bounds, ours = loss
        for k, mean in enumerate(means):
            drift = DRIFTS[(number + k) % 2]
            yield recipe(*loss, mean)
            yield recipe(function, bounds, ours | dict(off_policy_mask_threshold=drift), mean, drift=drift)
        for k, (how, correction) in enumerate(corrections):
            yield recipe(function, bounds, ours | correction, means[(number + k) % 3], SAMPLER, **how)
    for k, (name, unbiased) in enumerate(itertools.product(("k1", "k2", "k3", "low_var_kl"), (False, True))):
        if name == "low_var_kl" and unbiased:
            continue  # times the ratio, it reaches its clamp
        for (function, bounds, ours), mean in itertools.product((losses[1], losses[3]), means):
            ours = ours | penalty("k3" if "_" in name else name, use_bias_correction_kl=unbiased)
            yield recipe(function, bounds, ours, mean, REFERENCE, kl=(name, KL, unbiased))


def roll():
    width = dict(num_sequences=1, max_completion_length=lambda v, _: v.width)
    means = [("token-mean", {}, {}), ("token-mean", dict(batch_num_tokens=100), dict(num_items_in_batch=100)),
             ("seq-mean-token-sum-norm", {}, width)]  # fmt: skip
    for mode in ("seq-mean-token-sum", "seq-mean-token-mean"):
        means += [(mode, {}, {}), (mode, dict(global_valid_samples=16), dict(num_sequences=16))]
    free = dict(train=dict(tis_upper_bound=OFF, cispo_epsilon_low=OFF, cispo_epsilon_high=OFF),
                pipeline=dict(pg_clip=OFF, use_pg_clip_range=False, dual_clip_loss=False))  # fmt: skip
    losses = [("vanilla_pg", {}, {}, dict(loss_type="reinforce"))]
    for low, high, narrow in ((0.2, 0.2, 0.2), (0.1, 0.28, 0.25)):
        for dual in (False, True):
            clips = dict(pg_clip=narrow, pg_clip_low=low, pg_clip_high=high, use_pg_clip_range=True)
            ours = clip(low, high, delta=1 + narrow * 2 if dual else None)
            losses.append(("ppo", {}, clips | dict(dual_clip_loss=dual), ours))
    for low, high in ((0.0, 1.0), (0.5, 2.0)):
        ours = dict(loss_type="cispo", epsilon_low=1 - low, epsilon_high=high)
        losses.append(("tis", dict(tis_lower_bound=low, tis_upper_bound=high), {}, ours))
    for good, bad in ((1.0, 1.0), (1.5, 0.5)):
        train = dict(topr_positive_weight=good, topr_negative_weight=bad)
        losses.append(("topr", train, {}, dict(loss_type="topr", topr_weight_pos=good, topr_weight_neg=bad)))
    for low, high, _ in CLIPS:
        losses.append(("cispo", dict(cispo_epsilon_low=low, cispo_epsilon_high=high), {}, truncate(low, high)))
    for tau in (0.1, 0.6):
        losses.append(("kimi15", dict(kimi15_tau=tau), {}, dict(loss_type="dro", dro_tau=tau)))

    def recipe(function, train, pipeline, ours, mean, reads=OLD, **how):
        mode, given, normaliser = mean
        call = dict(function=function, mode=mode, given=given, train=train, pipeline=pipeline, **how)
        ours = ours | normaliser | dict(aggregation=mode.replace("-", "_"))
        reads = (*reads, "scores") if function == "topr" else reads
        return Recipe(function, call, ours, reads, free if function in ("ppo", "tis", "cispo") else None)

    for loss, mean in itertools.product(losses, means):
        yield recipe(*loss, mean)
    for k, (name, mean) in enumerate(itertools.product(("kl", "abs", "mse", "k3"), means)):
        function, train, pipeline, ours = losses[k % len(losses)]
        ours = ours | penalty({"kl": "k1", "mse": "k2"}.get(name, name))
        yield recipe(function, train, pipeline, ours, mean, REFERENCE, kl=(name, KL))


def areal():
    rejections = [("clamp", None, 1.2, "token_truncate"), ("clamp", 0.7, 1.5, "token_truncate"),
                  ("mask", None, 1.2, "token_mask"), ("mask", 0.8, 1.25, "token_mask")]  # fmt: skip

    def recipe(function, config, ours, level, moment=None, rejection=None):
        call = dict(function=function, config=config, moment=moment, rejection=rejection, level=level)
        ours = dict(ours, aggregation="token_mean", importance_sampling_level=level)
        if moment:
            ours |= dict(m2_threshold=moment, num_items_in_batch=lambda v, loss: loss(v, count=True, **call))
        off = dict(config=FREE, moment=OFF if moment else None) if function == "ppo_actor" else None
        levels = (SEQUENCE,) if level == "sequence" else (SEQUENCE, TOKEN)
        return Recipe(function, call, ours, SAMPLER if moment or rejection else OLD, off, levels)

    for (low, high, most), dual, level in itertools.product(CLIPS, (False, True), ("token", "sequence")):
        c = most if dual else None
        ours, config, by_token = clip(low, high, delta=c), (low, high, c), level == "token"
        yield recipe("ppo_actor", config, ours, level)
        for moment in MOMENTS if by_token else ():
            yield recipe("ppo_actor", config, ours, level, moment)
        for k, (action, least, largest, name) in enumerate(rejections):
            if action == "mask" and not by_token:
                continue  # their mean ratio also excludes rejected tokens
            rejection = dict(level="token", metric="ratio", agg="mean", action=action, lower=least, upper=largest)
            moment = MOMENTS[k] if by_token and k % 2 == 0 else None
            yield recipe("ppo_actor", config, ours | corrected(name, least, largest), level, moment, rejection)
    for pair, level in itertools.product(TEMPERATURES, ("token", "sequence")):
        yield recipe("sapo", pair, sapo(*pair), level)


def trl():
    for (low, high, _), beta, steps in itertools.product(CLIPS, (0.0, 0.1), (1, 2, 4)):
        ours = dict(loss_type="gmpo", epsilon_low=low, epsilon_high=high, beta=beta, loss_scale=1 / steps)
        call, off = dict(low=low, high=high, beta=beta, steps=steps), dict(low=OFF, high=OFF)
        yield Recipe("gmpo", call, ours, REFERENCE if beta else OLD, off, advantages=(SEQUENCE,))


def make_cases(batches, kinds, checkouts):
    cases, counts = [], collections.Counter()
    # Tokens that a bound changes, and all tokens.
    touched, seen = collections.Counter(), collections.Counter()
    for project in (verl, prime_rl, nemo_rl, slime, roll, areal, trl):
        source = project.__name__
        loss_of = getattr(project_imports, source)(checkouts / source)
        for number, recipe in enumerate(project()):
            function, among = f"{source} {recipe.function}", kinds[recipe.kind]
            for k, advantages in enumerate((recipe.advantages * 2)[:2]):
                index = among[(7 * number + 13 * k) % len(among)]
                v = View(batches[index], advantages)
                name = f"{source}_{recipe.function}_{number}_batch_{index}_{advantages.split('_')[0]}"
                loss = loss_of(v, **recipe.call)
                (gradient,) = torch.autograd.grad(loss, v.flat.x, retain_graph=True)
                assert loss.dtype == torch.float64 and loss.isfinite() and gradient.isfinite().all(), name
                assert (gradient[~v.flat.m] == 0).all(), name
                counts[function] += 1
                if recipe.off:
                    (free,) = torch.autograd.grad(loss_of(v, **recipe.call | recipe.off), v.flat.x)
                    touched[function] += int(((free - gradient).abs() > 1e-12)[v.flat.m].sum())
                    seen[function] += int(v.tokens.sum())
                options = {o: x(v, loss_of) if callable(x) else x for o, x in recipe.options.items()}
                cases.append({"name": name, "source": source, "batch": index, "options": options,
                              "advantages": advantages, "reads": recipe.reads, "loss": short(loss.item(), 12),
                              "d_logps": numbers(gradient)})  # fmt: skip
    for function, count in counts.items():
        share = touched[function] / seen[function] if function in seen else None
        print(f"{function}: {count} cases" + ("" if share is None else f", bounds change {share:.0%} of the tokens"))
        assert share is None or share >= 0.1, function
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkouts", type=pathlib.Path, required=True, help="a folder with verl, prime_rl, ...")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    project_imports.compute_in_float64()
    torch.set_num_threads(1)
    batches, kinds = make_batches()
    cases = make_cases(batches, kinds, arguments.checkouts)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "trl")}
    write(arguments.output, versions | COMMITS, {"unit": UNIT, "batches": batches}, cases)
    assert len(cases) >= 1000 and arguments.output.stat().st_size < 1.5e6


if __name__ == "__main__":
    main()
