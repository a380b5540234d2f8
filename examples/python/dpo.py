# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Direct preference optimisation of SmolLM2-135M on a few pairs, with a fused loss.

    python examples/python/dpo.py --steps 6

The reference's log-probabilities are taken once, before the first step, by logitless.torch.token_logps; the loss of
each step is logitless.torch.preference_loss on the hidden states of both answers. No logits are kept.
"""

import argparse

import smollm2
import torch

from logitless.torch import preference_loss, token_logps

PAIRS = [
    ("Why is the sky blue?", "Air scatters blue light more than red.", "It is painted that colour."),
    ("What is a river?", "Water that flows downhill to a sea or a lake.", "A kind of road for fish cars."),
    ("Name three animals.", "A cat, a horse and a whale.", "Red, green and blue."),
    ("How do bees make honey?", "From nectar, which they dry in the hive.", "They buy it in a shop."),
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("-o", "--output", help="writes losses, seconds and memory as JSON")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, tokenizer = smollm2.load(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-6)
    head = model.lm_head.weight

    prompts = [
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n" for question, _, _ in PAIRS
    ] * 2
    answers = [chosen for _, chosen, _ in PAIRS] + [rejected for _, _, rejected in PAIRS]
    tokenizer.padding_side = "right"
    batch = tokenizer(
        [p + a + "<|im_end|>" for p, a in zip(prompts, answers)], return_tensors="pt", padding=True
    )
    begins = [len(tokenizer(p)["input_ids"]) for p in prompts]
    # Position t predicts target t + 1; prompts and padding take no part.
    targets = torch.where(batch.attention_mask.bool(), batch.input_ids, -100)
    for row, begin in enumerate(begins):
        targets[row, :begin] = -100
    targets = torch.nn.functional.pad(targets, (0, 1), value=-100)[:, 1:].contiguous()

    def states():
        return model.model(batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state

    with torch.no_grad():
        reference = token_logps(states(), head, targets).sum(1)
    run = smollm2.Run("fused")
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss, metrics = preference_loss(
            states(), head, targets, terms="sigmoid", beta=0.1, ref_logps=reference, return_metrics=True
        )
        loss.backward()
        optimizer.step()
        run.step(loss)
        print(f"margin {metrics['margin']:.4f}, accuracy {metrics['accuracy']:.2f}")
    run.finish(options.output)


if __name__ == "__main__":
    main()
