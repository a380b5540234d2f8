# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes head.gguf into this folder with the gguf package: see README.md."""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

VOCAB, HIDDEN = 3, 256
QUANTIZED = (Type.Q8_0, Type.Q4_0)
# The package unpacks these types but cannot pack them, so their blocks are drawn integers.
DRAWN = (Type.Q4_K, Type.Q5_K, Type.Q6_K)


def drawn_blocks(kind, generator):
    """Return blocks of random bits, except for their float16 scales, which are small numbers."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (VOCAB, block_bytes), dtype=np.uint8)
    scales = (generator.integers(1, 64, (VOCAB, 2)) / 4096).astype(np.float16).view(np.uint8)
    if kind == Type.Q6_K:
        blocks[:, -2:] = scales[:, :2]
    else:
        blocks[:, :4] = scales
    return blocks


def main():
    generator = np.random.default_rng(1)
    writer = gguf.GGUFWriter(pathlib.Path(__file__).parent / "head.gguf", "gemma2")
    writer.add_name("a head of every type")
    writer.add_custom_alignment(64)
    writer.add_vocab_size(VOCAB)
    writer.add_float32("gemma2.final_logit_softcapping", 30.0)
    writer.add_float64("test.float64", -0.1)
    writer.add_bool("test.bool", True)
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_int{bits}")(f"test.int{bits}", -(2 ** (bits - 1)))
        getattr(writer, f"add_uint{bits}")(f"test.uint{bits}", 2**bits - 1)
    writer.add_token_list(["<s>", "é", "日本"])
    writer.add_token_scores([0.0, -1.5, -2.5])
    writer.add_array("test.nested", [[1, 2], [3]])

    # exact in all three types of floats
    weight = (generator.integers(-64, 64, (VOCAB, HIDDEN)) / 64).astype(np.float32)
    writer.add_tensor("output.bias", np.array([0.5, -0.25, 2.0], np.float32))
    writer.add_tensor("F32", weight)
    writer.add_tensor("F16", weight.astype(np.float16))
    writer.add_tensor("BF16", gguf.quantize(weight, Type.BF16), raw_dtype=Type.BF16)
    for kind in QUANTIZED + DRAWN:
        packed = gguf.quantize(weight, kind) if kind in QUANTIZED else drawn_blocks(kind, generator)
        name = "output.weight" if kind == Type.Q6_K else kind.name
        writer.add_tensor(name, packed, raw_dtype=kind)
        writer.add_tensor(name + ".unpacked", gguf.dequantize(packed, kind).astype(np.float32))
    iq2_xs = np.zeros((VOCAB, gguf.GGML_QUANT_SIZES[Type.IQ2_XS][1]), np.uint8)
    writer.add_tensor("IQ2_XS", iq2_xs, raw_dtype=Type.IQ2_XS)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
