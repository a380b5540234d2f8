# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures packed heads against a bfloat16 and a float32 head of the same shape: the loss and the gradient of
hidden states, with a frozen head.

    python bench/packed_heads.py                          # Qwen2.5-1.5B's head, 2,048 tokens of bfloat16
    python bench/packed_heads.py --vocab 49152 --hidden 768 --dtype float32

Packed numbers are random bits under small scales, so that no format is favoured. The calls take turns in one
process. Prints median times, the bytes of each head, and ratios to the bfloat16 head.
"""

import argparse
import statistics
import time

import numpy as np
import torch

import logitless

# Bytes and numbers per block, and the offsets of its float16 scales. int8 and nf4 store their scales
# separately.
BLOCKS = {
    "q8_0": (34, 32, (0,)),
    "q4_0": (18, 32, (0,)),
    "q4_k": (144, 256, (0, 2)),
    "q5_k": (176, 256, (0, 2)),
    "q6_k": (210, 256, (208,)),
    "nf4": (1, 2, ()),
}


def packed_rows(random, packing, vocab, hidden):
    if packing == "int8":
        return random.integers(-127, 128, (vocab, hidden), dtype=np.int8)
    size, numbers, scales = BLOCKS[packing]
    rows = random.integers(0, 256, (vocab, hidden // numbers, size), dtype=np.uint8)
    for at in scales:
        rows[:, :, at : at + 2] = np.frombuffer(np.float16(1e-4).tobytes(), np.uint8)
    return rows.reshape(vocab, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16", help="of hidden states")
    parser.add_argument("--packings", nargs="*", default=["int8", *BLOCKS])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    states = torch.randn(options.tokens, options.hidden).to(getattr(torch, options.dtype))
    targets = torch.randint(options.vocab, (options.tokens,))
    d_hidden = torch.empty(states.shape, dtype=torch.float32)
    context = logitless.Context(threads=torch.get_num_threads())
    weight = torch.randn(options.vocab, options.hidden) / options.hidden**0.5
    heads = {"bfloat16": (weight.bfloat16(), {}), "float32": (weight, {})}
    for packing in options.packings:
        groups = {"int8": 1, "nf4": options.hidden // 64}.get(packing)
        scales = {"scales": np.full((options.vocab, groups), 1e-3, np.float32)} if groups else {}
        heads[packing] = (packed_rows(random, packing, options.vocab, options.hidden), {"packing": packing, **scales})
    seconds = {name: [] for name in heads}
    plans = {}
    for turn in range(options.rounds + 1):
        for name, (rows, arguments) in heads.items():
            started = time.perf_counter()
            result = logitless.cross_entropy(states, rows, targets, d_hidden=d_hidden, context=context, **arguments)
            if turn:
                seconds[name].append(time.perf_counter() - started)
            plans[name] = result.plan
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    print(
        f"[{options.vocab}, {options.hidden}], {options.tokens} tokens of {options.dtype}, "
        f"{logitless.environment()['cpu']}"
    )
    print(f"{'head':10} {'MiB':>8} {'÷ bfloat16':>11} {'seconds':>9} {'÷ bfloat16':>11}  plan, workspace")
    bytes_of = lambda rows: rows.nbytes if isinstance(rows, np.ndarray) else rows.numel() * rows.element_size()
    base = bytes_of(heads["bfloat16"][0])
    for name, (rows, _) in heads.items():
        taken, plan = medians[name], plans[name]
        print(
            f"{name:10} {bytes_of(rows) / 2**20:8.1f} {bytes_of(rows) / base:11.2f} {taken:9.3f} "
            f"{taken / medians['bfloat16']:11.2f}  {plan.kind}, {plan.workspace_bytes / 2**20:.1f} MiB"
        )


if __name__ == "__main__":
    main()
