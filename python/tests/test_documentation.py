# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""help() of everything public: sections, argument names, types of arrays, and examples that run."""

import doctest
import importlib
import inspect
import re

import numpy as np
import pytest
from hypothesis import given

import logitless
from drawn_calls import calls, profile, st
from drawn_checks import refusal_of
from test_generated_calls import FUNCTIONS as NUMPYS
from test_generated_calls import OUTPUTS, NumpyCall

MODULES = ["", "torch", "jax", "lora", "packed", "transformers", "trl", "lm_eval"]
# Types of results.
RESULTS = {
    "CrossEntropyStats", "IdLogps", "Plan", "Result", "SetDistillationResult", "SoftCrossEntropyResult", "TokenStats",
}
WITHOUT_SECTIONS = {*RESULTS, "ArrayLike", "WeightLike", "Workspace"}


def public():
    """(module, name) of everything public that is installed."""
    for module in MODULES:
        try:
            made = importlib.import_module(f"logitless.{module}".rstrip("."))
        except ImportError:
            continue
        yield from ((module, name) for name in made.__all__)


PUBLIC = list(public())
FUNCTIONS = [(module, name) for module, name in PUBLIC if name not in WITHOUT_SECTIONS]


def made(module, name):
    return getattr(importlib.import_module(f"logitless.{module}".rstrip(".")), name)


def sections_of(value):
    """{section: text} of a docstring."""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", inspect.getdoc(value), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def arguments_in(value):
    """(name, type of the array or "") of each argument in the section "Args"."""
    return re.findall(r"^    (?:\*\*)?(\w+)(?: \((.*?)\))?: \S", sections_of(value)["Args"], flags=re.MULTILINE)


def test_there_is_something_to_test():
    assert {module for module, _ in PUBLIC} >= {"", "lora", "packed"}
    assert len(FUNCTIONS) > 15


@pytest.mark.parametrize("module, name", FUNCTIONS)
def test_everything_public_has_its_sections_and_every_argument(module, name):
    value = made(module, name)
    wanted = ["Args", "Raises", "Example"] if inspect.isclass(value) else ["Args", "Returns", "Raises", "Example"]
    assert list(sections_of(value)) == wanted
    parameters = list(inspect.signature(value).parameters)
    names = [argument for argument, _ in arguments_in(value)]
    assert sorted(names) == sorted(parameters)
    assert ">>> " in sections_of(value)["Example"]


@pytest.mark.parametrize("module, name", [(m, n) for m, n in PUBLIC if n in WITHOUT_SECTIONS])
def test_results_and_aliases_say_what_they_are(module, name):
    assert len(inspect.getdoc(made(module, name))) > 20


@pytest.mark.parametrize("module, name", FUNCTIONS)
def test_examples_run(module, name):
    value = made(module, name)
    for needed in re.findall(r"import (peft|transformers)", inspect.getdoc(value)):
        pytest.importorskip(needed)
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(value), {}, f"{module}.{name}", None, 0)
    assert example.examples
    output = []
    assert doctest.DocTestRunner().run(example, out=output.append).failed == 0, "".join(output)


# The dtypes that each type of ArrayLike's docstring allows, in calls whose floats are float32.
INTEGERS = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
KINDS = {
    "floats": {"float32", "float16", "bfloat16"},
    "numbers": {"float32", "float16", "bfloat16", "float64"},
    "ids": INTEGERS,
    "flags": {"bool", "float32", "float64", *INTEGERS},
    "float32": {"float32"},
    "float64": {"float64"},
    "float64 or float32": {"float32", "float64"},
    "output": {"float32"},
}


@profile(300)
@given(call=calls(NUMPYS, ["float32"]), data=st.data())
def check_types(call, data, tested):
    function, numpys = getattr(logitless, call.task), NumpyCall(call, data.draw)
    given = numpys.arguments | numpys.add_outputs([] if call.task in ("token_stats", "id_logps") else OUTPUTS, False)
    given.pop("weight_sink", None)
    if refusal_of(lambda: function(**given))[1] is not None:
        return
    kinds = {name: text.split(" [")[0].split(" as ")[0] for name, text in arguments_in(function) if text}
    for name, array in given.items():
        packed = name.endswith("weight") and not np.issubdtype(getattr(array, "dtype", int), np.floating)
        alone = name == "logits" and not numpys.outputs  # it alone sets the type of the call
        if (call.task, name) in tested or name in numpys.odd or not isinstance(array, np.ndarray) or packed or alone:
            continue
        tested.add((call.task, name))
        for dtype in set().union(*KINDS.values()) - {"bfloat16"}:
            if (dtype == "bool" and not np.isin(array, (0, 1)).all()) or (dtype[0] in "iu" and (array != np.floor(array)).any()):
                continue
            if dtype[0] == "u" and array.min() < 0:
                continue
            _, refused = refusal_of(lambda: function(**{**given, name: array.astype(dtype)}))  # noqa: B023
            what = f"{call.task}: {name} of {dtype}, said to be {kinds[name]}: {refused}"
            assert (refused is None) == (dtype in KINDS[kinds[name]]), what


def test_arrays_have_the_types_that_help_says():
    tested = set()
    check_types(tested=tested)
    assert len({name for _, name in tested}) >= 40
