# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Common properties of the NumPy, PyTorch and JAX functions: names of arguments and types of results."""

import dataclasses
import inspect
import re

import numpy as np
import pytest

import logitless
from logitless import _core
from test_equivalents import framework, given_of

PYTORCHS = {"hidden": "input", "weight": "linear_weight", "bias": "linear_bias", "targets": "target"}


def surface(name):
    return pytest.importorskip("logitless.torch" if name == "torch" else "logitless.jax" if name == "jax" else "logitless")


def functions_of(module):
    """(name, function) of each function that takes a head."""
    for name in module.__all__:
        function = getattr(module, name)
        if inspect.isfunction(function) and {"weight", "linear_weight"} & set(inspect.signature(function).parameters):
            yield name, function


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_every_function_has_the_same_names_for_the_same_arguments(name):
    module = surface(name)
    found = dict(functions_of(module))
    assert len(found) >= 7
    shared = {row: None for task in logitless._PLANS for row in inspect.signature(getattr(logitless, task)).parameters}
    of_surface = {"k", "entropy", "lse", "return_metrics", "return_stats", "loss_dtype", "group", "vocab_axis"}
    of_surface |= {"num_samples", "top_p", "seed"}
    of_surface |= {"forward", "upstream", *(("layout", "teacher_layout") if name == "jax" else ())}
    for function, value in found.items():
        names = list(inspect.signature(value).parameters)
        if (name, function) == ("torch", "linear_cross_entropy"):
            names = [{theirs: ours for ours, theirs in PYTORCHS.items()}.get(one, one) for one in names]
            names.remove("options")
        assert names[:2] == ["hidden", "weight"], function
        assert names[2] in ("targets", "chosen_ids", "ids", "probabilities", "teacher_hidden", "k", "num_samples", "context"), function
        assert set(names) - set(shared) <= of_surface, function
        assert {"bias", "vocab_ids", "temperatures", "context", "softcap"} <= set(names), function


def test_linear_cross_entropy_begins_with_the_arguments_of_pytorch():
    functions = surface("torch")
    from logitless._torch_versions import linear_cross_entropy as of_pytorch

    theirs = list(inspect.signature(of_pytorch).parameters)
    ours = list(inspect.signature(functions.linear_cross_entropy).parameters)
    assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_functions_of_one_name_have_its_arguments_in_one_order(name):
    for function, value in functions_of(surface(name)):
        if function not in logitless._PLANS:
            continue
        first = [p.name for p in inspect.signature(getattr(logitless, function)).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert list(inspect.signature(value).parameters)[: len(first)] == first, function


def as_type(name, array, dtype):
    if name == "torch":
        import torch

        return array.to(getattr(torch, dtype))
    return array.astype(dtype)


def arguments_of(name, function):
    """The arguments of a call, with float32 hidden states and heads."""
    given = given_of(name.replace("numpy", ""), function)
    of_model = [n for n in given if n.endswith(("hidden", "weight", "bias", "input"))]
    return {n: as_type(name, x, "float32") if n in of_model else x for n, x in given.items()}


FLOAT64_OF_FLOAT32 = [
    *(("numpy", function) for function in ("cross_entropy", "id_logps", "token_stats", "sample")),
    *(("torch", function) for function in ("linear_cross_entropy", "id_logps", "token_logps", "topk_logps", "sample")),
]


@pytest.mark.parametrize("name, function", FLOAT64_OF_FLOAT32)
def test_float64_results_of_float32_arrays_were_never_float32(name, function):
    value = dict(functions_of(surface(name)))[function]
    dtype = "loss_dtype" if "loss_dtype" in inspect.signature(value).parameters else "dtype"
    wanted = getattr(pytest.importorskip("torch"), "float64") if name == "torch" else "float64"
    result = value(**arguments_of(name, function), **{dtype: wanted})
    parts = vars(result).values() if dataclasses.is_dataclass(result) else result if isinstance(result, tuple) else (result,)
    floats = [np.asarray(x) for x in parts if "float64" in str(getattr(x, "dtype", ""))]
    assert any((x != x.astype(np.float32)).any() for x in floats)


TYPES = {
    "numbers": ["float32", "float64", "float16", "bfloat16"],
    "ids": ["int64", "int32", "uint8"],
    "int64 or int32": ["int64", "int32"],
    "int64": ["int64"],
    "flags": ["bool", "int64", "uint8", "float32"],
}
# Arrays for arguments that most functions have, and that few references read.
MORE = {"temperatures": np.ones((4, 3)), "vocab_ids": np.arange(7), "mask": np.ones((4, 3))}


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_arrays_have_the_types_that_help_says(name):
    tested = set()
    for function, value in functions_of(surface(name)):
        given = arguments_of(name, function)
        for array in set(MORE) & set(inspect.signature(value).parameters) - set(given):
            given[array] = framework(name)[0](MORE[array])
        for array, (kind, _) in kinds_in(value).items():
            if array not in given or kind not in TYPES:
                continue
            for dtype in TYPES[kind]:
                if dtype == "uint8" and (given[array] < 0).any():
                    continue  # ignored targets
                value(**{**given, array: as_type(name, given[array], dtype)})
                tested.add((function, array))
    assert len(tested) >= 20


def kinds_in(value):
    """{argument: (type, shape)} of each array in help()."""
    return {n: (kind, shape) for n, kind, shape in re.findall(r"^    (\w+) \(([^[(]*?) (\[.*?)\): ", inspect.getdoc(value), re.M)}


def test_other_types_of_results_are_refused():
    for task in logitless._PLANS:
        given = arguments_of("numpy", task)
        for wrong in ("bfloat16", np.int64, "floats"):
            for call in (getattr(logitless, task), lambda **given: logitless.plan(task, **given)):  # noqa: B023
                with pytest.raises(ValueError, match="^dtype = .* must be float32 or float64$"):
                    call(**given, dtype=wrong)


def test_one_name_is_the_name_of_a_task_everywhere():
    assert set(logitless._PLANS) == {name for name, _ in functions_of(logitless)} - {"id_logps_backward", "sample"}
    for task in logitless._PLANS:
        assert _core.fields(task) == logitless.options(task)
    for module in ("torch", "jax"):
        module = pytest.importorskip(f"logitless.{module}")
        others = {name for name, _ in functions_of(module)} - set(logitless._PLANS)
        assert others <= {"linear_cross_entropy", "sample", "token_logps", "topk_logps"}
