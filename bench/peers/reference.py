# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Computes loss and gradients in float64 from the inputs in the file. It works in blocks, so that its memory
does not grow with the logits. For large shapes it computes gradients only for some rows and vocabulary
entries."""

from dataclasses import dataclass

import torch
from safetensors import safe_open

from job import DISTILLATION, GRPO_BETA, GRPO_EPSILON

Tensors = dict[str, torch.Tensor]

BLOCK_ROWS = 128
BLOCK_ENTRIES = 8192  # 128 x 8,192 float64 logits are 8 MiB, and 8,192 rows of 4,096 columns 256 MiB
MOST_ROWS = 512  # of d_hidden that are checked
MOST_ENTRIES = 8192  # of d_weight that are checked


@dataclass(frozen=True)
class Reference:
    loss: float
    rows: torch.Tensor  # the rows of d_hidden
    entries: torch.Tensor  # the vocabulary entries of d_weight
    d_hidden: torch.Tensor
    d_weight: torch.Tensor


def log_sums(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Return the log-sum-exp of each row's logits, by a running maximum over blocks of the vocabulary."""
    sums = torch.full((len(hidden),), -torch.inf, dtype=torch.float64)
    for entries in head.split(BLOCK_ENTRIES):
        entries = entries.double()
        for block, rows in zip(sums.split(BLOCK_ROWS), hidden.split(BLOCK_ROWS)):
            torch.logaddexp(block, torch.logsumexp(rows.double() @ entries.T, -1), out=block)
    return sums


def loss_of_logps(task: str, logps: torch.Tensor, batch: Tensors) -> torch.Tensor:
    if task == "cross_entropy":
        return -logps.mean()
    ratio = torch.exp(logps - batch["old_logps"].double())
    advantages = batch["advantages"].double().repeat_interleave(len(logps) // len(batch["advantages"]))
    difference = batch["ref_logps"].double() - logps
    clipped = ratio.clamp(1 - GRPO_EPSILON, 1 + GRPO_EPSILON)
    divergence = difference.exp() - difference - 1
    return (-torch.min(ratio * advantages, clipped * advantages) + GRPO_BETA * divergence).mean()


def sample(count: int, most: int, wanted: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return all indices, or a sorted sample of `most`: up to half from `wanted`, the others from all."""
    if count <= most:
        return torch.arange(count)
    wanted = wanted[torch.randperm(len(wanted), generator=generator)][: most // 2]
    others = torch.randperm(count, generator=generator)[: most - len(wanted)]
    return torch.cat([wanted, others]).unique()


def log_probabilities(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    logits = [hidden.double() @ entries.double().T for entries in head.split(BLOCK_ENTRIES)]
    return torch.log_softmax(torch.cat(logits, -1), -1)


def divergence(beta: float, student: torch.Tensor, teacher: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's divergence, and its derivative by the student's probabilities, up to a constant."""
    if beta == 0:
        return (teacher.exp() * (teacher - student)).sum(-1), -torch.exp(teacher - student)
    if beta == 1:
        return (student.exp() * (student - teacher)).sum(-1), student - teacher
    mixture = torch.log(beta * teacher.exp() + (1 - beta) * student.exp())
    of_teacher = (teacher.exp() * (teacher - mixture)).sum(-1)
    of_student = (student.exp() * (student - mixture)).sum(-1)
    return beta * of_teacher + (1 - beta) * of_student, (1 - beta) * (student - mixture)


def compute_divergence(batch: Tensors, beta: float) -> Reference:
    hidden, head = batch["hidden"], batch["lm_head"]
    generator = torch.Generator().manual_seed(0)
    rows = sample(len(hidden), MOST_ROWS, torch.empty(0, dtype=torch.long), generator)
    entries = sample(len(head), MOST_ENTRIES, batch["targets"].unique(), generator)
    d_hidden = torch.zeros(len(rows), hidden.shape[1], dtype=torch.float64)
    d_weight = torch.zeros(len(entries), hidden.shape[1], dtype=torch.float64)
    total = 0.0
    for start in range(0, len(hidden), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        student = log_probabilities(hidden[block], head)
        teacher = log_probabilities(batch["teacher_hidden"][block], batch["teacher_head"])
        values, slopes = divergence(beta, student, teacher)
        total += values.sum().item()
        p = student.exp()
        d_logits = p * (slopes - (p * slopes).sum(-1, keepdim=True)) / len(hidden)
        d_weight += d_logits[:, entries].T @ hidden[block].double()
        here = (rows >= start) & (rows < start + BLOCK_ROWS)
        for first in range(0, len(head), BLOCK_ENTRIES):
            of_rows = d_logits[rows[here] - start, first : first + BLOCK_ENTRIES]
            d_hidden[here] += of_rows @ head[first : first + BLOCK_ENTRIES].double()
    return Reference(total / len(hidden), rows, entries, d_hidden, d_weight)


def compute(inputs: str, task: str) -> Reference:
    with safe_open(inputs, framework="pt") as file:
        batch = {name: file.get_tensor(name) for name in file.keys()}
    if task in DISTILLATION:
        return compute_divergence(batch, DISTILLATION[task])
    hidden, head, targets = batch["hidden"], batch["lm_head"], batch["targets"]
    log_sum = log_sums(hidden, head)
    chosen = torch.cat([(rows.double() * head[entries].double()).sum(-1)
                        for rows, entries in zip(hidden.split(BLOCK_ROWS), targets.split(BLOCK_ROWS))])
    logps = (chosen - log_sum).requires_grad_()
    loss = loss_of_logps(task, logps, batch)
    (d_logps,) = torch.autograd.grad(loss, logps)

    generator = torch.Generator().manual_seed(0)
    rows = sample(len(hidden), MOST_ROWS, torch.empty(0, dtype=torch.long), generator)
    entries = sample(len(head), MOST_ENTRIES, targets.unique(), generator)
    # A logit's gradient is d_logp * ([the vocabulary entry is the target] - p).
    of_rows = hidden[rows].double()
    d_hidden = d_logps[rows, None] * head[targets[rows]].double()
    for block in head.split(BLOCK_ENTRIES):
        block = block.double()
        d_hidden -= d_logps[rows, None] * torch.exp(of_rows @ block.T - log_sum[rows, None]) @ block
    of_entries = head[entries].double()
    d_weight = torch.zeros(len(entries), hidden.shape[1], dtype=torch.float64)
    for start in range(0, len(hidden), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        states = hidden[block].double()
        hits = (targets[block, None] == entries).double()
        d_logits = d_logps[block, None] * (hits - torch.exp(states @ of_entries.T - log_sum[block, None]))
        d_weight += d_logits.T @ states
    return Reference(loss.item(), rows, entries, d_hidden, d_weight)


def errors(reference: Reference, results: str) -> dict[str, float]:
    """Return the errors of the results in a file. The loss error is relative, but absolute below 1, where
    terms of a policy loss cancel. A gradient has two errors: the relative Frobenius norm, and the largest
    error relative to the largest value."""
    with safe_open(results, framework="pt") as file:
        loss = file.get_tensor("loss").item()
        found = {"d_hidden": file.get_tensor("d_hidden")[reference.rows],
                 "d_weight": file.get_tensor("d_weight")[reference.entries]}
    figures = {"loss_error": abs(loss - reference.loss) / max(1.0, abs(reference.loss))}
    for name, gradient in found.items():
        truth = getattr(reference, name)
        difference = gradient.double() - truth
        figures[name + "_rel_l2"] = (difference.norm() / truth.norm()).item()
        figures[name + "_max_error"] = (difference.abs().max() / truth.abs().max()).item()
    return figures
