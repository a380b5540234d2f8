# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""inspect.signature() and the stubs have every argument that a call takes, and every name of the module."""

import ast
import importlib.util
import inspect
import pathlib
import re

import numpy as np
import pytest

import logitless
from logitless import _core

PYTHON = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = pathlib.Path(logitless.__file__).parent
TASKS = list(logitless._PLANS)


def names_of(task):
    return set(inspect.signature(getattr(logitless, task)).parameters)


def test_the_generator_writes_what_is_checked_in():
    page = PYTHON.parent / "docs" / "options.md"
    if not page.exists():
        pytest.skip("docs/options.md is not there")
    spec = importlib.util.spec_from_file_location("generate", PYTHON / "generate_signatures.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    text = page.read_text(encoding="utf-8")
    assert generate.options_page(text) == text
    assert text.count("\n| `") > 120
    for module in ("torch", "jax"):
        pytest.importorskip(module)
    for name, text in generate.stubs().items():
        assert text == (PACKAGE / name).read_text(encoding="utf-8"), name


def test_every_option_and_every_name_that_the_module_reads_is_in_a_signature():
    for task in TASKS:
        assert {*_core.fields(task), *_core.fields(f"{task}.tensors")} <= names_of(task)
    if not (PYTHON / "src").exists():
        pytest.skip("the sources are not there")
    pattern = re.compile(r'(?:find|keywords\.take|needed|name|take)\((?:keywords, )?(?:arrays, )?"(\w+)"')
    read = set()
    for source in ("options.cc", "options.h", "tasks.h"):
        read |= set(pattern.findall((PYTHON / "src" / source).read_text(encoding="utf-8")))
    assert len(read) >= 30
    known = set().union(*map(names_of, TASKS)) | {"vocab_ranks", "data_ranks"}
    assert read - known == set()


@pytest.mark.parametrize("task", TASKS)
def test_every_name_of_the_signature_is_taken_and_no_other(task):
    ones = np.ones((2, 3), np.float32)
    needed = dict.fromkeys(("targets", "chosen_ids", "labels"), np.zeros(2, np.int64))
    needed |= {"ids": np.zeros((2, 1), np.int64), "weights": ones[:, :1].copy()}
    if task == "set_distillation_loss":
        needed["teacher_logps"] = -ones[:, :1]
    needed = {name: value for name, value in needed.items() if name in names_of(task)}
    refused = []
    for side in ({"hidden": ones, "weight": ones}, {"logits": ones}):
        others = {f"{other}{name}": ones for other in ("teacher_", "ref_") for name in side}
        given = {**side, **{name: value for name, value in others.items() if name in names_of(task)}, **needed}
        refused.append({name for name in names_of(task) - {"context"} if unknown(task, {name: None, **given})})
    of_packed = {name for name in names_of(task) if name.endswith("scales")}  # only read for packed weights
    assert refused[0] & refused[1] <= of_packed
    for name in ("terms", "d_terms"):
        with pytest.raises(TypeError, match=f"no argument '{name}'"):
            getattr(logitless, task)(**given, **{name: 1})


def unknown(task, arguments):
    try:
        logitless.plan(task, **arguments)
    except TypeError as error:
        return "has no argument" in str(error)
    except ValueError:
        pass
    return False


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_what_the_module_has():
    stub = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    defined = {node.name: node for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    # The functions for JAX are missing if the package was built without it.
    missing = public(defined) - public(dir(_core))
    assert public(dir(_core)) <= public(defined)
    assert all(name.startswith("jax_") for name in missing), missing
    for name, node in defined.items():
        if isinstance(node, ast.ClassDef) and name not in missing:
            members = public(item.name for item in node.body if isinstance(item, ast.FunctionDef))
            made = getattr(_core, name)
            assert members == public(set(dir(made)) - set(dir(made.__base__))), name
