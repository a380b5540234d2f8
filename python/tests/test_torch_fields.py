# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Every option of the library through logitless.torch, taken from the lists in fields.h: each value other
than the default changes the result, and gives the result of the NumPy function."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import logitless  # noqa: E402
from logitless import _core  # noqa: E402
from logitless._torch_options import NOT_TAKEN  # noqa: E402
from logitless.torch import linear_cross_entropy, policy_loss, token_logps  # noqa: E402
from test_fields import (  # noqa: E402
    HIDDEN,
    IDS,
    OWN,
    REFUSED,
    WEIGHT,
    N,
    batch_of,
    cases,
    text_of,
)

# In float64, because a float32 loss would hide a small change.
X, W = HIDDEN.astype(np.float64), WEIGHT.astype(np.float64)
# structure -> (function of logitless.torch, function of logitless)
FUNCTIONS = {
    "cross_entropy": (linear_cross_entropy, logitless.cross_entropy),
    **{
        task: (getattr(logitless.torch, task), getattr(logitless, task))
        for task in ("policy_loss", "preference_loss", "kto_loss", "distillation_loss", "set_distillation_loss")
    },
    "soft_cross_entropy": (logitless.torch.soft_cross_entropy, logitless.soft_cross_entropy),
}
WITH_METRICS = {"policy_loss", "preference_loss", "kto_loss"}
# PyTorch's names, where they differ from the library's.
NAMES = {"class_weights": "weight"}


def beside(structure, options):
    """The tensors of a call except hidden states and head."""
    batch = batch_of(structure, options)
    return {name: value.astype(np.float64) if "teacher_" in name and "logps" not in name else value
            for name, value in batch.items() if value is not None}


def of_core(structure, options):
    outputs = {"d_hidden": np.zeros_like(X), "d_weight": np.zeros_like(W)}
    result = FUNCTIONS[structure][1](X, W, **outputs, **beside(structure, options), **options)
    loss = result.per_token_loss if options.get("reduction") == "none" else result.loss
    metrics = list(result.metrics.values()) if structure in WITH_METRICS else []
    return [np.asarray(loss), *outputs.values(), np.array(metrics)]


def tensors_of(arguments):
    """Tensors for PyTorch; sets get the leading axes of hidden states."""
    sets = {n: a.reshape(*IDS.shape, -1) for n, a in arguments.items() if isinstance(a, np.ndarray) and a.shape == (N, 3)}
    tensors = {n: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for n, a in {**arguments, **sets}.items()}
    return {NAMES.get(name, name): value for name, value in tensors.items()}


def of_torch(structure, options, compiled):
    function = FUNCTIONS[structure][0]
    arguments = tensors_of({**beside(structure, options), **options})
    if structure == "cross_entropy":
        arguments["target"] = arguments.pop("targets")
    if structure in WITH_METRICS:
        arguments["return_metrics"] = True
    x, w = torch.from_numpy(X).requires_grad_(), torch.from_numpy(W).requires_grad_()

    def call(x, w):
        return function(x, w, **arguments)

    if compiled:
        torch._dynamo.reset()
        call = torch.compile(call, backend="eager", fullgraph=True)
    loss = call(x, w)
    loss, metrics = loss if isinstance(loss, tuple) else (loss, {})
    d_hidden, d_weight = torch.autograd.grad(loss.sum(), (x, w))
    return [loss.detach().flatten().numpy(), d_hidden.numpy(), d_weight.numpy(), np.array(list(metrics.values()))]


def bytes_of(arrays):
    return [array.tobytes() for array in arrays]


# Only cross-entropy is compiled: torch.compile breaks its graph at the others (test_torch_sequences.py).
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
        except (TypeError, ValueError) as error:
            assert name in str(error) or text_of(value).strip("[]") in str(error)
            refused.add((structure, name, text_of(value)))
            continue
        # Metrics that an option requests have no gradient, and only some losses return them.
        assert bytes_of(result) != bytes_of(results[key]) or name.startswith("want_"), (name, value)
        for got, want in zip(result, of_core(structure, options)):
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
