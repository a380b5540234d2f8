# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Takes the loss functions of other projects out of their checkouts.

The packages themselves cannot be imported: they want GPUs, servers and each other. take() compiles the functions
and classes that it is asked for as they stand in their file, but without decorators (torch.compile, registries), and
gives them stand-ins for the names that they have from elsewhere.
"""

import ast
import dataclasses
import importlib.util
import pathlib
import types
import typing

import torch
from common import Accelerator, Options, Training, new_metrics

Names = types.SimpleNamespace


def compute_in_float64():
    """Some functions cast to float32 before they subtract or exponentiate; the values here are of float64."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double


def take(path, names, **others):
    """Returns functions, classes and constants of a file by name. `others`: what they find under these names."""
    wanted, body = set(names.split()), [ast.parse("from __future__ import annotations").body[0]]
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
    return Options({name: space[name] for name in names.split()})


def verl(root):
    root = root / "verl"
    of_masks = take(root / "utils/torch_functional.py", "masked_sum masked_mean")
    losses = "vanilla gspo sapo gpg cispo dro dppo_tv dppo_kl clip_cov kl_cov geo_mean".split()
    core = take(
        root / "trainer/ppo/core_algos.py",
        "agg_loss kl_penalty kl_penalty_forward " + " ".join("compute_policy_loss_" + name for name in losses),
        verl_F=of_masks, ActorConfig=Options, AlgoConfig=type("AlgoConfig", (), {}),
    )  # fmt: skip
    helper = take(
        root / "trainer/ppo/rollout_corr_helper.py",
        "SAFETY_BOUND _parse_rollout_is_threshold compute_rollout_correction_weights",
        verl_F=of_masks, compute_is_metrics=lambda **inputs: {},
    )  # fmt: skip
    return Options(core, **helper)


def prime_rl(root):
    return take(
        root / "src/prime_rl/trainer/rl/loss.py",
        "LossInputs LossOutputs _safe_mean compute_importance_ratio_and_mismatch_kl default_loss_fn ipo_loss_fn "
        "ref_kl_loss_fn compute_loss",
    )


def nemo_rl(root):
    algorithms = root / "nemo_rl/algorithms"
    functions = take(algorithms / "utils.py", "masked_mean calculate_kl")
    loss = take(
        algorithms / "loss/loss_functions.py", "ClippedPGLossFn", **functions, LossFunction=object,
        LossInputType=Names(LOGPROB=0), LossType=Names(TOKEN_LEVEL=0, SEQUENCE_LEVEL=1),
        MetricNormalizer=Names(TOKENS=0, SEQUENCES=1, NONE=2),
    )  # fmt: skip
    return Options(functions, **loss)


def slime(root):
    ranks = Names(get_context_parallel_world_size=lambda: 1)
    utils = "compute_approx_kl compute_policy_loss compute_cispo_loss compute_opsm_mask compute_gspo_kl"
    backend = root / "slime/backends/megatron_utils"
    return Options(
        take(root / "slime/utils/ppo_utils.py", utils),
        **take(backend / "cp_utils.py", "get_sum_of_sample_mean", mpu=ranks),
        **take(backend / "loss.py", "vanilla_tis_function icepop_function"),
        compute_mis_weights=take(
            root / "examples/train_infer_mismatch_helper/mis.py",
            "masked_sum masked_mean masked_min masked_max metrics_append truncate clip mask compute_mis_weights "
            "add_ppl_metrics",
        ).compute_mis_weights,
    )


def roll(root):
    functions = take(root / "roll/utils/functionals.py", "agg_loss masked_mean masked_sum compute_approx_kl")
    worker = take(root / "roll/pipeline/rlvr/actor_pg_worker.py", "ActorPGWorker", ActorWorker=object, **functions)

    def make_worker(pipeline, **train):
        out = object.__new__(worker.ActorPGWorker)
        logged = dict.fromkeys(("_topr_sample_logged", "_cispo_config_logged", "_kimi15_config_logged"), True)
        config = Names(actor_train=Names(**train), **pipeline)
        out.__dict__.update(logged, _pg_config_cache={}, _cached_metrics={}, pipeline_config=config)
        return out

    return Options(functions, make_worker=make_worker)


def areal(root):
    losses = take(
        root / "areal/utils/functional/functional.py",
        "_compute_sequence_level_ratio_and_advantages RejectionSamplingResult _check_bounds apply_rejection_sampling "
        "ppo_actor_loss_fn sapo_loss_fn",
    )
    actor = take(root / "areal/trainer/ppo/actor.py", "_apply_m2po_masking _get_m2po_loss_mask")
    return Options(losses, apply_m2po_masking=actor._apply_m2po_masking)


def trl(_):
    """The installed TRL."""
    folder = pathlib.Path(importlib.util.find_spec("trl").origin).parent
    smallest_and_largest = {"nanmin": torch.min, "nanmax": torch.max}
    return take(
        folder / "experimental/gmpo/gmpo_trainer.py", "GMPOTrainer", GRPOTrainer=object, **smallest_and_largest
    )


def gmpo_loss(trainer_class, logps, inputs, **options):
    """GMPOTrainer._compute_loss on a stand-in for its trainer."""
    trainer = object.__new__(trainer_class)
    trainer.__dict__.update(
        options, top_entropy_quantile=1.0, model=Training(), accelerator=Accelerator(), _metrics=new_metrics(),
        _get_per_token_logps_and_entropies=lambda *a, **k: (logps, torch.zeros_like(logps), None),
    )  # fmt: skip
    return trainer._compute_loss(None, inputs)
