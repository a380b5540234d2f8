# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Fine-tunes SmolLM2-135M with exact gradients of the head, sampled ones, certified ones, and those of two filters, and
compares the losses on text that no run has seen. `filter` drops blocks of 128 tokens and 256 entries in which all of dL/da
is below 2^-12, as Cut Cross-Entropy does; `entries` drops every entry that is, which nobody does.

    python bench/training_curves.py --ways exact sampled:0.01 filter -o curves.json
    python bench/training_curves.py --picture curves.svg curves.json

All runs begin with the same weights. Those of one seed (`WAY@SEED`, 0 where none is given) see the same batches in the same
order; what another order makes of the loss is the spread that differences are held against.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "examples", "python"))


def kept_of(gradient, rows, entries):
    """Which numbers stand in a block that has one of at least 2^-12."""
    n, v = gradient.shape
    padded = torch.nn.functional.pad(gradient.abs(), (0, -v % entries, 0, -n % rows))
    large = padded.view(padded.shape[0] // rows, rows, -1, entries).amax((1, 3)) >= 2.0**-12
    return large.repeat_interleave(rows, 0).repeat_interleave(entries, 1)[:n, :v]


class Filtered(torch.autograd.Function):
    """Cross-entropy of a dense head without the gradients of such blocks."""

    @staticmethod
    def forward(ctx, hidden, weight, targets, rows, entries):
        logits = hidden @ weight.T
        p = logits.softmax(dim=1)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        p[torch.arange(len(targets)), targets] -= 1
        p = p * kept_of(p, rows, entries)
        ctx.save_for_backward(hidden, weight, p / len(targets))
        return loss

    @staticmethod
    def backward(ctx, upstream):
        hidden, weight, gradient = ctx.saved_tensors
        gradient = gradient * upstream
        return gradient @ weight, gradient.T @ hidden, None, None, None


def loss_of(way, hidden, weight, targets, step):
    from logitless.torch import linear_cross_entropy

    kind, _, value = way.partition(":")
    if kind in ("filter", "entries"):
        return Filtered.apply(hidden, weight, targets, *((128, 256) if kind == "filter" else (1, 1)))
    if kind == "sampled":
        return linear_cross_entropy(hidden, weight, targets, backward="sampled", noise=float(value), seed=step)
    if kind == "certified":
        return linear_cross_entropy(hidden, weight, targets, backward="certified", tolerance=float(value))
    return linear_cross_entropy(hidden, weight, targets)


def run(way, options):
    import smollm2

    model, tokenizer = smollm2.load(torch.float32)
    with open(options.text, encoding="utf-8") as file:
        ids = torch.tensor(tokenizer(file.read()[: 8 * options.length * (options.steps * options.batch + 64)])["input_ids"])
    blocks = ids[: len(ids) // options.length * options.length].view(-1, options.length)
    held_out, blocks = blocks[: options.held_out], blocks[options.held_out :]
    way, _, seed = way.partition("@")
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(int(seed or 0)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    head = model.lm_head.weight

    def hidden_of(batch):
        states = model.model(batch).last_hidden_state[:, :-1]
        return states.reshape(-1, states.shape[-1]), batch[:, 1:].reshape(-1)

    def validation():
        from logitless.torch import linear_cross_entropy

        with torch.no_grad():
            return statistics.mean(linear_cross_entropy(hidden_of(b[None])[0], head, b[1:]).item() for b in held_out)

    losses, validations, seconds = [], [[0, validation()]], []
    for step in range(options.steps):
        batch = blocks[order[(step * options.batch + torch.arange(options.batch)) % len(order)]]
        started = time.perf_counter()
        hidden, targets = hidden_of(batch)
        loss = loss_of(way, hidden, head, targets, 1000 * int(seed or 0) + step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
        losses.append(loss.item())
        if (step + 1) % options.every == 0:
            validations.append([step + 1, validation()])
    print(f"{way:18} order {seed or 0}: validation {validations[-1][1]:.4f}, {statistics.median(seconds):.2f} s a step", flush=True)
    return {"way": way, "seed": int(seed or 0), "losses": losses, "validation": validations, "seconds": statistics.median(seconds)}


def draw(path, picture):
    import matplotlib

    import matplotlib.backends.backend_svg as svg

    matplotlib.use("Agg")
    # Strict readers refuse a DOCTYPE; letters stay text, and the same file gives the same bytes.
    svg.svgProlog = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "logitless"})
    import matplotlib.pyplot as plt

    with open(path, encoding="utf-8") as file:
        runs = json.load(file)
    figure, (whole, apart) = plt.subplots(1, 2, figsize=(11, 4))
    exact = {r["seed"]: dict(r["validation"]) for r in runs if r["way"] == "exact"}
    ways = list(dict.fromkeys(r["way"] for r in runs))
    for color, way in enumerate(ways):
        for r in (r for r in runs if r["way"] == way):
            style = {"color": f"C{color}", "linewidth": 1, "label": way if r["seed"] == 0 else None}
            steps, values = zip(*r["validation"])
            whole.plot(steps, values, **style)
            apart.plot(steps, [v - exact[r["seed"]][s] for s, v in r["validation"]], **style)
    whole.set(xlabel="step", ylabel="validation loss, nats a token", title="a line each order of the batches")
    apart.set(xlabel="step", ylabel="nats a token", title="minus exact gradients in the same order")
    whole.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(picture, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = ["exact", "sampled:0.01", "sampled:0.02", "sampled:0.05", "certified:0.001", "filter"]
    parser.add_argument("--ways", nargs="*", default=[f"{way}@{seed}" for seed in range(3) for way in ways])
    parser.add_argument("--text", default="examples/data/kjv.txt")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--held-out", type=int, default=16, help="blocks")
    parser.add_argument("--every", type=int, default=20, help="steps between validations")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--picture", help="draws what FILE holds, and trains nothing")
    parser.add_argument("-o", "--output")
    parser.add_argument("file", nargs="?", help="that a run has written")
    options = parser.parse_args()
    if options.picture:
        return draw(options.file, options.picture)
    runs = []
    for way in options.ways:
        runs.append(run(way, options))
        if options.output:
            with open(options.output, "w", encoding="utf-8") as file:
                json.dump(runs, file)


if __name__ == "__main__":
    main()
