# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Reads heads quantised by bitsandbytes or torchao. Each weight is read once, on first use, and cached."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .packed import PackedWeight, class_names, from_bitsandbytes, from_torchao

_READERS = {
    "Params4bit": from_bitsandbytes,
    "Int8Params": from_bitsandbytes,
    "Int8Tensor": from_torchao,
    "IntxUnpackedToInt8Tensor": from_torchao,
}
# The linear layers of bitsandbytes. torchao keeps torch.nn.Linear.
_LAYERS = {"Linear4bit", "Linear8bitLt"}
# Tensor subclasses that wrap a plain tensor.
_STAND_INS = {"DTensor", "FakeTensor", "FunctionalTensor"}

# {weight: (version of the tensor, packed weight)}. Entries disappear with their weights.
_read: Any = WeakTensorKeyDictionary()


def is_quantised_layer(head: Any) -> bool:
    """Tells whether the module is a quantised layer whose weight packed_of() can read."""
    return isinstance(head, torch.nn.Linear) and not _LAYERS.isdisjoint(class_names(head))


def packed_of(weight: Any) -> PackedWeight | None:
    """The packed form of a quantised weight; None for a plain tensor. A ValueError names any other class."""
    kind = type(weight)
    if kind is torch.nn.Parameter or kind is Tensor:
        return None
    reader = next((_READERS[name] for name in class_names(weight) if name in _READERS), None)
    if reader is None:
        if isinstance(weight, Tensor) and (
            kind.__name__ in _STAND_INS or kind.__torch_dispatch__ is Tensor.__torch_dispatch__
        ):
            return None
        raise ValueError(
            f"the head's weight is a {kind.__module__}.{kind.__name__}, which is neither a plain tensor nor one that "
            f"logitless reads ({', '.join(_READERS)})"
        )
    version = None if weight.is_inference() else weight._version
    if weight not in _read or _read[weight][0] != version:
        _read[weight] = (version, reader(weight))
    return _read[weight][1]
