# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What inspect.signature() and help() say of the package's functions, from the library's own lists of options."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, Literal, Optional

from . import _core
from ._meanings import MEANINGS

# An argument that is not an option: name, type, default and meaning.
Argument = tuple[str, Any, Any, str]
_PLAIN = {"float": float, "int": int, "bool": bool, "str": str}


def _head(prefix: str, whose: str) -> list[Argument]:
    return [
        (f"{prefix}weight", Any, None, f"{whose}, [V, H], a transposed view, a PackedWeight or a LoraWeight"),
        (f"{prefix}bias", Any, None, "[V], added to the logits"),
        (f"{prefix}layout", Literal["vocab_hidden", "hidden_vocab"], "vocab_hidden", f"the axes of {prefix}weight"),
        (f"{prefix}softcap", float, 0.0, "c of c · tanh(logits / c); 0 for none"),
        (f"{prefix}packing", Optional[Literal[tuple(_core.packing_blocks())]], None, f"how {prefix}weight is packed"),
        (f"{prefix}scales", Any, None, f"the scales of a packed {prefix}weight"),
        (f"{prefix}vocab_ids", Any, None, "[K], the head's entries that the call is over; all by default"),
        (f"{prefix}lora_a", Any, None, "[R, H], a LoRA's first matrix"),
        (f"{prefix}lora_b", Any, None, "[V, R], its second matrix"),
        (f"{prefix}lora_scale", float, 1.0, "multiplies the LoRA's part of the logits"),
        (f"{prefix}lora_states", Any, None, "[N, R], hidden states times lora_a, where they are known"),
    ]


_SOURCE = [
    ("hidden", Any, None, "hidden states, [N, H] or [B, T, H]"),
    *_head("", "the head"),
    ("offsets", Any, None, "[B + 1], packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]]"),
    ("logits", Any, None, "finished logits, [N, V] or [B, T, V], in place of hidden and weight"),
    ("dtype", Optional[Literal["float32", "float64"]], None, "of the returned arrays; float64 if that is the type of hidden"),
]
_OUTPUTS = [
    *((f"d_{name}", Any, None, f"gets the gradient of {name}") for name in
      ("hidden", "weight", "bias", "lora_a", "lora_b", "lora_states", "logits")),
    ("weight_sink", Optional[Callable[..., Any]], None, "gets each tile of d_weight: (first, count, tile)"),
    ("accumulate", bool, False, "adds to the gradients in place of overwriting them"),
]
_TARGETS = [("targets", Any, None, "token ids, of the leading axes of hidden")]
_PER = Literal["by_size", "sequence", "token"]
_REFERENCE = [
    ("ref_logps", Any, None, "the reference's log-probabilities, one per sequence or per token"),
    ("ref_logps_per", _PER, "by_size", "what ref_logps has an entry for"),
    ("ref_hidden", Any, None, "the reference's hidden states, in place of ref_logps"),
    *_head("ref_", "the reference's head"),
]


def _sets(prefix: str, what: str) -> list[Argument]:
    ids = "ids" if prefix == "id" else f"{prefix}_ids"
    return [
        (ids, Any, None, f"{what}: [N, K], or [E] with {prefix}_offsets"),
        (f"{prefix}_offsets", Any, None, f"[N + 1]: row r has {ids}[{prefix}_offsets[r] : {prefix}_offsets[r + 1]]"),
        (f"{prefix}_counts", Any, None, "[N], how many of its K ids each row has"),
    ]


_BATCH: dict[str, list[Argument]] = {
    "cross_entropy": _TARGETS,
    "policy_loss": [
        ("chosen_ids", Any, None, "the sampled token ids, of the leading axes of hidden"),
        ("advantages", Any, None, "[B] or [N], one per sequence or per token"),
        ("old_logps", Any, None, "[N], log-probabilities before the update; without them the ratio is 1"),
        ("ref_logps", Any, None, "[N], the reference's log-probabilities; needs beta"),
        ("sampling_logps", Any, None, "[N], the sampler's log-probabilities; NaN where unknown"),
        ("teacher_logps", Any, None, "[N], the teacher's log-probabilities; needs teacher_weight"),
        ("scores", Any, None, "[B], above 0 for a good sequence; for topr and positive_nll_weight"),
        ("mask", Any, None, "[N] or [B, T], bools or 0 and 1: 0 excludes a token"),
        ("advantages_per", _PER, "by_size", "what advantages has an entry for"),
        *_sets("kept", "token ids that the sampler kept"),
    ],
    "preference_loss": [*_TARGETS, *_REFERENCE],
    "kto_loss": [
        *_TARGETS,
        ("labels", Any, None, "[B], bools or 0 and 1: 1 is desirable"),
        *_REFERENCE,
        ("kl_logps", Any, None, "log-probabilities of the mismatched answers; for kto"),
        ("kl_ref_logps", Any, None, "the reference's, for kto"),
        ("sequence_weights", Any, None, "[B], multiplies each sequence's loss"),
        ("reward_targets", Any, None, "[B], for a2po"),
    ],
    "soft_cross_entropy": [
        *_sets("id", "token ids with a target weight"),
        ("weights", Any, None, "of the shape of ids: their probabilities; weights of one id add up"),
        ("probabilities", Any, None, "[N, V], in place of ids and weights"),
        ("mask", Any, None, "[N] or [B, T], bools or 0 and 1: 0 excludes a token"),
    ],
    "set_distillation_loss": [
        *_sets("id", "token ids whose teacher log-probability is known"),
        ("teacher_logps", Any, None, "of the shape of ids: the teacher's log-probabilities"),
        ("teacher_outside_logps", Any, None, "[N], the teacher's log-probability of all other ids"),
        *_TARGETS,
    ],
    "id_logps": _sets("id", "token ids"),
    "token_stats": _TARGETS,
    "distillation_loss": [
        ("teacher_hidden", Any, None, "the teacher's hidden states"),
        *_head("teacher_", "the teacher's head"),
        ("teacher_logits", Any, None, "finished logits, in place of teacher_hidden and teacher_weight"),
        *_TARGETS,
    ],
}


def _typed(field: dict[str, Any]) -> Any:
    if "choices" in field:
        one: Any = Literal[tuple(field["choices"])]
    else:
        one = _PLAIN.get(field["type"], Any)
    if field.get("list"):
        return list[one]
    return Optional[one] if field.get("optional") else one


def _meaning(task: str, option: str) -> str:
    """The sentence of docs/options.md. A task's table leaves out the options of tokens, which have their own."""
    return MEANINGS[task].get(option) or MEANINGS["token"].get(option, "")


def arguments_of(task: str) -> dict[str, Argument]:
    """Every argument of a function besides context, by name."""
    rows = [*_SOURCE, *_BATCH[task]]
    lists = [task]
    if task not in ("id_logps", "token_stats"):  # which have no gradients
        rows += _OUTPUTS
        lists.append("backward")
    for name in lists:
        for key, field in _core.fields(name).items():
            rows.append(("backward" if key == "mode" else key, _typed(field), field["default"], _meaning(name, key)))
    if task == "distillation_loss":
        dtype = _core.fields(task)["round_logits_to"]
        rows.append(("teacher_round_logits_to", _typed(dtype), None, "rounds the teacher's raw logits to this type"))
    return {row[0]: row for row in rows}


_made: dict[tuple[str, Any, str], Parameter] = {}


def _parameter(name: str, type: Any, default: Any) -> Parameter:
    key = (name, type, repr(default))
    if key not in _made:  # most are arguments of several functions, and making them is most of describe()'s time
        _made[key] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=type)
    return _made[key]


def describe(function: Any, context: Any) -> None:
    """Gives a function the signature and the documentation of its task's arguments."""
    arguments = arguments_of(function.__name__)
    code = function.__code__
    first = code.co_varnames[: code.co_argcount]
    told = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Any) for name in first]
    told.append(Parameter("context", Parameter.KEYWORD_ONLY, default=None, annotation=Optional[context]))
    told += [
        _parameter(name, type, default)
        for name, type, default, _ in arguments.values()
        if name not in first
    ]
    result = function.__globals__[function.__annotations__["return"]]
    function.__signature__ = Signature(told, return_annotation=result)
    lines = [function.__doc__.rstrip(), "", "    Args:", "        context: how the call runs; by default a shared one."]
    lines += [f"        {name}: {meaning}." for name, _, _, meaning in arguments.values()]
    lines += ["", "    Returns:", f"        {result.__name__}: see help(logitless.{result.__name__}).", ""]
    lines += ["    Raises:", "        ValueError: an argument is refused; nothing was written."]
    lines += ["        TypeError: an argument is unknown, or of another type."]
    function.__doc__ = "\n".join(lines) + "\n"
