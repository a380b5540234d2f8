# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""LoRA and packed heads of logitless.jax as pytrees under JAX's transformations, frozen arrays, and messages.
test_generated_jax.py draws values and gradients."""

import math
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402
from jax.extend.core import jaxprs_in_params  # noqa: E402

from logitless.jax import (  # noqa: E402
    distillation_loss,
    id_logps,
    linear_cross_entropy,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
)
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

H, V, K, R, SCALE = 32, 90, 30, 3, 1.5
LEAD = (3, 4)
random = np.random.default_rng(11)


def floats(*shape):
    return jnp.asarray(random.standard_normal(shape), jnp.float32)


HIDDEN, WEIGHT, A, B, BIAS = floats(*LEAD, H), floats(V, H) / 4, floats(R, H) / 8, floats(V, R), floats(V)
TEACHER_HIDDEN, TEACHER_WEIGHT = floats(*LEAD, H + 2), floats(V, H + 2) / 4
IDS = jnp.asarray(random.permutation(V)[:K], jnp.int32)
TARGETS = jnp.asarray(random.integers(0, K, LEAD), jnp.int32).at[1, 2].set(-100)
SETS = jnp.asarray([[random.permutation(K)[:5] for _ in range(LEAD[1])] for _ in range(LEAD[0])], jnp.int32)
SHARES = jnp.asarray(random.dirichlet(np.ones(5), LEAD), jnp.float32) * 0.8
NUMBERS = random.integers(-127, 128, (V, H)).astype(np.int8)
SCALES = random.uniform(0.001, 0.005, (V, 2)).astype(np.float32)
PACKED = PackedWeight(NUMBERS, "int8", SCALES)
LOSSES = {
    "cross_entropy": lambda x, w, **more: linear_cross_entropy(x, w, TARGETS, **more),
    "token_logps": lambda x, w, **more: sum(column.sum() for column in token_logps(x, w, TARGETS, **more)),
    "soft": lambda x, w, **more: soft_cross_entropy(x, w, ids=SETS, weights=SHARES, **more),
    "id_logps": lambda x, w, **more: id_logps(x, w, SETS, **more).sum(),
    "set_distillation": lambda x, w, **more: set_distillation_loss(x, w, SETS, jnp.log(SHARES), **more),
    "distillation": lambda x, w, **more: distillation_loss(
        x, w, TEACHER_HIDDEN, TEACHER_WEIGHT, teacher_vocab_ids=more.get("vocab_ids"), **more
    ),
}


def check(got, want, bound=1e-5):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        np.testing.assert_allclose(one, other, atol=bound, rtol=bound)


def of_lora(x, w, a, b, **more):
    return linear_cross_entropy(x, LoraWeight(w, a, b, SCALE), TARGETS, **more)


def test_an_argument_of_jit_and_grad():
    """A LoraWeight is a pytree of weight, a and b; its scale is static."""
    lora = LoraWeight(WEIGHT, A, B, SCALE)
    loss, grads = jax.jit(jax.value_and_grad(lambda w: linear_cross_entropy(HIDDEN, w, TARGETS)))(lora)
    want = jax.value_and_grad(of_lora, (1, 2, 3))(HIDDEN, WEIGHT, A, B)
    assert isinstance(grads, LoraWeight) and grads.scale == SCALE
    check((loss, grads.weight, grads.a, grads.b), want)
    stepped = jax.tree.map(lambda x, g: x - g, lora, grads)
    np.testing.assert_array_equal(stepped.a, A - grads.a)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(lora)]
    assert names == [".weight", ".a", ".b"]


def test_vmap():
    """Over several adapters of one weight, and over sequences."""

    def ours(x, a, b, y):
        return linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), y)

    def stacked(parts):
        return jax.tree.map(lambda *one: np.stack(one), *parts)

    many = jnp.stack([A, 2 * A]), jnp.stack([B, -B])
    each = jax.grad(lambda a, b: jax.vmap(ours, (None, 0, 0, None))(HIDDEN, a, b, TARGETS).sum(), (0, 1))(*many)
    check(each, stacked(jax.grad(ours, (1, 2))(HIDDEN, a, b, TARGETS) for a, b in zip(*many)))
    each = jax.vmap(lambda x, y: linear_cross_entropy(x, PACKED, y, vocab_ids=IDS))(HIDDEN, TARGETS)
    check(each, stacked(linear_cross_entropy(x, PACKED, y, vocab_ids=IDS) for x, y in zip(HIDDEN, TARGETS)), 0)


def test_dropout_and_a_scale_that_is_learned():
    """Dropout applies to the hidden states that a multiplies, but not to those that the weight multiplies."""
    kept = jax.random.bernoulli(jax.random.key(3), 0.5, HIDDEN.shape)

    def dropped(x):
        return jnp.where(kept, 2 * x, 0)

    def ours(x, a, b, scale):
        return linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, scale, dropped), TARGETS)

    def reference(x, a, b, scale):
        logps = jax.nn.log_softmax(x @ WEIGHT.T + scale * (dropped(x) @ a.T) @ b.T)
        taken = TARGETS >= 0
        return -(jnp.take_along_axis(logps, jnp.maximum(TARGETS, 0)[..., None], -1)[..., 0] * taken).sum() / taken.sum()

    tensors = HIDDEN, A, B, jnp.float32(SCALE)
    got, want = (jax.jit(jax.value_and_grad(f, (0, 1, 2, 3)))(*tensors) for f in (ours, reference))
    check(got, want, 2e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "token_logps"])
def test_one_compiled_function_differentiated_by_one_argument_after_another(name):
    loss = jax.jit(lambda x, w, a, b, bias: LOSSES[name](x, LoraWeight(w, a, b), bias=bias, vocab_ids=IDS))
    tensors = HIDDEN, WEIGHT, A, B, BIAS
    every = jax.grad(loss, range(5))(*tensors)
    for wanted in ((0,), (1,), (2, 3), (0, 4), (0,), (2, 3), (1,)):
        check(jax.grad(loss, wanted)(*tensors), [every[i] for i in wanted])


def largest(jaxpr, only=None):
    """The size of the largest array that the equations of a jaxpr compute; `only` restricts it to one
    primitive."""
    sizes = [0]
    for equation in jaxpr.eqns:
        if only in (None, equation.primitive.name):
            sizes += [math.prod(out.aval.shape) for out in equation.outvars]
        sizes += [largest(inside, only) for inside in jaxprs_in_params(equation.params)]
    return max(sizes)


@pytest.mark.parametrize("name", LOSSES)
def test_a_frozen_weight_has_no_gradient_in_memory(name):
    """A frozen weight costs no memory for its gradient, with or without a LoRA, however it is frozen."""

    def with_lora(x, w, a, b):
        return LOSSES[name](x, LoraWeight(w, a, b, SCALE))

    def bare(x, w):
        return LOSSES[name](x, w)

    def largest_of(step, *tensors, only=None):
        return largest(jax.make_jaxpr(step)(*tensors).jaxpr, only)

    for weight in (WEIGHT, PACKED):
        step = jax.value_and_grad(with_lora, (0, 2, 3))
        for run in (step, jax.value_and_grad(jax.jit(with_lora), (0, 2, 3))):
            assert largest_of(run, HIDDEN, weight, A, B, only="ffi_call") < V * H
        assert largest_of(jax.grad(bare), HIDDEN, weight, only="ffi_call") < V * H
    closed_over = jax.grad(lambda a, b: with_lora(HIDDEN, WEIGHT, a, b), (0, 1))
    assert largest_of(closed_over, A, B, only="ffi_call") < V * H
    if name != "distillation":  # distillation applies stop_gradient to the teacher's weight, which does not copy it
        assert largest_of(closed_over, A, B) < V * H
    stopped = jax.grad(lambda w, a: with_lora(HIDDEN, jax.lax.stop_gradient(w), a, B), (0, 1))
    assert largest_of(stopped, WEIGHT, A, only="ffi_call") < V * H
    assert largest_of(jax.grad(with_lora, (0, 1)), HIDDEN, WEIGHT, A, B, only="ffi_call") == V * H
    assert largest_of(jax.grad(bare, 1), HIDDEN, WEIGHT, only="ffi_call") == V * H


@pytest.mark.parametrize(
    "change, message",
    [
        ({"a": A[:, :7]}, "^a has 7 columns but weight has 32$"),
        ({"b": B[:, :2]}, r"^b has shape \(90, 2\): it must be \(90, 3\) for this weight and a$"),
        ({"b": None}, "^b is None: it must be a tensor of 2 axes$"),
        ({"a": jnp.ones((R, H), jnp.int32)}, "^weight.a is int32: it must be float32, bfloat16, float16 or f"),
        ({"b": jnp.ones((V, R), jnp.float8_e5m2)}, "^weight.b is float8_e5m2: it must be float32, "),
        ({"hidden": HIDDEN[..., :6]}, "^weight.a has 32 columns but hidden has 6\n?"),
        ({"backward": "sampled", "noise": 0.01}, "the noise of its gradients is not estimated: give theta"),
        ({"teacher_hidden": TEACHER_HIDDEN}, "^teacher_weight.a has 32 columns but teacher_hidden has 34$"),
    ],
)
def test_says_what_is_wrong_of_a_lora(change, message):
    given = {"hidden": HIDDEN, "weight": WEIGHT, "a": A, "b": B, **change}
    hidden, *parts = (given.pop(name) for name in ("hidden", "weight", "a", "b"))
    with pytest.raises(Exception, match=message):
        lora = LoraWeight(*parts)
        if "teacher_hidden" in given:
            distillation_loss(hidden, WEIGHT, **given, teacher_weight=lora)
        jax.block_until_ready(jax.grad(lambda x: linear_cross_entropy(x, lora, TARGETS, **given))(hidden))


def test_a_tree_of_other_arrays():
    """JAX also builds pytrees of non-arrays, and of arrays of other shapes and types."""
    lora = LoraWeight(WEIGHT, A, B)
    assert jax.tree.map(lambda x: x.shape, lora).b == (V, R)
    with pytest.raises(ValueError, match=r"^b has shape \(89, 3\): it must be \(90, 3\)"):
        linear_cross_entropy(HIDDEN, jax.tree.map(lambda x: x[1:] if x is B else x, lora), TARGETS)
    with jax.enable_x64(True), pytest.raises(ValueError, match="^weight.b is float32, and hidden is float64: both or neither"):
        of_lora(*(jnp.asarray(np.asarray(x, np.float64)) for x in (HIDDEN, WEIGHT, A)), B)


@pytest.mark.parametrize(
    "weight, options, message",
    [
        (PackedWeight(NUMBERS, "q9"), {}, "^packing = 'q9' is none of int8, q8_0, "),
        (PackedWeight(NUMBERS[0], "int8"), {}, r"^data has shape \[32\]: it must have 2 axes$"),
        (PackedWeight(NUMBERS, "int8"), {}, "scales is null, but int8 needs them"),
        (PackedWeight(NUMBERS.view(np.uint8), "int8", SCALES), {}, "^weight.data is uint8: with packing = 'int8' it must"),
        (PackedWeight(NUMBERS, "int8", SCALES.astype(np.float64)), {}, "^weight.scales is float64: it must be float32$"),
        (PackedWeight(NUMBERS, "int8", SCALES[:5]), {}, r"^weight.scales has shape \(5, 2\): for each of the 90 rows it"),
        (NUMBERS, {}, r"^weight is int8 of shape \(90, 32\): it must have 2 axes of floats, or be a Packed"),
        (WEIGHT, {"vocab_ids": SHARES}, "^vocab_ids is float32: token ids are integers$"),
        (WEIGHT, {"vocab_ids": IDS + V}, r"vocab_ids\[0\] = \d+ is outside \[0, 90\)"),
    ],
)
def test_says_what_is_wrong(weight, options, message):
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(linear_cross_entropy(HIDDEN, weight, TARGETS, **options))


def test_without_pytorch():
    """A LoraWeight does not need PyTorch."""
    program = """
import sys
sys.modules["torch"] = None
import numpy as np, logitless
from logitless.jax import linear_cross_entropy
from logitless.lora import LoraWeight
x, w, a, b = (np.ones(shape, np.float32) for shape in ((2, 4), (5, 4), (1, 4), (5, 1)))
lora, y = LoraWeight(w, a, b, 0.5), np.array([1, 2])
assert np.isclose(linear_cross_entropy(x, lora, y), np.log(5)) and np.isclose(logitless.cross_entropy(x, lora, y).loss, np.log(5))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    lora = LoraWeight(*(torch.tensor(np.asarray(x)) for x in (WEIGHT, A, B)), SCALE)
    np.testing.assert_array_equal(linear_cross_entropy(HIDDEN, lora, TARGETS), of_lora(HIDDEN, WEIGHT, A, B))
    tensors = PackedWeight(torch.tensor(PACKED.data), "int8", torch.tensor(PACKED.scales))
    assert repr(tensors) == repr(PACKED) == "PackedWeight(int8[90, 32], packing='int8', scales=float32[90, 2])"
    check(token_logps(HIDDEN, tensors, TARGETS), token_logps(HIDDEN, PACKED, TARGETS), 0)
    torch_loss = pytest.importorskip("logitless.torch").linear_cross_entropy
    with pytest.raises(TypeError, match="^weight must be a torch.Tensor, not ArrayImpl$"):
        torch_loss(torch.ones(2, H), LoraWeight(WEIGHT, A, B), torch.tensor([1, 2]))
