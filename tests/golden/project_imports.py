# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls the policy losses of other projects from their checkouts.

The packages themselves cannot be imported, because they need GPUs, servers and each other. take() compiles
the requested functions and classes unchanged from their file, but without decorators (torch.compile,
registries), and gives them stand-ins for imported names. A function here with a project's name returns a
function that calls the project's losses on a View, with options in the project's form.
"""

import ast
import dataclasses
import importlib.util
import itertools
import pathlib
import types
import typing

import torch
from common import Accelerator, Options, Training, new_metrics

COMMITS = {
    "verl": "1dda039b9c6311889a9c9a26040677e1254814f9",
    "prime_rl": "559b44772e471d1538537b8805cc77f3824a5e64",
    "nemo_rl": "7ea279abfbeb698b092856d0dab61e7cf39bc909",
    "slime": "624b824a898ab0ec1fcb4d373004c7f3852bf515",
    "roll": "8eb27cc2dc34c4d1310b169d9b86d339004d811a",
    "areal": "4aef98d8d818af55b43621aaadba047ae10f4e77",
}
Names = types.SimpleNamespace
UNIT = 1024  # inputs are integers over this, so that float64 holds them exactly
SEQUENCE, TOKEN = "sequence_advantages", "token_advantages"
COLUMNS = {"x": "logps", "o": "old_logps", "r": "ref_logps", "s": "sampling_logps", "t": "teacher_logps"}


def compute_in_float64():
    """Some functions cast to float32 before they subtract or exponentiate. Make these casts float64."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double


class View:
    """A batch as projects take it: [B, T] with zeros after the sequences, and [N] as `flat`. Letters name the
    columns above; A: advantages, m: mask."""

    def __init__(self, batch, advantages=SEQUENCE):
        self.lengths = [end - begin for begin, end in itertools.pairwise(batch["offsets"])]
        self.count, self.width = len(self.lengths), max(self.lengths)
        self.sequence = torch.arange(self.count).repeat_interleave(torch.tensor(self.lengths))
        self.position = torch.cat([torch.arange(length) for length in self.lengths])
        of_unit = lambda name: torch.tensor(batch[name]) / UNIT  # noqa: E731
        self.scores, self.of_sequence = of_unit("scores"), of_unit(SEQUENCE)
        self.flat = Options({letter: of_unit(name) for letter, name in COLUMNS.items()})
        self.flat.x.requires_grad_()
        self.flat["A"] = self.of_sequence[self.sequence] if advantages == SEQUENCE else of_unit(TOKEN)
        self.flat["m"] = torch.tensor(batch["mask"]).bool()
        self.x, self.o, self.r, self.s, self.t, self.A, self.m = (self.pad(self.flat[k]) for k in "xorstAm")
        self.mask = self.m.long()
        self.tokens = self.mask.sum(1)

    def pad(self, flat):
        out = torch.zeros(self.count, self.width, dtype=flat.dtype)
        out[self.sequence, self.position] = flat
        return out

    def split(self, *letters):
        """Return each column as a list of sequences."""
        return [list(self.flat[letter].split(self.lengths)) for letter in letters]


def take(path, names, **others):
    """Return functions, classes and constants of a file by name. `others` are the names that they use, with
    values."""
    names = names.split()
    wanted, body = set(names), [ast.parse("from __future__ import annotations").body[0]]
    for node in ast.parse(path.read_text()).body:
        targets = getattr(node, "targets", [])
        defined = {getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)}
        if not defined & wanted:
            continue
        wanted -= defined
        if hasattr(node, "decorator_list"):
            node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) == "dataclass"]
        body.append(node)
    assert not wanted, f"{path} has no {wanted}"
    space = {"__name__": __name__, "torch": torch, "dataclass": dataclasses.dataclass, "field": dataclasses.field,
             "Any": typing.Any, "Optional": typing.Optional, **others}  # fmt: skip
    exec(compile(ast.fix_missing_locations(ast.Module(body, [])), str(path), "exec"), space)
    return Options({name: space[name] for name in names})


def verl(root):
    root = root / "verl"
    of_masks = take(root / "utils/torch_functional.py", "masked_sum masked_mean")
    losses = "vanilla gspo sapo gpg cispo dro dppo_tv dppo_kl clip_cov kl_cov geo_mean".split()
    core = take(
        root / "trainer/ppo/core_algos.py",
        "agg_loss kl_penalty kl_penalty_forward " + " ".join("compute_policy_loss_" + name for name in losses),
        verl_F=of_masks, ActorConfig=Options, AlgoConfig=type("AlgoConfig", (), {}),
    )  # fmt: skip
    weigh = take(
        root / "trainer/ppo/rollout_corr_helper.py",
        "SAFETY_BOUND _parse_rollout_is_threshold compute_rollout_correction_weights",
        verl_F=of_masks, compute_is_metrics=lambda **inputs: {},
    ).compute_rollout_correction_weights  # fmt: skip

    def loss(v, function, mode, info, config, rollout=None, kl=None):
        config = Options(config, clip_ratio=0.2, global_batch_info=info)
        config["policy_loss"] = config
        weights = weigh(v.o - v.s, v.mask, *rollout)[0] if rollout else None
        out, _ = core["compute_policy_loss_" + function](v.o, v.x, v.A, v.mask, mode, config, weights)
        if kl:
            name, weight = kl
            out = out + weight * core.agg_loss(core.kl_penalty(v.x, v.r, name), v.mask, mode, **info)
        return out

    return loss


def prime_rl(root):
    """Their sampler is our old policy, and their reference our teacher."""
    p = take(
        root / "src/prime_rl/trainer/rl/loss.py",
        "LossInputs LossOutputs _safe_mean compute_importance_ratio_and_mismatch_kl default_loss_fn ipo_loss_fn "
        "ref_kl_loss_fn compute_loss",
    )

    def loss(v, function, config, scale):
        of_sample, none, weights = p[function + "_loss_fn"], None, None
        if function == "ref_kl":
            config, none = [], [torch.zeros(n) for n in v.lengths]
            weights = [m.double() for m in v.split("m")[0]]
        else:
            config = [Options(config)]
        scale = v.tokens.sum() if scale == "count" else scale
        of_inputs = lambda inputs: of_sample(inputs, *config)  # noqa: E731
        return p.compute_loss(*v.split(*"xotAm"), none, None, weights, of_inputs, scale, 1, scale)[0]

    return loss


NEMO = dict(
    disable_ppo_ratio=False, sequence_level_importance_ratios=False, ratio_clip_min=0.2, ratio_clip_max=0.2,
    ratio_clip_c=None, reference_policy_kl_penalty=0.0, reference_policy_kl_type="k3", kl_input_clamp_value=20.0,
    kl_output_clamp_value=10.0, use_kl_in_reward=False, use_importance_sampling_correction=False,
    truncated_importance_sampling_type=None, truncated_importance_sampling_ratio=None,
    truncated_importance_sampling_ratio_min=None, use_on_policy_kl_approximation=False, force_on_policy_ratio=False,
    use_cispo=False, positive_example_nll_weight=0.0,
)  # fmt: skip


def nemo_rl(root):
    algorithms = root / "nemo_rl/algorithms"
    make = take(
        algorithms / "loss/loss_functions.py", "ClippedPGLossFn", LossFunction=object,
        LossInputType=Names(LOGPROB=0), LossType=Names(TOKEN_LEVEL=0, SEQUENCE_LEVEL=1),
        MetricNormalizer=Names(TOKENS=0, SEQUENCES=1, NONE=2),
        **take(algorithms / "utils.py", "masked_mean calculate_kl"),
    ).ClippedPGLossFn  # fmt: skip

    def loss(v, config, counts=None, rejects=False, sampler="s"):
        """counts: of samples and tokens, including other ranks. rejects: a sequence without tokens is a
        rejected sample."""
        tokens, samples = v.mask.double(), torch.ones(v.count)
        if rejects:
            tokens[v.tokens == 0], samples[v.tokens == 0] = 1.0, 0.0
        columns = dict(token_mask=tokens, advantages=v.A, prev_logprobs=v.o, reference_policy_logprobs=v.r,
                       generation_logprobs=getattr(v, sampler))  # fmt: skip
        data = {name: torch.cat([torch.zeros(v.count, 1), x], 1) for name, x in columns.items()}
        data.update(sample_mask=samples, rewards=v.scores)
        counts = [torch.tensor(float(n)) for n in counts] if counts else (samples.sum(), v.tokens.sum())
        return make(Options(config))(v.x, data, *counts)[0]

    return loss


def slime(root):
    backend = root / "slime/backends/megatron_utils"
    p = Options(
        take(root / "slime/utils/ppo_utils.py",
             "compute_approx_kl compute_policy_loss compute_cispo_loss compute_opsm_mask compute_gspo_kl"),
        **take(backend / "cp_utils.py", "get_sum_of_sample_mean", mpu=Names(get_context_parallel_world_size=lambda: 1)),
        **take(backend / "loss.py", "vanilla_tis_function icepop_function"),
    )  # fmt: skip
    weigh = take(
        root / "examples/train_infer_mismatch_helper/mis.py",
        "masked_sum masked_mean masked_min masked_max metrics_append truncate clip mask compute_mis_weights "
        "add_ppl_metrics",
    ).compute_mis_weights

    def loss(v, function, bounds, per_token, rollouts=None, drift=None, tis=None, mis=None, kl=None):
        """Combine the parts like policy_loss_function and loss_function, on one rank."""
        (low, high, most), f, (x, o, s, a, m) = bounds, v.flat, v.split(*"xosAm")
        masks = [mask.double() for mask in m]
        moved = p.compute_gspo_kl(x, o, x, masks) if function == "gspo" else f.o - f.x
        if function == "cispo":
            out, _ = p.compute_cispo_loss(moved, f.x, f.A, low, high)
        else:
            out, _ = p.compute_policy_loss(moved, f.A, low, high, most)
        if drift:
            out = out * p.compute_opsm_mask(Options(opsm_delta=drift), x, o, a, masks)[0]
        sums, inputs = [mask.sum() for mask in masks], dict(train_log_probs=o, rollout_log_probs=s)
        if tis:
            name, low, high = tis
            out, _, _ = p[name](Options(tis_clip_low=low, tis_clip=high), pg_loss=out, loss_masks=masks, **inputs)
        if mis:
            weights, masks, _ = weigh(Options(mis), loss_masks=masks, **inputs)
            out = out * torch.cat(weights)
        reduce = p.get_sum_of_sample_mean(v.lengths, v.lengths, masks, sums, per_token)
        out = reduce(out)
        if kl:
            name, weight, unbiased = kl
            ratio = (f.x - f.o).exp() if unbiased else None
            out = out + weight * reduce(p.compute_approx_kl(f.x, f.r, name, ratio))
        return out / (sum(n.clamp(min=1) for n in sums) if per_token else rollouts or v.count)

    return loss


def roll(root):
    p = take(root / "roll/utils/functionals.py", "agg_loss masked_mean masked_sum compute_approx_kl")
    actor = take(root / "roll/pipeline/rlvr/actor_pg_worker.py", "ActorPGWorker", ActorWorker=object, **p).ActorPGWorker
    logged = dict.fromkeys(("_topr_sample_logged", "_cispo_config_logged", "_kimi15_config_logged"), True)

    def loss(v, function, mode, given, train, pipeline, kl=None):
        # Zeros where the mask is false, as in its own log-probabilities: its token-mean sums all positions.
      
        x, o, r, a = (torch.where(v.m, column, 0.0) for column in (v.x, v.o, v.r, v.A))
        worker, ratio = object.__new__(actor), (x - o).exp()
        config = Names(actor_train=Names(**train), **pipeline)
        worker.__dict__.update(logged, _pg_config_cache={}, _cached_metrics={}, pipeline_config=config)
        data = Names(batch={"scores": v.scores})
        inputs = {"vanilla_pg": (x, a), "cispo": (x, a), "kimi15": (x, o, a), "tis": (x, o, a, data),
                  "topr": (x, o, a, data),
                  "ppo": (a, v.mask, {"final_response_mask": v.tokens.sum()}, {})}  # fmt: skip
        of_tokens = getattr(worker, f"_compute_{function}_loss")(ratio, *inputs[function])
        out = p.agg_loss(of_tokens, v.mask, mode, **given)
        if kl:
            name, weight = kl
            out = out + weight * p.agg_loss(p.compute_approx_kl(x, r, v.mask, name), v.mask, mode, **given)
        return out

    return loss


def areal(root):
    p = take(
        root / "areal/utils/functional/functional.py",
        "_compute_sequence_level_ratio_and_advantages RejectionSamplingResult _check_bounds apply_rejection_sampling "
        "ppo_actor_loss_fn sapo_loss_fn",
    )
    reduce = take(root / "areal/trainer/ppo/actor.py", "_apply_m2po_masking _get_m2po_loss_mask")._apply_m2po_masking

    def loss(v, function, config, moment=None, rejection=None, level="token", count=False):
        """count: return the number of tokens in their mean instead of the loss."""
        mask = reduce(v.s, v.o, v.m, moment) if moment else v.m
        if count:
            return int(mask.sum())
        if function == "sapo":
            return p.sapo_loss_fn(v.x, v.o, v.A, *config, mask, level)[0]
        low, high, most = config
        rejection = rejection and Options(rejection)
        return p.ppo_actor_loss_fn(v.x, v.o, v.s, v.A, low, mask, high, most, rejection, level)[0]

    return loss


def trl(_):
    """Call the installed TRL on a stand-in for its trainer."""
    folder = pathlib.Path(importlib.util.find_spec("trl").origin).parent
    trainer_class = take(folder / "experimental/gmpo/gmpo_trainer.py", "GMPOTrainer", GRPOTrainer=object,
                         nanmin=torch.min, nanmax=torch.max).GMPOTrainer  # fmt: skip

    def loss(v, low, high, beta, steps):
        trainer = object.__new__(trainer_class)
        trainer.__dict__.update(
            epsilon_low=low, epsilon_high=high, beta=beta, current_gradient_accumulation_steps=steps,
            top_entropy_quantile=1.0, model=Training(), accelerator=Accelerator(), _metrics=new_metrics(),
            _get_per_token_logps_and_entropies=lambda *a, **k: (v.x, torch.zeros_like(v.x), None),
        )  # fmt: skip
        # TRL adds -A for a sequence without tokens, which ours ignores.
        advantages = torch.where(v.tokens > 0, v.of_sequence, 0.0)
        ids, none = torch.zeros(v.count, v.width).long(), torch.zeros(v.count, 0).long()
        inputs = dict(prompt_ids=none, prompt_mask=none, completion_ids=ids, completion_mask=v.mask,
                      advantages=advantages, old_per_token_logps=v.o, ref_per_token_logps=v.r)  # fmt: skip
        return trainer._compute_loss(None, inputs)

    return loss
