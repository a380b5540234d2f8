# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""help() of everything public: sections, names of arguments, types of arrays, and examples that run."""

import doctest
import importlib
import inspect
import re

import numpy as np
import pytest
import test_random_calls as random_calls

import logitless

MODULES = ["", "torch", "jax", "lora", "packed", "transformers", "trl", "lm_eval"]
# Types of results.
RESULTS = {
    "CrossEntropyStats", "IdLogps", "Plan", "Result", "SetDistillationResult", "SoftCrossEntropyResult", "TokenStats",
}
WITHOUT_SECTIONS = {*RESULTS, "ArrayLike", "WeightLike", "Workspace"}


def public():
    """(module, name), of all that is installed."""
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
    """The text of each section of a documentation."""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", inspect.getdoc(value), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def arguments_in(value):
    """(name, types of an array or "") of the section of arguments."""
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


# The types that the words of ArrayLike stand for, in calls whose floats are float32.
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


def test_arrays_have_the_types_that_help_says():
    asked = set()
    for label, function, arguments in random_calls.CASES:
        if function.startswith("plan"):
            continue
        call = getattr(logitless, function)
        kinds = {name: text.split(" [")[0].split(" as ")[0] for name, text in arguments_in(call) if text}
        for name, array in arguments.items():
            packed = array.dtype == np.int8 and name.endswith("weight") if isinstance(array, np.ndarray) else True
            if packed:
                continue
            asked.add(name)
            plain = outcome_of(function, arguments)
            assert plain is None, (label, function, plain)
            for dtype in sorted(set().union(*KINDS.values())):
                maker = random_calls.SAME.get("bfloat16" if dtype == "bfloat16" else f"dtype {dtype}")
                if maker is None or (dtype == "bool" and not np.isin(array, (0, 1)).all()):
                    continue
                if dtype[0] in "iu" and (array != np.floor(array)).any():
                    continue
                refused = outcome_of(function, {**arguments, name: maker(array)})
                what = f"{function}, {label}: {name} of {dtype}, said to be {kinds[name]}: {refused}"
                assert (refused is None) == (dtype in KINDS[kinds[name]]), what
    assert len(asked) > 45


def outcome_of(function, arguments):
    """None, or the error of a call."""
    given = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in arguments.items()}
    try:
        if function == "id_logps_backward":
            like = {n: x for n, x in arguments.items() if n != "upstream" and not n.startswith("d_")}
            given["forward"] = logitless.id_logps(**like)
        getattr(logitless, function)(**given)
    except (TypeError, ValueError) as error:
        return error
    return None
