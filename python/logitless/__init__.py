# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""A language model's LM head fused with its loss: exact loss and gradients, and no logits in memory.

Arrays are passed through DLPack or the buffer protocol (NumPy, PyTorch, JAX, ...). Floating-point arrays and
outputs are never copied. NumPy has no bfloat16: pass it through DLPack. Sums are float32, or float64 for
float64 arrays. A ValueError names the argument, its value and the rule; the call has then written nothing.

    import logitless
    result = logitless.cross_entropy(hidden, weight, targets, d_hidden=d_hidden, d_weight=d_weight)

`logitless.torch` has the same functions for PyTorch's autograd. help() of a function lists every argument.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal, Optional

import numpy as np

from . import _core
from ._core import Plan, Workspace
from ._draws import DRAW_ARGUMENTS, SEED, draws_of, is_greedy
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
    "sample",
    "set_distillation_loss",
    "soft_cross_entropy",
    "token_stats",
    "topk_overlap",
    "topk_union",
]

__version__ = _core.version()
Plan.__doc__ = """How a call runs, or has run: its kind, such as "two_pass", its tiles, threads, and memory in bytes. describe()
returns it as one line. Only plan() sets least_workspace_bytes. kept_share and the members after it are for
sampled and certified gradients."""


class Context(_core.Context):
    """How calls run: immutable, and usable from several threads at once.

    Args:
        threads: size of the OpenMP team; 0 follows OMP_NUM_THREADS.
        workspace_bytes: upper bound of a call's workspace, 256 MiB by default.
        workspace: memory that calls reuse, one call at a time; by default each call allocates its own.
        plan: "auto", "one_pass", "two_pass", or "expected_row" (for a head without gradients).
        row_tile: rows of a logits tile; 0: chosen from the shape.
        vocab_tile: columns of a logits tile; 0: chosen from the shape.
        row_block: rows of finished logits that a thread processes at once; 0: chosen.
        gemm_backend: library for matrix products: "auto" or one of this build, such as "openblas" or
            "onednn".
        gradient_precision: "native", "split" or "float32", of dL/dlogits in bfloat16.
        simd_target: "auto", an instruction set of this CPU, such as "AVX2", or "plain".
        vocab_ranks: ranks that share the vocabulary (docs/parallel.md): an object with rank, size,
            all_gather(mine, all) and all_to_all(mine, theirs), which get NumPy arrays of bytes and fill the
            second.
        slices: sizes of the slices into which this rank's vocabulary entries are cut.
        own_d_hidden: each rank of vocab_ranks gets its own part of the sum of d_hidden.
        data_ranks: ranks that share the batch; an object like vocab_ranks.
        sum_d_weight: the gradients of the head are summed over data_ranks.

    Raises:
        ValueError: an option is invalid, or not available in this build or on this CPU.
        TypeError: an option is unknown or has the wrong type.

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
        # Kept alive: the C++ context only has pointers to them.
        self._kept = (workspace, options["vocab_ranks"], options["data_ranks"])
        self._options = given
        self._made: Any = None  # contexts that logitless.torch derives from this one for calls with context=

    def __reduce__(self) -> Any:
        return functools.partial(Context, **self._options), ()


_default: Context | None = None


def _context(given: Any) -> Context:
    """The given context, or the shared default, which is created on first use."""
    global _default
    if given is None:
        if _default is None:
            _default = Context()
        return _default
    if not isinstance(given, Context):
        raise TypeError(f"context must be a logitless.Context, not {type(given).__name__}")
    return given


def _source(hidden: Any, weight: Any, arguments: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    """Arguments for _core. Without a dtype it returns float32, or float64 for float64 arrays."""
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
    """Cross-entropy of a head. Gradients are written to the arrays given as d_hidden=, d_weight= and d_bias=.

    hidden is [N, H] or [B, T, H], weight is [V, H], and targets are integers with hidden's leading axes. For
    a weight stored as [H, V], pass weight.T and d_weight.T. For finished logits, pass logits= and d_logits=
    instead of hidden and weight. Here and in every other function, weight may be a PackedWeight
    (logitless.packed), and so may the weight of a teacher or reference; vocab_ids= selects entries of the
    head. backward="sampled" (with noise= or theta=, and seed=) or "certified" (with tolerance=) computes
    gradients from the parts of the vocabulary that matter.
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
    """Policy loss (loss_type="grpo", ...) of sampled tokens.

    kept_ids are the token ids that the sampler kept (top-k, top-p): [E] with kept_offsets, or [N, K] with or
    without kept_counts. Log-probabilities are then normalised over these ids.
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
    """Preference loss of pairs of sequences, such as DPO's: hidden holds the chosen sequences, then the
    rejected ones.

    loss_type is a name, or a list of names with loss_weights. The reference is given by ref_logps (one per
    sequence or per token), or by ref_hidden, ref_weight and ref_bias.
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
    """Loss of single sequences, each labelled desirable or not: loss_type="kto", "apo_zero_unpaired", "bco"
    or "a2po".

    labels are bools, or 0 and 1 of any type; 1 is desirable. The reference is given as in preference_loss().
    kl_logps and kl_ref_logps are for kto, reward_targets for a2po, sequence_weights for all.
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
    """Cross-entropy against a target distribution per token instead of a label.

    The targets are probabilities=, [N, V] of float32 (float64 for float64 hidden states), or ids= with
    weights=: both [N, K], with id_counts= [N] if rows have fewer than K entries, or [E] with id_offsets=
    [N + 1]. Weights of equal ids add up. mask=, bools or 0 and 1, [N] or [B, T], leaves tokens out.
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
    """Divergence of a student from a teacher whose log-probabilities are known at a set of token ids per row.

    ids and teacher_logps are [N, K], with id_counts= [N] if rows have fewer, or [E] with id_offsets= [N + 1].
    outside= selects how the remaining probability is treated: "tail", "truncated", "renormalised",
    "teacher_renormalised" or "generalised". For "tail", teacher_outside_logps= [N] may give the teacher's
    log-probability of the rest more accurately than teacher_logps does.

    targets are optional. They exclude ignored rows, and are the labels of the cross-entropy that hard_weight=
    adds.
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
    """Log-probabilities at any token ids of each row.

    ids are [N, K], with id_counts= [N] if rows have fewer, or [E] with id_offsets= [N + 1]. With
    normalise_over="set", instead of "vocabulary", probabilities sum to 1 over the row's ids, and only these
    rows of the head are read.
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
    """The backward half of id_logps(). Writes gradients to the arrays given as d_hidden=, d_weight=, d_bias=
    or d_logits=."""
    if not isinstance(forward, IdLogps):
        raise TypeError(f"forward is a {type(forward).__name__}: it must be the result of id_logps()")
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
    """Divergence of a student from a teacher over one vocabulary: loss_type="forward_kl", "reverse_kl",
    "jsd", ...

    Each model is given by hidden states and a head. teacher_bias, teacher_softcap and teacher_round_logits_to
    belong to the teacher's head. teacher_logits=, [N, V] or [B, T, V], replaces the teacher's states and
    head; logits= may then replace the student's. targets are optional: they exclude ignored rows, and are the
    labels of the cross-entropy that hard_weight= adds. The teacher has no gradient.
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
    """Per-token statistics: logp of the target, lse, max_logit (before the temperature), and log_sum (lse
    minus the largest final logit).

    entropy=True, cross=True, argmax=True, rank=True, square_sum=True (the sum of p * p) and outside=True
    (log(1 - p) of the target, and the maximum that its gradient needs) add these. top_k=K, up to 256, adds
    top_ids and top_logps, [N, K]: the ids of the K largest logits and their log-probabilities, sorted by
    descending logit; ties go to the lower id. If the vocabulary is smaller than K, the ids after its end are
    -1. A target is the greedy choice if it equals argmax. draws=D, up to 256, adds drawn_ids and drawn_logps,
    [N, D]: ids drawn from each token's distribution, and their log-probabilities. sample() returns only these.
    """
    arguments = _source(hidden, weight, {"targets": targets, **arguments}, dtype)
    columns, _ = _core.token_stats(_context(context), arguments)
    askable = ("entropy", "cross", "argmax", "rank", "outside", "square_sum")
    unasked = [name for name in askable if not arguments.get(name)]
    if "outside" in unasked:
        unasked.append("outside_max")
    for count, names in (("top_k", ("top_ids", "top_logps")), ("draws", ("drawn_ids", "drawn_logps"))):
        asked = arguments.get(count) or 0
        for name in names:
            if asked:
                columns[name] = columns[name].reshape(-1, asked)
            else:
                unasked.append(name)
    return TokenStats(**{name: column for name, column in columns.items() if name not in unasked})


def sample(
    hidden: Any = None,
    weight: Any = None,
    num_samples: int = 1,
    *,
    seed: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    context: Context | None = None,
    dtype: Any = None,
    **arguments: Any,
) -> tuple[NDArray[int64], NDArray[Any]]:
    """Token ids drawn from each row's distribution, independently and with replacement, and their
    log-probabilities: both [N, num_samples].

    The ids are exact draws from the softmax of the logits divided by the temperature. temperature=0 returns
    the most likely id, with its log-probability at temperature 1. top_k restricts the draws to the top_k
    largest logits of a row, and top_p < 1 to the fewest most likely of these that together have top_p of
    their probability; top_p needs top_k. The log-probabilities are always those among all ids. A row with a
    NaN has -1 and NaN. A draw depends on the seed, the row's position and its logits, not on threads, plan or
    slices. So use another seed for each call.
    """
    asked = draws_of(num_samples, temperature, arguments.get("temperatures"), top_k, top_p)
    if not is_greedy(asked):
        asked["draw_seed"] = seed
    if arguments.get("targets") is not None:
        raise TypeError("sample has no argument 'targets': every row is drawn")
    rows = arguments.get("logits") if hidden is None else hidden
    # Any valid ids, so that no row is ignored.
    targets = None if rows is None else np.zeros(tuple(rows.shape)[:-1], np.int64)
    stats = token_stats(hidden, weight, targets, context=context, dtype=dtype, **arguments, **asked)
    if not is_greedy(asked):
        return stats.drawn_ids, stats.drawn_logps
    return np.repeat(stats.top_ids, num_samples, axis=1), np.repeat(stats.top_logps, num_samples, axis=1)


def topk_overlap(a_ids: Any, b_ids: Any) -> NDArray[int64]:
    """The number of ids that each token's two lists share, such as two models' top_ids.

    Equivalent to:
        same = (a_ids[..., :, None] == b_ids[..., None, :]) & (a_ids[..., None] >= 0)
        overlap = same.any(-1).sum(-1)

    Args:
        a_ids (ids [..., A]): one list per token; nested Python lists are allowed. No id twice; ids below 0 do
            not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        int64 [...], one number per token.

    Raises:
        ValueError: the leading axes differ, or an argument is invalid.
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

    Equivalent to:
        pairs = zip(a_ids.tolist(), b_ids.tolist())
        unions = [[i for i in dict.fromkeys(a + b) if i >= 0] for a, b in pairs]
        ids, offsets = np.concatenate(unions), np.cumsum([0, *map(len, unions)])

    Args:
        a_ids (ids [..., A]): one list per token; nested Python lists are allowed. Ids below 0 do not count.
        b_ids (ids [..., B]): the other list of each token.

    Returns:
        ids [E] and offsets [N + 1], int64, for ids= and id_offsets= of the losses. Each id of a token appears
        once: first the ids of a_ids in their order, then the new ones of b_ids.

    Raises:
        ValueError: the leading axes differ, or an argument is invalid.
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
    """Both as flat arrays, and their common leading axes."""
    given = {"a_ids": a_ids, "b_ids": b_ids}
    a, b = (
        _core.token_ids(np.asarray(ids) if isinstance(ids, (list, tuple)) else ids, name)
        for name, ids in given.items()
    )
    if a.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"a_ids has shape {a.shape} and b_ids {b.shape}: their leading axes must be equal")
    return a.reshape(-1), b.reshape(-1), a.shape[:-1]


_PLANS = {name[len("plan_") :]: made for name, made in vars(_core).items() if name.startswith("plan_")}


def plan(task: str, *, context: Context | None = None, **arguments: Any) -> Plan:
    """How a call would run, and the memory that it would take. Nothing is computed.

    Args:
        task: the name of a function, such as "cross_entropy".
        context: how the call would run; by default a shared one.
        **arguments: the function's arguments, all by name.

    Returns:
        Plan: see help(logitless.Plan).

    Raises:
        ValueError: an argument is invalid, as in the call itself.
        TypeError: an argument is unknown, missing, or has the wrong type.

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
        task: the name of a function as in plan(), "context", or "backward". Its option "mode" is backward= of
            a call.

    Returns:
        {name: description}. A description is a dict with the option's type, default, range and meaning; with
        its choices if it takes a name, and its shape if it is an array.

    Raises:
        ValueError: task is unknown.

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
    """A description of the library, the CPU, the instruction set and the BLAS in use.

    Args:
        context: the context whose threads, instruction set and BLAS are described; by default a shared one.

    Returns:
        A dict with the output of `logitless info`.

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
    "forward": ("forward", IdLogps, None, "the result of id_logps() for the same arguments"),
    "upstream": ("upstream", Array("float64 or float32", "as ids"), None, "the gradient of the loss with respect to logps"),
}
_NUMPY = Surface("numpy", ArrayLike, WeightLike, _ARGUMENTS)
for _task in (*_PLANS, "id_logps_backward"):
    _function = globals()[_task]
    _rows = arguments_of("id_logps", gradients=True) if _task == "id_logps_backward" else arguments_of(_task)
    describe(_function, _NUMPY, _rows, globals()[_function.__annotations__["return"]])
_rows = arguments_of("token_stats") | DRAW_ARGUMENTS
_left_out = {*_core.fields("token_stats"), *_core.fields("token_stats.tensors"), *DRAW_ARGUMENTS} - set(_core.fields("token"))
_left_out |= {"ignore_index", "shift"}
describe(sample, _NUMPY, _rows, tuple, [name for name in _rows if name not in _left_out], SEED)
