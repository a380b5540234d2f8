# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Compares predicted times with the times in a file of `logitless bench`. The prediction is a call's
multiply-adds at the file's GEMM rate, plus the bytes that it moves at the memory's rate. It assumes no
overlap and no other costs.

    logitless bench configs/smollm2-135m.yaml --sweep seq_len=512,1024,2048,4096 \\
        --contenders dense,one_pass,two_pass,forward -o bench.jsonl
    python bench/predicted.py bench.jsonl --memory 14                # GB/s
    python bench/predicted.py bench.jsonl --memory 23 --gemm 1600    # GFLOP/s of tiles, by bin/parts products

The memory's rate is the rate of a plain sum of the head, printed by `build/release/bin/parts memory --tokens
H --vocab V`. Every contender computes the loss and both gradients, except `forward`, which computes only the
loss.
"""

import argparse
import json
import math
import re

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
PRODUCTS = {"forward": 1, "two_pass": 4, "expected_row": 4}


def predicted_seconds(name, plan, shape, gemm_rate, memory_rate):
    """Return the seconds of arithmetic and of memory traffic; rates are in FLOP/s and bytes/s."""
    rows, hidden, vocab = shape["tokens"], shape["hidden"], shape["vocab"]
    item = ITEM_BYTES[shape["dtype"]]
    head, logits = item * hidden * vocab, (8 if item == 8 else 4) * rows * vocab
    chunk = re.search(r"in chunks of (\d+)", plan)
    chunks = math.ceil(rows / int(chunk[1])) if chunk and name == "one_pass" else 1
    # The head is read for the logits, and again for gradients. Memory that is written is read first.
    moved = chunks * head if name == "forward" else chunks * 4 * head
    # Kept logits are written, then turned into gradients in place. The products of dense read them from
    # memory; one pass multiplies a tile while it is in a cache. Dense also reads the logits from memory to
    # fold them.
    moved += {"dense": 7, "one_pass": 4}.get(name, 0) * logits
    return 2 * PRODUCTS.get(name, 3) * rows * hidden * vocab / gemm_rate, moved / memory_rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--memory", type=float, required=True, metavar="GB/s")
    parser.add_argument("--gemm", type=float, metavar="GFLOP/s", help="in place of the file's GEMM rate")
    arguments = parser.parse_args()
    print(f"{'tokens':>7} {'contender':<12} {'arithmetic':>11} {'memory':>8} {'measured':>9}  predicted / measured")
    with open(arguments.file, encoding="utf-8") as lines:
        points = [point for point in map(json.loads, lines) if point["type"] == "point"]
    for point in points:
        gemm_rate = 1e9 * arguments.gemm if arguments.gemm else point["gemm_rate_flops"]
        for contender in point["contenders"]:
            if contender["status"] != "ok" or not contender["plan"]:
                continue
            name = contender["name"]
            arithmetic, memory = predicted_seconds(
                name, contender["plan"], point["shape"], gemm_rate, 1e9 * arguments.memory
            )
            measured = contender["median_s"]
            print(
                f"{point['shape']['tokens']:>7} {name:<12} {arithmetic:>9.3f} s {memory:>6.3f} s {measured:>7.3f} s  "
                f"{(arithmetic + memory) / measured:.2f}"
            )


if __name__ == "__main__":
    main()
