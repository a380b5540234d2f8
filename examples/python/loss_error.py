# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures the error of a float32 cross-entropy on a real model's hidden states, with PyTorch and with
logitless. Each loss is compared per token with float64 arithmetic on the same float32 numbers.

    python examples/python/loss_error.py
"""

import argparse

import smollm2
import torch

from logitless.torch import linear_cross_entropy

WINDOW = 512  # tokens that the model reads at once
ROWS = 256  # rows whose logits are in memory at once, in float64: 96 MiB


def states_of(text, tokens):
    """Return (hidden states, targets, head) of the text's first tokens, read in windows."""
    model, tokenizer = smollm2.load(torch.float32)
    model.eval()
    ids = tokenizer(text[: 8 * tokens], return_tensors="pt").input_ids[0]
    count = min(tokens, len(ids) - 1) // WINDOW * WINDOW
    if count == 0:
        raise SystemExit(f"the text has {len(ids)} tokens: give one of more than {WINDOW}")
    with torch.no_grad():
        windows = [model.model(window[None]).last_hidden_state[0] for window in ids[:count].view(-1, WINDOW)]
    return torch.cat(windows), ids[1 : count + 1], model.lm_head.weight.detach()


def summed_in_chains(logits, targets, chains):
    """Return losses whose exponentials are summed as in vector registers, where each lane is a chain."""
    most = logits.max(dim=1, keepdim=True).values
    exponentials = (logits - most).exp().unflatten(1, (-1, chains))
    sums = torch.zeros(len(logits), chains)
    for step in range(exponentials.shape[1]):
        sums += exponentials[:, step]
    of_target = logits.gather(1, targets[:, None]).double()
    return sums.double().sum(dim=1).log() + (most.double() - of_target)[:, 0]


def losses_of(hidden, targets, head, chains):
    """Return the losses per token computed in each way, in float64. The first is the reference."""
    cross_entropy = torch.nn.functional.cross_entropy
    logits = hidden @ head.T
    return {
        "float64 throughout": cross_entropy(hidden.double() @ head.double().T, targets, reduction="none"),
        "PyTorch, float32": cross_entropy(logits, targets, reduction="none").double(),
        "PyTorch, float32 logits, softmax in float64": cross_entropy(
            logits.double(), targets, reduction="none"
        ),
        f"the same, exponentials summed in {chains} chains of float32": summed_in_chains(
            logits, targets, chains
        ),
        "logitless, float32": linear_cross_entropy(
            hidden, head, targets, reduction="none", loss_dtype=torch.float64
        ),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", default="examples/data/kjv.txt")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--chains", type=int, default=16, help="lanes of a register (AVX2: 8)")
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        hidden, targets, head = states_of(file.read(), options.tokens)
    parts = [losses_of(h, y, head, options.chains) for h, y in zip(hidden.split(ROWS), targets.split(ROWS))]
    losses = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    exact = losses.pop("float64 throughout")
    print(f"{len(exact)} tokens, cross-entropy {exact.mean():.6f} nats per token in float64")
    print(f"{'error per token, in nats':56} {'mean':>10} {'rms':>10} {'largest':>10}")
    for name, values in losses.items():
        error = values - exact
        rms, largest = error.square().mean().sqrt(), error.abs().max()
        print(f"{name:56} {error.mean():10.1e} {rms:10.1e} {largest:10.1e}")


if __name__ == "__main__":
    main()
