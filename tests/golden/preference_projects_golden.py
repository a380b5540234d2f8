# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes preference_projects.json: TRL's losses of pairs and of single sequences, and DFT, on many small
batches.

A recipe is a call of TRL's own code, and the equivalent options of ours. Autograd computes its gradient by
the log-probabilities, in float64. Cases that TRL lacks are written out, and their "source" is "formula". See
README.md.
"""

import argparse
import importlib.metadata
import pathlib
import random
from functools import partial
from itertools import accumulate, cycle, product

import torch
import torch.nn.functional as F
from common import Accelerator, Options, expect_equal, new_metrics, numbers, short, write
from project_imports import compute_in_float64
from torch.nn.utils.rnn import pad_sequence
from trl.experimental.a2po.a2po_trainer import A2POTrainer
from trl.experimental.cpo import cpo_trainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer
from trl.experimental.tpo import tpo_trainer
from trl.trainer import dpo_trainer
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.sft_trainer import SFTTrainer

UNIT = 1024  # inputs are integers over this, so that float64 holds them exactly
BATCHES = 23  # plus one that has a sequence without tokens, for DFT
MARGIN = 1e-6
REFERENCE, WEIGHTS, TARGETS = "ref_logps", "sequence_weights", "reward_targets"
SCORED = "sigmoid hinge ipo exo_pair robust discopop sigmoid_norm".split()  # the losses with f-divergences
SORTED = ["aot", "aot_unpaired"]
LOSSES = [*SCORED, *"nca_pair bco_pair sppo_hard apo_zero apo_down".split(), *SORTED, "sft"]
SMOOTHING = {"exo_pair": (0.1, 0.3, 0.5), **dict.fromkeys(["robust", *SORTED], (0.0, 0.15, 0.4))}
SMOOTHING = {loss: cycle(values) for loss, values in SMOOTHING.items()}
ALPHAS = [dict(f_divergence="alpha_divergence", f_alpha=alpha) for alpha in (0.5, 0.0, 2.0, 1.0, -0.5, 1.5)]
DIVERGENCES = [dict(f_divergence="forward_kl"), dict(f_divergence="js_divergence"), *ALPHAS]
TAILS, AVERAGES = [dict(ld_alpha=share) for share in (0.5, 0.0, 1.0)], [{}, dict(average_log_prob=True)]
BETAS, TAUS, GAMMAS = map(cycle, [(0.1, 0.5, 1.0, 2.0, 0.25), (0.05, 0.5, 0.2), (0.5, 0.0, 1.5)])
DEFAULTS = Options(
    loss_weights=None, beta=0.1, label_smoothing=0.0, average_log_prob=False, discopop_tau=0.05, simpo_gamma=0.5,
    f_divergence="reverse_kl", f_alpha=0.5, ld_alpha=None, use_weighting=False, reward_alpha=0.0, nll_weight=None,
    desirable_weight=1.0, undesirable_weight=1.0, bco_delta=0.0, num_items_in_batch=None, loss_scale=1.0,
)  # fmt: skip


class Torch:
    """PyTorch as modules of TRL see it, with three changes: float32 is float64, because DPO's table of clamps
    has no float64; relu returns a copy, because DPO changes its result in place, which autograd refuses; and
    numbers close to a corner or a tie are refused."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)

    def relu(self, x):
        assert (x.abs() > MARGIN).all()
        return torch.relu(x).clone()

    def sort(self, x, dim):
        assert (x.sort().values.diff() > MARGIN).all()
        return torch.sort(x, dim=dim)


class View:
    """A batch as TRL takes it: [S, T], with zeros after the sequences and where the mask is false."""

    def __init__(self, batch):
        self.lengths = torch.tensor(batch["offsets"]).diff().tolist()
        of_unit = lambda name: torch.tensor(batch[name]) / UNIT  # noqa: E731
        self.leaf, self.weights, self.targets = of_unit("logps").requires_grad_(), of_unit(WEIGHTS), of_unit(TARGETS)
        self.labels, self.mask = torch.tensor(batch["labels"]).bool(), self.pad(torch.tensor(batch["mask"]).bool())
        columns = self.leaf, of_unit(REFERENCE), of_unit("log_square_sums")
        self.logps, self.ref, self.squares = (torch.where(self.mask, self.pad(x), 0.0) for x in columns)
        self.inputs = inputs_of(self.mask)

    def pad(self, flat):
        return pad_sequence(flat.split(self.lengths), batch_first=True)

    def scaled(self, o):
        """Return tokens of policy and reference, scaled so that their sums are averages if requested."""
        share = 1 / self.mask.sum(1, keepdim=True) if o.average_log_prob else 1.0
        return self.logps * share, self.ref * share


def inputs_of(mask):
    """Add a first position, which nothing predicts."""
    mask = torch.cat([torch.zeros_like(mask[:, :1]), mask], 1).long()
    return {"input_ids": torch.zeros_like(mask), "completion_mask": mask, "attention_mask": mask}


def fused(logps, mask, squares=None, entropies=None):
    """Return a model with TRL's fused head."""
    zeros = torch.zeros_like(logps)
    return lambda **_: Options(log_probs=logps, log_sum_sq_probs=squares, mean_logits=zeros, is_top1=zeros.bool(),
                               entropy=zeros if entropies is None else entropies, label_mask=mask)  # fmt: skip


def dense(logps, mask):
    """Return a model of two token ids; the first id has these log-probabilities."""
    x = torch.where(mask, logps, -1.0)
    logits = torch.stack([x, (-torch.expm1(x)).log()], -1)
    logits = torch.cat([logits, torch.zeros_like(logits[:, :1])], 1)
    return lambda *_, **__: Options(logits=logits)


def trainer(of, **attributes):
    """Return a trainer without its model, data and devices."""
    out, accelerator = object.__new__(of), Accelerator()
    accelerator.parallelism_config = None
    out.__dict__.update(dict(
        accelerator=accelerator, model=Options(training=True, is_gradient_checkpointing=False), aux_loss_enabled=False,
        is_encoder_decoder=False, pad_token_id=0, padding_value=0, model_kwarg_keys=(), compute_loss_func=None,
        label_smoother=None, get_tp_size=lambda: 1, _tp_size=1, _total_train_tokens=0, _metrics=new_metrics(),
    ), **attributes)  # fmt: skip
    return out


def dpo(v, o, losses=None, weights=None, **others):
    o = Options(o, **others)
    (logps, ref), losses = v.scaled(o), losses or o.loss_type
    t = trainer(
        dpo_trainer.DPOTrainer, loss_types=losses, loss_weights=weights or o.loss_weights or [1.0] * len(losses),
        beta=o.beta, label_smoothing=o.label_smoothing, ld_alpha=o.ld_alpha, use_weighting=o.use_weighting,
        f_divergence_type=o.f_divergence, f_alpha_divergence_coef=o.f_alpha, precompute_ref_logps=False,
        ref_model=fused(ref, v.mask), args=Options(discopop_tau=o.discopop_tau, gradient_checkpointing_kwargs=None),
    )  # fmt: skip
    return t._compute_loss(fused(logps, v.mask, v.squares), v.inputs, False)


def cpo(v, o, name, nll=1.0, **others):
    """Return the loss of CPO or, by that name, ORPO. nll: the weight of the likelihood if our options omit
    it."""
    o, of = Options(o, **others), ORPOTrainer if name == "orpo" else cpo_trainer.CPOTrainer
    t = trainer(of, loss_type=name, alpha=o.reward_alpha, beta=o.beta, label_smoothing=o.label_smoothing,
                simpo_gamma=o.simpo_gamma, cpo_alpha=nll if o.nll_weight is None else o.nll_weight)  # fmt: skip
    ids, mask = v.inputs["input_ids"], v.inputs["attention_mask"]
    batch = {}
    for column, x in dict(input_ids=ids, attention_mask=mask, labels=torch.where(mask > 0, ids, -100)).items():
        batch["chosen_" + column], batch["rejected_" + column] = x.chunk(2)
    return t.get_batch_loss_metrics(dense(v.logps, v.mask), batch)[0]


def dpo_and(v, o):
    """Combine DPO with a loss of another trainer. NLL is DPO's sft, minus the NLL that ORPO includes."""
    (first, name), (weight, other_weight), own_nll = o.loss_type, o.loss_weights, o.loss_type[1] == "orpo"
    other = cpo(v, o, "sigmoid" if name == "cpo" else name, nll_weight=0.0)
    return other_weight * other + dpo(v, o, [first, "sft"], [weight, o.nll_weight - own_nll])


def tpo(v, o, name):
    """Use the chosen answers as gold answers, so that their likelihood is our NLL."""
    third = lambda x: torch.cat([x, x.chunk(2)[0]]) if o.nll_weight else x  # noqa: E731
    t = trainer(tpo_trainer.TPOTrainer, loss_type=name, tpo_alpha=o.nll_weight, beta=o.beta,
                label_smoothing=o.label_smoothing, tpo_l_gamma=o.simpo_gamma)  # fmt: skip
    return t._compute_loss(dense(third(v.logps), third(v.mask)), inputs_of(third(v.mask)), False)


def kto(v, o):
    logps, ref = v.scaled(o)
    kl = {name: torch.tensor(values) / UNIT for name, values in o.kl.items()}
    t = trainer(KTOTrainer, beta=o.beta, loss_type=o.loss_type, desirable_weight=o.desirable_weight,
                undesirable_weight=o.undesirable_weight, precompute_ref_logps=True, calculate_KL=bool(kl),
                _compute_kl_logps=lambda *_: kl.get("kl_logps"))  # fmt: skip
    inputs = dict(v.inputs, label=v.labels, ref_logps=ref.sum(1), ref_KL_logps=kl.get("kl_ref_logps"))
    return t._compute_loss(fused(logps, v.mask), inputs, False)


def a2po(v, o):
    t, keep = trainer(A2POTrainer, args=Options(beta2=o.beta)), v.mask.shape[1]
    inputs = dict(input_ids=v.inputs["input_ids"], attention_mask=v.inputs["attention_mask"], logits_to_keep=keep)
    ref = t._get_sequence_logps(dense(v.ref, v.mask), **inputs)
    inputs.update(ref_logps=ref, rewards=v.targets + 0.25, v_star=torch.full_like(v.targets, 0.25))
    return t.compute_loss(dense(v.logps, v.mask), inputs)


def single(v, o):
    """Compute the formulas of docs/losses-preference.md, "Single sequences"."""
    logps, ref = v.scaled(o)
    x, sign = o.beta * (logps - ref).sum(1), torch.where(v.labels, 1.0, -1.0)
    if o.loss_type == "bco":
        out = -F.logsigmoid(sign * (x - o.bco_delta))
    elif o.loss_type == "a2po":
        out, sign = (x - v.targets).square(), torch.ones_like(sign)  # has no labels
    else:
        kl, ref_kl = (sum(o.kl[name]) / len(o.kl[name]) for name in o.kl) if o.kl else (0, 0)
        out = torch.sigmoid(sign * (o.beta * max(0, (kl - ref_kl) / UNIT) - x))
    out = out * torch.where(sign > 0, o.desirable_weight, o.undesirable_weight)
    return (out * (v.weights if WEIGHTS in o.reads else 1.0)).mean()


def dft(v, o):
    t = trainer(SFTTrainer, args=Options(loss_type="dft", average_tokens_across_devices=o.loss_scale != 1))
    t.accelerator.num_processes = int(o.loss_scale)
    return t.compute_loss(fused(v.logps, v.mask), dict(v.inputs), num_items_in_batch=o.num_items_in_batch)


def recipe(function, loss, reads=(), kind="preference", kl=None, /, **options):
    """function: its name in TRL. loss: a function of a View and of our options with defaults. options: ours."""
    return Options(function=function, loss=loss, reads=reads, kind=kind, kl=kl or {}, options=options)


def dpo_recipe(losses, loss=dpo, function="DPO", **options):
    if set(losses) & set(SMOOTHING):
        options["label_smoothing"] = next(SMOOTHING[losses[0]]) if len(losses) == 1 else 0.15
    if "discopop" in losses:
        options["discopop_tau"] = next(TAUS)
    reads = () if losses == ["sft"] else (REFERENCE,)
    return recipe(function, loss, reads, loss_type=losses, beta=next(BETAS), **options)


def pair_recipes(r):
    for loss in LOSSES:
        divergences, tails = DIVERGENCES if loss in SCORED else [], TAILS if loss != "sft" else []
        weighting = [] if loss in (*SORTED, "sft") else [dict(use_weighting=True)]
        seen = [{**a, **b, **c} for a, b, c in product([{}] * 4 + divergences, [{}, *tails], [{}, *weighting])]
        if loss not in ("ipo", "sigmoid_norm", "sft"):
            seen += [dict(average_log_prob=True, **tail) for tail in ({}, TAILS[0])]
        yield from (dpo_recipe([loss], **options) for options in seen)
    for number in range(60):
        options, among = {**r.choice([{}, *TAILS]), **r.choice([{}, dict(use_weighting=True)])}, LOSSES
        if number % 3 == 0:
            options, among = {**options, **r.choice(DIVERGENCES)}, [*SCORED, "sft"]
        if "use_weighting" in options:
            among = [loss for loss in among if loss not in (*SORTED, "sft")]
        losses = r.sample(among, r.randint(2, 4))
        yield dpo_recipe(losses, loss_weights=[r.choice((1.0, 0.5, 0.2, 2.0, -0.25, 0.0)) for _ in losses], **options)
    # The loss whose name means averages of scores.
    norm = partial(dpo, losses=["sigmoid_norm"], average_log_prob=False)
    yield from (dpo_recipe(["sigmoid"], norm, average_log_prob=True, **divergence) for divergence in DIVERGENCES)
    for (name, weight), nll in product((("cpo", 0.5), ("simpo", 0.3), ("orpo", 1.0)), (1.0, 1.5)):
        options = dict(losses=[r.choice(SCORED[:3]), name], loss_weights=[0.7, weight], nll_weight=nll)
        yield dpo_recipe(loss=dpo_and, function="DPO and " + name, **options)

    def others(function, loss, ours, **options):
        return recipe(function, loss, loss_type=[ours], beta=next(BETAS), **options)

    for alpha, eps, nll in product((0.0, 0.25, -0.5, 1.0), (0.0, 0.15), (None, 0.0, 0.3)):
        options = dict(reward_alpha=alpha, label_smoothing=eps, **{} if nll is None else dict(nll_weight=nll))
        yield others("CPO sigmoid", partial(cpo, name="sigmoid"), "cpo", **options)
        simpo = partial(cpo, name="simpo", nll=0.0)  # our default and alphapo's
        yield others("CPO simpo", simpo, "simpo", simpo_gamma=next(GAMMAS), **options)
    for loss, nll in product(("hinge", "ipo"), (1.0, 0.0, 0.5)):  # ours have a reference of 0
        yield others("CPO " + loss, partial(cpo, name=loss), loss, nll_weight=nll)
        yield others("TPO " + loss, partial(tpo, name=loss), loss, nll_weight=nll)
    for eps in (0.0, 0.15):
        yield others("CPO simpo", partial(cpo, name="simpo", simpo_gamma=0), "cpo", label_smoothing=eps, **AVERAGES[1])
    yield from (others("ORPO", partial(cpo, name="orpo"), "orpo") for _ in range(12))
    names = [("sigmoid", "cpo"), ("tpo-l", "simpo")] * 2
    for (name, ours), nll, eps in product(names, (0.0, 1.0, 0.5), (0.0, 0.1)):
        options = dict(nll_weight=nll, label_smoothing=eps, simpo_gamma=next(GAMMAS))
        yield others("TPO " + name, partial(tpo, name=name), ours, **options)


def other_recipes(r):
    reads, of_targets = (REFERENCE,), (REFERENCE, TARGETS)
    weights = [{}, dict(desirable_weight=1.5, undesirable_weight=0.75), dict(desirable_weight=0.0)]
    names = [("kto", 0), ("kto", 1), ("kto", -1), ("apo_zero_unpaired", 0), ("apo_zero_unpaired", 0)]
    for (name, sign), weight, average in product(names, weights, AVERAGES):
        ref = [-r.randint(3000, 9000) for _ in range(r.randint(2, 5))]  # of the baseline
        kl = dict(kl_logps=[x + sign * r.randint(100, 900) for x in ref], kl_ref_logps=ref) if sign else {}
        options = dict(loss_type=name, beta=next(BETAS), **weight, **average)
        yield recipe("KTO " + name, kto, reads, "single", kl, **options)
        yield recipe(name + " with weights", single, (*reads, WEIGHTS), "single", kl, **options)
    for beta in (1e-3, 0.1, 0.5, 1.0) * 3:
        yield recipe("A2PO", a2po, of_targets, "single", loss_type="a2po", beta=beta)
    for beta, average in product((0.1, 0.5, 1.0), AVERAGES):
        options = dict(loss_type="a2po", beta=beta, **average)
        yield recipe("a2po with weights", single, (*of_targets, WEIGHTS), "single", **options)
    for delta, weight, more, average in product((0.0, 0.375, -0.25), weights[:2], ((), (WEIGHTS,)), AVERAGES):
        options = dict(loss_type="bco", beta=next(BETAS), bco_delta=delta, **weight, **average)
        yield recipe("bco", single, (*reads, *more), "single", **options)
    for items, more in ((None, {}), (None, {}), (7, {}), (40, {}), (25, dict(loss_scale=2.0))) * 5:
        options = dict(num_items_in_batch=items) if items else {}
        yield recipe("SFT dft", dft, (), "dft", dft=True, **options, **more)


def draw(r):
    lengths = [r.randint(1, 7) for _ in range(2 * r.randint(2, 5))]
    mask = [int(i == n // 2 or r.random() < 0.75) for n in lengths for i in range(n)]
    logps = [-(r.randint(30, 400) if r.random() < 0.4 else r.randint(200, 3000)) for _ in range(sum(lengths))]
    return {"offsets": [0, *accumulate(lengths)], "mask": mask, "logps": logps,
            REFERENCE: [min(x + round(r.gauss(0, 700)), -10) for x in logps],
            # at least the token's own square
            "log_square_sums": [-r.randint(1, min(-2 * x, 6 * UNIT)) for x in logps],
            "labels": [r.randint(0, 1) for _ in lengths], TARGETS: [r.randint(-2000, 2000) for _ in lengths],
            WEIGHTS: [r.choice((0, 1024, r.randint(1, 4000))) for _ in lengths]}  # fmt: skip


def make_batches(r):
    batches = [draw(r) for _ in range(BATCHES + 1)]
    for batch, label in zip(batches, (1, 0)):
        batch["labels"] = [label] * len(batch["labels"])
    end = batches[-1]["offsets"][1]
    batches[-1]["mask"][:end] = [0] * end
    return batches


def make_cases(batches, recipes):
    cases = []
    for number, one in enumerate(recipes):
        index = BATCHES if one.kind == "dft" and number % 3 == 0 else 7 * number % BATCHES
        source = "formula" if one.loss is single else "trl"
        name = f"{one.function} {' '.join(one.options.get('losses', ()))} {number} {index}".replace(" ", "_")
        v, o = View(batches[index]), Options(DEFAULTS, **one.options, reads=one.reads, kl=one.kl)
        loss = one.loss(v, o)
        (gradient,) = torch.autograd.grad(loss, v.leaf)
        assert loss.dtype == torch.float64 and loss.isfinite() and gradient.isfinite().all(), name
        if one.kind == "single":
            expect_equal(name, single(v, o), loss)
        expected = {"loss": short(loss.item(), 12), "d_logps": numbers(gradient)}
        cases.append({"name": name, "kind": one.kind, "source": source, "batch": index, "options": one.options,
                      "reads": one.reads, **one.kl, **expected})  # fmt: skip
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    output = parser.parse_args().output
    compute_in_float64()
    torch.set_num_threads(1)
    for module in (dpo_trainer, cpo_trainer, tpo_trainer):
        module.torch = Torch()
    r = random.Random(20260303)
    batches = make_batches(r)
    cases = make_cases(batches, [*pair_recipes(r), *other_recipes(r)])
    versions = {name: importlib.metadata.version(name) for name in ("torch", "trl")}
    write(output, versions, {"unit": UNIT, "batches": batches}, cases)
    assert len(cases) >= 500 and output.stat().st_size < 1e6


if __name__ == "__main__":
    main()
