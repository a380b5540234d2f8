#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes logitless/_meanings.py, the sentence of each option, from the tables of docs/options.md; and
logitless/__init__.pyi, which editors and type checkers read, from the built package."""

import ast
import inspect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent
PAGE = ROOT.parent / "docs" / "options.md"
TARGET = ROOT / "logitless" / "_meanings.py"
SECTIONS = {
    "Every call": "token",
    "Gradients": "backward",
    "Statistics": "token_stats",
    "Cross-entropy": "cross_entropy",
    "Soft targets": "soft_cross_entropy",
    "Sets of token ids": "id_logps",
    "Policy losses": "policy_loss",
    "Preference losses": "preference_loss",
    "KTO": "kto_loss",
    "Distillation": "distillation_loss",
    "Distillation at sets of token ids": "set_distillation_loss",
}


def meanings():
    out, task = {}, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            task = SECTIONS.get(line[3:])
        row = re.fullmatch(r"\| `(\w+)` \| .* \| .* \| (.*) \|", line)
        if task and row:
            text = re.sub(r"\s*\((section )?\d+(\.\d+)?\)", "", row[2])  # a section of docs/losses.md
            out.setdefault(task, {})[row[1]] = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "")
    return out


def generated():
    lines = [
        "# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0",
        '"""What each option does. python/generate_signatures.py writes this file from docs/options.md."""',
        "",
        "MEANINGS: dict[str, dict[str, str]] = {",
    ]
    for task, rows in meanings().items():
        lines.append(f'    "{task}": {{')
        lines += [f"        {name!r}: {text!r}," for name, text in rows.items()]
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def parameters_of(function):
    out = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in out:
            out.append("*")
        type = inspect.formatannotation(parameter.annotation)
        for module in ("logitless._results.", "logitless.", "collections.abc.", "typing."):
            type = type.replace(module, "")
        out.append(f"{parameter.name}: {type} = {parameter.default!r}")
    return out


def stub():
    import logitless

    tree = ast.parse((ROOT / "logitless" / "__init__.py").read_text(encoding="utf-8"))
    lines = [
        "# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0",
        "# python/generate_signatures.py writes this file.",
        "from collections.abc import Callable",
        "from typing import Any, Literal, Optional",
        "",
        "from numpy import int64",
        "from numpy.typing import NDArray",
        "",
        "from . import _core",
        "from ._core import Plan, Workspace",
        "from ._results import IdLogps, Result, SetDistillationResult, SoftCrossEntropyResult, TokenStats",
        "",
        f"__all__ = {logitless.__all__!r}",
        "__version__: str",
    ]
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        for item in [node, *node.body]:
            if isinstance(item, ast.FunctionDef):
                text = ast.get_docstring(item)
                item.body = [item.body[0]] if text else []
                item.body.append(ast.Expr(ast.Constant(...)))
        if node.name not in logitless._PLANS:
            lines += ["", ast.unparse(node)]
            continue
        function = getattr(logitless, node.name)
        document = inspect.getdoc(function).replace("\n", "\n    ").replace("    \n", "\n")
        lines += ["", f"def {node.name}(", *(f"    {one}," for one in parameters_of(function))]
        lines += [f") -> {node.returns.id}:", f'    """{document}\n    """']
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.path.remove(str(ROOT))  # the built package, not the sources, which have no _core
    TARGET.write_text(generated(), encoding="utf-8")
    (ROOT / "logitless" / "__init__.pyi").write_text(stub(), encoding="utf-8")
