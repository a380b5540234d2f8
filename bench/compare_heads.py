# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures how far a quantised head is from the original, on real hidden states, in three ways: in float64,
from the packed head as logitless reads it, and as llama.cpp's `llama-perplexity --kl-divergence` computes it,
which stores the base's log-probabilities in 16 bits.

    python bench/compare_heads.py states/

The folder has head.safetensors with lm_head [V, H] and text.safetensors with hidden [N, H]. KL is from the
base's distribution to the quantised one, averaged over tokens.

llama.cpp's files are emulated in float32 (tools/perplexity/perplexity.cpp: the functions named log_softmax).
Per token they hold a scale, a minimum no lower than 16 nats below the largest logit, and 16 bits per
vocabulary entry. Entries whose stored log-probability is below -16 are left out of the sum. Their logits are
float32 products of the same unpacked head, so that only the format differs.

q8_0 and q4_0 are packed by gguf. gguf only unpacks K-quants, so a quantiser below packs them: it rounds to
nearest, without llama.cpp's search for better scales, and pads rows with zeros to whole blocks of 256. nf4 is
as in bitsandbytes, in groups of 64.
"""

import argparse
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

import logitless

PACKINGS = ("q8_0", "q6_k", "q5_k", "nf4", "q4_k", "q4_0")
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334]
    + [-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    + [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    dtype=np.float32,
)


def half(numbers):
    return numbers.astype("<f2")


def safe(divisor):
    return np.where(divisor == 0, 1, divisor)


def halves(low, high):
    """Pack two 4-bit numbers per byte."""
    return low.astype(np.uint8) | high.astype(np.uint8) << 4


def pack_q6_k(blocks):
    """Pack [N, 256] into the blocks of kernels/packed_blocks.h."""
    groups = blocks.reshape(-1, 16, 16)
    scales = np.abs(groups).max(2) / 31
    d = half(scales.max(1) / 127)
    steps = np.rint(scales / safe(d.astype(np.float32))[:, None]).astype(np.int8)
    step = d.astype(np.float32)[:, None, None] * steps[:, :, None]
    q = (np.clip(np.rint(groups / safe(step)), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = halves(q[:, :, :2] & 15, q[:, :, 2:] & 15).reshape(len(blocks), 128)
    high = (q >> 4 << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(2, dtype=np.uint8).reshape(len(blocks), 64)
    return np.concatenate([low, high, steps.view(np.uint8), d.view(np.uint8).reshape(-1, 2)], axis=1)


def pack_q45_k(blocks, bits):
    groups = blocks.reshape(-1, 8, 32)
    least = np.minimum(groups.min(2), 0)
    most = 2**bits - 1
    scales, offsets = (groups.max(2) - least) / most, -least
    d, dmin = half(scales.max(1) / 63), half(offsets.max(1) / 63)
    wide, wide_min = d.astype(np.float32)[:, None], dmin.astype(np.float32)[:, None]
    s = np.clip(np.rint(scales / safe(wide)), 0, 63).astype(np.uint8)
    m = np.clip(np.rint(offsets / safe(wide_min)), 0, 63).astype(np.uint8)
    step, offset = (wide * s)[:, :, None], (wide_min * m)[:, :, None]
    q = np.clip(np.rint((groups + offset) / safe(step)), 0, most).astype(np.uint8)
    packed = [d.view(np.uint8).reshape(-1, 2), dmin.view(np.uint8).reshape(-1, 2)]
    packed += [s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, halves(s[:, 4:] & 15, m[:, 4:] & 15)]
    if bits == 5:
        packed.append((q >> 4 << np.arange(8, dtype=np.uint8)[:, None]).sum(1, dtype=np.uint8))
    packed.append(halves(q[:, 0::2] & 15, q[:, 1::2] & 15).reshape(len(blocks), 128))
    return np.concatenate(packed, axis=1)


def quantise(weight, packing):
    """Return the packed rows, separate scales if the packing has them, and the float32 head that they unpack
    to."""
    rows, cols = weight.shape
    if packing == "nf4":
        groups = weight.reshape(rows, -1, 64)
        scales = np.abs(groups).max(2)
        codes = np.searchsorted((NF4[1:] + NF4[:-1]) / 2, groups / safe(scales)[:, :, None]).reshape(rows, -1, 2)
        numbers = NF4[codes].reshape(groups.shape) * scales[:, :, None]
        return halves(codes[:, :, 1], codes[:, :, 0]), {"scales": scales}, numbers.reshape(rows, cols)
    kind = gguf.GGMLQuantizationType[packing.upper()]
    if packing.endswith("_k"):
        blocks = weight.reshape(-1, 256)
        data = pack_q6_k(blocks) if packing == "q6_k" else pack_q45_k(blocks, int(packing[1]))
        data = data.reshape(rows, -1)
    else:
        data = gguf.quants.quantize(weight, kind)
    return data, {}, gguf.quants.dequantize(data, kind)


def log_probabilities(logits):
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def stored(logits):
    """Return the base's log-probabilities as llama.cpp reads them back from its file."""
    largest = logits.max(1, keepdims=True)
    least = np.maximum(logits.min(1, keepdims=True), largest - np.float32(16))
    log_sum = np.log(np.exp(logits - largest).sum(1, keepdims=True, dtype=np.float64)).astype(np.float32)
    scale = (largest - least) / np.float32(65535)
    integers = np.where(logits > least, np.rint((1 / scale) * (logits - least)), 0).astype(np.uint16)
    return scale * integers + (least - largest - log_sum)


def stored_divergence(base, logits):
    """Return (KL, whether the largest entry is the same) per token, as llama.cpp computes them from `stored`."""
    largest = logits.max(1, keepdims=True)
    log_sum = np.log(np.exp(logits - largest).sum(1, keepdims=True, dtype=np.float64)).astype(np.float32)
    terms = np.exp(base) * (base - logits + (largest + log_sum))
    kl = np.where(base > -16, terms, 0).sum(1, dtype=np.float64)
    return kl, base.argmax(1) == logits.argmax(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", type=pathlib.Path, help="the folder with head.safetensors and text.safetensors")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--packings", nargs="*", default=PACKINGS)
    parser.add_argument("--block", type=int, default=128, help="tokens whose logits are in memory at once")
    options = parser.parse_args()
    weight = load_file(options.states / "head.safetensors")["lm_head"]
    hidden = load_file(options.states / "text.safetensors")["hidden"][: options.tokens]
    file_bytes = {"hidden states": hidden[0].nbytes, "log-probabilities": 2 * (2 * ((len(weight) + 1) // 2) + 4)}
    padding = ((0, 0), (0, -weight.shape[1] % 256))
    weight, hidden = np.pad(weight, padding), np.pad(hidden, padding)

    heads = {packing: quantise(weight, packing) for packing in options.packings}
    ours = {}
    for packing, (data, scales, _) in heads.items():
        ours[packing] = logitless.distillation_loss(
            hidden, data, hidden, weight, packing=packing, want_agreement=True, **scales
        )
    exact, stored_kl = ({packing: [] for packing in heads} for _ in range(2))
    for begin in range(0, len(hidden), options.block):
        states = hidden[begin : begin + options.block]
        wide = states.astype(np.float64)
        base_logits = wide @ weight.T.astype(np.float64)
        base, base_top = log_probabilities(base_logits), base_logits.argmax(1)
        read_back = stored(states @ weight.T)
        for packing, (_, _, unpacked) in heads.items():
            logits = wide @ unpacked.T.astype(np.float64)
            kl = (np.exp(base) * (base - log_probabilities(logits))).sum(1)
            exact[packing].append((kl, logits.argmax(1) == base_top))
            stored_kl[packing].append(stored_divergence(read_back, states @ unpacked.T))

    print(f"{len(hidden)} tokens; bytes per token: " + ", ".join(f"{n:,} ({name})" for name, n in file_bytes.items()))
    print("| head | bits | KL | error of logitless | of 16-bit files | top-1 | logitless | 16-bit files |")
    print("|---|---|---|---|---|---|---|---|")
    for packing, (data, scales, _) in heads.items():
        kl, same = (np.concatenate(x) for x in zip(*exact[packing]))
        kl16, same16 = (np.concatenate(x) for x in zip(*stored_kl[packing]))
        result = ours[packing]
        numbers = data.nbytes + sum(x.nbytes for x in scales.values())
        errors = [np.mean(x) - kl.mean() for x in (result.per_token_divergence, kl16)]
        share = [100 * np.mean(x) for x in (same, result.per_token_agreement, same16)]
        print(
            f"| {packing} | {8 * numbers / weight.size:.2f} | {kl.mean():.3e} | {errors[0]:+.1e} | {errors[1]:+.1e} "
            f"| {share[0]:.2f} % | {share[1]:.2f} % | {share[2]:.2f} % |"
        )


if __name__ == "__main__":
    main()
