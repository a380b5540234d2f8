# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Every option of every call, taken from the lists in fields.h: each value other than the default changes the
result of the NumPy function, and gives the same result through PyTorch and JAX."""

import inspect

import numpy as np
import pytest

import logitless
from logitless import _core

B, T, H, V = 4, 5, 7, 101
N = B * T
random = np.random.default_rng(1)
# In float64, because a float32 loss would hide a small change.
HIDDEN = random.standard_normal((B, T, H)).astype(np.float32).astype(np.float64)
WEIGHT = random.standard_normal((V, H)).astype(np.float32).astype(np.float64)
IDS = (np.arange(N) * 37 % V).reshape(B, T)
OWN = logitless.token_stats(HIDDEN, WEIGHT, IDS)["logp"]
OLD = OWN + 0.3 * (np.arange(N) % 7 - 3)
OLD[6] -= 27  # a token with a negative advantage: a log ratio beyond every clamp
OLD[15:] += 2  # a sequence with a large log ratio
MASK = np.ones(N, np.uint8)
MASK[3:5] = 0  # sequences of different lengths, one of them empty
MASK[10:15] = 0
SCORES = np.array([1.0, 0, 0, -1])
SAMPLING = OLD + 0.8 * (np.arange(N) % 5 - 2.0)
TEACHER = OWN + 0.4 * (np.arange(N) % 3 - 1)
SUMS = np.array([-18.0, -20, -19, -17])
SET_IDS = np.stack([IDS.ravel(), (IDS.ravel() + 11) % V, (IDS.ravel() * 3) % V], 1)
SET_WEIGHTS = np.stack([0.2 + 0.01 * np.arange(N), np.full(N, 0.3), np.linspace(0, 0.4, N)], 1)
DISTINCT_IDS = np.stack([IDS.ravel(), (IDS.ravel() + 11) % V, (IDS.ravel() + 29) % V], 1)
TEACHER_LOGPS = np.log(SET_WEIGHTS + 1e-3) - 0.3
SOME_IDS = IDS.copy()
SOME_IDS[1, 2:] = -100  # sequences of different lengths
RELATIVE = {"sft", "orpo", "simpo", "cpo"}  # losses without a reference

TOKEN_WEIGHTS = np.linspace(0, 2, N).reshape(B, T)

ARRAYS = {
    "temperatures": 0.5 + 0.05 * np.arange(N),
    "class_weights": np.linspace(0.5, 1.5, V).astype(np.float32),
    "cross_weights": np.linspace(0.5, 1.5, V).astype(np.float32),
}
# Options without which a field has no effect.
BESIDE = {
    "temperature_meaning": {"temperature": 0.5},
    "kl_estimator": {"beta": 0.5},
    "use_bias_correction_kl": {"beta": 0.5},
    "sampler_clip_min": {"sampler_correction": "token_truncate"},
    "sampler_clip_max": {"sampler_correction": "token_truncate"},
    "teacher_against": {"teacher_weight": 0.5},
    "teacher_discount": {"teacher_weight": 0.5},
    "max_completion_length": {"loss_type": "dr_grpo", "max_completion_length": 9},
    "discopop_tau": {"loss_type": ["discopop"]},
    "simpo_gamma": {"loss_type": ["simpo"]},
    "reward_alpha": {"loss_type": ["simpo"]},
    "f_alpha": {"f_divergence": "alpha_divergence", "ld_alpha": 0.5},
    "bco_delta": {"loss_type": "bco"},
    "cross_weights": {"cross": True},
    "draw_seed": {"draws": 5},
    "draw_top_k": {"draws": 5},
    "draw_top_p": {"draws": 5, "draw_top_k": 20},
}
UNEQUAL = {"cross_entropy": {"ignore_index": 37}}  # makes sequences of different lengths
OF_DIVERGENCE = {
    "beta": {"loss_type": "jsd"},
    "skew": {"loss_type": "skew_kl"},
    "forward_weight": {"loss_type": "mixed_kl"},
    "acceptance_decay": {"loss_type": "lk_hybrid"},
    "temperature_squared": {"temperature": 0.5},
    "hard_temperature": {"hard_weight": 0.5},
}
# Values with the same effect as the default in the calls here.
SAME = {"aggregation": {"default", "seq_mean_token_mean"}, "trust_region": {"default", "tv", "none"}}
# Values that are refused, because they have no effect with the other options here.
REFUSED = {
    ("soft_cross_entropy", "ignore_index", "37"),
    ("soft_cross_entropy", "shift", "7"),
    ("id_logps", "ignore_index", "37"),
    ("id_logps", "shift", "7"),
    ("set_distillation_loss", "ignore_index", "37"),
    ("set_distillation_loss", "temperature_meaning", "scale_logp"),
    ("set_distillation_loss", "loss_type", "acceptance"),
    ("set_distillation_loss", "loss_type", "lk_hybrid"),
    ("distillation_loss", "ignore_index", "37"),
    ("distillation_loss", "temperature_meaning", "scale_logp"),
    ("policy_loss", "ignore_index", "37"),
    ("policy_loss", "shift", "7"),
    ("policy_loss", "loss_type", "dr_grpo"),
    ("policy_loss", "aggregation", "seq_mean_token_sum_norm"),
    ("preference_loss", "loss_type", "[exo_pair]"),
}


def beside(structure, name):
    if name.startswith(("sapo", "vespo", "dro", "topr")):
        return {"loss_type": name.split("_")[0]}
    if name.startswith("trust_region"):
        return {"loss_type": "dppo", "trust_region_low": 0.03, "trust_region_high": 0.005}
    if name == "cov_kl_weight":
        return {"loss_type": "kl_cov"}
    if name.startswith("cov_"):
        free = {"epsilon_low": 1.0, "epsilon_high": 1e30, "cov_low": -0.3, "cov_high": 2.0}  # clips nothing
        return {"loss_type": "clip_cov", **free, "cov_share": 0.2 if name == "cov_seed" else 1.0}
    if structure == "policy_loss" and name == "num_items_in_batch":
        return {"loss_type": "dapo"}
    if structure == "preference_loss" and name in ("loss_type", "label_smoothing"):
        return {"loss_type": ["cpo"]}
    if structure.endswith("distillation_loss") and name in OF_DIVERGENCE:
        return OF_DIVERGENCE[name]
    if name == "mean_over":
        return UNEQUAL.get(structure, {})
    return BESIDE.get(name, {})


def other_values(name, field, now):
    """Values other than the current one; for a name, all other choices."""
    kind = field["type"]
    if name in ARRAYS:
        return [ARRAYS[name]]
    if field.get("list"):
        if kind == "name":
            return [[*now, "hinge"]] + [[one] for one in field["choices"] if [one] != now]
        return [[0.25 if kind == "float" else 3]]
    if name in SAME:
        return [one for one in field["choices"] if one not in SAME[name]]
    if kind == "name":
        return [one for one in field["choices"] if one != now and not (field.get("optional") and one in ("float32", "float64"))]
    if kind == "bool":
        return [not now]
    if kind == "int":
        return [37 if now == -100 else 7 if now != 7 else 9]
    assert kind == "float", (name, field)
    return [0.5 if now is None else now / 2 if now else 0.25]


def text_of(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cases(structure):
    for name, field in _core.fields(structure).items():
        base = beside(structure, name)
        for value in other_values(name, field, base.get(name, field["default"])):
            yield name, base, value


def preference_reference(options):
    if not set(options.get("loss_type", ["sigmoid"])) - RELATIVE:
        return None
    return OWN + 0.2 * (np.arange(N) % 3 - 1) if options.get("ld_alpha") is not None else SUMS


def kto_batch(options):
    batch = {"labels": np.array([1, 0, 0, 1], np.uint8), "ref_logps": SUMS}
    if options.get("loss_type", "kto") == "kto":
        batch.update(kl_logps=SUMS[:2], kl_ref_logps=SUMS[:2] - 0.5)
    if options.get("loss_type") == "a2po":
        batch["reward_targets"] = SCORES
    if options.get("loss_type") == "bco":
        batch["sequence_weights"] = np.array([1, 0.5, 2, 0.25])
    return batch


def batch_of(structure, options):
    """The tensors of a task except hidden states and head."""
    batch = tensors_of(structure, options)
    if options.get("mean_over") == "token_weights":
        batch["token_weights"] = TOKEN_WEIGHTS
    return batch


def tensors_of(structure, options):
    if structure == "soft_cross_entropy":
        return {"ids": SET_IDS, "weights": SET_WEIGHTS, "mask": MASK.reshape(B, T)}
    if structure == "set_distillation_loss":
        return {"ids": DISTINCT_IDS, "teacher_logps": TEACHER_LOGPS, "targets": SOME_IDS}
    if structure == "distillation_loss":
        return {"teacher_hidden": HIDDEN[..., ::-1].copy(), "teacher_weight": WEIGHT, "targets": SOME_IDS}
    if structure == "id_logps":
        return {"ids": SET_IDS}
    if structure == "preference_loss":
        return {"targets": IDS, "ref_logps": preference_reference(options)}
    if structure == "kto_loss":
        return {"targets": IDS, **kto_batch(options)}
    if structure != "policy_loss":
        return {"targets": IDS}
    batch = {"chosen_ids": IDS, "advantages": np.array([1.5, -0.5, 2, -1]), "old_logps": OLD, "mask": MASK}
    if options.get("beta"):
        batch["ref_logps"] = OWN + 0.2 * (np.arange(N) % 5 - 2)
    of_sampler = options.get("sampler_correction", "none") != "none" or options.get("teacher_against") == "sampling"
    if of_sampler or options.get("m2_threshold") or options.get("sampler_penalty"):
        batch["sampling_logps"] = SAMPLING
    if options.get("teacher_weight"):
        batch["teacher_logps"] = TEACHER
    if options.get("loss_type") == "topr" or options.get("positive_nll_weight"):
        batch["scores"] = SCORES
    return batch


def of_numpy(structure, options):
    """Everything that a call returns or writes: {name: array}."""
    function, batch = getattr(logitless, NUMPYS.get(structure, structure)), batch_of(structure, options)
    outputs = {}
    if structure in ("token", "token_stats", "id_logps"):
        more = {"entropy": True} if structure == "token" else {}
        result = function(HIDDEN, WEIGHT, **batch, **options, **more)
        columns = dict(result) if structure == "token_stats" else {}
        loss = result.logps if structure == "id_logps" else result.logp
        metrics = result.entropy if structure == "token" else ()
    else:
        outputs = {"d_hidden": np.zeros_like(HIDDEN), "d_weight": np.zeros_like(WEIGHT)}
        result = function(HIDDEN, WEIGHT, **batch, **outputs, **options)
        names = ("per_token_logps", "per_token_loss", "sequence_logps", "sequence_losses")
        columns = {name: getattr(result, name, None) for name in names}
        loss = result.per_token_loss if options.get("reduction") == "none" else result.loss
        metrics = list(result.metrics.values())
    named = {"loss": loss, **outputs, "metrics": metrics, **columns}
    return {name: np.asarray(array) for name, array in named.items() if array is not None}


def bytes_of(results):
    return {name: array.tobytes() for name, array in results.items()}


def check_arrives(structure, name, base, value):
    before, after = _core.texts(structure, base), _core.texts(structure, {**base, name: value})
    assert {key for key in after if after[key] != before[key]} == {name}
    if not isinstance(value, np.ndarray):
        assert after[name] == text_of(value)


@pytest.mark.parametrize("structure", logitless._PLANS)
def test_every_option_arrives_and_changes_the_result(structure):
    refused = set()
    results = {}
    for name, base, value in cases(structure):
        check_arrives(structure, name, base, value)
        key = repr(base)
        if key not in results:
            results[key] = bytes_of(of_numpy(structure, base))
        try:
            assert bytes_of(of_numpy(structure, {**base, name: value})) != results[key], (name, value)
        except ValueError:
            refused.add((structure, name, text_of(value)))
    assert refused == {one for one in REFUSED if one[0] == structure}


NUMPYS, OTHERS = {"token": "token_stats"}, {"cross_entropy": "linear_cross_entropy", "token": "token_logps"}
WITH_METRICS = {"policy_loss", "preference_loss", "kto_loss"}
PYTORCHS = {"class_weights": "weight", "targets": "target"}


def shaped(structure, options):
    """The arguments of a call of PyTorch or JAX: there, sets have the leading axes of hidden states."""
    given = {**batch_of(structure, options), **options}
    sets = {n: a.reshape(B, T, -1) for n, a in given.items() if isinstance(a, np.ndarray) and a.shape == (N, 3)}
    return {name: value for name, value in {**given, **sets}.items() if value is not None}


def of_torch(structure, options, compiled=False):
    torch = pytest.importorskip("torch")
    function = getattr(pytest.importorskip("logitless.torch"), OTHERS.get(structure, structure))
    given = {n: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for n, x in shaped(structure, options).items()}
    if structure == "cross_entropy":
        given = {PYTORCHS.get(name, name): value for name, value in given.items()}
    more = {"return_metrics": True} if structure in WITH_METRICS else {"entropy": True} if structure == "token" else {}
    x, w = torch.from_numpy(HIDDEN).requires_grad_(), torch.from_numpy(WEIGHT).requires_grad_()

    def call(x, w):
        return function(x, w, **given, **more)

    if compiled:
        torch._dynamo.reset()
        call = torch.compile(call, backend="eager", fullgraph=True)
    loss = call(x, w)
    loss, metrics = loss if isinstance(loss, tuple) else (loss, {})
    if structure in ("token", "id_logps"):
        return {"loss": loss.detach(), **({"metrics": metrics.detach()} if structure == "token" else {})}
    d_hidden, d_weight = torch.autograd.grad(loss.sum(), (x, w))
    found = {"loss": loss.detach(), "d_hidden": d_hidden, "d_weight": d_weight}
    return {**found, **({"metrics": list(metrics.values())} if structure in WITH_METRICS else {})}


def of_jax(structure, options):
    jax = pytest.importorskip("jax")
    function = getattr(pytest.importorskip("logitless.jax"), OTHERS.get(structure, structure))
    with jax.enable_x64(True):
        result = function(HIDDEN, WEIGHT, **shaped(structure, options))
        return dict(zip(("loss", "metrics"), result if isinstance(result, tuple) else (result,)))


SETS = ["soft_cross_entropy", "id_logps", "distillation_loss", "set_distillation_loss"]
# Under torch.compile only cross-entropy is one graph (test_torch_sequences.py).
ELSEWHERE = [
    *((of_torch, structure) for structure in ("cross_entropy", "token", *SETS, *sorted(WITH_METRICS))),
    (lambda *call: of_torch(*call, compiled=True), "cross_entropy"),
    *((of_jax, structure) for structure in ("cross_entropy", "token", *SETS)),
]
# Options that a function refuses, because it has no place for their results.
NOT_TAKEN = {"want_accuracy", "want_entropy", "want_agreement"}


@pytest.mark.parametrize("run, structure", ELSEWHERE, ids=lambda x: getattr(x, "__name__", x))
def test_every_option_has_the_result_of_numpy(run, structure):
    for name, base, value in cases(structure):
        options = {**base, name: value}
        try:
            want = of_numpy(structure, options)
        except ValueError:
            want = None
        try:
            got = run(structure, options)
        except Exception as error:
            assert name in str(error) or text_of(value).strip("[]") in str(error)
            of_jax_only = run is of_jax and (structure, value) == ("cross_entropy", "none")
            assert want is None or name in NOT_TAKEN or of_jax_only, (name, value, error)
            continue
        assert want is not None, (name, value)
        for part, array in got.items():
            array, wanted = np.asarray(array), want[part]
            np.testing.assert_allclose(array.ravel(), wanted.ravel(), 1e-12, 1e-12, err_msg=f"{part}: {name} = {value}")


def test_what_a_function_of_pytorch_does_not_take_is_refused_with_the_reason():
    torch = pytest.importorskip("torch")
    functions = pytest.importorskip("logitless.torch")
    from logitless._torch_options import NOT_TAKEN

    x, w, ids = (torch.from_numpy(array) for array in (HIDDEN, WEIGHT, IDS))
    for name, structure in (("linear_cross_entropy", "cross_entropy"), ("token_logps", "token_stats")):
        assert set(NOT_TAKEN[name]) <= set(_core.fields(structure))
        for option in NOT_TAKEN[name]:
            with pytest.raises(TypeError, match=rf"{name}\(\) does not take {option}: "):
                getattr(functions, name)(x, w, ids, **{option: True})
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected .* 'label_smoothin'"):
            getattr(functions, name)(x, w, ids, label_smoothin=0.1)
    assert set(_core.fields("token_stats")) - set(_core.fields("token")) == {"entropy", "square_sum", *NOT_TAKEN["token_logps"]}


def test_a_functions_own_name_lists_its_options():
    for task in (*logitless._PLANS, "context", "backward"):
        assert logitless.options(task) == _core.fields(task)
        assert task in ("context", "backward") or task in logitless.__all__
    assert set(logitless.options("token_stats")) >= {"temperature", "top_k"}


@pytest.mark.parametrize("call", [logitless.options, logitless.plan])
def test_an_unknown_task_is_answered_with_the_nearest_name(call):
    for asked, nearest in {"policy": "policy_loss", "soft_crossentropy": "soft_cross_entropy", "stats": "token_stats"}.items():
        with pytest.raises(ValueError, match=f"task = '{asked}' is none of cross_entropy, .*mean '{nearest}'"):
            call(asked)
    with pytest.raises(ValueError, match="task = None is none of cross_entropy, "):
        call(None)


# Results do not show options: threads and plan sizes do not change their bits. The plan shows some of them.
OF_A_CONTEXT = {
    "threads": 1,
    "workspace_bytes": 12,
    "plan": "two_pass",
    "row_tile": 3,
    "vocab_tile": 10,
    "row_block": 2,
    "gemm_backend": "no such backend",
    "gradient_precision": "float32",
    "simd_target": "plain",
    "slices": [V - 1, 1],
    "own_d_hidden": True,
    "sum_d_weight": True,
}


def planned(options):
    given = dict(hidden=HIDDEN, weight=WEIGHT, targets=IDS, d_weight=np.zeros_like(WEIGHT))
    plan = logitless.plan("cross_entropy", context=logitless.Context(**options), **given)
    return plan.kind, plan.row_tile, plan.vocab_tile


def test_every_option_of_a_context_arrives():
    assert set(_core.fields("context")) == {"workspace", *OF_A_CONTEXT}
    for name, value in OF_A_CONTEXT.items():
        check_arrives("context", name, {}, value)
    for name in ("plan", "row_tile", "vocab_tile"):
        assert planned({name: OF_A_CONTEXT[name]}) != planned({}), name
    assert logitless.Context(threads=1).threads == 1 and logitless.Context(simd_target="plain").simd_target == "plain"
    with pytest.raises(ValueError, match="workspace_bytes = 12 is too small"):
        planned({"workspace_bytes": 12})
    with pytest.raises(ValueError, match="no such backend"):
        logitless.Context(gemm_backend="no such backend")
    workspace = logitless.Workspace()
    logitless.cross_entropy(HIDDEN, WEIGHT, IDS, context=logitless.Context(workspace=workspace))
    assert workspace.bytes > 0


def test_a_contexts_signature_is_the_list():
    parameters = inspect.signature(logitless.Context.__init__).parameters
    fields = _core.fields("context")
    assert set(parameters) - {"self", "vocab_ranks", "data_ranks"} == set(fields)
    for name, field in fields.items():
        default = parameters[name].default
        assert default == field["default"] or (default is None and field["default"] in (None, [])), name


def test_what_is_no_option_is_a_type_error():
    for structure in (*logitless._PLANS, "context"):
        with pytest.raises(TypeError, match="no argument 'terms'"):
            _core.texts(structure, {"terms": 1})
