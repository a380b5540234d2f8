# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Every option of the library through logitless.torch, from the lists of fields.h: alone at another value than its
default it changes the result, to what the call without PyTorch makes of it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import logitless  # noqa: E402
from logitless import _core  # noqa: E402
from logitless._torch_options import NOT_TAKEN  # noqa: E402
from logitless.torch import (  # noqa: E402
    distillation_loss,
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
)
from test_fields import (  # noqa: E402
    DISTINCT_IDS,
    HIDDEN,
    IDS,
    OWN,
    REFUSED,
    SET_IDS,
    SET_WEIGHTS,
    SOME_IDS,
    TEACHER_LOGPS,
    WEIGHT,
    batch_of,
    cases,
    text_of,
)

# In float64: a float32 loss would hide a small part of it.
X, W = HIDDEN.astype(np.float64), WEIGHT.astype(np.float64)
# structure -> (function of logitless.torch, function of logitless)
FUNCTIONS = {
    "cross_entropy": (linear_cross_entropy, logitless.cross_entropy),
    "policy_loss": (policy_loss, logitless.policy_loss),
    "preference_loss": (preference_loss, logitless.preference_loss),
    "kto_loss": (kto_loss, logitless.kto_loss),
}
# PyTorch's names of what the library calls otherwise.
NAMES = {"class_weights": "weight"}


def beside(structure, options):
    """What a call has beside hidden states, head and ids."""
    return {name: value for name, value in batch_of(structure, options).items() if name not in ("targets", "chosen_ids")}


def of_core(structure, options):
    outputs = {"d_hidden": np.zeros_like(X), "d_weight": np.zeros_like(W)}
    result = FUNCTIONS[structure][1](X, W, IDS, **outputs, **beside(structure, options), **options)
    loss = result.per_token_loss if options.get("reduction") == "none" else result.loss
    metrics = [] if structure == "cross_entropy" else list(result.metrics.values())
    return [np.asarray(loss), *outputs.values(), np.array(metrics)]


def tensors_of(arguments):
    tensors = {name: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for name, a in arguments.items()}
    return {NAMES.get(name, name): value for name, value in tensors.items()}


def of_torch(structure, options, compiled):
    function = FUNCTIONS[structure][0]
    arguments = tensors_of({**beside(structure, options), **options})
    if structure != "cross_entropy":
        arguments["return_metrics"] = True
    x, w = torch.from_numpy(X).requires_grad_(), torch.from_numpy(W).requires_grad_()

    def call(x, w, ids):
        return function(x, w, ids, **arguments)

    if compiled:
        torch._dynamo.reset()
        call = torch.compile(call, backend="eager", fullgraph=True)
    loss = call(x, w, torch.from_numpy(IDS))
    loss, metrics = loss if isinstance(loss, tuple) else (loss, {})
    d_hidden, d_weight = torch.autograd.grad(loss.sum(), (x, w))
    return [loss.detach().flatten().numpy(), d_hidden.numpy(), d_weight.numpy(), np.array(list(metrics.values()))]


def bytes_of(arrays):
    return [array.tobytes() for array in arrays]


# The others are not compiled: torch.compile breaks its graph there (test_torch_sequences.py).
@pytest.mark.parametrize("structure, compiled", [*((structure, False) for structure in FUNCTIONS), ("cross_entropy", True)])
def test_every_option_arrives_and_changes_the_result(structure, compiled):
    not_taken = NOT_TAKEN.get(FUNCTIONS[structure][0].__name__, {})
    refused, results = set(), {}
    for name, base, value in cases(structure):
        if name in not_taken:
            continue
        key = repr(base)
        if key not in results:
            results[key] = of_torch(structure, base, compiled)
        options = {**base, name: value}
        try:
            result = of_torch(structure, options, compiled)
        except ValueError:
            refused.add((structure, name, text_of(value)))
            continue
        assert bytes_of(result) != bytes_of(results[key]), (name, value)
        for got, want in zip(result, of_core(structure, options)):
            np.testing.assert_allclose(got, want.reshape(got.shape), 1e-12, 1e-12, err_msg=f"{name} = {value}")
    assert refused == {one for one in REFUSED if one[0] == structure}


# Losses of distributions: what they take beside hidden states and head, and of which types ids are.
TEACHER_HIDDEN = X[..., ::-1].copy()
GIVEN = {
    "distillation_loss": (distillation_loss, {"teacher_hidden": TEACHER_HIDDEN, "teacher_weight": W, "targets": SOME_IDS}),
    "set_distillation_loss": (
        set_distillation_loss,
        {"ids": DISTINCT_IDS.reshape(*IDS.shape, -1), "teacher_logps": TEACHER_LOGPS.reshape(*IDS.shape, -1), "targets": SOME_IDS},
    ),
    "soft_cross_entropy": (
        soft_cross_entropy,
        {"ids": SET_IDS.reshape(*IDS.shape, -1), "weights": SET_WEIGHTS.reshape(*IDS.shape, -1)},
    ),
}


def distributions_of_core(structure, options):
    outputs = {"d_hidden": np.zeros_like(X), "d_weight": np.zeros_like(W)}
    if structure == "distillation_loss":
        result = logitless.distillation_loss(X, W, TEACHER_HIDDEN, W, SOME_IDS, **outputs, **options)
    elif structure == "set_distillation_loss":
        result = logitless.set_distillation_loss(X, W, DISTINCT_IDS, TEACHER_LOGPS, SOME_IDS, **outputs, **options)
    else:
        result = logitless.soft_cross_entropy(X, W, ids=SET_IDS, weights=SET_WEIGHTS, **outputs, **options)
    loss = result.per_token_loss if options.get("reduction") == "none" else result.loss
    return [np.asarray(loss), *outputs.values()]


def distributions_of_torch(structure, options):
    function, given = GIVEN[structure]
    x, w = torch.from_numpy(X).requires_grad_(), torch.from_numpy(W).requires_grad_()
    loss = function(x, w, **tensors_of({**given, **options}))
    gradients = torch.autograd.grad(loss.sum(), (x, w))
    return [array.numpy() for array in (loss.detach().flatten(), *gradients)]


@pytest.mark.parametrize("structure", GIVEN)
def test_every_option_of_a_distribution_arrives(structure):
    refused = set()
    for name, base, value in cases(structure):
        options = {**base, name: value}
        try:
            result = distributions_of_torch(structure, options)
        except (TypeError, ValueError) as error:
            assert name in str(error) or text_of(value) in str(error)
            refused.add((structure, name, text_of(value)))
            continue
        for got, want in zip(result, distributions_of_core(structure, options)):
            np.testing.assert_allclose(got, want.reshape(got.shape), 1e-12, 1e-12, err_msg=f"{name} = {value}")
    assert refused == {one for one in REFUSED if one[0] == structure}


def logps_of(options):
    options = tensors_of(options)
    x, w, ids = (torch.from_numpy(array) for array in (HIDDEN, WEIGHT, IDS))
    return [column.numpy() for column in token_logps(x, w, ids, entropy=True, **options)]


def test_every_option_of_tokens_arrives_in_token_logps_and_changes_them():
    for name, base, value in cases("token"):
        result = logps_of({**base, name: value})
        assert bytes_of(result) != bytes_of(logps_of(base)), (name, value)
        stats = logitless.token_stats(HIDDEN, WEIGHT, IDS, entropy=True, **base, **{name: value})
        for column, array in zip(("logp", "entropy"), result):
            assert array.tobytes() == stats[column].tobytes(), (name, value)


def test_what_is_not_taken_is_an_option_and_is_refused_with_the_reason():
    x, w, ids = (torch.from_numpy(array) for array in (HIDDEN, WEIGHT, IDS))
    for function, structure in ((linear_cross_entropy, "cross_entropy"), (token_logps, "token_stats")):
        not_taken = NOT_TAKEN[function.__name__]
        assert set(not_taken) <= set(_core.fields(structure))
        for name, reason in not_taken.items():
            with pytest.raises(TypeError, match=rf"{function.__name__}\(\) does not take {name}: "):
                function(x, w, ids, **{name: True})
    assert set(_core.fields("token_stats")) - set(_core.fields("token")) == {"entropy", *NOT_TAKEN["token_logps"]}


def test_what_is_no_option_is_a_type_error():
    x, w, ids = (torch.from_numpy(array) for array in (HIDDEN, WEIGHT, IDS))
    with pytest.raises(TypeError, match=r"linear_cross_entropy\(\) got an unexpected .* 'label_smoothin'"):
        linear_cross_entropy(x, w, ids, label_smoothin=0.1)
    with pytest.raises(TypeError, match=r"token_logps\(\) got an unexpected keyword argument 'z_loss'"):
        token_logps(x, w, ids, z_loss=0.1)
    with pytest.raises(TypeError, match=r"policy_loss\(\) got an unexpected keyword argument 'betta'"):
        policy_loss(x, w, ids, torch.ones(4), betta=0.1)


def test_a_type_of_pytorchs_is_a_name():
    for function, arguments in (
        (linear_cross_entropy, {}),
        (token_logps, {}),
        (policy_loss, {"advantages": torch.ones(4), "old_logps": torch.from_numpy(OWN)}),
    ):
        x, w, ids = (torch.from_numpy(array) for array in (HIDDEN, WEIGHT, IDS))
        rounded = function(x, w, ids, round_logits_to=torch.bfloat16, **arguments)
        assert torch.equal(rounded, function(x, w, ids, round_logits_to="bfloat16", **arguments))
        assert not torch.equal(rounded, function(x, w, ids, **arguments))
