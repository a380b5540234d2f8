# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of `logitless` drawn from its lists of arguments. Values arrive through every type, stride and kind
of array; a refusal names an argument and has written nothing."""

import re

import numpy as np
import pytest
from hypothesis import given

import logitless
from call_reference import UNITS, Reference
from drawn_calls import calls, profile, st
from drawn_checks import Outcomes, arguments_of, is_exact, named_in, offsets_of, refusal_of, sets_with_offsets, upstream_of
from logitless.lora import LoraWeight

try:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError:
    torch = None

FUNCTIONS = {task: (task, arguments_of(getattr(logitless, task))) for task in logitless._PLANS}
DTYPES = ["float32", "float64", "float16"] + ["bfloat16"] * (torch is not None)
OUTPUTS = ("d_hidden", "d_weight", "d_bias", "d_lora_a", "d_lora_b", "d_lora_states", "d_logits")


class Dlpack:
    """An array that only supports DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def of_type(array, dtype):
    """A contiguous copy."""
    if dtype == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array, np.float64)).bfloat16()
    return np.array(array, dtype, order="C")


def numbers(array):
    array = np.asarray(array.array) if isinstance(array, Dlpack) else array
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.detach().to(torch.float64 if array.is_floating_point() else array.dtype)
    return np.array(array)


def read_only(array):
    array.flags.writeable = False
    return array


def apart(array):
    memory = np.zeros([2 * n for n in array.shape], array.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


# The forms of a matrix. Rows of floats must be contiguous; a head may be transposed.
def laid_out(array, form, dtype):
    if form == "gap":
        wide = np.concatenate([array, np.full((*array.shape[:-1], 3), 7.0)], axis=-1)
        return of_type(wide, dtype)[..., : array.shape[-1]]
    if form == "time first" and array.ndim == 3:
        return of_type(array.swapaxes(0, 1), dtype).swapaxes(0, 1)
    if form == "columns" and array.ndim == 2:
        return of_type(array.T, dtype).T
    return of_type(array, dtype)


# The forms of all other arrays. Each is accepted, or refused by its name.
FORMS = {
    "plain": np.copy,
    "apart": apart,
    "backwards": lambda a: np.flip(np.flip(a).copy()),
    "Fortran": lambda a: np.array(a, order="F"),
    "read-only": lambda a: read_only(a.copy()),
    "DLPack": lambda a: Dlpack(a.copy()),
    "memoryview": lambda a: memoryview(a.copy()),
    "narrow": lambda a: a.astype({"f": np.float32, "i": np.int32, "b": np.uint8}[a.dtype.kind]),
    "narrower": lambda a: a.astype({"f": np.float16, "i": np.int16, "b": np.int64}[a.dtype.kind]),
    "unsigned": lambda a: a.astype(np.uint16) if a.dtype.kind == "i" and a.min(initial=0) >= 0 else a.copy(),
}
if torch is not None:
    FORMS["PyTorch"] = lambda a: torch.from_numpy(a.copy())
    FORMS["bfloat16"] = lambda a: torch.from_numpy(a.copy()).bfloat16() if a.dtype.kind == "f" else a.copy()


class NumpyCall:
    """A drawn call as arguments of a NumPy function."""

    def __init__(self, call, draw):
        self.call, self.draw = call, draw
        self.odd = set()  # names of arguments in unusual forms, which a refusal may name
        self.states = self.columns = False
        self.entries = None
        self.arguments = {}
        self.outputs = {}
        for name, value in call.plain().items():
            if not isinstance(value, np.ndarray):
                self.arguments[name] = value
                continue
            if name == "probabilities" and call.dtype != "float64":
                value = value.astype(np.float32)
            self.arguments[name] = self.in_some_form(name, value)
        self.as_rows_of_sets()
        self.add_model(call.student, "")
        if call.other is not None:
            self.add_model(call.other, call.prefix)
        if call.offsets is not None:
            self.arguments["offsets"] = self.in_some_form("offsets", call.offsets)

    def in_some_form(self, name, value):
        form = self.draw(st.sampled_from(["plain"] * 8 + list(FORMS)))
        if form != "plain":
            self.odd.add(name)
        return FORMS[form](value)

    def as_rows_of_sets(self):
        """Sometimes converts ids [N, K] to [E] with offsets."""
        for begin, taken, names in sets_with_offsets(self.call, self.draw):
            for name in names:
                self.arguments[name] = self.in_some_form(name, self.call.arrays[name][taken])
            self.entries = taken if self.call.task == "id_logps" else None
            self.arguments.pop(f"{begin}counts", None)
            self.arguments[f"{begin}offsets"] = offsets_of(taken)

    def add_model(self, model, prefix):
        call, arguments, lead = self.call, self.arguments, self.call.lead
        form = self.draw(st.sampled_from(["plain", "gap", "time first"]))
        hidden = model.hidden.reshape(*lead, -1)
        if model.finished:
            logits = (model.hidden @ model.whole.T).reshape(*lead, -1)
            dtype = call.dtype if call.dtype == "float64" else "float32"
            arguments[f"{prefix}logits"] = laid_out(logits, form, dtype)
            return
        arguments[f"{prefix}hidden"] = laid_out(hidden, form, call.dtype)
        form = self.draw(st.sampled_from(["plain", "gap", "columns"]))
        self.columns |= not prefix and form == "columns"
        weight = model.packed or laid_out(model.weight, form, call.head_dtype)
        if model.packed and self.draw(st.booleans()):
            weight = model.packed.data
            arguments.update({f"{prefix}packing": model.packed.packing, f"{prefix}scales": model.packed.scales})
        if model.a is not None:
            a, b = of_type(model.a, call.head_dtype), of_type(model.b, call.head_dtype)
            how = self.draw(st.sampled_from(["keywords", "LoraWeight", "states"]))
            if how == "LoraWeight" and not (model.packed and weight is model.packed.data):
                weight = LoraWeight(weight, a, b, model.scale)
            elif how == "states":
                states = model.scale * model.hidden @ model.a.T
                sums = "float64" if call.dtype == "float64" else "float32"
                arguments.update({f"{prefix}lora_states": of_type(states, sums), f"{prefix}lora_b": b})
                self.states |= not prefix
            else:
                arguments.update({f"{prefix}lora_a": a, f"{prefix}lora_b": b, f"{prefix}lora_scale": model.scale})
        arguments[f"{prefix}weight"] = weight
        if model.bias is not None:
            arguments[f"{prefix}bias"] = of_type(model.bias, call.head_dtype)
        if model.vocab_ids is not None:
            arguments[f"{prefix}vocab_ids"] = self.in_some_form(f"{prefix}vocab_ids", model.vocab_ids)
        if model.softcap:
            arguments[f"{prefix}softcap"] = model.softcap

    def add_outputs(self, names, accumulate):
        """Adds arrays for some of the gradients, filled with 1."""
        call, model = self.call, self.call.student
        entries, columns = model.whole.shape
        shapes = {"d_logits": (*call.lead, entries), "d_hidden": (*call.lead, columns)}
        shapes |= {"d_weight": (entries, columns), "d_bias": (entries,)}
        if model.a is not None:
            rank, tokens = len(model.a), int(np.prod(call.lead))
            shapes |= {"d_lora_a": (rank, columns), "d_lora_b": (entries, rank), "d_lora_states": (tokens, rank)}
        without = set(OUTPUTS) - {"d_logits"} if model.finished else {"d_logits"}
        without |= {"d_lora_a"} if self.states else {"d_lora_states"}
        without |= {"d_weight"} if model.packed else set()
        without |= {"d_bias"} if model.bias is None else set()
        for name in names:
            if name in without or name not in shapes:
                continue
            dtype = "float64" if call.dtype == "float64" else "float32"
            if name in ("d_hidden", "d_weight") and self.draw(st.booleans()):
                dtype = call.dtype if name == "d_hidden" else call.head_dtype
            like = self.draw(st.sampled_from(["plain", "gap"])) if len(shapes[name]) > 1 else "plain"
            like = "columns" if name == "d_weight" and self.columns else like
            self.outputs[name] = laid_out(np.ones(shapes[name]), like, dtype)
        # d_logits is always overwritten.
        self.accumulate = accumulate and bool(self.outputs) and not model.finished
        given = {**self.outputs, **({"accumulate": True} if self.accumulate else {})}
        if str(getattr(given.get("d_weight"), "dtype", "")) in ("float32", "float64") and self.draw(st.booleans()):
            given["weight_sink"] = self.sink_of(given.pop("d_weight"))
        return given

    def sink_of(self, whole):
        """A weight_sink that checks that it gets each row once, and stores the rows in the array."""
        seen = set()

        def sink(first, count, tile):
            rows = range(first, first + count)
            assert not seen & set(rows) and tile.shape == (count, whole.shape[1])
            seen.update(rows)
            whole[first : first + count] = tile + float(self.accumulate)

        return sink

    def unit_of_output(self, name):
        kind = str(self.outputs[name].dtype).removeprefix("torch.")
        return UNITS[kind]


def some_context(draw):
    """(context, its options)."""
    options = {
        "threads": draw(st.sampled_from([1, 2])),
        "plan": draw(st.sampled_from(["auto", "one_pass", "two_pass"])),
        "row_tile": draw(st.sampled_from([0, 1, 3])),
        "vocab_tile": draw(st.sampled_from([0, 1, 5])),
    }
    return logitless.Context(**options), set(options)


outcomes = Outcomes()


@profile(1000)
@given(call=calls(FUNCTIONS, DTYPES), data=st.data())
def check_calls(call, data):
    numpys = NumpyCall(call, data.draw)
    names = [] if call.task == "token_stats" else data.draw(st.lists(st.sampled_from(OUTPUTS), unique=True))
    outputs = numpys.add_outputs(names, data.draw(st.booleans()))
    context, set_options = some_context(data.draw)
    given = {**numpys.arguments, "context": context}
    if call.task != "id_logps":  # id_logps_backward() computes its gradients
        given |= outputs
    dtype = data.draw(st.sampled_from([None, "float32", "float64"]))
    if dtype is not None:
        given["dtype"] = dtype
    before = {n: numbers(v) for n, v in {**given, **outputs}.items() if hasattr(v, "shape") and not hasattr(v, "keywords")}

    reference = Reference(call)
    reference.states, reference.start = numpys.states, float(numpys.accumulate)
    reference.entries = numpys.entries
    _, plain_error = refusal_of(lambda: reference.run(0))
    result, error = refusal_of(lambda: getattr(logitless, call.task)(**given))
    for name, old in before.items():
        if error is not None or name not in outputs:
            assert np.array_equal(numbers({**given, **outputs}[name]), old, equal_nan=True), f"{name} was written: {error}"
    names = {*given, *FUNCTIONS[call.task][1], *numpys.odd, *set_options}
    if not outcomes.add(call, error, plain_error, names, numpys.odd | set_options):
        return
    if hasattr(result, "plan"):
        assert logitless.plan(call.task, **given).kind == result.plan.kind

    if call.task == "id_logps" and numpys.outputs:
        upstream, reference.upstream = upstream_of(call, {"logps": result.logps.shape})
        given.pop("dtype", None)
        more = {**outputs, "forward": result, "upstream": upstream["logps"]}
        _, error = refusal_of(lambda: logitless.id_logps_backward(**given, **more))
        if not outcomes.add(call, error, None, names, numpys.odd | set_options):
            return
        reference.runs = []
    kind = dtype or ("float64" if call.dtype == "float64" else "float32")
    floats = [v for v in vars(result).values() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    assert {str(v.dtype) for v in floats} <= {kind}
    unit = UNITS[kind]
    columns = {n: (v, unit) for n, v in vars(result).items() if isinstance(v, (float, np.ndarray))}
    columns.update({f"metrics.{n}": (v, 0) for n, v in getattr(result, "metrics", {}).items()})
    gradients = {n: (numbers(v) - numpys.accumulate, numpys.unit_of_output(n)) for n, v in numpys.outputs.items()}
    fault = reference.fault(columns, gradients, exact=is_exact(call))
    assert fault == "", fault


def test_calls_return_what_the_plain_call_does():
    outcomes.run(check_calls)


class Raising(Dlpack):
    def __dlpack__(self, **arguments):
        raise RuntimeError("no memory to lend")


# Mistaken values for an array argument.
MISTAKES = {
    "no axis": lambda a: a.ravel()[0].reshape(()).copy(),
    "four axes": lambda a: a.reshape(1, 1, 1, -1).copy(),
    "empty": lambda a: a[:0].copy(),
    "empty, one axis": lambda a: np.empty(0, a.dtype),
    "empty, three axes": lambda a: np.empty((0, 0, 0), a.dtype),
    "empty columns": lambda a: a[..., :0].copy(),
    "masked": lambda a: np.ma.masked_array(a.copy(), mask=np.ones(a.shape, bool)),
    "raising": Raising,
    "str": lambda a: "abc",
    "bytes": lambda a: b"abc",
    "int": lambda a: 1,
    "dict": lambda a: {},
    "empty list": lambda a: [],
    "object": lambda a: object(),
    "class": lambda a: np.ndarray,
    "scalar": lambda a: a.ravel()[0],
}
# Other sizes and types. The call is refused or has the same result, unless the size of the argument is free.
OTHERS = {
    "flat": np.ravel,
    "one axis more": lambda a: a[None].copy(),
    "transposed": lambda a: a.reshape(a.shape[::-1]).copy(),
    "a row less": lambda a: a[:-1].copy(),
    "a row more": lambda a: np.concatenate([a, a[:1]]),
    "a column less": lambda a: a[..., :-1].copy(),
    "a column more": lambda a: np.concatenate([a, a[..., :1]], axis=-1),
    "list": lambda a: a.tolist(),
    "objects": lambda a: a.astype(object),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "complex": lambda a: a.astype(np.complex64),
    "text": lambda a: a.astype("U5"),
}
if torch is not None:
    MISTAKES["meta"] = lambda a: torch.from_numpy(a.copy()).to("meta")
    MISTAKES["sparse"] = lambda a: torch.from_numpy(a.copy()).to_sparse()
    MISTAKES["fake"] = lambda a: FakeTensorMode().from_tensor(torch.from_numpy(a.copy()))
# Names of C++ members, which messages must not contain.
LIBRARYS = re.compile(
    r"(?<![\w.])(lm_head|lora\.|sets\.|kept\.|(teacher|reference)[.:]|hidden\.offsets"
    r"|targets\.(sets|rows|weights)|dlogits|backward\.|token\.|ranks\.)"
)


@profile(1500)
@given(call=calls(FUNCTIONS, ["float32"]), data=st.data())
def test_a_mistaken_array_is_refused_by_its_name(call, data):
    numpys = NumpyCall(call, data.draw)
    given = numpys.arguments | numpys.add_outputs([] if call.task in ("token_stats", "id_logps") else OUTPUTS, False)
    given.pop("weight_sink", None)
    planned = data.draw(st.booleans())

    def run(**more):
        arguments = {**given, **more}
        result = logitless.plan(call.task, **arguments) if planned else getattr(logitless, call.task)(**arguments)
        columns = [np.array(getattr(result, name, 0.0)) for name in ("loss", "logps", "logp", "vocab_size")]
        return columns + [numbers(array) for array in numpys.outputs.values()]

    plain, error = refusal_of(run)
    arrays = [name for name, value in given.items() if hasattr(value, "__dlpack__") or isinstance(value, memoryview)]
    name = data.draw(st.sampled_from(sorted(arrays)))
    how = data.draw(st.sampled_from([*MISTAKES, *OTHERS]))
    if error is not None or numbers(given[name]).size == 0:
        return
    wrong = {**MISTAKES, **OTHERS}[how](numbers(given[name]))
    written, what = [numbers(array) for array in numpys.outputs.values()], f"{name}, {how}"
    got, error = refusal_of(lambda: run(**{name: wrong}))
    if error is not None:
        assert isinstance(error, (ValueError, TypeError)), f"{what}: {error!r}"
        assert named_in(str(error), given) and not LIBRARYS.search(str(error)), f"{what}: {error!r}"
        assert all(np.array_equal(numbers(a), b, equal_nan=True) for a, b in zip(numpys.outputs.values(), written)), what
    elif not name.endswith(("weight", "ids")):
        assert how not in MISTAKES, f"{what} is taken"
        assert all(np.array_equal(one, other, equal_nan=True) for one, other in zip(got, plain)), f"{what}: another result"


@profile(200)
@given(call=calls(FUNCTIONS, ["float32"]), data=st.data())
def test_a_misspelt_argument_is_answered_with_a_name(call, data):
    given, _ = Reference(call).arguments(0)
    names = FUNCTIONS[call.task][1]
    name = data.draw(st.sampled_from(sorted(name for name in names if len(name) > 4)))
    at = data.draw(st.integers(1, len(name) - 1))
    wrong = name[:at] + name[at + 1 :]
    _, error = refusal_of(lambda: getattr(logitless, call.task)(**given))
    if wrong not in names and error is None:
        with pytest.raises(TypeError, match=rf"^{call.task} has no argument '{wrong}'; did you mean \w+\?$"):
            getattr(logitless, call.task)(**given, **{wrong: 1})
