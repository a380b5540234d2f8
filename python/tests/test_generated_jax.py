# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of `logitless.jax` drawn from its signatures and the library's lists. Values arrive through every
type and layout, eager and under jit, and gradients match the reference."""

import numpy as np
import pytest
from hypothesis import given

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax")

import jax.numpy as jnp  # noqa: E402
import logitless.jax as lj  # noqa: E402
from call_reference import UNITS, Reference  # noqa: E402
from drawn_calls import calls, lists_of, profile, st  # noqa: E402
from drawn_checks import (  # noqa: E402
    TASKS,
    Outcomes,
    arguments_of,
    check_arguments_are_drawn,
    is_exact,
    leading_axes,
    refusal_of,
    upstream_of,
    with_columns,
)
from logitless import Context  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

OWN = {"context", "vocab_axis", "k", "layout", "teacher_layout", "lse", "square_sum"}  # drawn here, or tested elsewhere (axes of devices)
FUNCTIONS = {name: (TASKS.get(name, name), arguments_of(getattr(lj, name)) - OWN) for name in lj.__all__ if name != "sample"}
CALLS = calls(FUNCTIONS, ["float32", "bfloat16", "float16", "float64"], few_shapes=True)


def test_every_argument_of_a_signature_is_drawn():
    check_arguments_are_drawn(FUNCTIONS)


def array_of(array, dtype):
    """Converted by NumPy, for which JAX would compile a program."""
    return jnp.asarray(array.astype(jnp.dtype(dtype)))


class JaxCall:
    """A drawn call as arguments of a logitless.jax function. `leaves` are the arrays to differentiate by."""

    def __init__(self, call, draw):
        self.call, self.draw = call, draw
        self.sums = "float64" if call.dtype == "float64" else "float32"
        self.leaves, self.lead = {}, leading_axes(call, draw)
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
        dtype = self.draw(st.sampled_from(kinds["b" if value.dtype == bool else value.dtype.kind]))
        return array_of(value.astype(np.float32) if value.dtype.kind == "f" else value, dtype)

    def leaf(self, name, array, dtype):
        array = array_of(array.astype(self.sums), dtype)
        if name and self.draw(st.booleans()):
            self.leaves[name] = array
        return array

    def add_model(self, model, prefix):
        call, arguments = self.call, self.arguments
        own = "" if prefix else "d_"
        hidden = model.hidden.reshape(*self.lead, -1)
        if model.finished:
            logits = (model.hidden @ model.whole.T).reshape(*self.lead, -1)
            arguments[f"{prefix}logits"] = self.leaf(None, logits, self.sums)
            return
        arguments[f"{prefix}hidden"] = self.leaf(own and "d_hidden", hidden, call.dtype)
        turned = not model.packed and self.draw(st.booleans())
        if turned:
            arguments[f"{prefix}layout"] = "hidden_vocab"
        self.turned = turned if not prefix else self.turned
        weight = model.weight.T if turned else model.weight
        if model.packed:
            parts = (None if x is None else jnp.asarray(x) for x in (model.packed.data, model.packed.scales))
            weight = PackedWeight(next(parts), model.packed.packing, next(parts))
        else:
            weight = self.leaf(own and "d_weight", weight, call.head_dtype)
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
        """The results of the call with these arrays as leaves."""
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


def names_of(call, more):
    """The names of the results of the function."""
    names = {"topk_logps": ["top_ids", "top_logps"], "id_logps": ["logps"]}
    names["token_logps"] = ["logp", "entropy", *(name for name in ("lse", "square_sum") if more.get(name))]
    loss = "per_token_loss" if call.options.get("reduction") == "none" else "loss"
    return names.get(call.function, [loss])


outcomes = Outcomes()


@profile(150)
@given(call=CALLS, data=st.data())
def check_calls(call, data):
    with jax.enable_x64(call.dtype == "float64"):
        check_call(call, data.draw)


def check_call(call, draw):
    if call.task == "cross_entropy" and call.options.get("reduction") == "none":
        call.options.pop("reduction")  # not supported: token_logps() has per-token values
    jaxs = JaxCall(call, draw)
    more = {"k": draw(st.integers(1, 4))} if call.function == "topk_logps" else {}
    if call.function == "token_logps":
        more = {name: draw(st.booleans()) for name in ("lse", "square_sum")}
    names = names_of(call, more)
    of_call = with_columns(call, more.get("k"), **{name: True for name in names if name in ("entropy", "square_sum")})
    if draw(st.booleans()):
        more["context"] = Context(threads=1, plan=draw(st.sampled_from(["auto", "two_pass"])))
    without_loss = call.task in ("token_stats", "id_logps")
    reference = Reference(of_call, None if without_loss else 1.0)  # a LoRA's states are float32: no rounding
    _, plain_error = refusal_of(lambda: reference.run(0))

    def run(leaves):
        results = jaxs(leaves, **more)
        return results if call.function != "topk_logps" else jax.lax.stop_gradient(results)

    compiled = jax.jit(run) if draw(st.booleans()) else run
    differentiated = jaxs.leaves and call.function != "topk_logps" and draw(st.booleans())

    def results_of():
        results, pull = jax.vjp(compiled, jaxs.leaves) if differentiated else (compiled(jaxs.leaves), None)
        return jax.block_until_ready(results), pull

    result, error = refusal_of(results_of)
    if not outcomes.add(call, error, plain_error, arguments_of(getattr(lj, call.function))):
        return
    results, pull = result
    gradients = {}
    if pull is not None:
        factors, reference.upstream = upstream_of(call, {n: part.shape for n, part in zip(names, results)})
        reference.runs = []
        upstream = tuple(jnp.asarray(factors[name], part.dtype) for name, part in zip(names, results))
        made, refused = refusal_of(lambda: jax.block_until_ready(pull(upstream)))
        if refused is not None:
            assert not is_exact(call) and "backward" in str(refused), refused
            return
        made = {n: np.asarray(v.astype(jaxs.sums), np.float64) for n, v in made[0].items()}
        if jaxs.turned and "d_weight" in made:
            made["d_weight"] = made["d_weight"].T
        gradients = {n: (v, UNITS[str(jaxs.leaves[n].dtype)]) for n, v in made.items()}
    assert {str(part.dtype) for part in results} <= {jaxs.sums, "int32"}
    columns = {name: (np.asarray(part, np.float64), UNITS[jaxs.sums]) for name, part in zip(names, results)}
    fault = reference.fault(columns, gradients, whole=True, exact=is_exact(call))
    assert fault == "", fault


def test_calls_and_their_gradients_are_those_of_the_plain_call():
    outcomes.run(check_calls)
