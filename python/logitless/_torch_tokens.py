# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Log-probabilities and entropies of tokens, with gradients for both; and the most likely tokens, without."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from . import topk_union as topk_union_of_arrays
from ._torch_call import batched, check_cpu, check_versions, handed_over, not_compiled, values_of, versions_of
from ._torch_head import Head, HeadTensors, read_head, shaped_like
from ._torch_options import TOKEN, WITHOUT_TARGETS, arguments_of, seeded
from ._torch_ranks import run_in
from .lora import HeadWeight


class _TokenColumns(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        target: Tensor,
        options: dict[str, Any],
        wanted: tuple[str, ...],
        group: Any,
        frozen: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        # lse is there without a request.
        options = {**options, **{name: True for name in wanted if name != "lse"}}
        call = HeadTensors(tensors, {"targets": target, **options})
        ctx.stats = run_in(group, _core.token_stats, call.arguments, frozen=frozen)
        columns = ctx.stats.columns()
        ctx.save_for_backward(target, *tensors)
        ctx.rest = (options, wanted, tuple(ctx.needs_input_grad[5:]), group)
        ctx.versions = versions_of(options)
        results = {name: torch.from_numpy(columns[name]).view(target.shape) for name in ("logp", *wanted)}
        ctx.mark_non_differentiable(*(t for name, t in results.items() if name not in ("logp", "entropy")))
        return tuple(results.values())

    @staticmethod
    def backward(ctx: Any, d_logp: Tensor | None, *d_wanted: Tensor | None) -> tuple[Tensor | None, ...]:
        target, *inputs = ctx.saved_tensors
        options, wanted, needs, group = ctx.rest
        check_versions(options, ctx.versions)
        call = HeadTensors(inputs, {"targets": target, **options})
        grads = call.outputs(needs)
        d_entropy = dict(zip(wanted, d_wanted)).get("entropy")
        upstream = {"logp": torch.zeros(target.numel(), dtype=torch.float64) if d_logp is None else d_logp}
        if d_entropy is not None:
            upstream["entropy"] = d_entropy
        run_in(
            group,
            _core.token_grads,
            call.arguments,
            ctx.stats,
            {name: values_of(g).flatten().contiguous() for name, g in upstream.items()},
        )
        grads = shaped_like(grads, inputs, options.get("vocab_ids"))
        return (*[None] * 5, *handed_over(grads, (d_logp, d_entropy, *inputs)))


def token_columns(
    head: Head, target: Tensor, wanted: tuple[str, ...], *, options: dict[str, Any], expects_rows: bool
) -> dict[str, Tensor]:
    """logp and the `wanted` columns of logitless.token_stats(), of one walk and of target's shape. logp and entropy
    have gradients. With expects_rows and a frozen head the forward makes the gradient of hidden states, which saves a
    product where the entropy has no gradient, and costs one where it has.
    """
    rows, ids = batched(head.input, target)
    head = head.of(rows)
    options = {**head.arguments, **options}
    frozen = expects_rows and head.is_frozen
    columns = _TokenColumns.apply(ids, options, wanted, head.group, frozen, *head.tensors)
    return {name: column.view(target.shape) for name, column in zip(("logp", *wanted), columns)}


@not_compiled
def token_logps(
    input: Tensor,
    linear_weight: HeadWeight,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    entropy: bool = False,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Log-probabilities of the targets, float64 and of target's shape; with entropy=True a pair with the entropies, in
    nats. Both have gradients. Tokens that take no part have 0 in both. options are the members of TokenOptions
    (ignore_index, temperature, shift, ...); temperatures, vocab_ids and group are those of linear_cross_entropy().

    They are what a policy loss of your own needs; policy_loss() of the package has those of the literature fused.
    """
    head = read_head(
        input, linear_weight, linear_bias, softcap=softcap, vocab_ids=vocab_ids, group=group, target=target
    )
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"expected target of shape {tuple(input.shape[:-1])}, as input has, got {tuple(target.shape)}"
        )
    arguments = seeded(arguments_of("token_logps", TOKEN, options, target.shape, temperatures))
    wanted = ("entropy",) if entropy else ()
    columns = token_columns(
        head,
        target,
        wanted,
        options=arguments,
        # A gradient of entropies takes the products that expected rows would save.
        expects_rows=not entropy,
    )
    return (columns["logp"], columns["entropy"]) if entropy else columns["logp"]


@not_compiled
@torch.no_grad()
def topk_logps(
    input: Tensor,
    linear_weight: HeadWeight,
    k: int,
    *,
    linear_bias: Tensor | None = None,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The ids of the k largest logits of each row of input, int64, and their log-probabilities, float64: both of shape
    [..., k]. They go by falling logit, and of equal logits the lower id comes first, so [..., 0] is the greedy choice.

    k is 1 to 256. Behind the end of a smaller vocabulary ids are -1 and log-probabilities -inf; a row with a NaN has -1
    and NaN. No gradient flows through either. The log-probabilities are those of the whole vocabulary: their
    exponentials sum to the share of the k. options are the members of TokenOptions but for those of targets
    (temperature, ...); temperatures, vocab_ids (whose places the ids are) and group are those of
    linear_cross_entropy().
    """
    if not 1 <= k <= 256:
        raise ValueError(f"k = {k} must be an integer from 1 to 256")
    head = read_head(input, linear_weight, linear_bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    arguments = arguments_of("topk_logps", WITHOUT_TARGETS, options, input.shape[:-1], temperatures)
    target = torch.zeros(input.shape[:-1], dtype=torch.int64)  # any token id: every row takes part
    rows, ids = batched(head.input, target)
    call = HeadTensors(head.of(rows).tensors, {**head.arguments, "targets": ids, **arguments, "top_k": k})
    stats = run_in(head.group, _core.token_stats, call.arguments)
    columns = stats.columns()
    shape = (*target.shape, k)
    return torch.from_numpy(columns["top_ids"]).view(shape), torch.from_numpy(columns["top_logps"]).view(shape)


def topk_union(a_ids: Tensor, b_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The union of each token's two lists, [..., A] and [..., B], such as a student's own topk_logps and a teacher's: ids
    [E] and offsets [N + 1], as ids and id_offsets= of id_logps() and the losses take them.

    Each id stands once, those of a_ids first, both in their order; ids below 0 stand for none.
    """
    check_cpu(a_ids=a_ids, b_ids=b_ids)
    ids, offsets = topk_union_of_arrays(a_ids.numpy(), b_ids.numpy())
    return torch.from_numpy(ids), torch.from_numpy(offsets)
