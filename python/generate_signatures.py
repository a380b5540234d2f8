#!/usr/bin/env python3
# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Generates the tables of docs/options.md and the stubs __init__.pyi, torch.pyi, jax.pyi and _core.pyi (its task
functions) from the built package."""

import ast
import inspect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent
PAGE = ROOT.parent / "docs" / "options.md"
# The lists of options of each section.
SECTIONS = {
    "Every call": "token",
    "How a call runs": "context",
    "The head": "logits",
    "Gradients": "gradients backward",
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


def taken(field):
    """The values that an option takes, as text for the page."""
    if "choices" in field:
        one = ", ".join(f"`{choice}`" for choice in field["choices"])
    elif field["type"] in ("bool", "str", "Workspace"):
        one = {"bool": "true or false", "str": "a name", "Workspace": "a `Workspace`, or none"}[field["type"]]
    else:
        one = "an integer" if (field["type"], field["range"]) == ("int", "a finite number") else field["range"]
    if field.get("list") or field["type"].endswith("array"):
        one = f"a list of {one}" if "choices" in field else f"a list, each {one}"
    return one + (", or none" if field.get("optional") else "")


def rows_of(options):
    """The rows of a list's table. Token options have their own table, so other lists leave them out. The
    tensors of a call are not options."""
    from logitless import _core

    defaults, rows = {"workspace": "none", **_core.texts(options, {})}, []
    for name, field in _core.fields(options).items():
        if options in ("logits", "gradients") and field["type"].endswith("array"):
            continue
        if options == "token" or name not in _core.fields("token"):
            meaning = re.sub(r"(metrics\.\w+|\b[a-z]{2,}\w*_\w+|(?<=; needs )\w+)", r"`\1`", field["meaning"])
            meaning = f"{field['shape']}, {meaning}" if "shape" in field else meaning
            rows.append(f"| `{name}` | {taken(field)} | {defaults[name]} | {meaning} |")
    return rows


def options_page(page):
    """docs/options.md with new tables."""
    lines = []
    for line in page.splitlines():
        if line.startswith("## "):
            lists = SECTIONS.get(line[3:], "").split()
        if not line.startswith("| `"):
            lines.append(line)
        if line == "|---|---|---|---|":
            lines += [row for options in lists for row in rows_of(options)]
    return "\n".join([*lines, ""])


def text_of(annotation):
    text = inspect.formatannotation(annotation)
    modules = r"logitless(\._results|\.packed|\.lora)?|collections\.abc|typing|(jax\.)?jaxlib\.\w+|jax|torch(?=\.Tensor)"
    return re.sub(rf"(?<![\w.])({modules})\.(?=[A-Z])", "", text).replace("NoneType", "None")


def parameters_of(function):
    """The parameters as in a stub."""
    out = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in out:
            out.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        out.append(f"{parameter.name}: {text_of(parameter.annotation)}{default}")
    return out


def wrapped(parameters):
    """The parameters as lines of up to 110 columns."""
    lines = [""]
    for one in parameters:
        if lines[-1] and len(lines[-1]) + len(one) > 104:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else '    '}{one},"
    return lines


def lines_of(function, result):
    """The stub of a function, with its docstring."""
    text = inspect.getdoc(function).rstrip().replace("\n", "\n    ").replace("    \n", "\n")
    lines = ["", f"def {function.__name__}(", *wrapped(parameters_of(function)), f") -> {result}:"]
    return [*lines, f'    """{text}', '    """']


def without_body(node):
    """The stub of a function or class of the sources: names, types and docstrings, without code."""
    for item in [node, *node.body]:
        if isinstance(item, ast.FunctionDef):
            item.body = [item.body[0]] if ast.get_docstring(item) else []
            item.body.append(ast.Expr(ast.Constant(...)))
    return ["", ast.unparse(node)]


HEADER = [
    "# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0",
    "# python/generate_signatures.py writes this file.",
]


# All names, including those that this build, CPU or version of Highway does not have.
GEMM_BACKENDS = ["auto", "openblas", "onednn", "amx", "bfmmla"]
SIMD_TARGETS = ["auto", "plain", "AVX2", "AVX3", "AVX3_ZEN4", "AVX3_SPR", "NEON", "NEON_BF16", "SVE", "SVE2"]


def choices(names):
    return f"Literal[{', '.join(map(repr, names))}]"


def context_of(node):
    """The stub of Context. Options that are names get Literal types."""
    from logitless import _core

    types = {name: choices(field["choices"]) for name, field in _core.fields("context").items() if "choices" in field}
    types["plan"] = types["plan"].replace("'forward_only', ", "")  # Context refuses it
    types["gemm_backend"] = choices(GEMM_BACKENDS)
    types["simd_target"] = f"Union[{choices(SIMD_TARGETS)}, str]"
    (init,) = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    for argument in init.args.kwonlyargs:
        if argument.arg in types:
            argument.annotation = ast.parse(types[argument.arg], mode="eval").body
    return without_body(node)


def stub():
    import logitless

    tree = ast.parse((ROOT / "logitless" / "__init__.py").read_text(encoding="utf-8"))
    lines = [
        *HEADER,
        "from collections.abc import Callable, Sequence",
        "from typing import Any, List, Literal, Optional, Protocol, TypedDict, Union, overload",
        "",
        "from numpy import int64",
        "from numpy.typing import NDArray",
        "from typing_extensions import Buffer, TypeAlias",
        "",
        "from . import _core",
        "from ._core import Plan, Workspace",
        "from ._results import IdLogps, Result, SetDistillationResult, SoftCrossEntropyResult, TokenStats",
        "from .lora import LoraWeight",
        "from .packed import PackedWeight",
        "",
        f"__all__ = {logitless.__all__!r}",
        "__version__: str",
        "",
        "class _SpeaksDLPack(Protocol):",
        "    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...",
        "",
        "ArrayLike: TypeAlias = Union[_SpeaksDLPack, Buffer]",
        f'"""{inspect.getdoc(logitless.ArrayLike)}"""',
        "WeightLike: TypeAlias = Union[_SpeaksDLPack, Buffer, PackedWeight, LoraWeight]",
        f'"""{inspect.getdoc(logitless.WeightLike)}"""',
        "",
        "class Option(TypedDict, total=False):",
        "    type: str",
        "    default: Any",
        "    choices: List[str]",
        "    optional: bool",
        "    list: bool",
        "    range: str",
        "    meaning: str",
        "    shape: str",
    ]
    described = [*logitless._PLANS, "id_logps_backward", "sample"]
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if node.name in described:
            lines += lines_of(getattr(logitless, node.name), ast.unparse(node.returns))
        elif node.name == "Context":
            lines += context_of(node)
        elif node.name == "plan":
            for task in logitless._PLANS:
                parameters = parameters_of(getattr(logitless, task))
                keywords = wrapped(one for one in parameters if one != "*")
                lines += ["", "@overload", "def plan(", f"    task: Literal[{task!r}],", "    *,", *keywords]
                lines += [") -> Plan:", f'    """{ast.get_docstring(node, clean=False)}"""']
        elif node.name == "options":
            node.args.args[0].annotation = ast.parse(choices([*logitless._PLANS, "context", "backward"]), mode="eval").body
            node.returns = ast.parse("dict[str, Option]", mode="eval").body
            lines += without_body(node)
        else:
            lines += without_body(node)
    return "\n".join([*lines, ""])


RESULTS = {
    "torch": {name: "Any" for name in ("linear_cross_entropy", "policy_loss", "preference_loss", "kto_loss", "distillation_loss")}
    | {"token_logps": "Union[Tensor, tuple[Tensor, ...]]", "topk_logps": "tuple[Tensor, Tensor]", "sample": "tuple[Tensor, Tensor]"},
    "jax": dict.fromkeys(("token_logps", "topk_logps", "sample"), "tuple[Array, Array]"),
}


def stub_of(module, imports, array):
    """The stub of logitless.torch or logitless.jax."""
    import importlib

    from logitless._signatures import Described

    made = importlib.import_module(f"logitless.{module}")
    lines = [*HEADER, *imports, "", f"__all__ = {made.__all__!r}"]
    rest = []
    for name in made.__all__:
        value = getattr(made, name)
        if isinstance(getattr(value, "__signature__", None), Described):
            lines += lines_of(value, RESULTS[module].get(name, array))
        else:
            rest.append(name)
    own = ast.parse((ROOT / "logitless" / f"{module}.py").read_text(encoding="utf-8"))
    for node in own.body:
        if isinstance(node, ast.ClassDef) and node.name in rest:
            lines += without_body(node)
    return "\n".join([*lines, ""])


IMPORTS = {
    "torch": [
        "from collections.abc import Sequence",
        "from typing import Any, Literal, Optional, Union",
        "",
        "import torch",
        "from torch import Tensor",
        "",
        "from . import Context",
        "from ._torch_call import options as options, set_options as set_options",
        "from ._torch_loss import CrossEntropyStats as CrossEntropyStats",
        "from ._torch_tokens import topk_union as topk_union",
        "from ._torch_versions import Module",
        "from .lora import LoraWeight",
        "from .packed import PackedWeight",
    ],
    "jax": [
        "from typing import Literal, Optional, Union",
        "",
        "from jax import Array",
        "",
        "from . import Context",
        "from .lora import LoraWeight",
        "from .packed import PackedWeight",
    ],
}


def core_stub():
    """The stub of logitless._core, with new task functions."""
    import logitless
    from logitless import _core

    text = (ROOT / "logitless" / "_core.pyi").read_text(encoding="utf-8")
    before, mark, rest = text.partition("# The functions of the tasks, by python/generate_signatures.py:\n\n")
    after = rest[rest.index("# The others:") :]
    lines, given = [], "context: Context, arguments: dict[str, Any]"
    for task in logitless._PLANS:
        has_loss = hasattr(_core, f"{task}_forward")
        forward = task.title().replace("_", "") + ("Forward" if has_loss else "")
        upstream = "list[float]" if has_loss else "Any"
        lines += [f"class {forward}: ...", f"def plan_{task}({given}) -> Plan: ..."]
        if has_loss:
            lines.append(f"def {task}({given}) -> dict[str, Any]: ...")
        name = f"{task}_forward" if has_loss else task
        lines += [f"def {name}({given}) -> tuple[dict[str, Any], {forward}]: ..."]
        lines += [f"def {task}_backward(", f"    {given}, forward: {forward}, upstream: {upstream}", ") -> Plan: ..."]
    return before + mark + "\n".join([*lines, "", after])


def stubs():
    """{file name: text} of all stubs."""
    return {
        "_core.pyi": core_stub(),
        "__init__.pyi": stub(),
        "torch.pyi": stub_of("torch", IMPORTS["torch"], "Tensor"),
        "jax.pyi": stub_of("jax", IMPORTS["jax"], "Array"),
    }


if __name__ == "__main__":
    sys.path.remove(str(ROOT))  # the built package, not the sources, which have no _core
    PAGE.write_text(options_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in stubs().items():
        (ROOT / "logitless" / name).write_text(text, encoding="utf-8")
