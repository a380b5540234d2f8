# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of `logitless` that are drawn from its lists of arguments: values arrive through every type, stride and kind of
array, and what is refused names an argument and has written nothing."""

import inspect
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logitless
from call_reference import UNITS, Reference
from drawn_calls import calls, profile
from logitless.lora import LoraWeight

try:
    import torch
except ImportError:
    torch = None

FUNCTIONS = {task: (task, set(inspect.signature(getattr(logitless, task)).parameters)) for task in logitless._PLANS}
DTYPES = ["float32", "float64", "float16"] + ["bfloat16"] * (torch is not None)
OUTPUTS = ("d_hidden", "d_weight", "d_bias", "d_lora_a", "d_lora_b", "d_lora_states", "d_logits")


class Dlpack:
    """An array that speaks DLPack alone."""

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


# The forms of a matrix: rows of floats are contiguous, and a head may be transposed.
def laid_out(array, form, dtype):
    if form == "gap":
        wide = np.concatenate([array, np.full((*array.shape[:-1], 3), 7.0)], axis=-1)
        return of_type(wide, dtype)[..., : array.shape[-1]]
    if form == "time first" and array.ndim == 3:
        return of_type(array.swapaxes(0, 1), dtype).swapaxes(0, 1)
    if form == "columns" and array.ndim == 2:
        return of_type(array.T, dtype).T
    return of_type(array, dtype)


# The forms of every other array. Each is taken, or refused by its name.
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
    """A drawn call as arguments of a function."""

    def __init__(self, call, draw):
        self.call, self.draw = call, draw
        self.odd = set()  # arguments of unusual forms: the message of a refusal names one
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
        """[N, K] ids become [E] with offsets, or stay."""
        for begin, sets in (("id_", "ids"), ("kept_", "kept_ids")):
            plain = self.call.arrays
            if sets not in plain or not self.draw(st.booleans()):
                continue
            tokens, columns = plain[sets].shape
            counts = plain.get(f"{begin}counts", np.full(tokens, columns))
            taken = np.arange(columns) < counts[:, None]
            for name in (sets, "weights", "teacher_logps"):
                if plain.get(name, np.empty(0)).shape == (tokens, columns):
                    self.arguments[name] = self.in_some_form(name, plain[name][taken])
            self.entries = taken if self.call.task == "id_logps" else None
            self.arguments.pop(f"{begin}counts", None)
            self.arguments[f"{begin}offsets"] = np.concatenate([[0], np.cumsum(counts)])

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
            arguments.update({f"{prefix}packing": "int8", f"{prefix}scales": model.packed.scales})
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
        """Arrays for some of the gradients, that hold 1 before the call."""
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
        # That of finished logits is overwritten.
        self.accumulate = accumulate and bool(self.outputs) and not model.finished
        return {**self.outputs, **({"accumulate": True} if self.accumulate else {})}

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


def named_in(message, names):
    return [name for name in names if re.search(rf"(?<![\w.]){name}(?!\w)", message)]


def is_exact(call):
    return call.options.get("backward", "exact") == "exact"


def refusal_of(function):
    try:
        return function(), None
    except (ValueError, TypeError) as error:
        return None, error


def check_refusal(call, error, plain_error, given, unusual):
    """A message names an argument: where the plain call is taken, one of an unusual form, or an option of gradients."""
    text = str(error)
    names = given.keys() | FUNCTIONS[call.task][1] | unusual
    assert named_in(text, names), f"no argument is named: {error}"
    own = named_in(text, unusual | {"backward", "noise", "theta", "tolerance", "seed"}) or not is_exact(call)
    assert plain_error is not None or own, f"refused, and the plain call is not: {error}"


taken = {"yes": 0, "no": 0}


@profile(1000)
@given(call=calls(FUNCTIONS, DTYPES), data=st.data())
def check_calls(call, data):
    numpys = NumpyCall(call, data.draw)
    names = [] if call.task == "token_stats" else data.draw(st.lists(st.sampled_from(OUTPUTS), unique=True))
    outputs = numpys.add_outputs(names, data.draw(st.booleans()))
    context, set_options = some_context(data.draw)
    given = {**numpys.arguments, "context": context}
    if call.task != "id_logps":  # whose gradients another function computes
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
    taken["no" if error else "yes"] += 1
    if error is not None:
        check_refusal(call, error, plain_error, given, numpys.odd | set_options)
        return
    assert plain_error is None, f"taken, and the plain call is refused: {plain_error}"
    if hasattr(result, "plan"):
        assert logitless.plan(call.task, **given).kind == result.plan.kind

    if call.task == "id_logps" and numpys.outputs:
        upstream = np.random.default_rng(5).integers(-8, 9, result.logps.shape) / 8
        given.pop("dtype", None)
        more = {**outputs, "forward": result, "upstream": upstream}
        _, error = refusal_of(lambda: logitless.id_logps_backward(**given, **more))
        if error is not None:
            check_refusal(call, error, None, given, numpys.odd | set_options)
            return
        reference.upstream, reference.runs = upstream.ravel(), []
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
    taken.update(yes=0, no=0)
    check_calls()
    assert taken["yes"] > taken["no"] / 2  # a test of refusals alone proves nothing


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
