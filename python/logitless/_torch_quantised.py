# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The weights of heads that bitsandbytes or torchao has quantised: each is read once, when it is met."""

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
# The layers of bitsandbytes, whose forward is that of a matrix. torchao leaves a torch.nn.Linear what it is.
_LAYERS = {"Linear4bit", "Linear8bitLt"}
# Tensors whose values are those of a plain one.
_STAND_INS = {"DTensor", "FakeTensor", "FunctionalTensor"}

# By weight: the version of the tensor, and what it was then. A weight that is gone is forgotten.
_read: Any = WeakTensorKeyDictionary()


def is_quantised_layer(head: Any) -> bool:
    """Tells whether the module is one whose weight packed_of() reads."""
    return isinstance(head, torch.nn.Linear) and not _LAYERS.isdisjoint(class_names(head))


def packed_of(weight: Any) -> PackedWeight | None:
    """What stands for a quantised weight, and None for a plain one; a ValueError names the class of another."""
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
