# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Log-probabilities and entropies of tokens, with gradients; and the most likely tokens, and draws, without."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _core
from . import topk_union as topk_union_of_arrays
from ._draws import draws_of, is_greedy
from ._torch_call import (
    Kept,
    batched,
    check_cpu,
    handed_over,
    not_compiled,
    one_gradient,
    results_in,
    type_of_results,
    values_of,
)
from ._torch_head import Head, HeadTensors, check_backward_half, read_head, shaped_like
from ._torch_options import TOKEN, WITHOUT_TARGETS, arguments_of, seeded
from ._torch_ranks import runner_of
from .lora import HeadWeight


_WITH_GRADIENT = ("logp", "lse", "entropy", "square_sum")  # columns of statistics


class _TokenColumns(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        arguments: dict[str, Any],
        shape: torch.Size,
        wanted: tuple[str, ...],
        group: Any,
        frozen: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        needs = tuple(ctx.needs_input_grad[5:])
        run = runner_of(group)
        check_backward_half("token_logps", _core.plan_cross_entropy, tensors, arguments, needs, run)
        # lse is always returned and is not an option.
        arguments = {**arguments, **{name: True for name in wanted if name != "lse"}}
        ctx.save_for_backward(*tensors)
        ctx.kept = Kept(arguments)
        ctx.rest = (run, ("logp", *wanted), needs)
        columns, ctx.stats = run(_core.token_stats, HeadTensors(tensors, arguments).arguments, frozen=frozen)
        # Not views: autograd forbids in-place changes of views if a function returns several outputs.
        results = {name: torch.from_numpy(columns[name].reshape(shape)) for name in ("logp", *wanted)}
        ctx.mark_non_differentiable(*(t for name, t in results.items() if name not in _WITH_GRADIENT))
        return tuple(results.values())

    @staticmethod
    def backward(ctx: Any, *d_columns: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        run, names, needs = ctx.rest
        call = HeadTensors(inputs, ctx.kept.all())
        grads = call.outputs(needs)
        upstream = {n: g for n, g in zip(names, d_columns) if g is not None and n in _WITH_GRADIENT}
        columns = {name: values_of(one_gradient(g)).flatten().double().contiguous() for name, g in upstream.items()}
        columns.setdefault("logp", torch.zeros(ctx.kept.get("targets").numel(), dtype=torch.float64))
        run(_core.token_stats_backward, call.arguments, ctx.stats, columns)
        grads = shaped_like(grads, inputs, ctx.kept.get("vocab_ids"))
        return (*[None] * 5, *handed_over(grads, (*upstream.values(), *inputs)))


def token_columns(
    head: Head, targets: Tensor, wanted: tuple[str, ...], *, options: dict[str, Any], expects_rows: bool
) -> dict[str, Tensor]:
    """logp and the `wanted` columns of logitless.token_stats(), from one call and in targets' shape. logp,
    lse, entropy and square_sum have gradients. With expects_rows and a frozen head the forward keeps expected rows. They
    save the backward a product, unless entropy or square_sum gets a gradient: then they cost one.
    """
    rows, ids = batched(head.input, targets)
    head = head.of(rows)
    arguments = {**head.arguments, "targets": ids, **options}
    frozen = expects_rows and head.is_frozen
    columns = _TokenColumns.apply(arguments, targets.shape, wanted, head.group, frozen, *head.tensors)
    return dict(zip(("logp", *wanted), columns))


@not_compiled
def token_logps(
    hidden: Tensor,
    weight: HeadWeight,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    entropy: bool = False,
    lse: bool = False,
    square_sum: bool = False,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> Tensor | tuple[Tensor, ...]:
    """Log-probabilities of the targets, in targets' shape and with gradients.

    entropy=True, lse=True and square_sum=True add the entropies, in nats, the log-sum-exp of the logits, and
    the sum of squared probabilities, in this order and with gradients. All are 0 for ignored tokens. temperatures, vocab_ids, group and context are as in
    linear_cross_entropy().

    Use this function for a policy loss of your own; policy_loss() has the published ones.
    """
    head = read_head(
        hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group, targets=targets
    )
    if targets.shape != hidden.shape[:-1]:
        raise ValueError(
            f"expected targets of shape {tuple(hidden.shape[:-1])}, as hidden has, got {tuple(targets.shape)}"
        )
    dtype = type_of_results(dtype, head.input)
    arguments = seeded(arguments_of("token_logps", TOKEN, options, targets.shape, temperatures))
    arguments.update(results_in(dtype))
    wanted = tuple(name for name, asked in zip(("entropy", "lse", "square_sum"), (entropy, lse, square_sum)) if asked)
    columns = token_columns(
        head,
        targets,
        wanted,
        options=arguments,
        # Expected rows save nothing if these get a gradient.
        expects_rows=not (entropy or square_sum),
    )
    # skips to(), which takes 3 µs even if there is nothing to do
    results = tuple(c if c.dtype == dtype else c.to(dtype) for c in columns.values())
    return results if wanted else results[0]


@not_compiled
@torch.no_grad()
def topk_logps(
    hidden: Tensor,
    weight: HeadWeight,
    k: int,
    *,
    bias: Tensor | None = None,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The ids of the k largest logits of each row, and their log-probabilities: both [..., k], without
    gradients.

    They are sorted by descending logit; ties go to the lower id, so [..., 0] is the greedy choice. k is 1 to
    256. If the vocabulary is smaller than k, the remaining ids are -1 and the log-probabilities -inf; a row
    with a NaN has -1 and NaN. The log-probabilities are normalised over the whole vocabulary. With vocab_ids,
    the ids are indices into vocab_ids. temperatures, group and context are as in linear_cross_entropy().
    """
    if k not in range(1, 257):
        raise ValueError(f"k = {k} must be an integer from 1 to 256")
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    arguments = arguments_of("topk_logps", WITHOUT_TARGETS, options, hidden.shape[:-1], temperatures)
    return _lists(head, {**arguments, "top_k": k}, ("top_ids", "top_logps"), k, dtype)


def _lists(
    head: Head, arguments: dict[str, Any], names: tuple[str, str], count: int, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Two columns of token_stats() with `count` entries per row: ids and log-probabilities."""
    dtype = type_of_results(dtype, head.input)
    targets = torch.zeros(head.input.shape[:-1], dtype=torch.int64)  # any valid id, so that no row is ignored
    rows, every = batched(head.input, targets)
    arguments = {**head.arguments, **arguments, **results_in(dtype), "targets": every}
    columns, _ = runner_of(head.group)(_core.token_stats, HeadTensors(head.of(rows).tensors, arguments).arguments)
    ids, logps = (torch.from_numpy(columns[name]).view(*targets.shape, count) for name in names)
    return ids, logps.to(dtype)


@not_compiled
@torch.no_grad()
def sample(
    hidden: Tensor,
    weight: HeadWeight,
    num_samples: int = 1,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    bias: Tensor | None = None,
    softcap: float = 0.0,
    temperatures: Tensor | None = None,
    dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    group: Any = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Token ids drawn from each row's distribution, independently and with replacement, and their
    log-probabilities: both [..., num_samples], without gradients.

    The ids are exact draws from the softmax of the logits divided by the temperature. temperature=0 returns
    the most likely id, with its log-probability at temperature 1. top_k restricts the draws to the top_k
    largest logits of a row, and top_p < 1 to the fewest most likely of these that together have top_p of
    their probability; top_p needs top_k. The log-probabilities are always those among all ids, and a row with
    a NaN has -1 and NaN. By default the seed is drawn from PyTorch's generator, so torch.manual_seed() makes
    runs reproducible; with group=, all of its ranks need the same seed. With vocab_ids, the ids are indices
    into vocab_ids. temperatures, group and context are as in linear_cross_entropy().
    """
    asked = draws_of(num_samples, temperature, temperatures, top_k, top_p)
    greedy = is_greedy(asked)
    head = read_head(hidden, weight, bias, softcap=softcap, vocab_ids=vocab_ids, group=group)
    if not greedy:
        asked["draw_seed"] = int(torch.randint(2**62, ())) if seed is None else int(seed)
        options = {**options, "temperature": asked.pop("temperature")}
    arguments = arguments_of("sample", WITHOUT_TARGETS, options, hidden.shape[:-1], temperatures)
    if not greedy:
        return _lists(head, {**arguments, **asked}, ("drawn_ids", "drawn_logps"), num_samples, dtype)
    ids, logps = _lists(head, {**arguments, **asked}, ("top_ids", "top_logps"), 1, dtype)
    return ids.repeat_interleave(num_samples, -1), logps.repeat_interleave(num_samples, -1)


def topk_union(a_ids: Tensor, b_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The union of each token's two lists, such as a student's own topk_logps and a teacher's.

    Equivalent to:
        pairs = zip(a_ids.tolist(), b_ids.tolist())
        unions = [[i for i in dict.fromkeys(a + b) if i >= 0] for a, b in pairs]
        ids, offsets = torch.tensor(sum(unions, [])), torch.tensor([0, *map(len, unions)]).cumsum(0)

    Args:
        a_ids (ids [..., A]): one list per token. Ids below 0 do not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        ids [E] and offsets [N + 1], int64, for ids and id_offsets= of id_logps() and the losses. Each id of a
        token appears once: first the ids of a_ids in their order, then the new ones of b_ids.

    Raises:
        ValueError: the leading axes differ.
        TypeError: an argument is not a tensor of integers.

    Example:
        >>> import torch, logitless.torch as lt
        >>> lt.topk_union(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 5], [4, 3]]))
        (tensor([1, 2, 5, 3, 4]), tensor([0, 3, 5]))
    """
    check_cpu(a_ids=a_ids, b_ids=b_ids)
    ids, offsets = topk_union_of_arrays(a_ids.numpy(), b_ids.numpy())
    return torch.from_numpy(ids), torch.from_numpy(offsets)
