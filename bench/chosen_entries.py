# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures a loss over chosen entries of a head, with `vocab_ids=` and with the entries gathered first: the
loss and the gradients of hidden states and head, in PyTorch.

    python bench/chosen_entries.py                     # 32,000 entries of Qwen2.5-1.5B's head, 2,048 tokens
    python bench/chosen_entries.py --vocab 49152 --hidden 576 --chosen 8192 --dtype bfloat16

The calls take turns in one process. Prints median times, the peak memory above what was resident before the
call, and the errors of loss and gradients relative to the first variant.
"""

import argparse
from functools import partial

import torch
import torch.nn.functional as F
from turns import compare_losses

import logitless
from logitless.torch import linear_cross_entropy

CALLS = {
    "vocab_ids=": lambda x, w, y, ids: linear_cross_entropy(x, w, y, vocab_ids=ids),
    "gathered, fused": lambda x, w, y, ids: linear_cross_entropy(x, w[ids], y),
    "gathered, dense": lambda x, w, y, ids: F.cross_entropy(F.linear(x, w[ids]).float(), y),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--chosen", type=int, default=32000)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--frozen", action="store_true", help="the head has no gradient")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    states = torch.randn(options.tokens, options.hidden).to(dtype).requires_grad_()
    weight = (torch.randn(options.vocab, options.hidden) / options.hidden**0.5).to(dtype)
    weight.requires_grad_(not options.frozen)
    ids = torch.randperm(options.vocab)[: options.chosen].sort().values
    targets = torch.randint(options.chosen, (options.tokens,))
    leaves = [leaf for leaf in (states, weight) if leaf.requires_grad]
    print(
        f"{options.chosen} of [{options.vocab}, {options.hidden}], {options.tokens} tokens of {options.dtype}, "
        f"{logitless.environment()['cpu']}"
    )
    calls = {name: partial(call, states, weight, targets, ids) for name, call in CALLS.items()}
    compare_losses(calls, leaves, options.rounds)


if __name__ == "__main__":
    main()
