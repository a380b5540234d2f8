# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What a process of the benchmark is asked to measure, and what it returns."""

import dataclasses
import json
from dataclasses import dataclass

# The GRPO loss of every contender is the mean over the tokens of a sequence, then over sequences.
GRPO_EPSILON = 0.2
GRPO_BETA = 0.04

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}

# Distillation from a teacher's head: the loss types, each a task here, and the corresponding beta in TRL and
# Liger.
DISTILLATION = {"forward_kl": 0.0, "reverse_kl": 1.0, "jsd": 0.5}

SEQUENCE = 512  # tokens of a policy_loss sequence, if there are enough


def sequences_of(tokens: int) -> int:
    return tokens // SEQUENCE if tokens % SEQUENCE == 0 else 1


@dataclass(frozen=True)
class Shape:
    """Sizes of one point. Hidden states are [tokens, hidden], the head is [vocab, hidden]."""

    tokens: int
    hidden: int
    vocab: int
    dtype: str
    sequences: int = 1
    teacher_hidden: int = 0  # of the teacher's states and head; 0 without a teacher

    @property
    def gradient_bytes(self) -> int:
        """Return the size of the gradients, in the type of the inputs."""
        return (self.tokens + self.vocab) * self.hidden * DTYPE_BYTES[self.dtype]

    @property
    def input_bytes(self) -> int:
        return (self.tokens + self.vocab) * (self.hidden + self.teacher_hidden) * DTYPE_BYTES[self.dtype]

    @property
    def logit_bytes(self) -> int:
        """Return the size of all logits in float32, the type in which every dense contender computes the
        loss."""
        return self.tokens * self.vocab * 4


@dataclass(frozen=True)
class Job:
    """One contender in its own process: an untimed call, then `calls` timed ones."""

    contender: str
    task: str  # "cross_entropy", "policy_loss" or one of DISTILLATION
    shape: Shape
    inputs: str  # a safetensors file: hidden, lm_head, targets, and policy_loss's additional inputs
    gradients: bool  # d_hidden and d_weight as well as the loss
    calls: int
    threads: int
    command: str  # the logitless command
    results: str | None = None  # where loss and gradients go, as safetensors
    # Results are compared with float64. If not, the command draws tensors of its own, as large.
    checked: bool = True
    workspace: str | None = None  # the limit of the command's plans, if not checked; None: its default

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> "Job":
        fields = json.loads(text)
        return Job(**{**fields, "shape": Shape(**fields["shape"])})


@dataclass(frozen=True)
class Measured:
    """Times and memory of a job's calls. Peaks exclude what was resident before the call, and the returned
    gradients."""

    loss: float
    first_s: float
    times_s: list[float]
    extra_peaks_bytes: list[int]
    plan: str = ""
    workspace_bytes: int = 0
    peak_method: str = ""  # how peaks were measured, if this system does not permit the usual way
    gemm_rate_flops: float | None = None  # of a large GEMM that took turns with the calls
