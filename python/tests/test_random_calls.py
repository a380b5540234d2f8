# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Every array argument of every function of `logitless`, with every kind of value that a caller may pass by mistake.

A call has three outcomes: the result of the same call with a plain array of the same values; a ValueError or TypeError
that names the argument as the caller wrote it, after which every output holds what it held before; anything else is a
failure.
"""

import inspect
import random
import re

import numpy as np
import pytest

import logitless

try:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError:
    torch = None

B, T, H, V, K, RANK = 2, 3, 4, 7, 2, 3
N = B * T
_random = np.random.default_rng(7)
_context = logitless.Context(threads=1)


def _eighths(*shape, low=-8, high=9, dtype=np.float32):
    """Numbers that every floating-point type holds exactly."""
    return (_random.integers(low, high, shape) / 8).astype(dtype)


def _logps(*shape):
    return _eighths(*shape, low=-20, high=-12)


def _ids(*shape, high=V):
    return _random.integers(0, high, shape)


def _distinct(rows, count):
    return np.stack([np.sort(_random.permutation(V)[:count]) for _ in range(rows)])


def _source(**more):
    return {"hidden": _eighths(B, T, H), "weight": _eighths(V, H), **more}


_OFFSETS = np.array([0, 2, 3, 3, 5, 6, 8])  # of N rows
_SENTINEL = 0.375


def _outputs(arguments, *names):
    """An output for each name, of the shape of what it is the gradient of."""
    entries = arguments.get("vocab_ids")
    for name in names:
        like = arguments[name.removeprefix("d_")]
        shape = list(like.shape)
        if entries is not None and name in ("d_weight", "d_bias"):
            shape[0] = len(entries)
        arguments[name] = np.full(shape, _SENTINEL, np.float32)
    return arguments


def _cases():
    """(label, function, arguments): together they have every array argument."""
    head = ("d_hidden", "d_weight", "d_bias")
    targets, bias, temperatures = _ids(B, T), _eighths(V), np.array([1, 2, 0.5, 1, 1.5, 2])
    token = dict(bias=bias, temperatures=temperatures)
    class_weights = _eighths(V, low=1)
    yield "plain", "cross_entropy", _outputs(_source(targets=targets, class_weights=class_weights, **token), *head)
    lora = dict(lora_a=_eighths(RANK, H), lora_b=_eighths(V, RANK))
    yield "lora", "cross_entropy", _outputs(_source(targets=targets, **lora), "d_hidden", "d_lora_a", "d_lora_b")
    states = dict(lora_states=_eighths(N, RANK), lora_b=lora["lora_b"])
    yield "lora_states", "cross_entropy", _outputs(_source(targets=targets, **states), "d_lora_states", "d_lora_b")
    chosen = _source(targets=_ids(B, T, high=5), bias=bias, vocab_ids=np.array([6, 1, 2, 5, 0]))
    yield "vocab_ids", "cross_entropy", _outputs(chosen, *head)
    flat = dict(hidden=_eighths(N, H), weight=_eighths(V, H), targets=_ids(N), offsets=np.array([0, 4, 6]), shift=1)
    yield "offsets", "cross_entropy", _outputs(flat, "d_hidden", "d_weight")
    packed = dict(weight=_random.integers(-9, 9, (V, H)).astype(np.int8), packing="int8", scales=_eighths(V, low=1))
    yield "packed", "cross_entropy", _outputs({**_source(targets=targets), **packed}, "d_hidden")
    logits = _eighths(B, T, V)
    yield "logits", "cross_entropy", _outputs(dict(logits=logits, targets=targets), "d_logits")

    mask = np.array([1, 1, 0, 1, 0, 1], np.uint8)
    policy = _source(chosen_ids=targets, advantages=_eighths(B, low=1), old_logps=_logps(N), ref_logps=_logps(N))
    policy.update(sampling_logps=_logps(N), mask=mask, **token, beta=0.125, sampler_correction="token_truncate")
    yield "plain", "policy_loss", _outputs({**policy}, *head)
    scores = _source(chosen_ids=targets, advantages=_eighths(B, low=1), scores=_eighths(B, low=1))
    scores.update(old_logps=_logps(N), positive_nll_weight=0.5)
    yield "scores", "policy_loss", _outputs(scores, "d_hidden")
    taught = _source(chosen_ids=targets, old_logps=_logps(N), teacher_logps=_logps(N), teacher_weight=1.0)
    yield "teacher", "policy_loss", _outputs({**taught, "advantages": _eighths(N)}, "d_hidden")
    kept = _distinct(N, K)
    sets = dict(kept_ids=kept, kept_counts=np.array([2, 2, 2, 2, 2, 2]), chosen_ids=kept[:, 0].reshape(B, T).copy())
    yield "kept", "policy_loss", _outputs({**_source(advantages=_eighths(B, low=1)), **sets}, "d_hidden")
    counted = dict(kept_ids=kept.ravel().copy(), kept_offsets=np.arange(N + 1) * K, chosen_ids=sets["chosen_ids"])
    yield "kept rows", "policy_loss", _outputs({**_source(advantages=_eighths(B, low=1)), **counted}, "d_weight")

    yield "logps", "preference_loss", _outputs(_source(targets=targets, ref_logps=_logps(B), **token), *head)
    other = dict(ref_hidden=_eighths(B, T, H), ref_weight=_eighths(V, H), ref_bias=_eighths(V))
    other.update(ref_lora_a=_eighths(RANK, H), ref_lora_b=_eighths(V, RANK))
    yield "head", "preference_loss", _outputs(_source(targets=targets, **other), "d_hidden", "d_weight")
    narrow = dict(ref_hidden=_eighths(B, T, H), ref_vocab_ids=np.array([6, 1, 2, 5, 0]))
    narrow.update(ref_weight=_random.integers(-9, 9, (V, H)).astype(np.int8), ref_packing="int8")
    narrow.update(ref_scales=_eighths(V, low=1), ref_lora_states=_eighths(N, RANK), ref_lora_b=_eighths(V, RANK))
    yield "packed", "preference_loss", _outputs({**chosen, **narrow}, "d_hidden")
    kto = _source(targets=targets, labels=np.array([1, 0], np.uint8), ref_logps=_logps(B), kl_logps=_logps(B))
    kto.update(kl_ref_logps=_logps(B), sequence_weights=_eighths(B, low=1))
    yield "kto", "kto_loss", _outputs(kto, "d_hidden", "d_weight")
    a2po = _source(targets=targets, ref_logps=_logps(B), reward_targets=_eighths(B), loss_type="a2po")
    yield "a2po", "kto_loss", _outputs(a2po, "d_hidden")

    ids, counts = _distinct(N, K), np.array([2, 1, 2, 0, 2, 2])
    rows = dict(ids=_ids(8), id_offsets=_OFFSETS)
    for row, begin in enumerate(_OFFSETS[:-1]):
        rows["ids"][begin : _OFFSETS[row + 1]] = np.arange(_OFFSETS[row + 1] - begin) + row % 3
    soft = _source(ids=ids, weights=_eighths(N, K, low=1), id_counts=counts, mask=mask, **token)
    yield "sparse", "soft_cross_entropy", _outputs(soft, *head)
    yield "rows", "soft_cross_entropy", _outputs(_source(weights=_eighths(8, low=1), **rows), "d_hidden")
    yield "dense", "soft_cross_entropy", _outputs(_source(probabilities=_eighths(N, V, low=0), mask=mask), "d_hidden")
    taught = _source(ids=ids, teacher_logps=_logps(N, K), id_counts=counts, targets=targets, **token)
    taught.update(teacher_outside_logps=_logps(N), outside="tail")
    yield "sparse", "set_distillation_loss", _outputs(taught, *head)
    yield "rows", "set_distillation_loss", _outputs(_source(teacher_logps=_logps(8), **rows), "d_hidden")
    teacher = dict(teacher_hidden=_eighths(B, T, H + 1), teacher_weight=_eighths(V, H + 1), teacher_bias=_eighths(V))
    teacher.update(teacher_lora_a=_eighths(RANK, H + 1), teacher_lora_b=_eighths(V, RANK))
    yield "head", "distillation_loss", _outputs(_source(targets=targets, **teacher, **token), *head)
    finished = dict(logits=logits, teacher_logits=_eighths(B, T, V), targets=targets)
    yield "logits", "distillation_loss", _outputs(finished, "d_logits")
    narrow = {name.replace("ref_", "teacher_"): array for name, array in narrow.items()}
    yield "packed", "distillation_loss", _outputs({**_source(vocab_ids=chosen["vocab_ids"]), **narrow}, "d_hidden")
    yield "padded", "id_logps", _source(ids=ids, id_counts=counts, **token)
    yield "rows", "id_logps", _source(**rows)
    backward = _source(ids=ids, id_counts=counts, upstream=_eighths(N, K, dtype=np.float64), bias=bias)
    yield "padded", "id_logps_backward", _outputs(backward, *head)
    asked = dict(cross=True, entropy=True, argmax=True, cross_weights=_eighths(V, low=1))
    yield "plain", "token_stats", _source(targets=targets, **token, **asked)
    for function in ("topk_union", "topk_overlap"):
        yield "plain", function, dict(a_ids=_distinct(N, K), b_ids=_distinct(N, 3))


CASES = [(label, function, arguments) for label, function, arguments in _cases()]
CASES += [("plan of " + label, "plan " + function, arguments) for label, function, arguments in _cases()
          if function in logitless._PLANS]


class Dlpack:
    """An array that speaks DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class RaisingDlpack:
    def __dlpack__(self, **arguments):
        raise RuntimeError("no memory to lend")

    def __dlpack_device__(self):
        return 1, 0


class OnlyArray:
    def __init__(self, array):
        self._array = array

    def __array__(self, *arguments, **keywords):
        return self._array


def _apart(array):
    """The same values, whose elements are twice as far apart along every axis."""
    memory = np.zeros([2 * n for n in array.shape], array.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def _backwards(array):
    axes = tuple(range(array.ndim))
    return np.flip(np.flip(array, axes).copy(), axes)


def _expanded(array):
    return np.lib.stride_tricks.as_strided(array.copy(), array.shape, (0,) + array.strides[1:])


def _misaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    out = np.frombuffer(memory, array.dtype).reshape(array.shape)
    out[...] = array
    return out


def _read_only(array):
    out = array.copy()
    out.flags.writeable = False
    return out


def _of_shape(array, shape):
    if shape == array.shape:
        raise ValueError("it has this shape")
    return array.reshape(shape).copy()


def _masked(array):
    return np.ma.masked_array(array.copy(), mask=[i == 0 for i in range(array.size)])


def _fake(array):
    with FakeTensorMode():
        return torch.empty(array.shape, dtype=torch.from_numpy(array).dtype)


DTYPES = ("int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool float16 float32 float64 longdouble complex64 "
          ">f4 >f8 >i4 >i8 object U5 datetime64[s]").split()

# Each makes a value from a plain array. The values are the same, in the same shape: the call works, or is refused.
SAME = {
    "apart": _apart,
    "backwards": _backwards,
    "of Fortran's order": np.asfortranarray,
    "expanded": _expanded,
    "misaligned": _misaligned,
    "read-only": _read_only,
    "DLPack": lambda array: Dlpack(array.copy()),
    "memoryview": lambda array: memoryview(array.copy()),
    "__array__": lambda array: OnlyArray(array.copy()),
    "matrix": lambda array: array.copy().view(np.matrix) if array.ndim == 2 else array.copy(),
    **{f"dtype {name}": lambda array, name=name: array.astype(name) for name in DTYPES},
}
# The call is refused, unless it gives the result of the plain array: a flat [B, T], for example.
SHAPES = {
    "flat": lambda array: array.ravel().copy(),
    "one axis more": lambda array: array[None].copy(),
    "one axis more at the end": lambda array: array[..., None].copy(),
    "three axes": lambda array: array.reshape(1, 1, -1).copy(),
    "list": lambda array: array.tolist(),
    "tuple": lambda array: tuple(array.tolist()),
}
# The call is refused, or is the one without the argument.
NOT_GIVEN = {"None": lambda array: None}
# The call is refused.
WRONG = {
    "no axis": lambda array: array.ravel()[0].reshape(()).copy(),
    "one element": lambda array: array.ravel()[:1].copy(),
    "transposed shape": lambda array: _of_shape(array, array.shape[::-1]),
    "a row less": lambda array: array[:-1].copy(),
    "a row more": lambda array: np.concatenate([array, array[:1]]),
    "a column less": lambda array: array[..., :-1].copy(),
    "a column more": lambda array: np.concatenate([array, array[..., :1]], axis=-1),
    "twice the rows": lambda array: np.concatenate([array, array]),
    "four axes": lambda array: array.reshape(1, 1, 1, -1).copy(),
    "empty": lambda array: array[:0].copy(),
    "empty, one axis": lambda array: np.empty(0, array.dtype),
    "empty, two axes": lambda array: np.empty((0, 0), array.dtype),
    "empty, three axes": lambda array: np.empty((0, 0, 0), array.dtype),
    "empty columns": lambda array: array[..., :0].copy(),
    "masked": _masked,
    "a DLPack that raises": lambda array: RaisingDlpack(),
    "str": lambda array: "abc",
    "bytes": lambda array: b"abc",
    "int": lambda array: 1,
    "bool": lambda array: True,
    "float": lambda array: 1.0,
    "dict": lambda array: {},
    "empty list": lambda array: [],
    "object": lambda array: object(),
    "class": lambda array: np.ndarray,
    "scalar of NumPy": lambda array: array.ravel()[0],
}
if torch is not None:
    SAME["PyTorch"] = lambda array: torch.from_numpy(array.copy())
    SAME["bfloat16"] = lambda array: torch.from_numpy(array.copy()).bfloat16()
    SAME["transposed tensor"] = lambda array: torch.from_numpy(array.T.copy()).permute(*range(array.ndim)[::-1])
    SAME["wants a gradient"] = lambda array: torch.from_numpy(array.copy()).float().requires_grad_()
    WRONG["empty tensor"] = lambda array: torch.from_numpy(array[:0].copy())
    WRONG["empty tensor, two axes"] = lambda array: torch.empty((0, 0), dtype=torch.from_numpy(array).dtype)
    WRONG["empty columns of a tensor"] = lambda array: torch.from_numpy(array.copy())[..., :0]
    WRONG["fake tensor"] = _fake
    WRONG["meta tensor"] = lambda array: torch.from_numpy(array.copy()).to("meta")
    WRONG["sparse tensor"] = lambda array: torch.from_numpy(array.copy()).to_sparse()
KINDS = {k: group for group, kinds in
         {"same": SAME, "shape": SHAPES, "not given": NOT_GIVEN, "wrong": WRONG}.items() for k in kinds}
MAKERS = {**SAME, **SHAPES, **NOT_GIVEN, **WRONG}

# Where another size is another call, and no mistake.
_FREE = {
    ("vocab_ids", "a row more"),
    ("teacher_vocab_ids", "a row more"),
    ("ref_vocab_ids", "a row more"),
    ("ref_vocab_ids", "a row less"),
    ("ref_vocab_ids", "twice the rows"),
    ("ids", "a column more"),
    ("kept_ids", "a column more"),
    ("weight", "a row more"),
    ("weight", "a row less"),
    ("weight", "twice the rows"),
    ("a_ids", "a column less"),
    ("b_ids", "a column less"),
    ("a_ids", "a column more"),
    ("b_ids", "a column more"),
    ("a_ids", "empty columns"),
    ("b_ids", "empty columns"),
    ("a_ids", "empty columns of a tensor"),
    ("b_ids", "empty columns of a tensor"),
}


# Names of the C++ structures.
_LIBRARYS = re.compile(
    r"(?<![\w.])(lm_head|lora\.|sets\.|kept\.|(teacher|reference)[.:]|hidden\.offsets"
    r"|targets\.(sets|rows|weights)|dlogits|backward\.|token\.|ranks\.)"
)


def array_names(arguments):
    return [name for name, value in arguments.items() if isinstance(value, np.ndarray)]


def is_output(name):
    return name.startswith("d_")


def fresh(arguments):
    """The arguments, with outputs that a call has not written."""
    return {n: np.full_like(v, _SENTINEL) if is_output(n) else v for n, v in arguments.items()}


def results_of(function, arguments):
    """All numbers that a call returns or writes."""
    if function.startswith("topk"):
        out = getattr(logitless, function)(**arguments)
        return [np.asarray(part) for part in (out if isinstance(out, tuple) else (out,))]
    given = {**arguments, "context": _context}
    if function.startswith("plan "):
        plan = logitless.plan(function[5:], **given)
        return [np.array([plan.tokens, plan.active_rows, plan.hidden_size, plan.vocab_size])]
    if function == "id_logps_backward":
        rest = {n: v for n, v in given.items() if n != "upstream" and not is_output(n)}
        given["forward"] = logitless.id_logps(**rest)
    out = getattr(logitless, function)(**given)
    values = []
    for field in ("loss", "per_token_loss", "per_token_logps", "sequence_losses", "logps", "logp", "cross", "entropy"):
        if getattr(out, field, None) is not None:
            values.append(np.asarray(getattr(out, field)))
    return values + [_numbers(v) for n, v in arguments.items() if is_output(n) and v is not None]


def _numbers(output):
    output = getattr(output, "_array", output)
    if torch is not None and isinstance(output, torch.Tensor):
        output = output.detach().double()
    return np.asarray(output).astype(np.float64)


def plain_of(name, kind, value, base):
    """A plain array of the same values, in the type that the argument has."""
    if KINDS[kind] == "shape":
        return base
    if kind == "expanded":
        return np.ascontiguousarray(value)
    if kind.startswith("dtype") and is_output(name):
        return base
    if kind.startswith("dtype"):
        return np.asarray(value).astype(base.dtype)
    if kind in ("wants a gradient", "bfloat16"):
        return value.detach().float().numpy().astype(base.dtype)
    return base


def alike(got, want):
    if len(got) != len(want):
        return False
    # Sixteen-bit tensors may be outputs.
    return all(a.size == b.size and np.allclose(a.ravel(), b.ravel(), 1e-2, 1e-2, True) for a, b in zip(got, want))


def unwritten(value, before):
    """Tells whether an output still holds what it held."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return np.array_equal(np.asarray(value), before)
    return True


def mistakes_of(function, arguments, changed):
    """What is wrong with the outcome of a call in which these arguments, {name: kind}, are changed: None, or a text.
    The second result is the outcome in a word."""
    try:
        values = {}
        for name, kind in changed.items():
            base = arguments[name]
            values[name] = MAKERS[kind](np.full_like(base, _SENTINEL) if is_output(name) else base)
    except (ValueError, TypeError, OverflowError, RuntimeError, NotImplementedError):
        return None, "no such value"
    given = {**fresh(arguments), **values}
    before = {n: np.array(v) for n, v in given.items() if is_output(n) and isinstance(v, np.ndarray)}
    call = f"{function}({', '.join(f'{n}: {k}' for n, k in changed.items())})"
    try:
        got = results_of(function, given)
    except (ValueError, TypeError) as error:
        written = [n for n, old in before.items() if not unwritten(given[n], old)]
        if written:
            return f"{call} has written {written}: {error}", "refused"
        # Where sizes do not go together, one of the two is named.
        sizes = any(KINDS[kind] != "same" for kind in changed.values())
        if not any(re.search(rf"(?<![\w.]){name}(?!\w)", str(error)) for name in (arguments if sizes else changed)):
            return f"{call} does not name it: {type(error).__name__}: {error}", "refused"
        if _LIBRARYS.search(str(error)):
            return f"{call} does not name it as the caller does: {error}", "refused"
        return None, "refused"
    except Exception as error:
        return f"{call}: {type(error).__name__}: {error}", "another error"
    wrong = [change for change in changed.items() if KINDS[change[1]] in ("shape", "wrong") and change not in _FREE]
    # Another call; two sizes that are wrong may go together, and without an argument that one would not go with.
    omitted = any(KINDS[kind] == "not given" for kind in changed.values())
    if any(change in _FREE for change in changed.items()) or len(wrong) > 1 or (wrong and omitted):
        return None, "taken"
    if any(KINDS[kind] == "wrong" for _, kind in wrong):
        return f"{call} is taken", "taken"
    plain = fresh(arguments)
    try:
        for name, kind in changed.items():
            if KINDS[kind] == "not given":
                del plain[name]
            elif not is_output(name):
                plain[name] = plain_of(name, kind, values[name], arguments[name])
        want = results_of(function, plain)
    except Exception as error:
        return f"{call} is taken, and its plain arrays are refused: {error}", "taken"
    if not alike(got, want):
        return f"{call} has another result than its plain arrays", "taken"
    return None, "taken"


def singles():
    for index, (_, function, arguments) in enumerate(CASES):
        for name in array_names(arguments):
            for kind in MAKERS:
                yield index, {name: kind}


def combinations(count, seed):
    chance = random.Random(seed)
    for _ in range(count):
        index = chance.randrange(len(CASES))
        names = array_names(CASES[index][2])
        chosen = chance.sample(names, min(len(names), chance.choice((2, 2, 3))))
        yield index, {name: chance.choice(list(MAKERS)) for name in chosen}


def failures_of(calls):
    outcomes = [mistakes_of(*CASES[index][1:], changed) for index, changed in calls]
    # A test that refuses or accepts everything proves nothing.
    assert {outcome for _, outcome in outcomes} >= {"refused", "taken"}
    return [mistake for mistake, _ in outcomes if mistake]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", ["same", "shape", "not given", "wrong"])
def test_every_array_argument_with_every_kind_of_value(group):
    calls = [call for call in singles() if {KINDS[kind] for kind in call[1].values()} == {group}]
    assert failures_of(calls) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_several_arguments_at_once(seed):
    assert failures_of(combinations(2000, seed)) == []


def test_the_calls_have_every_array_argument():
    """The arguments that are arrays, by the functions' signatures and the library's lists of options."""
    given = {name for _, _, arguments in CASES for name in array_names(arguments)}
    asked = set()
    for name in logitless.__all__:
        function = getattr(logitless, name)
        if inspect.isfunction(function):
            code = function.__code__  # its signature has the options, too
            asked |= set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    asked -= {"context", "dtype", "arguments", "forward", "task"}
    for structure in (*logitless._PLANS, "policy_loss.tensors", "kto_loss.tensors"):
        for name, field in logitless._core.fields(structure).items():
            if field["type"].endswith("array"):
                asked.add(name)
    assert asked >= {"temperatures", "class_weights", "kept_offsets", "labels", "upstream"}
    assert asked <= given
