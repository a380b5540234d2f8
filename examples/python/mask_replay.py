# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Samples from SmolLM2-135M with a top-p mask, and computes the policy's ratios with and without that mask.

    python examples/python/mask_replay.py --top-p 0.9

A sampler with top-p or top-k draws from probabilities that are renormalised over the tokens it keeps. A
trainer that computes log-probabilities over the whole vocabulary then gets ratios exp(new - old) below 1
before any training. Replayed over the kept tokens, the ratios are 1:
logitless.torch.id_logps(normalise_over="set") reads only the kept rows of the head.
"""

import argparse

import smollm2
import torch

from logitless.torch import id_logps, token_logps

QUESTIONS = [
    "Explain why the sky is blue.",
    "Write a short story about a lost dog.",
    "Give me a recipe for tomato soup.",
    "Describe the water cycle.",
]


def kept_tokens(logits, top_p):
    """Return a mask per row of the most likely tokens whose probabilities sum to top_p."""
    probabilities, order = torch.softmax(logits, -1).sort(descending=True)
    behind = probabilities.cumsum(-1) - probabilities >= top_p
    return torch.ones_like(behind).scatter(1, order, ~behind)


@torch.no_grad()
def sample(model, tokenizer, top_p, steps):
    """Return hidden states, chosen tokens, their log-probabilities under the mask, and the kept ids of every
    step."""
    text = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in QUESTIONS]
    tokenizer.padding_side = "left"
    batch = tokenizer(text, return_tensors="pt", padding=True)
    ids, mask = batch.input_ids, batch.attention_mask
    states, chosen, logps, kept = [], [], [], []
    for _ in range(steps):
        hidden = model.model(ids, attention_mask=mask).last_hidden_state[:, -1]
        logits = model.lm_head(hidden).double()
        keep = kept_tokens(logits, top_p)
        renormalised = torch.log_softmax(logits.masked_fill(~keep, -torch.inf), -1)
        token = torch.multinomial(renormalised.exp(), 1)
        states.append(hidden)
        chosen.append(token[:, 0])
        logps.append(renormalised.gather(1, token)[:, 0])
        kept += [row.nonzero()[:, 0] for row in keep]
        ids = torch.cat([ids, token], 1)
        mask = torch.cat([mask, torch.ones_like(token)], 1)
    return torch.cat(states), torch.cat(chosen), torch.cat(logps), kept


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=64, help="tokens of each of the four answers")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, tokenizer = smollm2.load(torch.float32)
    hidden, chosen, old, kept = sample(model.eval(), tokenizer, options.top_p, options.steps)
    weight = model.lm_head.weight.detach()

    # The sets of all tokens, one after another. Each contains its chosen token.
    offsets = torch.tensor([0, *(len(ids) for ids in kept)]).cumsum(0)
    sets = torch.cat(kept)
    with torch.no_grad():
        all_logps = id_logps(hidden, weight, sets, id_offsets=offsets, normalise_over="set")
        at = offsets[:-1] + torch.tensor([int((ids == token).nonzero()) for ids, token in zip(kept, chosen)])
        with_mask = (all_logps[at] - old).exp()
        without = (token_logps(hidden, weight, chosen).double() - old).exp()
    sizes = torch.tensor([len(ids) for ids in kept]).double()
    print(f"{len(old)} tokens at top-p {options.top_p}: {sizes.mean():.0f} kept of {len(weight)}, {sizes.max():.0f} at most")
    for name, ratio in (("with the mask", with_mask), ("without it", without)):
        print(
            f"ratio {name}: mean {ratio.mean():.6f}, from {ratio.min():.6f} to {ratio.max():.6f}, "
            f"furthest from 1 by {(ratio - 1).abs().max():.1e}"
        )


if __name__ == "__main__":
    main()
