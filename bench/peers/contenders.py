# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The contenders. Each has an adaptor: a module with `run(job) -> Measured`."""

from dataclasses import dataclass

from job import DISTILLATION, Shape

BOTH = ("cross_entropy", "policy_loss")
CROSS_ENTROPY = ("cross_entropy",)
POLICY = ("policy_loss",)
TEACHER = tuple(DISTILLATION)


@dataclass(frozen=True)
class Contender:
    name: str
    module: str  # the adaptor
    tasks: tuple[str, ...]
    logits_held: int = 0  # about how many buffers of all logits exist at once
    heads_held: int = 0  # how many buffers of the head's size in float32, in addition to d_weight

    @property
    def own(self) -> bool:
        """Return whether it is logitless, not a peer."""
        return self.module == "logitless_command" or self.name.startswith("logitless_")

    @property
    def fused(self) -> bool:
        """Return whether it is logitless without all logits in memory."""
        return self.own and self.name != "dense"

    def memory_needed(self, shape: Shape, gradients: bool) -> int:
        """Estimate the peak bytes of its process, to skip contenders that cannot fit."""
        outputs = shape.gradient_bytes if gradients else 0
        heads = self.heads_held * shape.vocab * shape.hidden * 4 if gradients else 0
        logits = self.logits_held if gradients else min(self.logits_held, 2)
        return shape.input_bytes + outputs + heads + logits * shape.logit_bytes


# logitless's own contenders have the names that `logitless bench` uses, so that a page treats them alike.
# They are measured by `compare`, which also holds dense's logits and a second set of gradients.
CONTENDERS = (
    Contender("dense", "logitless_command", BOTH, logits_held=1, heads_held=1),
    Contender("one_pass", "logitless_command", BOTH, logits_held=1, heads_held=1),
    Contender("two_pass", "logitless_command", BOTH, logits_held=1, heads_held=1),
    Contender("logitless_torch", "torch_contenders", (*BOTH, *TEACHER), heads_held=1),
    Contender("logitless_jax", "jax_contenders", CROSS_ENTROPY, heads_held=1),
    Contender("torch_dense", "torch_contenders", (*BOTH, *TEACHER), logits_held=3),
    Contender("torch_compile", "torch_contenders", (*BOTH, *TEACHER), logits_held=3),
    Contender("torch_linear_ce", "torch_contenders", CROSS_ENTROPY, heads_held=1),
    Contender("torch_linear_ce_256", "torch_contenders", CROSS_ENTROPY, heads_held=1),
    Contender("trl_chunked", "torch_contenders", BOTH, heads_held=1),
    Contender("liger_grpo", "torch_contenders", POLICY, heads_held=2),
    Contender("liger_jsd", "torch_contenders", TEACHER, heads_held=2),
    Contender("jax_dense", "jax_contenders", BOTH, logits_held=3),
    Contender("jax_scan", "jax_contenders", BOTH, heads_held=2),
    Contender("tokamax", "jax_contenders", CROSS_ENTROPY, logits_held=3, heads_held=1),
)

BY_NAME = {contender.name: contender for contender in CONTENDERS}
