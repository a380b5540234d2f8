# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""JAX, and the libraries built on it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from safetensors import safe_open
from safetensors.flax import save_file

from job import GRPO_BETA, GRPO_EPSILON, Job, Measured
from measure import measure_calls

Batch = dict[str, jax.Array]
Loss = Callable[[jax.Array, jax.Array, Batch], jax.Array]  # of hidden states, head and the rest

MOST_ROWS = 256  # rows per step of the scan


def load(job: Job) -> Batch:
    with safe_open(job.inputs, framework="flax") as file:
        batch = {name: file.get_tensor(name) for name in file.keys()}
    if job.contender == "tokamax":  # its head is [H, V]
        batch["lm_head"] = jnp.array(batch["lm_head"].T)
    return batch


def logps_of(hidden: jax.Array, head: jax.Array, targets: jax.Array) -> jax.Array:
    logits = jnp.matmul(hidden, head.T, preferred_element_type=jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def scanned_logps(hidden: jax.Array, head: jax.Array, targets: jax.Array) -> jax.Array:
    """Compute the same in chunks of tokens; the backward pass recomputes each chunk's logits."""
    tokens = hidden.shape[0]
    rows = max(size for size in range(1, MOST_ROWS + 1) if tokens % size == 0)
    chunk_logps = jax.checkpoint(lambda chunk: logps_of(chunk[0], head, chunk[1]))
    chunks = (hidden.reshape(-1, rows, hidden.shape[1]), targets.reshape(-1, rows))
    return jax.lax.scan(lambda carry, chunk: (carry, chunk_logps(chunk)), None, chunks)[1].reshape(-1)


def grpo(logps: jax.Array, batch: Batch) -> jax.Array:
    """The same formula as in torch_contenders.py."""
    ratio = jnp.exp(logps - batch["old_logps"])
    advantages = jnp.repeat(batch["advantages"], logps.size // batch["advantages"].size)
    clipped = jnp.clip(ratio, 1 - GRPO_EPSILON, 1 + GRPO_EPSILON)
    difference = batch["ref_logps"] - logps
    divergence = jnp.exp(difference) - difference - 1
    return (-jnp.minimum(ratio * advantages, clipped * advantages) + GRPO_BETA * divergence).mean()


def tokamax_cross_entropy(hidden: jax.Array, head: jax.Array, batch: Batch) -> jax.Array:
    import tokamax

    # tokamax's implementation for CPUs; it holds all logits.
    return tokamax.linear_softmax_cross_entropy_loss(hidden, batch["targets"], head, reduction="mean",
                                                     implementation="xla")


def loss_of(job: Job) -> Loss:
    if job.contender == "tokamax":
        return tokamax_cross_entropy
    if job.contender == "logitless_jax":
        from logitless.jax import linear_cross_entropy

        return lambda hidden, head, batch: linear_cross_entropy(hidden, head, batch["targets"])
    logps = {"jax_dense": logps_of, "jax_scan": scanned_logps}[job.contender]

    def loss(hidden: jax.Array, head: jax.Array, batch: Batch) -> jax.Array:
        of_tokens = logps(hidden, head, batch["targets"])
        return grpo(of_tokens, batch) if job.task == "policy_loss" else -of_tokens.mean()

    return loss


def run(job: Job) -> Measured:
    batch, loss = load(job), loss_of(job)
    hidden, head = batch.pop("hidden"), batch.pop("lm_head")
    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)) if job.gradients else loss)
    result, outputs = measure_calls(job, lambda: jax.block_until_ready(compiled(hidden, head, batch)),
                                    lambda value: float(value[0] if job.gradients else value),
                                    hidden.nbytes + head.nbytes if job.gradients else 0)
    if job.results:
        value, (d_hidden, d_head) = outputs
        d_weight = d_head.T if job.contender == "tokamax" else d_head
        save_file({"loss": value, "d_hidden": d_hidden, "d_weight": jnp.array(d_weight)}, job.results)
    return result
