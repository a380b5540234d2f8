# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""PyTorch, and the libraries built on it."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

from job import DISTILLATION, GRPO_BETA, GRPO_EPSILON, Job, Measured
from measure import measure_calls

Batch = dict[str, torch.Tensor]
Loss = Callable[[Batch], torch.Tensor]


def load(job: Job) -> Batch:
    with safe_open(job.inputs, framework="pt") as file:
        # Copied, so that every page belongs to this process and is resident.
        batch = {name: file.get_tensor(name).clone() for name in file.keys()}
    for name in ("hidden", "lm_head"):
        batch[name].requires_grad_(job.gradients)
    return batch


def dense_logits(batch: Batch) -> torch.Tensor:
    """Return logits in float32, which trainers of the Hugging Face family pass to the loss."""
    return F.linear(batch["hidden"], batch["lm_head"]).float()


def dense_cross_entropy(batch: Batch) -> torch.Tensor:
    return F.cross_entropy(dense_logits(batch), batch["targets"])


def dense_grpo(batch: Batch) -> torch.Tensor:
    logps = torch.log_softmax(dense_logits(batch), -1).gather(-1, batch["targets"][:, None]).squeeze(-1)
    return grpo(logps, batch)


def grpo(logps: torch.Tensor, batch: Batch) -> torch.Tensor:
    """TRL's formula with loss_type "grpo". Sequences have equal lengths, so the mean over all tokens equals
    the mean over sequences of per-sequence means."""
    ratio = torch.exp(logps - batch["old_logps"])
    advantages = batch["advantages"].repeat_interleave(logps.numel() // batch["advantages"].numel())
    clipped = ratio.clamp(1 - GRPO_EPSILON, 1 + GRPO_EPSILON)
    difference = batch["ref_logps"] - logps
    divergence = torch.exp(difference) - difference - 1
    return (-torch.min(ratio * advantages, clipped * advantages) + GRPO_BETA * divergence).mean()


def dense_divergence(task: str) -> Loss:
    """The formula of TRL and Liger, from float32 logits."""
    beta = DISTILLATION[task]

    def loss(batch: Batch) -> torch.Tensor:
        student = torch.log_softmax(dense_logits(batch), -1)
        with torch.no_grad():
            teacher = torch.log_softmax(F.linear(batch["teacher_hidden"], batch["teacher_head"]).float(), -1)

        def kl(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return F.kl_div(second, first, reduction="batchmean", log_target=True)

        if beta == 0:
            return kl(teacher, student)
        if beta == 1:
            return kl(student, teacher)
        mixture = torch.logaddexp(student + math.log(1 - beta), teacher + math.log(beta))
        return beta * kl(teacher, mixture) + (1 - beta) * kl(student, mixture)

    return loss


def liger_jsd(job: Job) -> Loss:
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss

    fused = LigerFusedLinearJSDLoss(weight_hard_loss=0.0, weight_soft_loss=1.0, beta=DISTILLATION[job.task])
    return lambda batch: fused(batch["hidden"], batch["lm_head"], batch["teacher_hidden"], batch["teacher_head"],
                               batch["targets"])


def linear_cross_entropy(batch_chunk_size: int | None) -> Loss:
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=batch_chunk_size)
    return lambda batch: F.linear_cross_entropy(batch["hidden"], batch["lm_head"], batch["targets"], options=options)


def trl_chunked(task: str) -> Loss:
    from trl.kernels import ChunkedLogProbFunction
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    def loss(batch: Batch) -> torch.Tensor:
        # Without temperature, softcap, scale and optional outputs.
        logps = ChunkedLogProbFunction.apply(batch["hidden"], batch["lm_head"], None, batch["targets"], 1.0,
                                             _CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ())[0]
        return grpo(logps, batch) if task == "policy_loss" else -logps.mean()

    return loss


def liger_grpo(job: Job) -> Loss:
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    # Not compiled, because it would retrace its small formula in every call, which costs more than it saves.
    fused = LigerFusedLinearGRPOLoss(beta=GRPO_BETA, epsilon_low=GRPO_EPSILON, epsilon_high=GRPO_EPSILON,
                                     loss_type="grpo", compiled=False)
    sequences = (job.shape.sequences, -1)
    mask = torch.ones(job.shape.tokens).view(sequences)

    def loss(batch: Batch) -> torch.Tensor:
        return fused(batch["hidden"].view(*sequences, job.shape.hidden), batch["lm_head"],
                     batch["targets"].view(sequences), mask, batch["advantages"],
                     ref_per_token_logps=batch["ref_logps"].view(sequences),
                     old_per_token_logps=batch["old_logps"].view(sequences))[0]

    return loss


def logitless_package(job: Job) -> Loss:
    """This project's own Python package."""
    import logitless.torch as fused

    sequences = (job.shape.sequences, -1)

    def policy(batch: Batch) -> torch.Tensor:
        return fused.policy_loss(batch["hidden"].view(*sequences, job.shape.hidden), batch["lm_head"],
                                 batch["targets"].view(sequences), batch["advantages"], old_logps=batch["old_logps"],
                                 ref_logps=batch["ref_logps"], beta=GRPO_BETA, epsilon_low=GRPO_EPSILON,
                                 epsilon_high=GRPO_EPSILON)

    def distillation(batch: Batch) -> torch.Tensor:
        return fused.distillation_loss(batch["hidden"], batch["lm_head"], batch["teacher_hidden"],
                                       batch["teacher_head"], loss_type=job.task, dtype=torch.float32)

    def cross_entropy(batch: Batch) -> torch.Tensor:
        return fused.linear_cross_entropy(batch["hidden"], batch["lm_head"], batch["targets"],
                                          loss_dtype=torch.float32)

    if job.task in DISTILLATION:
        return distillation
    return policy if job.task == "policy_loss" else cross_entropy


def loss_of(job: Job) -> Loss:
    dense = dense_grpo if job.task == "policy_loss" else dense_cross_entropy
    if job.task in DISTILLATION:
        dense = dense_divergence(job.task)
    match job.contender:
        case "torch_dense":
            return dense
        case "torch_compile":
            return torch.compile(dense)
        case "logitless_torch":
            return logitless_package(job)
        case "torch_linear_ce":
            return linear_cross_entropy(None)
        case "torch_linear_ce_256":
            return linear_cross_entropy(256)
        case "trl_chunked":
            return trl_chunked(job.task)
        case "liger_grpo":
            return liger_grpo(job)
        case "liger_jsd":
            return liger_jsd(job)
    raise ValueError(f"{job.contender} is not a contender of this module")


def run(job: Job) -> Measured:
    torch.set_num_threads(job.threads)
    batch, loss = load(job), loss_of(job)
    inputs = [batch["hidden"], batch["lm_head"]]

    def call() -> tuple[torch.Tensor, ...]:
        if not job.gradients:
            with torch.no_grad():
                return (loss(batch),)
        value = loss(batch)
        return (value.detach(), *torch.autograd.grad(value, inputs))

    output_bytes = sum(tensor.nbytes for tensor in inputs) if job.gradients else 0
    result, outputs = measure_calls(job, call, lambda result: result[0].item(), output_bytes)
    if job.results:
        names = ("loss", "d_hidden", "d_weight")
        save_file({name: tensor.contiguous() for name, tensor in zip(names, outputs)}, job.results)
    return result
