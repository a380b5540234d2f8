# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Direct preference optimisation of SmolLM2-135M on a few pairs, with a plain head or a fused one.

    python examples/python/dpo.py --head fused --steps 6

The reference's log-probabilities are computed once, before the first step. The fused head computes them with
logitless.torch.token_logps, and each step's loss with logitless.torch.preference_loss from the hidden states
of both answers: no logits are kept, and prompts and padding cost nothing. The plain head computes the logits
of all positions, as PyTorch code for padded batches does. Both see the same batch, so their losses are the
same.
"""

import argparse

import smollm2
import torch

from logitless.torch import preference_loss, token_logps

BETA = 0.1
PAIRS = [
    ("Why is the sky blue?", "Air scatters blue light more than red.", "It is painted that colour."),
    ("What is a river?", "Water that flows downhill to a sea or a lake.", "A kind of road for fish cars."),
    ("Name three animals.", "A cat, a horse and a whale.", "Red, green and blue."),
    ("How do bees make honey?", "From nectar, which they dry in the hive.", "They buy it in a shop."),
]


class PlainHead:
    """Computes logits first, with PyTorch's own operations."""

    def __init__(self, head):
        self.head = head

    def logps(self, states, targets):
        """Return the answers' log-probabilities, one per sequence."""
        chosen = targets.clamp(min=0).unsqueeze(-1)
        logps = torch.log_softmax(self.head(states), -1).gather(-1, chosen).squeeze(-1)
        return (logps * (targets != -100)).sum(1)

    def loss(self, states, targets, reference):
        """Return (loss, margin, accuracy)."""
        chosen, rejected = (BETA * (self.logps(states, targets) - reference)).chunk(2)
        margins = chosen - rejected
        loss = -torch.nn.functional.logsigmoid(margins).mean()
        return loss, margins.mean().item(), (margins > 0).float().mean().item()


class FusedHead:
    """Computes the same from the hidden states and the head's weight."""

    def __init__(self, head):
        self.weight = head.weight

    def logps(self, states, targets):
        return token_logps(states, self.weight, targets).sum(1)

    def loss(self, states, targets, reference):
        loss, metrics = preference_loss(
            states,
            self.weight,
            targets,
            loss_type="sigmoid",
            beta=BETA,
            ref_logps=reference,
            return_metrics=True,
        )
        return loss, metrics["margin"], metrics["accuracy"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", choices=["plain", "fused"], default="fused")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("-o", "--output", help="writes losses, seconds and memory as JSON")
    options = parser.parse_args()
    model, tokenizer = smollm2.load(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-6)
    head = {"plain": PlainHead, "fused": FusedHead}[options.head](model.lm_head)

    prompts = [
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question, _, _ in PAIRS
    ] * 2
    answers = [chosen for _, chosen, _ in PAIRS] + [rejected for _, _, rejected in PAIRS]
    tokenizer.padding_side = "right"
    batch = tokenizer(
        [p + a + "<|im_end|>" for p, a in zip(prompts, answers)], return_tensors="pt", padding=True
    )
    begins = [len(tokenizer(p)["input_ids"]) for p in prompts]
    # Position t predicts target t + 1. Prompts and padding are ignored.
    targets = torch.where(batch.attention_mask.bool(), batch.input_ids, -100)
    for row, begin in enumerate(begins):
        targets[row, :begin] = -100
    targets = torch.nn.functional.pad(targets, (0, 1), value=-100)[:, 1:].contiguous()

    def states():
        return model.model(batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state

    run = smollm2.Run(options.head)
    with torch.no_grad():
        reference = head.logps(states(), targets)
    run.lap("reference_seconds")
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss, margin, accuracy = head.loss(states(), targets, reference)
        loss.backward()
        optimizer.step()
        run.step(loss, margins=margin)
        print(f"margin {margin:.4f}, accuracy {accuracy:.2f}")
    run.finish(options.output)


if __name__ == "__main__":
    main()
