# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""A language model's LM head fused with its loss: exact loss and gradients, and no logits in memory.

Arrays come and go through DLPack or the buffer protocol (NumPy, PyTorch, JAX, ...). Floating-point arrays and outputs
are never copied. bfloat16 comes through DLPack: NumPy has none. Sums are float32, or float64 for float64 arrays. What
is refused is a ValueError that names the argument, the value and the rule, and has written nothing.

    import logitless
    result = logitless.cross_entropy(hidden, weight, targets, d_hidden=d_hidden, d_weight=d_weight)

`logitless.torch` has the same for PyTorch's autograd. help() of a function has every argument.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal, Optional

import numpy as np

from . import _core
from ._core import Plan, Workspace
from ._heads import with_weights
from ._results import IdLogps, Result, SetDistillationResult, SoftCrossEntropyResult, TokenStats
from ._signatures import Array, ArrayLike, Surface, WeightLike, arguments_of, describe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy import int64
    from numpy.typing import NDArray

__all__ = [
    "ArrayLike",
    "Context",
    "IdLogps",
    "Plan",
    "Result",
    "SetDistillationResult",
    "SoftCrossEntropyResult",
    "TokenStats",
    "WeightLike",
    "Workspace",
    "cross_entropy",
    "distillation_loss",
    "environment",
    "id_logps",
    "id_logps_backward",
    "kto_loss",
    "options",
    "plan",
    "policy_loss",
    "preference_loss",
    "set_distillation_loss",
    "soft_cross_entropy",
    "token_stats",
    "topk_overlap",
    "topk_union",
]

__version__ = _core.version()
Plan.__doc__ = """What a call runs, or has run: kind, such as "two_pass", tiles, threads, and memory in bytes. describe() says it in
one line. least_workspace_bytes is that of plan() alone; kept_share and the numbers after it belong to sampled and
certified gradients."""


class Context(_core.Context):
    """How calls run: immutable, and usable from several threads at once.

    Args:
        threads: of the OpenMP team; 0 follows OMP_NUM_THREADS.
        workspace_bytes: the upper bound of a call's workspace, 256 MiB by default.
        workspace: memory that calls use again, one call at a time; by default each call has its own.
        plan: "auto", "one_pass", "two_pass", or "expected_row" (for a head without gradients).
        row_tile: rows of a logits tile; 0: chosen from the shape.
        vocab_tile: columns of a logits tile; 0: chosen from the shape.
        row_block: rows of finished logits that a thread takes at once; 0: chosen.
        gemm_backend: the library of products: "auto" or one that this build has, such as "openblas" or "onednn".
        gradient_precision: "native", "split" or "float32", of dL/dlogits in bfloat16.
        simd_target: "auto", an instruction set of this CPU, such as "AVX2", or "plain".
        vocab_ranks: ranks that share the vocabulary (docs/parallel.md): an object with rank, size,
            all_gather(mine, all) and all_to_all(mine, theirs), which get NumPy arrays of bytes and fill the second.
        slices: sizes of the slices that this rank's vocabulary entries are cut into.
        own_d_hidden: each of vocab_ranks gets its own part of the sum of d_hidden.
        data_ranks: ranks that have parts of the batch; an object as vocab_ranks.
        sum_d_weight: the gradients of the head are summed over data_ranks.

    Raises:
        ValueError: an option is refused, or not available in this build or on this CPU.
        TypeError: an option is unknown, or of another type.

    Example:
        >>> import logitless
        >>> logitless.Context(threads=1, plan="two_pass").threads
        1
    """

    def __init__(
        self,
        *,
        threads: int = 0,
        workspace_bytes: int = 256 << 20,
        workspace: Workspace | None = None,
        plan: str = "auto",
        row_tile: int = 0,
        vocab_tile: int = 0,
        row_block: int = 0,
        gemm_backend: str = "auto",
        gradient_precision: str = "native",
        simd_target: str = "auto",
        vocab_ranks: Any = None,
        slices: list[int] | None = None,
        own_d_hidden: bool = False,
        data_ranks: Any = None,
        sum_d_weight: bool = False,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        options = dict(given)
        for name in ("vocab_ranks", "data_ranks"):
            if options[name] is not None:
                options[name] = _core.Communicator(options[name])
        super().__init__(options)
        # Calls use them for as long as the context lives.
        self._kept = (workspace, options["vocab_ranks"], options["data_ranks"])
        self._options = given
        self._made: Any = None  # contexts that logitless.torch has made for calls with context=

    def __reduce__(self) -> Any:
        return functools.partial(Context, **self._options), ()


_default: Context | None = None


def _context(given: Any) -> Context:
    """The context that a call was given, or that of calls that name none: made once, at the first of them."""
    global _default
    if given is None:
        if _default is None:
            _default = Context()
        return _default
    if not isinstance(given, Context):
        raise TypeError(f"context must be a logitless.Context, not {type(given).__name__}")
    return given


def _source(hidden: Any, weight: Any, arguments: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    """The arguments of a call of _core, which returns float32 without a dtype, or float64 for float64 arrays."""
    if hidden is not None:
        arguments["hidden"] = hidden
    if weight is not None:
        arguments["weight"] = weight
    if dtype is not None:
        arguments["dtype"] = _name_of(dtype)
    return with_weights(arguments)


def _name_of(dtype: Any) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype = {dtype!r} must be float32 or float64")
    return name


def cross_entropy(
    hidden: Any = None,
    weight: Any = None,
    targets: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> Result:
    """Cross-entropy of a head, with those gradients that have an array: d_hidden=, d_weight=, d_bias=.

    hidden is [N, H] or [B, T, H], weight [V, H] (one that is stored as [H, V] is given as weight.T, and d_weight as
    d_weight.T), targets integers of the same leading axes. logits= and d_logits= take the place of hidden and weight for
    finished logits. weight may be a PackedWeight (logitless.packed), here and in every other function, and so may a
    teacher's or a reference's; vocab_ids= chooses entries of the head. backward="sampled" (noise= or theta=, seed=) or "certified"
    (tolerance=) computes gradients of the parts of the vocabulary that matter.
    """
    given = _source(hidden, weight, {"targets": targets, **arguments}, dtype)
    return Result(**_core.cross_entropy(_context(context), given))


def policy_loss(
    hidden: Any = None,
    weight: Any = None,
    chosen_ids: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> Result:
    """A policy loss (loss_type="grpo", ...) of sampled tokens: advantages, old_logps, ref_logps, sampling_logps,
    teacher_logps, scores, mask. kept_ids, [E] with kept_offsets or [N, K] with or without kept_counts, are the token ids that the
    sampler kept: log-probabilities are then over these.
    """
    given = _source(hidden, weight, {"chosen_ids": chosen_ids, **arguments}, dtype)
    return Result(**_core.policy_loss(_context(context), given))


def preference_loss(
    hidden: Any = None,
    weight: Any = None,
    targets: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> Result:
    """A loss of pairs, loss_type=["sigmoid", ...] (loss_weights=[1.0, ...]): `hidden` holds the chosen sequences, then
    the rejected ones.

    The reference is ref_logps (a sequence or a token each), or ref_hidden, ref_weight and ref_bias.
    """
    given = _source(hidden, weight, {"targets": targets, **arguments}, dtype)
    return Result(**_core.preference_loss(_context(context), given))


def kto_loss(
    hidden: Any = None,
    weight: Any = None,
    targets: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> Result:
    """A loss of single sequences (loss_type="kto", "apo_zero_unpaired", "bco", "a2po") with labels= (bools, or 0 and
    1 of any type: 1 is desirable) and a reference as in preference_loss(); kl_logps and kl_ref_logps for kto,
    reward_targets for a2po, sequence_weights for all.
    """
    given = _source(hidden, weight, {"targets": targets, **arguments}, dtype)
    return Result(**_core.kto_loss(_context(context), given))


def soft_cross_entropy(
    hidden: Any = None,
    weight: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> SoftCrossEntropyResult:
    """Cross-entropy against a distribution a token. It is probabilities=, [N, V] of float32 (float64 for float64
    hidden states); or ids= with weights=, [N, K] or [E] with id_offsets= [N + 1], where weights of one id add up and
    id_counts= [N] may say how many of its K entries a row has. mask= (bools, or 0 and 1, [N] or
    [B, T]) leaves tokens out.
    """
    given = _source(hidden, weight, arguments, dtype)
    return SoftCrossEntropyResult(**_core.soft_cross_entropy(_context(context), given))


def set_distillation_loss(
    hidden: Any = None,
    weight: Any = None,
    ids: Any = None,
    teacher_logps: Any = None,
    targets: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> SetDistillationResult:
    """How far a student's distribution is from a teacher's, of which the log-probabilities teacher_logps at the token ids
    of each row are known: ids and teacher_logps are [N, K], with id_counts= [N] where rows have fewer, or [E] with
    id_offsets= [N + 1]. outside= says what becomes of the rest: "tail" (teacher_outside_logps= [N] has the teacher's,
    where it is known better than from teacher_logps), "truncated", "renormalised", "teacher_renormalised" or
    "generalised".

    targets, which may be left out, say which rows take part and what hard_weight= of cross-entropy is against.
    """
    arguments.update(ids=ids, teacher_logps=teacher_logps, targets=targets)
    given = _source(hidden, weight, arguments, dtype)
    return SetDistillationResult(**_core.set_distillation_loss(_context(context), given))


def id_logps(
    hidden: Any = None,
    weight: Any = None,
    ids: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> IdLogps:
    """Log-probabilities at any token ids of each row: ids [N, K], with id_counts= [N] where rows have fewer, or ids [E]
    with id_offsets= [N + 1]. normalise_over="vocabulary", or "set" for probabilities that sum to 1 over the row's ids,
    which reads nothing else of the head.
    """
    given = _source(hidden, weight, {"ids": ids, **arguments}, dtype)
    result, forward = _core.id_logps(_context(context), given)
    return IdLogps(result["logps"], result["plan"], forward)


def id_logps_backward(
    hidden: Any = None,
    weight: Any = None,
    ids: Any = None,
    *,
    forward: IdLogps,
    upstream: Any,
    context: Context | None = None,
    **arguments: Any,
) -> Plan:
    """Writes the gradients that have an array (d_hidden=, d_weight=, d_bias=, or d_logits=) from `upstream`."""
    if not isinstance(forward, IdLogps):
        raise TypeError(f"forward is a {type(forward).__name__}: it must be what id_logps() has returned")
    given = _source(hidden, weight, {"ids": ids, **arguments})
    if str(getattr(upstream, "dtype", None)).endswith("float32"):
        upstream = upstream.double() if hasattr(upstream, "double") else np.asarray(upstream, np.float64)
    return _core.id_logps_backward(_context(context), given, forward.forward, upstream)


def distillation_loss(
    hidden: Any = None,
    weight: Any = None,
    teacher_hidden: Any = None,
    teacher_weight: Any = None,
    targets: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> Result:
    """How far a student's distribution is from a teacher's (loss_type="forward_kl", "reverse_kl", "jsd", ...), from
    the hidden states and the head of each, over one vocabulary.

    teacher_bias, teacher_softcap and teacher_round_logits_to belong to the teacher's head; teacher_logits=,
    [B, T, V] or [N, V], takes the place of its states and head, and logits= with it that of the student's. targets, which
    may be left out, say which rows take part and what hard_weight= of cross-entropy is against. The
    teacher has no gradient.
    """
    arguments.update(teacher_hidden=teacher_hidden, teacher_weight=teacher_weight, targets=targets)
    given = _source(hidden, weight, arguments, dtype)
    return Result(**_core.distillation_loss(_context(context), given))


def token_stats(
    hidden: Any = None,
    weight: Any = None,
    targets: Any = None,
    *,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> TokenStats:
    """Statistics of every token: logp, lse, max_logit and log_sum, and with entropy=True, cross=True, argmax=True,
    rank=True, square_sum=True (the sum of p * p) or outside=True (log(1 - p) of the target, and what a backward pass
    needs for it) these as well.
    top_k=K gives top_ids and top_logps, [N, K]: the K largest logits of each token by falling logit, of equal ones the
    lower id first, with their log-probabilities (K up to 256; ids -1 behind the end of a smaller vocabulary). A target
    is the greedy choice where it is argmax.
    """
    arguments = _source(hidden, weight, {"targets": targets, **arguments}, dtype)
    columns, _ = _core.token_stats(_context(context), arguments)
    askable = ("entropy", "cross", "argmax", "rank", "outside", "square_sum")
    unasked = [name for name in askable if not arguments.get(name)]
    if "outside" in unasked:
        unasked.append("outside_max")
    top_k = arguments.get("top_k") or 0
    for name in ("top_ids", "top_logps"):
        if top_k:
            columns[name] = columns[name].reshape(-1, top_k)
        else:
            unasked.append(name)
    return TokenStats(**{name: column for name, column in columns.items() if name not in unasked})


def topk_overlap(a_ids: Any, b_ids: Any) -> NDArray[int64]:
    """How many ids each token's two lists share, such as two models' top_ids.

    Args:
        a_ids (ids [..., A]): one list per token, or nested lists of them. No id twice; ids below 0 do not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        int64 [...], a number per token.

    Raises:
        ValueError: the two have other leading axes, or an argument is refused.
        TypeError: an argument is not an array of integers.

    Example:
        >>> import numpy as np, logitless
        >>> logitless.topk_overlap(np.array([[1, 2], [3, 4]]), np.array([[2, 5], [4, 3]])).tolist()
        [1, 2]
    """
    a, b, lead = _lists(a_ids, b_ids)
    return _core.top_overlaps(a, b, math.prod(lead)).reshape(lead)


def topk_union(a_ids: Any, b_ids: Any) -> tuple[NDArray[int64], NDArray[int64]]:
    """The union of each token's two lists, such as a student's own top_ids and a teacher's.

    Args:
        a_ids (ids [..., A]): one list per token, or nested lists of them. Ids below 0 do not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        ids [E] and offsets [N + 1], int64, as ids= and id_offsets= of the losses. Each id of a token appears once, those
        of a_ids first, both in their order.

    Raises:
        ValueError: the two have other leading axes, or an argument is refused.
        TypeError: an argument is not an array of integers.

    Example:
        >>> import numpy as np, logitless
        >>> ids, offsets = logitless.topk_union(np.array([[1, 2], [3, 4]]), np.array([[2, 5], [4, 3]]))
        >>> ids.tolist(), offsets.tolist()
        ([1, 2, 5, 3, 4], [0, 3, 5])
    """
    a, b, lead = _lists(a_ids, b_ids)
    return _core.top_unions(a, b, math.prod(lead))


def _lists(a_ids: Any, b_ids: Any) -> tuple[NDArray[int64], NDArray[int64], tuple[int, ...]]:
    """Both flat, and the axes before the last that they share."""
    given = {"a_ids": a_ids, "b_ids": b_ids}
    a, b = (
        _core.token_ids(np.asarray(ids) if isinstance(ids, (list, tuple)) else ids, name)
        for name, ids in given.items()
    )
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"expected lists of as many tokens, got a_ids of shape {a.shape} and b_ids of shape {b.shape}")
    return a.reshape(-1), b.reshape(-1), a.shape[:-1]


_PLANS = {name[len("plan_") :]: made for name, made in vars(_core).items() if name.startswith("plan_")}


def plan(task: str, *, context: Context | None = None, **arguments: Any) -> Plan:
    """What a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: those of the function, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is refused, as the call would refuse it.
        TypeError: an argument is unknown, missing, or of another type.

    Example:
        >>> import numpy as np, logitless
        >>> hidden, weight = np.ones((6, 4), np.float32), np.ones((7, 4), np.float32)
        >>> logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=np.arange(6)).kind
        'forward_only'
    """
    function = _PLANS[_known(task, _PLANS)]
    given = _source(None, None, arguments, arguments.pop("dtype", None))
    return function(_context(context), given)


def options(task: str) -> dict[str, dict[str, Any]]:
    """The options of a function.

    Args:
        task: the name of a function as in plan(), or "context" or "backward" (whose mode is backward= of a call).

    Returns:
        A dict by name, of dicts: the option's type, default and range, its meaning in a sentence, its choices if it takes
        a name, and its shape if it is an array.

    Raises:
        ValueError: task is none of them.

    Example:
        >>> import logitless
        >>> logitless.options("cross_entropy")["reduction"]["choices"]
        ['mean', 'sum', 'none']
    """
    return _core.fields(_known(task, (*_PLANS, "context", "backward")))


def _known(task: str, tasks: Iterable[str]) -> str:
    if task in tasks:
        return task
    import difflib

    nearest = difflib.get_close_matches(str(task), tasks, n=1, cutoff=0.3)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"task = {task!r} is none of {', '.join(tasks)}{hint}")


def environment(context: Context | None = None) -> dict[str, Any]:
    """What runs: library, CPU, instruction set and BLAS.

    Args:
        context: whose threads, instruction set and BLAS are described; by default a shared one.

    Returns:
        A dict by name, as `logitless info` prints it.

    Raises:
        TypeError: context is not a Context.

    Example:
        >>> import logitless
        >>> logitless.environment()["threads"] > 0
        True
    """
    return _context(context).environment()


_ARGUMENTS = {
    "context": ("context", Optional[Context], None, "how the call runs; by default a shared one"),
    "dtype": (
        "dtype",
        Optional[Literal["float32", "float64"]],
        None,
        "of the returned arrays; by default float64 if hidden is, else float32",
    ),
    "forward": ("forward", IdLogps, None, "what id_logps() has returned for the same arguments"),
    "upstream": ("upstream", Array("float64 or float32", "as ids"), None, "the gradient of the loss in each of the logps"),
}
_NUMPY = Surface("numpy", ArrayLike, WeightLike, _ARGUMENTS)
for _task in (*_PLANS, "id_logps_backward"):
    _function = globals()[_task]
    _rows = arguments_of("id_logps", gradients=True) if _task == "id_logps_backward" else arguments_of(_task)
    describe(_function, _NUMPY, _rows, globals()[_function.__annotations__["return"]])
