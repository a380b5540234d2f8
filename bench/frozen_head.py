# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures steps of a trainer whose head is frozen: the loss and only the gradient of hidden states.

    python bench/frozen_head.py                       # SmolLM2-135M's head, 2,048 tokens, float32, seeded
    python bench/frozen_head.py --model qwen2.5-1.5b --dtype bfloat16

The calls take turns in one process. Prints median times and their ratio to two products of the size of the
logits, timed with PyTorch's own product of that size. `halves` are token_logps() and a loss of them in
PyTorch; `cross_entropy, two pass` is the fused call under the plan that their backward pass runs. Errors are
of the first rows' gradient against float64, relative to the largest row.
"""

import argparse
import statistics
import time

import torch

from logitless.torch import linear_cross_entropy, policy_loss, set_options, token_logps

HEADS = {"smollm2-135m": (576, 49152), "qwen2.5-1.5b": (1536, 151936)}
CHECKED = 32  # rows compared with float64


def dense(hidden, weight, targets):
    return torch.nn.functional.cross_entropy((hidden @ weight.T).float(), targets)


def calls_of(hidden, weight, targets, compiled):
    leaf = hidden.requires_grad_()
    half = {}

    def step(loss):
        leaf.grad = None
        loss(leaf, weight, targets).backward()
        return leaf.grad

    def forward():
        half["logps"] = token_logps(leaf, weight, targets)

    def backward():
        leaf.grad = None
        half["logps"].mean().neg().backward()
        return leaf.grad

    def in_plan(plan, call):
        def run():
            set_options(plan=plan)
            try:
                return call()
            finally:
                set_options()

        return run

    advantages = torch.randn(4)
    batched = (leaf.view(4, -1, leaf.shape[-1]), targets.view(4, -1))

    def grpo():
        leaf.grad = None
        policy_loss(batched[0], weight, batched[1], advantages, loss_type="grpo").backward()
        return leaf.grad

    return {
        "product": lambda: torch.mm(hidden.detach(), weight.T),
        "cross_entropy": lambda: step(linear_cross_entropy),
        "cross_entropy, one pass": in_plan("one_pass", lambda: step(linear_cross_entropy)),
        "cross_entropy, two pass": in_plan("two_pass", lambda: step(linear_cross_entropy)),
        "halves: forward": forward,
        "halves: backward": backward,
        "halves, two pass": in_plan("two_pass", lambda: (forward(), backward())[1]),
        "grpo": grpo,
        "torch dense": lambda: step(dense),
        "torch.compile": lambda: step(compiled),
    }


def error_of(gradient, hidden, weight, targets):
    """Return the error of the gradient's first rows, for the mean loss."""
    rows = hidden.detach()[:CHECKED].double().requires_grad_()
    logits = rows @ weight.double().T
    (torch.nn.functional.cross_entropy(logits, targets[:CHECKED], reduction="sum") / len(hidden)).backward()
    off = (gradient[:CHECKED].double() - rows.grad).norm(dim=1)
    return ((off**2).sum().sqrt() / rows.grad.norm()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(HEADS), default="smollm2-135m")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    size, vocab = HEADS[options.model]
    dtype = getattr(torch, options.dtype)
    hidden = torch.randn(options.tokens, size).to(dtype)
    weight = (torch.randn(vocab, size) * 4 / size**0.5).to(dtype)
    targets = torch.randint(vocab, (options.tokens,))
    calls = calls_of(hidden, weight, targets, torch.compile(dense))
    seconds, errors = {name: [] for name in calls}, {}
    for turn in range(options.rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            result = call()
            if turn:
                seconds[name].append(time.perf_counter() - started)
            elif name not in ("product", "halves: forward", "grpo"):
                errors[name] = error_of(result, hidden, weight, targets)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    rate = 2 * options.tokens * size * vocab / medians["product"] / 1e9
    print(f"{options.model}, {options.tokens} tokens, {options.dtype}; one product {rate:.0f} GFLOP/s")
    for name, taken in medians.items():
        error = f"{errors[name]:.1e}" if name in errors else ""
        print(f"{name:26} {taken:8.3f} s  {taken / (2 * medians['product']):6.3f} of two products  {error}")


if __name__ == "__main__":
    main()
