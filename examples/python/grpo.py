# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Group-relative policy optimisation of SmolLM2-135M on a toy reward, with a fused policy loss.

    python examples/python/grpo.py --rounds 2

Each round samples a group of answers to a few questions, takes their log-probabilities, and makes two updates on
them. The answers' hidden states go to logitless.torch.policy_loss with the head's weight: no logits of answers are
kept, neither for the log-probabilities nor for the loss. The reward is the share of letters that are an "e".
"""

import argparse

import smollm2
import torch

from logitless.torch import policy_loss, token_logps

QUESTIONS = ["Why is the sky blue?", "What is a river?", "Name three animals.", "How do bees make honey?"]


def sample(model, tokenizer, group, tokens):
    """Returns (ids, attention, length of the prompt, mask of the answers' tokens)."""
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
    """Hidden states that predict the answers' tokens."""
    return model.model(ids, attention_mask=attention).last_hidden_state[:, length - 1 : -1]


def rewards_of(tokenizer, answers, mask):
    texts = tokenizer.batch_decode(answers * mask, skip_special_tokens=True)
    return torch.tensor([text.lower().count("e") / max(len(text), 1) for text in texts])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("-o", "--output", help="writes losses, seconds and memory as JSON")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, tokenizer = smollm2.load(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    head = model.lm_head.weight
    run = smollm2.Run("fused")
    for _ in range(options.rounds):
        ids, attention, length, mask = sample(model, tokenizer, options.group, options.tokens)
        answers = ids[:, length:]
        rewards = rewards_of(tokenizer, answers, mask)
        groups = rewards.view(-1, options.group)
        advantages = (
            (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        ).flatten()
        with torch.no_grad():
            old = token_logps(states_of(model, ids, attention, length), head, answers)
        for _ in range(2):
            optimizer.zero_grad()
            states = states_of(model, ids, attention, length)
            loss, metrics = policy_loss(
                states,
                head,
                answers,
                advantages,
                old_logps=old,
                mask=mask,
                variant="grpo",
                return_metrics=True,
            )
            loss.backward()
            optimizer.step()
            run.step(loss)
        print(f"reward {rewards.mean():.4f}, ratio {metrics['mean_ratio']:.4f}, {metrics['tokens']} tokens")
    run.finish(options.output)


if __name__ == "__main__":
    main()
