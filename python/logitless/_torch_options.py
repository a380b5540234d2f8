# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The options of logitless.torch's functions, from the library's lists of options."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import torch
from torch import Tensor

from . import _core
from ._torch_call import check_cpu, row_of_tokens, without_gradient

# Options of the library that these functions do not take, with the reason.
NOT_TAKEN = {
    "linear_cross_entropy": {
        "want_accuracy": "return_stats=True returns the accuracy",
        "want_entropy": "token_logps(..., entropy=True) returns entropies",
    },
    "token_logps": dict.fromkeys(
        (
            *("cross", "cross_weights", "argmax", "rank", "top_k", "outside"),
            *("draws", "draw_seed", "draw_top_k", "draw_top_p"),
        ),
        "they are columns of logitless.token_stats()",
    ),
    "topk_logps": dict.fromkeys(("ignore_index", "shift"), "it has no targets"),
    "sample": dict.fromkeys(("ignore_index", "shift"), "it has no targets"),
}


@dataclasses.dataclass(frozen=True)
class Field:
    """An option that is not a tensor."""

    type: str  # float, int, bool or str
    default: Any
    optional: bool = False

    def schema(self, name: str) -> str:
        """The option as an argument in an operator's schema."""
        default = f'"{self.default}"' if isinstance(self.default, str) else self.default
        return f"{self.type}{'?' if self.optional else ''} {name}={default}"


_TYPES = {"name": "str"}  # one of its choices


def _plain_fields(structure: str) -> dict[str, Field]:
    return {
        name: Field(_TYPES.get(field["type"], field["type"]), field["default"], field.get("optional", False))
        for name, field in _core.fields(structure).items()
        if not field["type"].endswith("array")
    }


# The options for sampled and certified gradients. Without a seed, each call draws one from PyTorch's
# generator.
BACKWARD = {"backward" if name == "mode" else name: field for name, field in _plain_fields("backward").items()}
BACKWARD["seed"] = Field("int", None, optional=True)

# softcap is an option of the head. num_items_in_batch may be a tensor, so it is an argument of its own.
CROSS_ENTROPY = {"softcap": Field("float", 0.0), **_plain_fields("cross_entropy"), **BACKWARD}
del CROSS_ENTROPY["num_items_in_batch"]
for _name in NOT_TAKEN["linear_cross_entropy"]:
    del CROSS_ENTROPY[_name]
DISTILLATION = {"softcap": Field("float", 0.0), **_plain_fields("distillation_loss"), **BACKWARD}
del DISTILLATION["num_items_in_batch"]
POLICY = {**_plain_fields("policy_loss"), "advantages_per": _plain_fields("policy_loss.tensors")["advantages_per"], **BACKWARD}
_REFERENCE = {"ref_softcap": Field("float", 0.0), "ref_logps_per": POLICY["advantages_per"]}
PREFERENCE = {**_plain_fields("preference_loss"), **_REFERENCE, **BACKWARD}
KTO = {**_plain_fields("kto_loss"), **_REFERENCE, **BACKWARD}
TOKEN = {**_plain_fields("token"), **BACKWARD}
WITHOUT_TARGETS = {
    name: field for name, field in _plain_fields("token").items() if name not in NOT_TAKEN["topk_logps"]
}


def _where_predicted(structure: str) -> dict[str, Field]:
    """The options of a task without targets: nothing to ignore or to shift."""
    fields = _plain_fields(structure)
    return {name: field for name, field in fields.items() if name not in ("ignore_index", "shift", "num_items_in_batch")}


ID_SET = {**_where_predicted("id_logps"), **BACKWARD}
SOFT_TARGETS = {**_where_predicted("soft_cross_entropy"), **BACKWARD}
SET_DISTILLATION = {**_plain_fields("set_distillation_loss"), **BACKWARD}
del SET_DISTILLATION["num_items_in_batch"]


def seeded(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call. If its gradients are sampled and it has no seed, one is drawn from PyTorch's
    generator, so torch.manual_seed() makes runs reproducible."""
    if arguments.get("backward") != "sampled" or arguments.get("seed") is not None:
        return arguments
    return {**arguments, "seed": int(torch.randint(2**62, ()))}


def name_of(value: Any) -> Any:
    """The value of an option as the library takes it: "bfloat16" for torch.bfloat16."""
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


def refuse(function: str, name: str) -> NoReturn:
    """Raises a TypeError for a name that is not an argument of the function."""
    reason = NOT_TAKEN.get(function, {}).get(name)
    if reason is not None:
        raise TypeError(f"{function}() does not take {name}: {reason}")
    raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of one call that differ from their defaults, by name. Tensors are not included."""

    given: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(function: str, fields: dict[str, Field], options: dict[str, Any]) -> Options:
        given = []
        for name, value in options.items():
            field = fields.get(name) or refuse(function, name)
            value = name_of(value)
            if value is None and name == "reduction":
                raise ValueError("None is not a valid value for reduction")
            if value is None and not field.optional:
                continue  # as if it were not given
            if field.type == "int" and isinstance(value, bool):
                value = int(value)  # an operator does not accept a bool here
            if isinstance(value, list):
                value = list(value)  # a copy: the caller may change the list before a second backward
            if isinstance(field.default, list) or value != field.default:
                given.append((name, value))
        return Options(tuple(given))

    def arguments(self) -> dict[str, Any]:
        """Arguments for an operator or for _core."""
        return dict(self.given)


def arguments_of(
    function: str,
    fields: dict[str, Field],
    options: dict[str, Any],
    lead: torch.Size,
    temperatures: Any = None,
    num_items_in_batch: Any = None,
    token_weights: Any = None,
) -> dict[str, Any]:
    """Arguments for _core: options, temperatures, num_items_in_batch and token_weights. `lead` are the leading
    axes of hidden states."""
    arguments = Options.of(function, fields, options).arguments()
    if temperatures is not None:
        arguments["temperatures"] = numbers_of("temperatures", temperatures, lead)
    if num_items_in_batch is not None:
        arguments["num_items_in_batch"] = float(num_items_in_batch)
    if token_weights is not None:
        arguments["token_weights"] = numbers_of("token_weights", token_weights, lead)
    return arguments


def numbers_of(name: str, tensor: Any, lead: torch.Size) -> Tensor | None:
    """One number per token, such as temperatures, as the library takes them."""
    if tensor is None:
        return None
    check_cpu(**{name: tensor})
    without_gradient(**{name: tensor})
    return row_of_tokens(name, tensor, lead).double()
