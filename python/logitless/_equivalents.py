# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Reference implementations of the functions, for help(). test_equivalents.py runs each against its function.

A reference reads arguments of the function, and assigns the results. Options that it does not read have their
defaults. F is torch.nn.functional."""

from __future__ import annotations

_LOGITS = "logits = hidden @ weight.T + bias"
_NUMPY_LOGPS = "logps = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)"
_NUMPY_SEQUENCES = [
    _LOGITS,
    _NUMPY_LOGPS,
    "mask = targets != ignore_index",
    "logps = np.take_along_axis(logps, np.where(mask, targets, 0)[..., None], axis=-1)[..., 0]",
    "logps = (logps * mask).sum(-1)",
]
_TORCH_LOGITS = "logits = F.linear(hidden, weight, bias)"
_TORCH_SEQUENCES = [
    _TORCH_LOGITS,
    "logps = -F.cross_entropy(logits.movedim(-1, 1), targets, reduction=\"none\").sum(-1)",
]
_JAX_LOGPS = "logps = jax.nn.log_softmax(hidden @ weight.T + bias)"

EQUIVALENTS = {
    "numpy": {
        "cross_entropy": [
            _LOGITS,
            "logits = softcap * np.tanh(logits / softcap) / temperature  # if softcap > 0",
            _NUMPY_LOGPS,
            "mask = targets != ignore_index",
            "logps = np.take_along_axis(logps, np.where(mask, targets, 0)[..., None], axis=-1)[..., 0]",
            "loss = -(token_weights * logps)[mask].mean()  # token_weights are 1 unless given",
        ],
        "policy_loss": [
            _LOGITS,
            _NUMPY_LOGPS,
            "logps = np.take_along_axis(logps, chosen_ids[..., None], axis=-1)[..., 0]",
            "ratio, A = np.exp(logps - old_logps.reshape(logps.shape)), advantages[:, None]",
            "clipped = np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)",
            "per_token = -np.minimum(ratio * A, clipped * A)  # loss_type=\"grpo\"",
            "loss = ((per_token * mask).sum(-1) / mask.sum(-1)).mean()",
        ],
        "preference_loss": [
            *_NUMPY_SEQUENCES,
            "chosen, rejected = np.split(logps - ref_logps, 2)",
            "loss = np.logaddexp(0, -beta * (chosen - rejected)).mean()  # loss_type=\"sigmoid\"",
        ],
        "kto_loss": [
            *_NUMPY_SEQUENCES,
            "kl = max(0, (kl_logps - kl_ref_logps).mean())",
            "z = (logps - ref_logps - kl) * (2 * labels - 1) * beta",
            "loss = (1 - 1 / (1 + np.exp(-z))).mean()",
        ],
        "soft_cross_entropy": [
            _LOGITS,
            _NUMPY_LOGPS,
            "losses = -token_weights * (probabilities * logps).sum(-1)  # token_weights are 1 unless given",
            "loss = losses[mask].mean()",
        ],
        "set_distillation_loss": [
            _LOGITS,
            _NUMPY_LOGPS,
            "log_s, log_t = np.take_along_axis(logps, ids, axis=-1), teacher_logps",
            "rest_s, rest_t = (np.log1p(-np.exp(x).sum(-1)) for x in (log_s, log_t))  # outside=\"tail\"",
            "kl = (np.exp(log_t) * (log_t - log_s)).sum(-1) + np.exp(rest_t) * (rest_t - rest_s)",
            "loss = (token_weights * kl).mean()  # token_weights are 1 unless given",
        ],
        "distillation_loss": [
            "logits = [hidden @ weight.T + bias, teacher_hidden @ teacher_weight.T + teacher_bias]",
            "log_s, log_t = (x - np.logaddexp.reduce(x, axis=-1, keepdims=True) for x in logits)",
            "kl = (np.exp(log_t) * (log_t - log_s)).sum(-1)  # loss_type=\"forward_kl\"",
            "loss = (token_weights * kl).mean()  # token_weights are 1 unless given",
        ],
        "id_logps": [
            _LOGITS,
            _NUMPY_LOGPS,
            "logps = np.take_along_axis(logps, ids, axis=-1)",
        ],
        "id_logps_backward": [
            _LOGITS,
            _NUMPY_LOGPS,
            "d_logits = -np.exp(logps) * upstream.sum(-1, keepdims=True)",
            "np.add.at(d_logits, (np.arange(len(ids))[:, None], ids), upstream)",
            "d_hidden, d_weight, d_bias = d_logits @ weight, d_logits.T @ hidden, d_logits.sum(0)",
        ],
        "token_stats": [
            _LOGITS,
            "max_logit, argmax, lse = logits.max(-1), logits.argmax(-1), np.logaddexp.reduce(logits, axis=-1)",
            "log_sum, logps = lse - max_logit, logits - lse[..., None]",
            "logp = np.take_along_axis(logps, targets[..., None], axis=-1)[..., 0]",
            "rank, outside = 1 + (logps > logp[..., None]).sum(-1), np.log1p(-np.exp(logp))",
            "entropy, square_sum = -(np.exp(logps) * logps).sum(-1), np.exp(2 * logps).sum(-1)",
            "top_ids = np.argsort(-logits, axis=-1, kind=\"stable\")[..., :top_k]",
            "top_logps = np.take_along_axis(logps, top_ids, axis=-1)",
        ],
        "sample": [
            "logits = (hidden @ weight.T + bias) / temperature",
            _NUMPY_LOGPS,
            "least = np.sort(logits, axis=-1)[..., -top_k, None]  # if top_k > 0",
            "noise = np.random.default_rng(seed).gumbel(size=(num_samples, *logits.shape))  # other numbers",
            "ids = np.where(logits < least, -np.inf, logits + noise).argmax(-1).T",
            "logps = np.take_along_axis(logps, ids, axis=-1)",
        ],
    },
    "torch": {
        "linear_cross_entropy": [
            "logits = F.linear(input, linear_weight, linear_bias)",
            "logits = softcap * torch.tanh(logits / softcap) / temperature  # if softcap > 0",
            "loss = F.cross_entropy(logits.movedim(-1, 1), target, weight, ignore_index=ignore_index,",
            "                       reduction=reduction, label_smoothing=label_smoothing)",
            "loss = token_weights * loss  # if given, with reduction=\"none\"",
        ],
        "token_logps": [
            _TORCH_LOGITS,
            "all_logps = logits.log_softmax(-1)",
            "logps = all_logps.gather(-1, targets[..., None]).squeeze(-1)",
            "entropies = -(all_logps.exp() * all_logps).sum(-1)  # with entropy=True",
            "log_sum_exp = logits.logsumexp(-1)  # with lse=True",
            "square_sum = (2 * all_logps).exp().sum(-1)  # with square_sum=True",
        ],
        "topk_logps": [
            _TORCH_LOGITS,
            "ids = logits.topk(k).indices",
            "logps = logits.log_softmax(-1).gather(-1, ids)",
        ],
        "sample": [
            "logits = F.linear(hidden, weight, bias) / temperature",
            "kept = logits.masked_fill(logits < logits.topk(top_k).values[..., -1:], -torch.inf)  # if top_k > 0",
            "ids = torch.multinomial(kept.softmax(-1).flatten(0, -2), num_samples, replacement=True)",
            "ids = ids.unflatten(0, logits.shape[:-1])",
            "logps = logits.log_softmax(-1).gather(-1, ids)",
        ],
        "id_logps": [
            _TORCH_LOGITS,
            "logps = logits.log_softmax(-1).gather(-1, ids)",
        ],
        "soft_cross_entropy": [
            _TORCH_LOGITS,
            "probabilities = torch.zeros_like(logits).scatter_add(-1, ids, weights)  # if not given",
            "losses = -token_weights * (probabilities * logits.log_softmax(-1)).sum(-1)",
            "loss = losses[mask].mean()  # token_weights are 1 unless given",
        ],
        "set_distillation_loss": [
            _TORCH_LOGITS,
            "log_s, log_t = logits.log_softmax(-1).gather(-1, ids), teacher_logps",
            "rest_s, rest_t = (torch.log1p(-x.exp().sum(-1, keepdim=True)) for x in (log_s, log_t))",
            "log_s, log_t = torch.cat([log_s, rest_s], -1), torch.cat([log_t, rest_t], -1)  # outside=\"tail\"",
            "kl = F.kl_div(log_s, log_t, reduction=\"none\", log_target=True).sum(-1)",
            "loss = (token_weights * kl).mean()  # token_weights are 1 unless given",
        ],
        "distillation_loss": [
            "log_s = F.linear(hidden, weight, bias).log_softmax(-1)",
            "log_t = F.linear(teacher_hidden, teacher_weight, teacher_bias).log_softmax(-1)",
            "kl = F.kl_div(log_s, log_t, reduction=\"none\", log_target=True)  # loss_type=\"forward_kl\"",
            "loss = (token_weights * kl.sum(-1)).mean()  # token_weights are 1 unless given",
        ],
        "policy_loss": [
            _TORCH_LOGITS,
            "logps = logits.log_softmax(-1).gather(-1, chosen_ids[..., None]).squeeze(-1)",
            "ratio, A = torch.exp(logps - old_logps), advantages[:, None]",
            "clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)",
            "per_token = -torch.min(ratio * A, clipped * A)  # loss_type=\"grpo\"",
            "loss = ((per_token * mask).sum(-1) / mask.sum(-1)).mean()",
        ],
        "preference_loss": [
            *_TORCH_SEQUENCES,
            "chosen, rejected = (logps - ref_logps).chunk(2)",
            "loss = -F.logsigmoid(beta * (chosen - rejected)).mean()  # loss_type=\"sigmoid\"",
        ],
        "kto_loss": [
            *_TORCH_SEQUENCES,
            "kl = (kl_logps - kl_ref_logps).mean().clamp(min=0)",
            "z = (logps - ref_logps - kl) * (2 * labels - 1) * beta",
            "loss = (1 - torch.sigmoid(z)).mean()",
        ],
    },
    "jax": {
        "linear_cross_entropy": [
            _LOGITS,
            "logits = softcap * jnp.tanh(logits / softcap) / temperature  # if softcap > 0",
            "mask = targets != ignore_index",
            "logps = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]",
            "loss = -(token_weights * logps).mean(where=mask)  # token_weights are 1 unless given",
        ],
        "token_logps": [
            _JAX_LOGPS,
            "entropies = -(jnp.exp(logps) * logps).sum(-1)",
            "log_sum_exp = jax.nn.logsumexp(hidden @ weight.T + bias, axis=-1)  # with lse=True",
            "square_sum = jnp.exp(2 * logps).sum(-1)  # with square_sum=True",
            "logps = jnp.take_along_axis(logps, targets[..., None], axis=-1)[..., 0]",
        ],
        "topk_logps": [
            _JAX_LOGPS,
            "logps, ids = jax.lax.top_k(logps, k)",
        ],
        "sample": [
            "logits = (hidden @ weight.T + bias) / temperature",
            "kept = jnp.where(logits < jax.lax.top_k(logits, top_k)[0][..., -1:], -jnp.inf, logits)  # if top_k > 0",
            "ids = jax.random.categorical(jax.random.key(seed), kept, shape=(num_samples, *logits.shape[:-1]))",
            "ids = jnp.moveaxis(ids, 0, -1)",
            "logps = jnp.take_along_axis(jax.nn.log_softmax(logits), ids, axis=-1)",
        ],
        "id_logps": [
            _JAX_LOGPS,
            "logps = jnp.take_along_axis(logps, ids, axis=-1)",
        ],
        "soft_cross_entropy": [
            _JAX_LOGPS,
            "losses = -token_weights * (probabilities * logps).sum(-1)  # token_weights are 1 unless given",
            "loss = losses.mean(where=mask)",
        ],
        "set_distillation_loss": [
            _JAX_LOGPS,
            "log_s, log_t = jnp.take_along_axis(logps, ids, axis=-1), teacher_logps",
            "rest_s, rest_t = (jnp.log1p(-jnp.exp(x).sum(-1)) for x in (log_s, log_t))  # outside=\"tail\"",
            "kl = (jnp.exp(log_t) * (log_t - log_s)).sum(-1) + jnp.exp(rest_t) * (rest_t - rest_s)",
            "loss = (token_weights * kl).mean()  # token_weights are 1 unless given",
        ],
        "distillation_loss": [
            "log_s = jax.nn.log_softmax(hidden @ weight.T + bias)",
            "log_t = jax.nn.log_softmax(teacher_hidden @ teacher_weight.T + teacher_bias)",
            "kl = (jnp.exp(log_t) * (log_t - log_s)).sum(-1)  # loss_type=\"forward_kl\"",
            "loss = (token_weights * kl).mean()  # token_weights are 1 unless given",
        ],
    },
}
