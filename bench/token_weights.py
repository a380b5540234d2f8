# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures a weighted mean of token losses, with `token_weights=` and by weighting what `reduction="none"` returns:
the loss and the gradients of hidden states and head, in PyTorch.

    python bench/token_weights.py                        # 1,024 tokens, H = 1,024, V = 50,000, float32
    python bench/token_weights.py --zeros 0.5 --dtype bfloat16

The calls take turns in one process. Prints median times, the peak memory above what was resident before the
call, and the differences of loss and gradients.
"""

import argparse
from functools import partial

import torch
from turns import compare_losses

import logitless
from logitless.torch import linear_cross_entropy

CALLS = {
    "token_weights=": lambda x, w, y, t: linear_cross_entropy(x, w, y, token_weights=t, mean_over="token_weights"),
    'reduction="none"': lambda x, w, y, t: (linear_cross_entropy(x, w, y, reduction="none") * t).sum() / t.sum(),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=50000)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--zeros", type=float, default=0.0, help="the share of tokens with weight 0")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    hidden = torch.randn(options.tokens, options.hidden).to(dtype).requires_grad_()
    weight = (torch.randn(options.vocab, options.hidden) / options.hidden**0.5).to(dtype).requires_grad_()
    targets = torch.randint(options.vocab, (options.tokens,))
    given = torch.rand(options.tokens)
    given[: int(options.zeros * options.tokens)] = 0
    print(
        f"[{options.vocab}, {options.hidden}], {options.tokens} tokens of {options.dtype}, "
        f"{logitless.environment()['cpu']}"
    )
    calls = {name: partial(call, hidden, weight, targets, given) for name, call in CALLS.items()}
    compare_losses(calls, (hidden, weight), options.rounds)


if __name__ == "__main__":
    main()
