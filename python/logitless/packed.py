# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Packed weights, and functions that read the quantised weights of other projects.

    from logitless.packed import from_bitsandbytes
    head = from_bitsandbytes(model.lm_head.weight)
    result = logitless.cross_entropy(hidden, head, targets)

Neither bitsandbytes nor torchao is imported: their tensors are recognised by their class names. Tensors on
another device are copied to the CPU.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

__all__ = ["PackedWeight", "from_bitsandbytes", "from_torchao"]


@dataclasses.dataclass(frozen=True, eq=False)
class PackedWeight:
    """A packed weight of shape [V, H]: the bytes of its rows, their format, and scales if the format keeps
    them apart. data and scales may be NumPy or JAX arrays or PyTorch tensors.

    Args:
        data (int8 [V, H], or uint8 [V, bytes]): int8 if packing is "int8".
        packing: "int8", "nf4", or a GGUF format such as "q8_0".
        scales (float32 [V, G]): for int8 and nf4.

    Raises:
        ValueError: data or packing is invalid. This is checked when the weight is used.

    Example:
        >>> import numpy as np, logitless
        >>> from logitless.packed import PackedWeight
        >>> head = PackedWeight(np.ones((7, 4), np.int8), "int8", np.ones((7, 1), np.float32))
        >>> round(logitless.cross_entropy(np.ones((6, 4), np.float32), head, np.arange(6)).loss, 3)
        1.946
    """

    data: NDArray[Any]
    packing: str
    scales: NDArray[float32] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(V, H), the shape of the unpacked matrix."""
        blocks = _core.packing_blocks()
        if self.packing not in blocks:
            raise ValueError(f"packing = {self.packing!r} is none of {', '.join(blocks)}")
        if len(self.data.shape) != 2:
            raise ValueError(f"data has shape {list(self.data.shape)}: it must have 2 axes")
        numbers, size = blocks[self.packing]
        rows, row_bytes = (int(x) for x in self.data.shape)
        if row_bytes % size != 0:
            what = f"rows of {row_bytes} bytes, which is no multiple of {size}, the block of {self.packing}"
            raise ValueError(f"data has {what}")
        return rows, row_bytes // size * numbers

    def __repr__(self) -> str:
        def text(array: Any) -> str:
            kind = getattr(array, "dtype", type(array).__name__)
            return f"{str(kind).removeprefix('torch.')}{list(getattr(array, 'shape', ()))}"

        scales = "" if self.scales is None else f", scales={text(self.scales)}"
        return f"PackedWeight({text(self.data)}, packing={self.packing!r}{scales})"

    def keywords(self, prefix: str = "") -> dict[str, Any]:
        """Arguments for _core other than `data`. For a teacher, prefix="teacher_"."""
        out: dict[str, Any] = {f"{prefix}packing": self.packing}
        if self.scales is not None:
            out[f"{prefix}scales"] = self.scales
        return out


def from_bitsandbytes(parameter: Any) -> PackedWeight:
    """Reads the weight of a Linear4bit of type nf4, or of a Linear8bitLt that has not run a forward pass yet.

    nf4 values are bit-identical to `dequantize_4bit` in float32. If the groups of bitsandbytes cross row
    boundaries, they are split into smaller groups, each with its own scale. (The CPU kernel of bitsandbytes
    0.50 uses wrong scales there; logitless uses the right ones.) int8 values are CB · (SCB / 127), rounded
    once; bitsandbytes rounds twice.

    Args:
        parameter: a Params4bit or an Int8Params, on any device.

    Returns:
        PackedWeight: on the CPU.

    Raises:
        TypeError: parameter is neither.
        ValueError: it is fp4, or has another layout.

    Example:
        >>> head = from_bitsandbytes(model.lm_head.weight)  # doctest: +SKIP
    """
    names = class_names(parameter)
    if "Params4bit" in names:
        return _nf4(parameter)
    if "Int8Params" in names:
        return _llm_int8(parameter)
    raise TypeError(f"{names[0]} is neither a Params4bit nor an Int8Params of bitsandbytes")


def from_torchao(tensor: Any) -> PackedWeight:
    """Reads an Int8Tensor or an IntxUnpackedToInt8Tensor of torchao 0.18, if only the weight is quantised.

    The values are bit-identical to `tensor.dequantize()` in float32. Zero points are subtracted from the
    integers, and the results must fit int8, which integers of up to 7 bits always do.

    Args:
        tensor: the quantised weight, on any device.

    Returns:
        PackedWeight: on the CPU.

    Raises:
        TypeError: tensor is of another class.
        ValueError: its layer also quantises or scales its input.

    Example:
        >>> head = from_torchao(model.lm_head.weight)  # doctest: +SKIP
    """
    names = class_names(tensor)
    if not {"Int8Tensor", "IntxUnpackedToInt8Tensor"} & set(names):
        raise TypeError(f"{names[0]} is neither an Int8Tensor nor an IntxUnpackedToInt8Tensor of torchao")
    for name in ("act_quant_kwargs", "act_quant_scale", "act_pre_scale", "activation_quantization"):
        if getattr(tensor, name, None) is not None:
            rule = "the layer changes its input, so the weight alone does not give its output"
            raise ValueError(f"{names[0]}.{name} is set: {rule}")
    integers = _numpy(tensor.qdata)
    if integers.ndim != 2:
        raise ValueError(f"{names[0]} has shape {list(integers.shape)}: it must have 2 axes")
    rows, group = (int(size) for size in tensor.block_size)
    if tensor.zero_point is not None:
        zero = _numpy(tensor.zero_point.float()).repeat(rows, axis=0).repeat(group, axis=1)
        shifted = integers - zero.reshape(integers.shape)
        integers = np.clip(np.nan_to_num(shifted), -128, 127).astype(np.int8)
        if (integers != shifted).any():
            raise ValueError(f"{names[0]}: minus their zero points, the numbers must be integers from -128 to 127")
    scales = _numpy(tensor.scale.float()).repeat(rows, axis=0)
    return PackedWeight(integers, "int8", np.ascontiguousarray(scales.reshape(len(integers), -1)))


def class_names(value: Any) -> list[str]:
    return [cls.__name__ for cls in type(value).__mro__]


def _numpy(tensor: Any) -> NDArray[Any]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _nf4(parameter: Any) -> PackedWeight:
    import torch

    state = parameter.quant_state
    if state is None:
        raise ValueError("Params4bit is not quantised yet: bitsandbytes does that when it is moved to a device")
    if state.quant_type != "nf4":
        raise ValueError(f"Params4bit has quant_type = {state.quant_type!r}: only 'nf4' is read")
    if getattr(state, "packing_format_for_cpu", False):
        raise ValueError("Params4bit has the layout of bitsandbytes' CPU kernels: take it before a forward pass")
    shape = list(state.shape)
    if len(shape) != 2 or shape[1] % 2 != 0:
        raise ValueError(f"Params4bit has shape {shape}: it must have 2 axes, and rows of whole bytes")
    rows, cols = shape
    absmax = _numpy(_absmax(state))
    group = math.gcd(state.blocksize, cols)
    scales = absmax[np.arange(rows * cols // group) * group // state.blocksize]
    # bitsandbytes may store the bytes as elements of another type.
    data = _numpy(parameter.data.contiguous().view(torch.uint8))
    return PackedWeight(data.reshape(rows, cols // 2), "nf4", scales.reshape(rows, cols // group))


def _absmax(state: Any) -> Any:
    """The scales in float32. With double quantisation they are quantised, too."""
    if state.state2 is None:
        return state.absmax.float()
    nested = state.state2
    scales = nested.absmax.float().repeat_interleave(nested.blocksize)[: state.absmax.numel()]
    return nested.code.float()[state.absmax.reshape(-1).long()] * scales + state.offset


def _llm_int8(parameter: Any) -> PackedWeight:
    if parameter.SCB is None:
        raise ValueError("Int8Params has no SCB: it is not quantised yet, or its module has taken it in a forward pass")
    integers = _numpy(parameter.data if parameter.CB is None else parameter.CB)
    if integers.dtype != np.int8 or integers.ndim != 2:
        raise ValueError(f"Int8Params is {integers.dtype} of shape {list(integers.shape)}: it must be int8 with 2 axes")
    return PackedWeight(integers, "int8", _numpy(parameter.SCB.float() / 127).reshape(-1, 1))
