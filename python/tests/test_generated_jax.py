# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of `logitless.jax` that are drawn from its signatures and the library's lists: values arrive through every type
and layout, eager and under jit, and gradients are those of the call."""

import dataclasses
import inspect
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax")

import jax.numpy as jnp  # noqa: E402
import logitless.jax as lj  # noqa: E402
from call_reference import UNITS, Reference  # noqa: E402
from drawn_calls import calls, lists_of, profile  # noqa: E402
from logitless import Context  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

TASKS = {"linear_cross_entropy": "cross_entropy", "token_logps": "token_stats", "topk_logps": "token_stats"}
OWN = {"context", "vocab_axis", "k", "layout", "teacher_layout"}  # drawn here; axes of devices have tests of their own
FUNCTIONS = {
    name: (TASKS.get(name, name), set(inspect.signature(getattr(lj, name)).parameters) - OWN) for name in lj.__all__
}
MODEL = {"hidden", "weight", "bias", "softcap", "vocab_ids", "logits"}
DTYPES = ["float32", "bfloat16", "float16"]
CALLS = calls(FUNCTIONS, DTYPES, few_shapes=True)


def test_every_argument_of_a_signature_is_drawn():
    for name, (task, taken) in FUNCTIONS.items():
        drawn = set().union(*lists_of(task)) | {prefix + one for prefix in ("", "teacher_") for one in MODEL}
        assert taken <= drawn, (name, taken - drawn)


class JaxCall:
    """A drawn call as arguments of a function of logitless.jax. `leaves` are those that it is differentiated by."""

    def __init__(self, call, draw):
        self.call, self.draw = call, draw
        self.leaves, lead = {}, call.lead
        if len(lead) == 2 and lead[0] % 2 == 0:
            lead = draw(st.sampled_from([lead, (2, lead[0] // 2, lead[1])]))
        self.lead = lead
        self.arguments = {name: self.value_of(name, value) for name, value in call.plain().items()}
        self.add_model(call.student, "")
        if call.other is not None:
            self.add_model(call.other, call.prefix)

    def value_of(self, name, value):
        if not isinstance(value, np.ndarray):
            return value
        shape = lists_of(self.call.task)[1][name]["shape"]
        if value.ndim == 2 and name != "targets":
            value = value.reshape(*self.lead, -1)
        elif shape != "[V]":
            value = value.reshape(self.lead)
        kinds = {"f": ["float32", "bfloat16", "float16"], "i": ["int32", "int16"], "b": ["bool", "uint8", "float32"]}
        value = jnp.asarray(value.astype(np.float32) if value.dtype.kind == "f" else value)
        return value.astype(self.draw(st.sampled_from(kinds["b" if value.dtype == bool else value.dtype.kind])))

    def leaf(self, name, array, dtype):
        array = jnp.asarray(array.astype(np.float32)).astype(dtype)
        if name and self.draw(st.booleans()):
            self.leaves[name] = array
        return array

    def add_model(self, model, prefix):
        call, arguments = self.call, self.arguments
        own = "" if prefix else "d_"
        hidden = model.hidden.reshape(*self.lead, -1)
        if model.finished:
            logits = (model.hidden @ model.whole.T).reshape(*self.lead, -1)
            arguments[f"{prefix}logits"] = self.leaf(None, logits, "float32")
            return
        arguments[f"{prefix}hidden"] = self.leaf(own and "d_hidden", hidden, call.dtype)
        turned = not model.packed and self.draw(st.booleans())
        if turned:
            arguments[f"{prefix}layout"] = "hidden_vocab"
        self.turned = turned if not prefix else self.turned
        weight = model.weight.T if turned else model.weight
        weight = (
            PackedWeight(jnp.asarray(model.packed.data), "int8", jnp.asarray(model.packed.scales))
            if model.packed
            else self.leaf(own and "d_weight", weight, call.head_dtype)
        )
        if model.a is not None:
            parts = [self.leaf(own and f"d_lora_{n}", getattr(model, n), call.head_dtype) for n in ("a", "b")]
            weight = LoraWeight(weight, *parts, model.scale)
        arguments[f"{prefix}weight"] = weight
        if model.bias is not None:
            arguments[f"{prefix}bias"] = self.leaf(own and "d_bias", model.bias, call.head_dtype)
        if model.vocab_ids is not None:
            arguments[f"{prefix}vocab_ids"] = jnp.asarray(model.vocab_ids.astype(np.int32))
        if model.softcap:
            arguments[f"{prefix}softcap"] = model.softcap

    def __call__(self, leaves, **more):
        """The results of the call with these arrays in place of its leaves."""
        given = {**self.arguments, **more}
        weight = given["weight"]
        parts = {f"d_lora_{n}": getattr(weight, n) for n in ("a", "b")} if isinstance(weight, LoraWeight) else {}
        parts["d_weight"] = weight.weight if parts else weight
        parts |= leaves
        if isinstance(weight, LoraWeight):
            parts["d_weight"] = LoraWeight(parts["d_weight"], parts["d_lora_a"], parts["d_lora_b"], weight.scale)
        given["weight"] = parts["d_weight"]
        given.update({name: leaves[f"d_{name}"] for name in ("hidden", "bias") if f"d_{name}" in leaves})
        result = getattr(lj, self.call.function)(**given)
        return result if isinstance(result, tuple) else (result,)


def of_reference(call, more):
    """The call whose columns are those that the function returns, and their names."""
    asked, arrays = {}, call.arrays
    names = ["per_token_loss" if call.options.get("reduction") == "none" else "loss"]
    if "k" in more:
        asked, names = {"top_k": more["k"]}, ["top_ids", "top_logps"]
        arrays = {**arrays, "targets": np.zeros(int(np.prod(call.lead)), np.int64)}
    elif call.task == "token_stats":
        asked, names = {"entropy": True}, ["logp", "entropy"]
    elif call.task == "id_logps":
        names = ["logps"]
    return dataclasses.replace(call, arrays=arrays, options={**call.options, **asked}), names


taken = {"yes": 0, "no": 0}


@profile(250)
@given(call=CALLS, data=st.data())
def check_calls(call, data):
    draw = data.draw
    if call.task == "cross_entropy" and call.options.get("reduction") == "none":
        call.options.pop("reduction")  # token_logps() has a number per token
    jaxs = JaxCall(call, draw)
    more = {"k": draw(st.integers(1, 4))} if call.function == "topk_logps" else {}
    if draw(st.booleans()):
        more["context"] = Context(threads=1, plan=draw(st.sampled_from(["auto", "two_pass"])))
    of_call, names = of_reference(call, more)
    without = call.task in ("token_stats", "id_logps")
    reference = Reference(of_call, None if without else 1.0)  # states of a LoRA are float32
    plain_error = error = None
    try:
        reference.run(0)
    except (ValueError, TypeError) as one:
        plain_error = one

    def run(leaves):
        results = jaxs(leaves, **more)
        return results if call.function != "topk_logps" else jax.lax.stop_gradient(results)

    compiled = jax.jit(run) if draw(st.booleans()) else run
    differentiated = jaxs.leaves and call.function != "topk_logps" and draw(st.booleans())
    exact, gradients = call.options.get("backward", "exact") == "exact", {}
    try:
        results, pull = jax.vjp(compiled, jaxs.leaves) if differentiated else (compiled(jaxs.leaves), None)
        results = jax.block_until_ready(results)
    except (ValueError, TypeError, RuntimeError) as one:
        error = one
    taken["no" if error else "yes"] += 1
    if error is not None:
        signature = inspect.signature(getattr(lj, call.function)).parameters
        named = [n for n in signature if re.search(rf"(?<![\w.]){n}(?!\w)", str(error))]
        assert named, f"no argument is named: {error}"
        of_backward = re.search(r"\b(backward|noise|theta|tolerance|seed)\b", str(error))
        assert plain_error is not None or of_backward or not exact, f"refused, and the plain call is not: {error}"
        return
    assert plain_error is None, f"taken, and the plain call is refused: {plain_error}"
    if pull is not None:
        random = np.random.default_rng(5)
        factors = [np.asarray(random.integers(-8, 9, part.shape) / 8) for part in results]
        reference.runs = []
        if call.task == "token_stats":
            reference.upstream = {name: factor.ravel() for name, factor in zip(names, factors)}
        else:
            reference.upstream = factors[0].ravel() if factors[0].ndim or call.task == "id_logps" else float(factors[0])
        try:
            (made,) = pull(tuple(jnp.asarray(factor, part.dtype) for factor, part in zip(factors, results)))
            jax.block_until_ready(made)
        except (ValueError, RuntimeError) as refused:
            assert not exact and "backward" in str(refused), refused
            return
        made = {n: np.asarray(v.astype(jnp.float32), np.float64) for n, v in made.items()}
        if jaxs.turned and "d_weight" in made:
            made["d_weight"] = made["d_weight"].T
        gradients = {n: (v, UNITS[str(jaxs.leaves[n].dtype)]) for n, v in made.items()}
    columns = {name: (np.asarray(part, np.float64), UNITS["float32"]) for name, part in zip(names, results)}
    fault = reference.fault(columns, gradients, whole=True, exact=exact)
    assert fault == "", fault


def test_calls_and_their_gradients_are_those_of_the_plain_call():
    taken.update(yes=0, no=0)
    check_calls()
    assert taken["yes"] > taken["no"] / 2  # a test of refusals alone proves nothing
