# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Distils SmolLM2-135M into a small student on a text, with a plain head or fused ones.

    python examples/python/distil.py --head fused examples/data/kjv.txt -o fused.json

The student reads the four preceding tokens through one tanh layer, and has its own head over the same 49,152
vocabulary entries. The teacher's hidden states are computed once, before the first step. A step learns from:

    hard     the next token of the text: logitless.torch.linear_cross_entropy
    fused    the teacher's whole distribution: logitless.torch.distillation_loss, from hidden states and heads
    plain    the same by PyTorch's own operations, with the logits of student and teacher in memory

fused and plain see the same batches, so their losses are the same. Every 20 steps the script prints the
student's cross-entropy on text that no step has seen.

--save FILE writes the steps' input, and no student is trained. The file is the teacher of examples/distil,
which does the same distillation in C++.
"""

import argparse

import smollm2
import torch
from safetensors.torch import save_file

from logitless.torch import distillation_loss, linear_cross_entropy

CONTEXT, WIDTH, HIDDEN = 4, 64, 192
WINDOW = 512  # tokens that the teacher reads at once


class Student(torch.nn.Module):
    """Hidden states from the embeddings of the last few tokens."""

    def __init__(self, vocab):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab, WIDTH)
        self.layer = torch.nn.Linear(CONTEXT * WIDTH, HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, vocab, bias=False)

    def forward(self, windows):
        return torch.tanh(self.layer(self.embedding(windows).flatten(1)))


def plain_loss(states, head, teacher_states, teacher_weight):
    """KL(teacher || student), from logits."""
    ours = torch.log_softmax(head(states), -1)
    theirs = torch.log_softmax(teacher_states @ teacher_weight.T, -1)
    return torch.nn.functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def read(path, tokens, model, tokenizer):
    """Return token ids, and the teacher's hidden state at each of them."""
    with open(path, encoding="utf-8") as file:
        text = file.read(tokens * 8)
    ids = tokenizer(text, return_tensors="pt").input_ids[0][: tokens + 1]
    count = (len(ids) - 1) // WINDOW * WINDOW
    with torch.no_grad():
        states = [model.model(window[None]).last_hidden_state[0] for window in ids[:count].split(WINDOW)]
    return ids[: count + 1], torch.cat(states)


def save(path, ids, states, weight):
    """Write one safetensors file: row i of hidden [N, H] has read the ids up to ids[i], and predicts ids[i +
    1]."""
    tensors = {"hidden": states, "lm_head": weight, "ids": ids}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    print(f"{path}: {len(states)} hidden states of {states.shape[1]}, {weight.shape[0]} vocabulary entries")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", help="a text to read")
    parser.add_argument("--head", choices=["hard", "fused", "plain"], default="fused")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=512, help="tokens per step")
    parser.add_argument("--tokens", type=int, default=24576, help="of the text; the last sixth is for validation")
    parser.add_argument("-o", "--output", help="writes losses, seconds and memory as JSON")
    parser.add_argument("--save", metavar="FILE", help="writes the teacher's states, head and ids, and stops")
    options = parser.parse_args()
    torch.manual_seed(0)

    model, tokenizer = smollm2.load(torch.float32)
    ids, teacher_states = read(options.text, options.tokens, model.eval(), tokenizer)
    teacher_weight = model.lm_head.weight.detach()
    if options.save:
        save(options.save, ids, teacher_states, teacher_weight)
        return
    student = Student(teacher_weight.shape[0])
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    # Window i ends with token i, and predicts token i + 1.
    windows = torch.nn.functional.pad(ids[:-1], (CONTEXT - 1, 0)).unfold(0, CONTEXT, 1)
    targets = ids[1:]
    trained = len(targets) * 5 // 6

    run = smollm2.Run(options.head)
    for step in range(options.steps):
        batch = torch.randint(trained, (options.batch,))
        states = student(windows[batch])
        if options.head == "hard":
            loss = linear_cross_entropy(states, student.head.weight, targets[batch])
        elif options.head == "fused":
            loss = distillation_loss(states, student.head.weight, teacher_states[batch], teacher_weight)
        else:
            loss = plain_loss(states, student.head, teacher_states[batch], teacher_weight)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        run.step(loss)
        if step % 20 == 19:
            with torch.no_grad():
                unseen = linear_cross_entropy(student(windows[trained:]), student.head.weight, targets[trained:])
            run.lap("validation_seconds")
            run.record.setdefault("validation", []).append(unseen.item())
            print(f"          cross-entropy on text that no step has seen: {unseen.item():.4f}")
    run.finish(options.output)


if __name__ == "__main__":
    main()
