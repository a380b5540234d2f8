# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""_core.pyi, which type checkers read, has the same names as the module."""

import ast
import importlib.resources

from logitless import _core


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_what_the_module_has():
    stub = ast.parse(importlib.resources.files("logitless").joinpath("_core.pyi").read_text(encoding="utf-8"))
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
