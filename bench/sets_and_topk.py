# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures the largest logits and sets of token ids relative to a forward pass, and compares both with
PyTorch. Also measures teachers relative to a step of cross-entropy.

    python bench/sets_and_topk.py                                     # the head of Qwen2.5-1.5B, seeded
    python bench/sets_and_topk.py --states text.safetensors --lm-head head.safetensors   # hidden, and lm_head

Each call takes turns with a forward (the log-probability of one target per token). Prints medians and their
ratio to the forward's. A step is the loss and the gradients of hidden states and head: three products of the
student's size, and one more for a teacher with a head, whether or not it is the student's own. For the
comparison PyTorch computes whole float32 logits, some rows at a time.
"""

import argparse
import statistics
import time

import torch
from safetensors.torch import load_file

from logitless.torch import distillation_loss, id_logps, linear_cross_entropy, token_logps, topk_logps

ROWS = 128  # rows of logits that PyTorch computes at once


def inputs(options):
    if options.states:
        hidden = load_file(options.states)["hidden"]
        return hidden[: options.tokens], load_file(options.lm_head)["lm_head"]
    torch.manual_seed(0)
    return torch.randn(options.tokens, 1536), torch.randn(151936, 1536) * 4 / 1536**0.5


def ties(logits, ids, k):
    """Count the ids that differ from PyTorch's although their logits differ by more than float32 rounding."""
    values, wanted = logits.topk(k)
    ours = logits.gather(1, ids)
    return int(((ids != wanted) & ((ours - values).abs() > 1e-5 * values.abs().clamp_min(1))).sum())


def compare_topk(hidden, weight, k):
    """Return the number of wrong ids, and the largest difference of a log-probability."""
    ids, logps = topk_logps(hidden, weight, k)
    wrong, worst = 0, 0.0
    for at in range(0, len(hidden), ROWS):
        logits = hidden[at : at + ROWS] @ weight.T
        wrong += ties(logits, ids[at : at + ROWS], k)
        want = torch.log_softmax(logits.double(), -1).topk(k).values
        worst = max(worst, (want - logps[at : at + ROWS]).abs().max().item())
    return wrong, worst


def compare_gradients(hidden, weight, ids):
    """Return relative errors of d_hidden and d_weight, for log-probabilities over sets, against PyTorch's
    float64 autograd."""
    upstream = torch.randn(ids.shape, dtype=torch.float64)
    ours = [t.clone().requires_grad_() for t in (hidden, weight)]
    (id_logps(*ours, ids, normalise_over="set") * upstream).sum().backward()
    theirs = [t.double().requires_grad_() for t in (hidden, weight)]
    logits = (theirs[0][:, None] * theirs[1][ids]).sum(-1)
    (torch.log_softmax(logits, -1) * upstream).sum().backward()
    return [((a.grad - b.grad).norm() / b.grad.norm()).item() for a, b in zip(ours, theirs)]


def take_turns(calls, rounds):
    """Return the median seconds of each call. Calls take turns; the first round is not counted."""
    seconds = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def measure_teachers(hidden, weight, targets, rounds):
    """Print the cost of a step with each teacher relative to a step of cross-entropy."""
    student = [t.clone().requires_grad_() for t in (hidden, weight)]
    states, head = hidden.roll(1, 0).contiguous(), weight.roll(1, 0).contiguous()
    logits = states @ head.T

    def step(loss, *teacher, **given):
        for leaf in student:
            leaf.grad = None
        loss(*student, *teacher, **given).backward()

    calls = {
        "cross-entropy": lambda: step(linear_cross_entropy, targets),
        "a teacher's finished logits": lambda: step(distillation_loss, teacher_logits=logits),
        "a teacher with a head of its own": lambda: step(distillation_loss, states, head),
        "a teacher with the student's head": lambda: step(distillation_loss, states, weight),
    }
    medians = take_turns(calls, rounds)
    for name, median in medians.items():
        print(f"{name:34} {median:9.4f} s   {median / medians['cross-entropy']:7.4f} of a step of cross-entropy")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", help="safetensors with hidden [N, H]")
    parser.add_argument("--lm-head", help="safetensors with lm_head [V, H]")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    hidden, weight = inputs(options)
    vocab = len(weight)
    targets = torch.randint(vocab, (len(hidden),))
    # One id from each of k equal parts of the vocabulary, because a repeated id would count once.
    sets = {k: torch.randint(vocab // k, (len(hidden), k)) + torch.arange(k) * (vocab // k) for k in (64, 512)}
    calls = {"forward": lambda: token_logps(hidden, weight, targets)}
    for k in (1, 5, 64, 256):
        calls[f"top-{k}"] = lambda k=k: topk_logps(hidden, weight, k)
    for k, ids in sets.items():
        calls[f"over sets of {k}"] = lambda ids=ids: id_logps(hidden, weight, ids, normalise_over="set")
        calls[f"over the vocabulary, sets of {k}"] = lambda ids=ids: id_logps(hidden, weight, ids)
    with torch.no_grad():
        medians = take_turns(calls, options.rounds)
    print(f"{len(hidden)} tokens, H = {hidden.shape[1]}, V = {vocab}, float32, {torch.get_num_threads()} threads")
    for name, median in medians.items():
        print(f"{name:34} {median:9.4f} s   {median / medians['forward']:7.4f} of a forward")
    measure_teachers(hidden, weight, targets, options.rounds)
    for k in (1, 5, 64, 256):
        wrong, worst = compare_topk(hidden, weight, k)
        print(f"top-{k}: {wrong} of {len(hidden) * k} ids are not PyTorch's; log-probabilities differ by {worst:.1e}")
    few = hidden[:16]
    for k, ids in sets.items():
        d_hidden, d_weight = compare_gradients(few, weight, ids[:16])
        print(f"over sets of {k}: d_hidden {d_hidden:.1e}, d_weight {d_weight:.1e} from autograd in float64")


if __name__ == "__main__":
    main()
