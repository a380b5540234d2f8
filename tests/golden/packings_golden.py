# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes packings.json: rows in ggml's packings and in bitsandbytes' NF4, and their numbers as unpacked by
gguf.quants.dequantize and bitsandbytes.functional.dequantize_4bit. See README.md."""

import importlib.metadata
import pathlib

import gguf
import numpy as np
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from common import write

NUMBERS = 512  # per row, as in a head
TYPES = ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
# The offsets of a block's float16 numbers.
HALVES = {"Q4_0": (0,), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
# Zeros, the smallest and the largest subnormal number, the smallest and the largest normal number, infinity,
# NaN, 1.
SPECIAL = (0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFD55, 0x3C00)


def block_size(name):
    """Return the numbers and the bytes of a block."""
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def random_row(random, name, halves):
    """Return a row of random bytes, in which halves[k] are the k-th float16 numbers of the blocks."""
    blocks = random.integers(0, 256, (len(halves[0]), block_size(name)[1]), dtype=np.uint8)
    for place, numbers in zip(HALVES[name], halves):
        blocks[:, place : place + 2] = numbers.astype("<f2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def rows_of(random, name):
    count = NUMBERS // block_size(name)[0]
    of_a_head = [random.uniform(0.2, 1, count) * 2.0**-12 for _ in HALVES[name]]
    special = np.array(SPECIAL, dtype=np.uint16).view(np.float16)
    yield random_row(random, name, of_a_head)
    yield random_row(random, name, [np.roll(special, 5 * k) for k in range(len(HALVES[name]))])
    if name in ("Q4_0", "Q8_0"):  # gguf packs these two itself
        weights = (random.standard_normal(NUMBERS) * 0.02).astype(np.float32)
        yield gguf.quants.quantize(weights, gguf.GGMLQuantizationType[name])


def hexadecimal(numbers):
    return numbers.astype(">f4").tobytes().hex()


def nf4_rows():
    """Yield weights packed by bitsandbytes, and every code with scales that it never writes."""
    random = np.random.default_rng(5)
    for group in (32, 64, 128):
        weights = torch.tensor(random.standard_normal((1, NUMBERS)) * 0.02, dtype=torch.float32)
        packed, state = quantize_4bit(weights, blocksize=group, quant_type="nf4")
        yield group, packed, state
    state.blocksize = 32
    special = [0, -0.0, 2.0**-149, 1.5 * 2.0**-127, 2.0**-126, 3e38, 1e36, np.inf, -np.inf, np.nan, 1, -3.7, 0.1, 1e-3]
    state.absmax = torch.tensor([*special, 7.0, 0.3], dtype=torch.float32)
    yield 32, torch.tensor(random.integers(0, 256, (NUMBERS // 2, 1), dtype=np.uint8)), state


def nf4_case():
    rows = []
    for group, packed, state in nf4_rows():
        numbers = dequantize_4bit(packed, state).numpy().reshape(-1)
        assert numbers.dtype == np.float32
        row = {"bytes": packed.numpy().tobytes().hex(), "numbers": hexadecimal(numbers)}
        rows.append({**row, "scales": hexadecimal(state.absmax.numpy()), "group": group})
    return {"name": "nf4", "block": [2, 1], "rows": rows}


def main():
    cases = []
    for name in TYPES:
        rows = []
        for packed in rows_of(np.random.default_rng(TYPES.index(name)), name):
            with np.errstate(all="ignore"):
                numbers = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[name])
            rows.append({"bytes": packed.tobytes().hex(), "numbers": hexadecimal(numbers)})
        cases.append({"name": name.lower(), "block": block_size(name), "rows": rows})
    cases.append(nf4_case())
    versions = {name: importlib.metadata.version(name) for name in ("bitsandbytes", "gguf", "numpy", "torch")}
    write(pathlib.Path(__file__).parent / "packings.json", versions, {}, cases)


if __name__ == "__main__":
    main()
