# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The references in the docstrings ("Equivalent to") compute what the functions return, in float64."""

import ast
import importlib
import inspect
import re
import textwrap

import numpy as np
import pytest

import logitless

WITHOUT_RESULTS = {"environment", "options", "plan", "set_options"}  # they compute nothing
B, T, H, V, K = 4, 3, 4, 7, 2
# NumPy functions that take [N, ...] only.
FLAT = {"id_logps", "id_logps_backward", "set_distillation_loss", "soft_cross_entropy", "token_stats", "sample"}


def drawn(*shape):
    return np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape)


def logps(*shape):
    return -0.5 - np.random.default_rng(shape[-1]).random(shape)


TARGETS = np.array([[1, 5, 2], [6, 0, 3], [4, 4, 1], [0, 2, 6]])
MASK = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, 1]], bool)
IGNORED = np.where(MASK, TARGETS, -100)
VALUES = {
    "hidden": drawn(B, T, H),
    "weight": drawn(V, H),
    "bias": drawn(V),
    "teacher_hidden": drawn(B, T, H + 1),
    "teacher_weight": drawn(V, H + 1),
    "teacher_bias": drawn(V) / 2,
    "targets": TARGETS,
    "chosen_ids": TARGETS,
    "ids": np.argsort(drawn(B, T, V), axis=-1)[..., :K],
    "weights": np.arange(1.0, B * T * K + 1).reshape(B, T, K) / 8,
    "probabilities": drawn(B, T, V) ** 2,
    "teacher_logps": logps(B, T, K) - 0.5,
    "mask": MASK,
    "token_weights": np.linspace(0, 2, B * T).reshape(B, T),
    "advantages": np.array([1.5, -0.5, 1.0, -2.0]),
    "old_logps": -np.linspace(0.2, 4.0, B * T).reshape(T, B).T,
    "ref_logps": np.array([-5.0, -7.0, -6.5, -4.0]),
    "kl_logps": np.array([-3.0, -4.0, -3.5, -2.0]),
    "kl_ref_logps": np.array([-5.0, -4.5, -2.5, -2.0]),
    "labels": np.array([1, 0, 1, 1]),
    "upstream": drawn(B * T, K),
    "a_ids": np.array([[3, 1, -1], [4, 0, 2]]),
    "b_ids": np.array([[1, -1], [0, 5]]),
    "temperature": 1.5,
    "softcap": 2.0,
    "label_smoothing": 0.1,
    "reduction": "none",
    "ignore_index": -100,
    "epsilon_low": 0.2,
    "epsilon_high": 0.3,
    "beta": 0.4,
    "k": 3,
    "top_k": 3,
    "num_samples": 2,
    "seed": 3,
}
# PyTorch's names.
NAMES = {"input": "hidden", "linear_weight": "weight", "linear_bias": "bias", "target": "targets"}
CHANGED = {
    "cross_entropy": {"targets": IGNORED},
    "linear_cross_entropy": {"targets": IGNORED, "target": IGNORED},
    "preference_loss": {"targets": IGNORED},
    "kto_loss": {"targets": IGNORED},
    "sample": {"top_k": 1},  # their random numbers differ
}
# Options that request results. The references do not read them.
ASKED = {
    ("", "token_stats"): dict.fromkeys(("entropy", "argmax", "rank", "outside", "square_sum"), True),
    ("torch", "token_logps"): {"entropy": True, "lse": True},
}
# The results of a function that returns arrays or tensors, in order; by default the loss.
RESULTS = {
    "id_logps": ["logps"],
    "topk_logps": ["ids", "logps"],
    "sample": ["ids", "logps"],
    "topk_overlap": ["overlap"],
    "topk_union": ["ids", "offsets"],
}


def functions():
    for module in ("", "torch", "jax"):
        try:
            made = importlib.import_module(f"logitless.{module}".rstrip("."))
        except ImportError:
            continue
        for name in made.__all__:
            if inspect.isfunction(getattr(made, name)) and name not in WITHOUT_RESULTS:
                yield module, name


FUNCTIONS = list(functions())


def reference_of(function):
    """The code of a function's reference, from its docstring."""
    match = re.search(r"^Equivalent to.*:\n((?:    .*\n)+)", inspect.getdoc(function), flags=re.MULTILINE)
    assert match, "no reference"
    return textwrap.dedent(match[1])


def read_by(code, parameters):
    """The parameters that the code reads before it assigns them."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    first = {}
    for node in sorted(names, key=lambda node: (node.lineno, isinstance(node.ctx, ast.Store))):
        first.setdefault(node.id, type(node.ctx))
    return [name for name in parameters if first.get(name) is ast.Load]


def stored_by(code):
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def framework(module):
    """A function that converts an array into an argument, and the global names of a reference."""
    if module == "":
        return np.asarray, {"np": np}
    if module == "torch":
        import torch

        return torch.as_tensor, {"torch": torch, "F": torch.nn.functional}
    import jax

    return jax.numpy.asarray, {"jax": jax, "jnp": jax.numpy}


def value_of(module, name, parameter):
    values = {**VALUES, **CHANGED.get(name, {})}
    if (module, name) == ("torch", "linear_cross_entropy"):
        values = {**{new: VALUES[old] for new, old in NAMES.items()}, **values, "weight": np.arange(1.0, V + 1)}
    value = values[parameter]
    flat = module == "" and (name in FLAT or parameter == "old_logps") and np.shape(value)[:2] == (B, T)
    return value.reshape(B * T, *value.shape[2:]) if flat else value


def results_of(module, name, returned, given, code):
    if name == "id_logps_backward":
        return {output: given[output] for output in ("d_hidden", "d_weight", "d_bias")}
    if (module, name) == ("torch", "token_logps"):
        return dict(zip(("logps", "entropies", "log_sum_exp"), returned))
    if (module, name) == ("jax", "token_logps"):
        return dict(zip(("logps", "entropies"), returned))
    if module == "" and hasattr(returned, "__dataclass_fields__"):
        return {field: getattr(returned, field) for field in returned.__dataclass_fields__ if field in stored_by(code)}
    names = RESULTS.get(name, ["loss"])
    return dict(zip(names, returned if isinstance(returned, tuple) else (returned,)))


@pytest.fixture
def float64():
    """JAX with float64."""
    try:
        import jax
    except ImportError:
        yield
        return
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def test_all_surfaces_are_here():
    assert {name for module, name in FUNCTIONS if module == ""} >= {*logitless._PLANS, "id_logps_backward", "topk_union"}


def given_of(module, name):
    """The arguments that a function's reference reads."""
    function = getattr(importlib.import_module(f"logitless.{module}".rstrip(".")), name)
    given = {}
    for parameter in read_by(reference_of(function), inspect.signature(function).parameters):
        value = value_of(module, name, parameter)
        given[parameter] = framework(module)[0](value) if isinstance(value, np.ndarray) else value
    return given


@pytest.mark.parametrize("module, name", FUNCTIONS)
def test_a_reference_computes_what_its_function_returns(module, name, float64):
    function = getattr(importlib.import_module(f"logitless.{module}".rstrip(".")), name)
    code, names, given = reference_of(function), framework(module)[1], given_of(module, name)
    exec(compile(code, name, "exec"), names, values := dict(given))
    if name == "id_logps_backward":
        given["forward"] = logitless.id_logps(given["hidden"], given["weight"], given["ids"], bias=given["bias"])
        given |= {output: np.full_like(values[output], np.nan) for output in ("d_hidden", "d_weight", "d_bias")}
    returned = function(**given, **ASKED.get((module, name), {}))
    results = results_of(module, name, returned, given, code)
    assert results
    for result, value in results.items():
        np.testing.assert_allclose(np.asarray(value), np.asarray(values[result]), rtol=1e-9, atol=1e-12, err_msg=result)


def test_the_reference_of_the_module_is_its_function():
    torch = pytest.importorskip("torch")
    functions = pytest.importorskip("logitless.torch")
    module = functions.LinearCrossEntropyLoss(H, V, bias=True)
    names = {"self": module, "input": torch.ones(T, H), "target": torch.arange(T)}
    exec(reference_of(type(module)), vars(functions).copy(), names)
    assert torch.equal(names["loss"], module(names["input"], names["target"]))
