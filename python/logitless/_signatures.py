# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Builds the signatures and docstrings of the package's functions from the library's lists of options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature
from typing import Any, Literal, Optional, Union

from . import _core
from ._equivalents import EQUIVALENTS
from ._examples import EXAMPLES, RAISES, RETURNS, SETUP


class ArrayLike:
    """An array argument: a NumPy, PyTorch or JAX array, or any object that supports DLPack or the buffer
    protocol. It must be on the CPU with contiguous rows. Lists are not accepted.

    help() of a function gives the type and the shape of each array, such as "floats [V, H]". The types are:

        floats: float32, bfloat16 or float16; or float64, if all floats of the call are float64. Never copied.
        numbers: float32, bfloat16, float16 or float64, independent of the other arrays.
        ids: integers of any type.
        flags: bools, or integers, float32 or float64 that are 0 or 1.
        float32, float64: exactly this type.
        output: an array to write, of the type of the argument whose gradient it receives, or float32.

    Axes: N tokens, B sequences, T tokens per sequence, H columns of hidden states, V vocabulary entries, K
    ids per token, E ids of all tokens, r the rank of a LoRA, G groups per row, each with its own scale.
    """


class WeightLike:
    """The weight of a head: an ArrayLike [V, H], a PackedWeight (logitless.packed), or a LoraWeight
    (logitless.lora) of either."""


for _alias in (ArrayLike, WeightLike):
    _alias.__module__ = "logitless"


class Array:  # not a NamedTuple, which would take a tenth of the import time
    """The type of an array argument: a type of ArrayLike's docstring, and a shape."""

    def __init__(self, kind: str, shape: str) -> None:
        self.kind = kind
        self.shape = shape


# An argument: name, type, default and meaning.
Argument = tuple[str, Any, Any, str]
_PLAIN = {"float": float, "int": int, "bool": bool, "str": str}
_WEIGHT = Array("floats", "[V, H]")


def _source(prefix: str, meaning: Callable[[str], str], left_out: Sequence[str] = ()) -> list[Argument]:
    """The arguments that give a model's logits, with the prefix of a teacher or reference."""
    rows = []
    for key, type, default, text in options_of("logits").values():
        if key == "weight":
            type, text = _WEIGHT, "the head: a matrix or its transposed view, a PackedWeight or a LoraWeight"
        elif isinstance(type, Array) and type.kind == "numbers":
            type = Array("floats", type.shape)
        if key not in left_out:
            rows.append((prefix + key, type, default, meaning(text)))
    return rows


def _model(prefix: str, whose: str, *left_out: str) -> list[Argument]:
    return _source(prefix, lambda text: f"{whose}: {text}", ("offsets", "group", *left_out))


def _gradients() -> list[Argument]:
    arrays = [(key, Array("output", type.shape), *rest) for key, type, *rest in options_of("gradients").values()
              if isinstance(type, Array)]
    return [
        *arrays,
        ("weight_sink", Optional[Callable[..., Any]], None, "receives each tile of d_weight: (first, count, tile)"),
        ("accumulate", bool, False, "adds to the gradients instead of overwriting them"),
    ]


_MODELS = {
    "preference_loss": ("ref_", "the reference", "logits"),
    "kto_loss": ("ref_", "the reference", "logits"),
    "distillation_loss": ("teacher_", "the teacher"),
}


def _typed(field: dict[str, Any]) -> Any:
    if "choices" in field:
        one: Any = Literal[tuple(field["choices"])]
    else:
        one = _PLAIN.get(field["type"], Any)
    if field.get("list"):
        return Union[one, Sequence[one]]
    return Optional[one] if field.get("optional") else one


@functools.lru_cache(None)  # several modules ask for the same options
def options_of(task: str, *lists: str) -> dict[str, Argument]:
    """The options of a task and of other lists, by name."""
    rows = {}
    for name in (task, *lists):
        for key, field in _core.fields(name).items():
            key = "backward" if (name, key) == ("backward", "mode") else key
            kind, _, array = field["type"].partition(" ")
            rows[key] = (key, Array(kind, field["shape"]) if array else _typed(field), field["default"], field["meaning"])
    return rows


def arguments_of(task: str, gradients: bool | None = None) -> dict[str, Argument]:
    """Every argument of a function except context, by name. With `gradients`, by default for losses, outputs
    are included."""
    gradients = hasattr(_core, f"{task}_forward") if gradients is None else gradients
    tensors = options_of(f"{task}.tensors").values()
    model = _model(*_MODELS[task]) if task in _MODELS else ()
    outputs = _gradients() if gradients else ()
    rows = {row[0]: row for row in (*_source("", str, ("group",)), *tensors, *model, *outputs)}
    return rows | options_of(task, *(("backward",) if gradients else ()))


def no_argument(function: str, name: str) -> str:
    """The message for an argument that a function does not have, or does not take together with the other
    arguments."""
    text = f"{function} has no argument {name!r}"
    try:
        known = [*arguments_of(function), "context", "dtype"]
    except ValueError:  # not the name of a task
        known = []
    if name in known:
        return f"{text} with the other arguments given"
    import difflib

    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"{text}; did you mean {nearest[0]}?" if nearest else text


class Described(Signature):
    """A signature whose parameters are built on first use instead of at import."""

    __slots__ = ("_make",)

    def __init__(self, parameters: Any = None, *, return_annotation: Any = Signature.empty, **more: Any) -> None:
        later = callable(parameters)
        super().__init__(None if later else parameters, return_annotation=return_annotation, **more)
        self._make = parameters if later else None

    @property
    def parameters(self) -> Any:
        if self._make is not None:
            super().__init__(self._make(), return_annotation=self.return_annotation)
            self._make = None
        return super().parameters


class Surface:
    """A module's functions: the module's name, the annotations of its arrays, and the arguments that it adds
    or changes."""

    def __init__(
        self,
        name: str,
        array: Any,
        weight: Any,
        arguments: dict[str, Argument],
        shape: Callable[[str], str] = str,
        ids: str = "ids",
    ) -> None:
        self.name = name
        self.array = array
        self.weight = weight
        self.arguments = arguments
        self.shape = shape
        self.ids = ids  # the accepted types of token ids

    def annotation(self, type: Any, default: Any) -> Any:
        if not isinstance(type, Array):
            return Optional[type] if default is None and type in (bool, float, int, str) else type
        one = self.weight if type is _WEIGHT else self.array
        return Optional[one] if default is None else one

    def line(self, row: Argument, name: str) -> str:
        _, type, _, meaning = row
        if not isinstance(type, Array):
            return f"    {name}: {meaning}."
        kind, shape = self.ids if type.kind == "ids" else type.kind, self.shape(type.shape)
        return f"    {name} ({kind} {shape}): {meaning}."


def describe(
    function: Any,
    surface: Surface,
    rows: dict[str, Argument],
    result: Any,
    options: Iterable[str] | None = None,
    names: dict[str, str] | None = None,
) -> None:
    """Sets a function's signature, and adds sections to its docstring. Its arguments are the parameters of
    its code, and `options` (by default all rows) in place of **options. `names` maps names of rows to the
    function's own names."""
    code = inspect.unwrap(function).__code__
    first = code.co_varnames[: code.co_argcount]
    own = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rows = {**rows, **surface.arguments}
    names = names or {}
    rows |= {new: rows[old] for old, new in names.items()}
    taken = (*first, *own)
    every = [*taken, *(name for name in (rows if options is None else options) if name not in taken)]
    if "context" not in taken:
        every.append("context")
    if options is None:  # only id_logps_backward has forward and upstream
        every = [name for name in every if name in taken or name not in surface.arguments]

    def parameters() -> list[Parameter]:
        plain = inspect.unwrap(function)
        defaults = dict(zip(first[len(first) - len(plain.__defaults__ or ()) :], plain.__defaults__ or ()))
        defaults |= plain.__kwdefaults__ or {}
        made = []
        for name in every:
            default = defaults.get(name, Parameter.empty if name in taken else rows[name][2])
            kind = Parameter.POSITIONAL_OR_KEYWORD if name in first else Parameter.KEYWORD_ONLY
            made.append(Parameter(name, kind, default=default, annotation=surface.annotation(rows[name][1], default)))
        return made

    function.__signature__ = Described(parameters, return_annotation=result)
    task = function.__name__
    told = RETURNS[surface.name].get(task) or f"{result.__name__}: see help(logitless.{result.__name__})"
    lines = [inspect.cleandoc(function.__doc__), "", "Equivalent to, with the other options at their defaults:"]
    lines += [f"    {line}" for line in EQUIVALENTS[surface.name][task]]
    lines += ["", "Args:", *(surface.line(rows[name], name) for name in every)]
    lines += ["", "Returns:", f"    {told}.", "", "Raises:"]
    lines += [f"    {error}" for error in RAISES.get(f"{surface.name} {task}", RAISES[surface.name])]
    lines += ["", "Example:"]
    for line in (*SETUP[surface.name], *EXAMPLES[surface.name][task]):
        lines.append(f"    {line[1:]}" if line[0] == "=" else f"    >>> {line}")
    function.__doc__ = "\n".join(lines) + "\n"
