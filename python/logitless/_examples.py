# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The results, the errors and an example of each function, for help(). A test runs the examples.

A line of an example is an input. If it begins with "=", it is the output."""

from __future__ import annotations

_ARGUMENT = "ValueError: an argument is invalid; nothing was written."
_NAME = "TypeError: an argument is unknown, missing, or has the wrong type."
RAISES = {
    "numpy": [_ARGUMENT, _NAME],
    "torch": ["ValueError: an argument is invalid, or is not on the CPU.", _NAME],
    "torch linear_cross_entropy": ["ValueError, RuntimeError, IndexError: as in PyTorch's function.", _NAME],
    "jax": [_ARGUMENT, _NAME],
}

_FLOAT = "float32, or float64 for float64 hidden states"
_JAX_LOSS = "the loss, one number, or one per token with reduction=\"none\"; " + _FLOAT
_TORCH_LOSS = _JAX_LOSS + ", or dtype"
_WITH_METRICS = ". With return_metrics=True a tuple (loss, metrics), where metrics is a dict of floats"
RETURNS = {
    "numpy": {
        "id_logps_backward": "Plan: how the call ran",
        "sample": f"(ids, logps), both [N, num_samples]: int64, and {_FLOAT}, or dtype",
    },
    "torch": {
        "linear_cross_entropy": "the loss, one number, or one per token with reduction=\"none\"; input's type, or "
        "loss_dtype. With return_stats=True a tuple (loss, CrossEntropyStats)",
        "token_logps": "log-probabilities, of targets' shape; with entropy, lse or square_sum a tuple (logps, "
        f"entropies, lse, square_sum) of the requested ones. {_FLOAT}, or dtype",
        "topk_logps": f"(ids, logps), both [..., k]: int64, and {_FLOAT}, or dtype",
        "sample": f"(ids, logps), both [..., num_samples]: int64, and {_FLOAT}, or dtype",
        "id_logps": f"log-probabilities, of ids' shape; {_FLOAT}, or dtype",
        "soft_cross_entropy": _TORCH_LOSS,
        "set_distillation_loss": _TORCH_LOSS,
        "distillation_loss": _TORCH_LOSS + _WITH_METRICS,
        **dict.fromkeys(
            ("policy_loss", "preference_loss", "kto_loss"),
            f"the loss, one number; {_FLOAT}, or dtype{_WITH_METRICS}",
        ),
    },
    "jax": {
        "linear_cross_entropy": f"the loss, one number; {_FLOAT}",
        "token_logps": f"(logps, entropies), and lse and square_sum if requested, all of targets' shape; {_FLOAT}",
        "topk_logps": f"(ids, logps), both [..., k]: int32, and {_FLOAT}",
        "sample": f"(ids, logps), both [..., num_samples]: int32, and {_FLOAT}",
        "id_logps": f"log-probabilities, of ids' shape; {_FLOAT}",
        **dict.fromkeys(("soft_cross_entropy", "set_distillation_loss", "distillation_loss"), _JAX_LOSS),
    },
}

SETUP = {
    "numpy": [
        "import numpy as np, logitless",
        "hidden = np.sin(np.arange(24, dtype=np.float32)).reshape(6, 4)",
        "weight = np.cos(np.arange(28, dtype=np.float32)).reshape(7, 4)",
    ],
    "torch": [
        "import torch, logitless.torch as lt",
        "hidden = torch.arange(24.0).sin().reshape(6, 4).requires_grad_()",
        "weight = torch.arange(28.0).cos().reshape(7, 4)",
    ],
    "jax": [
        "import jax, jax.numpy as jnp, logitless.jax as lj",
        "hidden = jnp.sin(jnp.arange(24.0)).reshape(6, 4)",
        "weight = jnp.cos(jnp.arange(28.0)).reshape(7, 4)",
    ],
}

_IDS = "ids = {}.array([[0, 1], [2, 3], [4, 5], [6, 0], [1, 2], [3, 4]])"
_PAIRS = "pairs = hidden.reshape(2, 3, 4)  # a chosen sequence and a rejected one"
EXAMPLES = {
    "numpy": {
        "cross_entropy": [
            "d_hidden = np.empty_like(hidden)",
            "result = logitless.cross_entropy(hidden, weight, np.arange(6), d_hidden=d_hidden)",
            "round(result.loss, 3)",
            "=2.659",
        ],
        "policy_loss": [
            "advantages = np.array([1.0, -1.0, 0.5, 1.0, -1.0, 2.0])",
            "result = logitless.policy_loss(hidden, weight, np.arange(6), advantages=advantages, loss_type=\"dapo\")",
            "round(result.loss, 3)",
            "=-0.417",
        ],
        "preference_loss": [
            _PAIRS,
            "targets, ref_logps = np.arange(6).reshape(2, 3), np.array([-6.0, -7.0])",
            "result = logitless.preference_loss(pairs, weight, targets, ref_logps=ref_logps, loss_type=[\"ipo\"])",
            "round(result.loss, 3)",
            "=27.293",
        ],
        "kto_loss": [
            "given = {\"labels\": np.array([1, 0]), \"ref_logps\": np.array([-6.0, -7.0])}",
            "states, targets = hidden.reshape(2, 3, 4), np.arange(6).reshape(2, 3)",
            "result = logitless.kto_loss(states, weight, targets, loss_type=\"apo_zero_unpaired\", **given)",
            "round(result.loss, 3)",
            "=0.508",
        ],
        "soft_cross_entropy": [
            _IDS.format("np"),
            "weights = np.full((6, 2), 0.5)",
            "result = logitless.soft_cross_entropy(hidden, weight, ids=ids, weights=weights)",
            "round(result.loss, 3)",
            "=2.774",
        ],
        "set_distillation_loss": [
            _IDS.format("np"),
            "result = logitless.set_distillation_loss(hidden, weight, ids, np.full((6, 2), -1.0))",
            "round(result.loss, 3)",
            "=1.054",
        ],
        "id_logps": [_IDS.format("np"), "logitless.id_logps(hidden, weight, ids).logps.shape", "=(6, 2)"],
        "id_logps_backward": [
            _IDS.format("np"),
            "made, d_hidden = logitless.id_logps(hidden, weight, ids), np.empty_like(hidden)",
            "upstream = np.ones((6, 2))",
            "plan = logitless.id_logps_backward(hidden, weight, ids, forward=made, upstream=upstream, d_hidden=d_hidden)",
            "plan.tokens",
            "=6",
        ],
        "distillation_loss": [
            "result = logitless.distillation_loss(hidden, weight, hidden, 2 * weight, loss_type=\"reverse_kl\")",
            "round(result.loss, 3)",
            "=0.191",
        ],
        "token_stats": [
            "stats = logitless.token_stats(hidden, weight, np.arange(6), entropy=True, top_k=2)",
            "stats.logp.shape, stats.top_ids.shape",
            "=((6,), (6, 2))",
        ],
        "sample": [
            "ids, logps = logitless.sample(hidden, weight, 3, seed=1, temperature=0.7)",
            "ids.shape, logps.shape",
            "=((6, 3), (6, 3))",
        ],
    },
    "torch": {
        "linear_cross_entropy": [
            "loss = lt.linear_cross_entropy(hidden, weight, torch.arange(6))",
            "loss.backward()",
            "hidden.grad.shape",
            "=torch.Size([6, 4])",
        ],
        "token_logps": [
            "logps, entropy = lt.token_logps(hidden, weight, torch.arange(6), entropy=True)",
            "logps.dtype, entropy.shape",
            "=(torch.float32, torch.Size([6]))",
        ],
        "topk_logps": [
            "ids, logps = lt.topk_logps(hidden, weight, 3)",
            "ids.shape, ids.dtype, logps.dtype",
            "=(torch.Size([6, 3]), torch.int64, torch.float32)",
        ],
        "sample": [
            "ids, logps = lt.sample(hidden, weight, 3, temperature=0.7, top_k=5, top_p=0.9)",
            "ids.shape, ids.dtype, logps.dtype",
            "=(torch.Size([6, 3]), torch.int64, torch.float32)",
        ],
        "id_logps": [
            _IDS.format("torch").replace("array", "tensor"),
            "lt.id_logps(hidden, weight, ids, normalise_over=\"set\").exp().sum(-1).round().tolist()",
            "=[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]",
        ],
        "soft_cross_entropy": [
            "loss = lt.soft_cross_entropy(hidden, weight, torch.full((6, 7), 1 / 7))",
            "round(loss.item(), 3)",
            "=2.708",
        ],
        "set_distillation_loss": [
            _IDS.format("torch").replace("array", "tensor"),
            "loss = lt.set_distillation_loss(hidden, weight, ids, torch.full((6, 2), -1.0), outside=\"truncated\")",
            "round(loss.item(), 3)",
            "=1.305",
        ],
        "distillation_loss": [
            "loss = lt.distillation_loss(hidden, weight, hidden.detach(), 2 * weight, loss_type=\"jsd\")",
            "round(loss.item(), 3)",
            "=0.034",
        ],
        "policy_loss": [
            "advantages = torch.tensor([1.0, -1.0, 0.5, 1.0, -1.0, 2.0])",
            "loss, metrics = lt.policy_loss(hidden, weight, torch.arange(6), advantages, return_metrics=True)",
            "round(loss.item(), 3)",
            "=-0.417",
        ],
        "preference_loss": [
            _PAIRS,
            "targets, ref_logps = torch.arange(6).reshape(2, 3), torch.tensor([-6.0, -7.0])",
            "loss = lt.preference_loss(pairs, weight, targets, ref_logps=ref_logps, loss_type=\"ipo\")",
            "round(loss.item(), 3)",
            "=27.293",
        ],
        "kto_loss": [
            "given = {\"labels\": torch.tensor([1, 0]), \"ref_logps\": torch.tensor([-6.0, -7.0])}",
            "states, targets = hidden.reshape(2, 3, 4), torch.arange(6).reshape(2, 3)",
            "loss = lt.kto_loss(states, weight, targets, loss_type=\"apo_zero_unpaired\", **given)",
            "round(loss.item(), 3)",
            "=0.508",
        ],
    },
    "jax": {
        "linear_cross_entropy": [
            "loss, grad = jax.value_and_grad(lj.linear_cross_entropy)(hidden, weight, jnp.arange(6))",
            "grad.shape",
            "=(6, 4)",
        ],
        "token_logps": [
            "logps, entropies = lj.token_logps(hidden, weight, jnp.arange(6))",
            "logps.shape, str(logps.dtype)",
            "=((6,), 'float32')",
        ],
        "topk_logps": [
            "ids, logps = lj.topk_logps(hidden, weight, 3)",
            "ids.shape, str(ids.dtype)",
            "=((6, 3), 'int32')",
        ],
        "sample": [
            "ids, logps = lj.sample(hidden, weight, 3, seed=1)",
            "ids.shape, str(ids.dtype)",
            "=((6, 3), 'int32')",
        ],
        "id_logps": [_IDS.format("jnp"), "lj.id_logps(hidden, weight, ids).shape", "=(6, 2)"],
        "soft_cross_entropy": [
            "loss = lj.soft_cross_entropy(hidden, weight, jnp.full((6, 7), 1 / 7))",
            "round(float(loss), 3)",
            "=2.708",
        ],
        "set_distillation_loss": [
            _IDS.format("jnp"),
            "loss = lj.set_distillation_loss(hidden, weight, ids, jnp.full((6, 2), -1.0))",
            "round(float(loss), 3)",
            "=1.054",
        ],
        "distillation_loss": [
            "loss = lj.distillation_loss(hidden, weight, hidden, 2 * weight, loss_type=\"jsd\")",
            "round(float(loss), 3)",
            "=0.034",
        ],
    },
}
