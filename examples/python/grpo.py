# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Group-relative policy optimisation of SmolLM2-135M on a toy reward, with a plain head or a fused one.

    python examples/python/grpo.py --head fused --rounds 2

Each round samples a group of answers to a few questions, computes their log-probabilities, and makes two
updates on them. The fused head passes the answers' hidden states to logitless.torch.token_logps and
logitless.torch.policy_loss, so that no logits of answers are kept. The plain head computes the same numbers
from the answers' logits. Both sample with the model's own head, with the same seed in each round, so their
answers and their losses are the same. The reward is the share of letters that are an "e". The seconds of a
step cover the update; sampling is recorded separately.
"""

import argparse

import smollm2
import torch

from logitless.torch import policy_loss, token_logps

QUESTIONS = ["Why is the sky blue?", "What is a river?", "Name three animals.", "How do bees make honey?"]


def sample(model, tokenizer, group, tokens):
    """Return (ids, attention, length of the prompt, mask of the answers' tokens)."""
    tokenizer.padding_side = "left"
    chats = [
        f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in QUESTIONS for _ in range(group)
    ]
    prompt = tokenizer(chats, return_tensors="pt", padding=True)
    with torch.no_grad():
        ids = model.generate(**prompt, max_new_tokens=tokens, do_sample=True, temperature=1.0, top_k=0)
    length = prompt.input_ids.shape[1]
    answers = ids[:, length:]
    mask = torch.cumsum((answers == tokenizer.eos_token_id).int(), 1) <= 1
    attention = torch.cat([prompt.attention_mask, mask.long()], 1)
    return ids, attention, length, mask


def states_of(model, ids, attention, length):
    """Return the hidden states that predict the answers' tokens."""
    return model.model(ids, attention_mask=attention).last_hidden_state[:, length - 1 : -1]


def rewards_of(tokenizer, answers, mask):
    texts = tokenizer.batch_decode(answers * mask, skip_special_tokens=True)
    return torch.tensor([text.lower().count("e") / max(len(text), 1) for text in texts])


class PlainHead:
    """Computes logits first, with PyTorch's own operations."""

    def __init__(self, head):
        self.head = head

    def logps(self, states, answers):
        return torch.log_softmax(self.head(states), -1).gather(-1, answers.unsqueeze(-1)).squeeze(-1)

    def loss(self, states, answers, advantages, old, mask):
        """Return (loss, mean ratio): the clipped surrogate, averaged over tokens, then over answers."""
        ratio = torch.exp(self.logps(states, answers) - old)
        advantages = advantages.unsqueeze(1)
        surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.3) * advantages)
        per_answer = (surrogate * mask).sum(1) / mask.sum(1).clamp(min=1)
        return -per_answer.mean(), ratio[mask].mean().item()


class FusedHead:
    """Computes the same from the hidden states and the head's weight."""

    def __init__(self, head):
        self.weight = head.weight

    def logps(self, states, answers):
        return token_logps(states, self.weight, answers)

    def loss(self, states, answers, advantages, old, mask):
        loss, metrics = policy_loss(
            states,
            self.weight,
            answers,
            advantages,
            old_logps=old,
            mask=mask,
            loss_type="grpo",
            return_metrics=True,
        )
        return loss, metrics["mean_ratio"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", choices=["plain", "fused"], default="fused")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("-o", "--output", help="writes losses, rewards, seconds and memory as JSON")
    options = parser.parse_args()
    model, tokenizer = smollm2.load(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    head = {"plain": PlainHead, "fused": FusedHead}[options.head](model.lm_head)
    run = smollm2.Run(options.head)
    for number in range(options.rounds):
        torch.manual_seed(number)
        ids, attention, length, mask = sample(model, tokenizer, options.group, options.tokens)
        answers = ids[:, length:]
        rewards = rewards_of(tokenizer, answers, mask)
        groups = rewards.view(-1, options.group)
        advantages = (
            (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        ).flatten()
        run.lap("sampling_seconds")
        with torch.no_grad():
            old = head.logps(states_of(model, ids, attention, length), answers)
        run.lap("old_logps_seconds")
        for _ in range(2):
            optimizer.zero_grad()
            loss, ratio = head.loss(states_of(model, ids, attention, length), answers, advantages, old, mask)
            loss.backward()
            optimizer.step()
            run.step(loss, rewards=rewards.mean())
        print(f"reward {rewards.mean():.4f}, mean ratio {ratio:.4f}, {int(mask.sum())} tokens")
    run.finish(options.output)


if __name__ == "__main__":
    main()
