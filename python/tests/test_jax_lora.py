# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads of logitless.jax with a LoRA, against losses written out in float64, and what is differentiated of any head."""

import math
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402
from jax.extend.core import jaxprs_in_params  # noqa: E402

import logitless  # noqa: E402
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

H, V, K, R, SCALE = 16, 70, 30, 3, 1.5
LEAD = (3, 4)
random = np.random.default_rng(11)


def floats(*shape):
    return jnp.asarray(random.standard_normal(shape), jnp.float32)


HIDDEN, WEIGHT, A, B, BIAS = floats(*LEAD, H), floats(V, H), floats(R, H) / 4, floats(V, R), floats(V)
TENSORS = (HIDDEN, WEIGHT, A, B, BIAS)
TEACHER_HIDDEN, TEACHER_WEIGHT = floats(*LEAD, H + 2), floats(V, H + 2) / 4
TEACHER_A, TEACHER_B = floats(2, H + 2) / 4, floats(V, 2)
IDS = jnp.asarray(random.permutation(V)[:K], jnp.int32)
TARGETS = jnp.asarray(random.integers(0, K, LEAD), jnp.int32).at[1, 2].set(-100)
SETS = jnp.asarray([[random.permutation(K)[:5] for _ in range(LEAD[1])] for _ in range(LEAD[0])], jnp.int32)
SHARES = jnp.asarray(random.dirichlet(np.ones(5), LEAD), jnp.float32) * 0.8
FACTORS = floats(*LEAD)
PACKED = PackedWeight(
    random.integers(-127, 128, (V, H)).astype(np.int8), "int8", random.uniform(0.005, 0.02, (V, 1)).astype(np.float32)
)
UNPACKED = jnp.asarray(PACKED.data * PACKED.scales)


def at(logps, ids):
    return jnp.take_along_axis(logps, ids, -1)


def cross_entropy(logps):
    taken = TARGETS >= 0
    return -(at(logps, jnp.maximum(TARGETS, 0)[..., None])[..., 0] * taken).sum() / taken.sum()


def columns(logps):
    taken = TARGETS >= 0
    chosen = at(logps, jnp.maximum(TARGETS, 0)[..., None])[..., 0]
    entropies = -(jnp.exp(logps) * logps).sum(-1)
    return (FACTORS * taken * (chosen + 0.1 * entropies)).sum()


def set_distillation(logps):
    inside, outside = SHARES, 1 - SHARES.sum(-1)
    ours = at(logps, SETS)
    tail = outside * (jnp.log(outside) - jnp.log(1 - jnp.exp(ours).sum(-1)))
    return ((inside * (jnp.log(inside) - ours)).sum(-1) + tail).mean()


def distillation(logps, entries):
    teacher = TEACHER_WEIGHT + SCALE * TEACHER_B @ TEACHER_A
    wanted = jax.nn.log_softmax(TEACHER_HIDDEN @ teacher[entries].T)
    return (jnp.exp(wanted) * (wanted - logps)).sum(-1).mean()


def columns_of(x, w, **more):
    logps, entropies = token_logps(x, w, TARGETS, **more)
    return (FACTORS * (logps + 0.1 * entropies)).sum()


def distillation_of(x, w, **more):
    teacher = LoraWeight(TEACHER_WEIGHT, TEACHER_A, TEACHER_B, SCALE)
    return distillation_loss(x, w, TEACHER_HIDDEN, teacher, teacher_vocab_ids=more.get("vocab_ids"), **more)


# What a call gives, and what it is of the log-probabilities and the entries that these are of.
LOSSES = {
    "cross_entropy": (lambda x, w, **more: linear_cross_entropy(x, w, TARGETS, **more), lambda p, _: cross_entropy(p)),
    "token_logps": (columns_of, lambda p, _: columns(p)),
    "soft": (
        lambda x, w, **more: soft_cross_entropy(x, w, ids=SETS, weights=SHARES, **more),
        lambda p, _: -(SHARES * at(p, SETS)).sum(-1).mean(),
    ),
    "soft, a token": (
        lambda x, w, **more: (FACTORS * soft_cross_entropy(x, w, ids=SETS, weights=SHARES, reduction="none", **more)).sum(),
        lambda p, _: -(FACTORS * (SHARES * at(p, SETS)).sum(-1)).sum(),
    ),
    "id_logps": (
        lambda x, w, **more: (FACTORS[..., None] * id_logps(x, w, SETS, **more)).sum(),
        lambda p, _: (FACTORS[..., None] * at(p, SETS)).sum(),
    ),
    "set_distillation": (
        lambda x, w, **more: set_distillation_loss(x, w, SETS, jnp.log(SHARES), **more),
        lambda p, _: set_distillation(p),
    ),
    "distillation": (distillation_of, distillation),
}


def written_out(name, softcap=0.0, ids=None, scale=SCALE):
    entries = np.arange(V) if ids is None else np.asarray(ids)

    def loss(x, w, a, b, bias):
        logits = (x @ w.T + scale * (x @ a.T) @ b.T + bias)[..., entries]
        if softcap:
            logits = softcap * jnp.tanh(logits / softcap)
        return LOSSES[name][1](jax.nn.log_softmax(logits), entries)

    return loss


def in_double(function, *arrays):
    """The function's results for the same numbers in float64."""
    with jax.enable_x64(True):
        results = jax.jit(function)(*(jnp.asarray(np.asarray(x, np.float64)) for x in arrays))
        return jax.tree.map(lambda x: np.asarray(x, np.float64), results)


def check(got, want, bound=2e-5):
    """Sums of float32, whose logits are below 20."""
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        np.testing.assert_allclose(np.asarray(one, np.float64), other, atol=bound, rtol=bound)


EVERY = (0, 1, 2, 3, 4)


def test_a_teacher_has_no_gradient():
    def loss(a, b):
        teacher = LoraWeight(TEACHER_WEIGHT, a, b)
        return distillation_loss(HIDDEN, LoraWeight(WEIGHT, A, B), TEACHER_HIDDEN, teacher)

    assert not any(grad.any() for grad in jax.grad(loss, (0, 1))(TEACHER_A, TEACHER_B))
    packed = LoraWeight(PACKED, A, B, SCALE)
    got = distillation_loss(HIDDEN, WEIGHT, HIDDEN, packed, teacher_vocab_ids=IDS, vocab_ids=IDS)
    whole = (UNPACKED + SCALE * B @ A)[IDS]
    check(got, distillation_loss(HIDDEN, WEIGHT[IDS], HIDDEN, whole))


@pytest.mark.parametrize("adapters", [jnp.float32, jnp.bfloat16])
def test_bfloat16(adapters):
    """The reference has the numbers that were rounded to bfloat16."""
    kinds = (jnp.bfloat16, jnp.bfloat16, adapters, adapters, jnp.bfloat16)
    tensors = [x.astype(kind) for x, kind in zip(TENSORS, kinds)]

    def ours(x, w, a, b, bias):
        return linear_cross_entropy(x, LoraWeight(w, a, b, SCALE), TARGETS, bias=bias, softcap=6.0)

    loss, grads = jax.jit(jax.value_and_grad(ours, EVERY))(*tensors)
    want, exact = in_double(jax.value_and_grad(written_out("cross_entropy", 6.0), EVERY), *tensors)
    check(loss, want)
    for grad, x, other in zip(grads, tensors, exact):
        assert grad.dtype == x.dtype
        # dL/dlogits, and then the gradient, are rounded to bfloat16: each relative to its largest number.
        np.testing.assert_allclose(np.asarray(grad, np.float64), other, rtol=2**-7, atol=2**-7 * np.abs(other).max())


def test_float64():
    with jax.enable_x64(True):
        tensors = [jnp.asarray(np.asarray(x, np.float64)) for x in TENSORS]

        def ours(x, w, a, b, bias):
            return LOSSES["cross_entropy"][0](x, LoraWeight(w, a, b, SCALE), bias=bias)

        loss, grads = jax.jit(jax.value_and_grad(ours, EVERY))(*tensors)
        assert all(grad.dtype == jnp.float64 for grad in (loss, *grads))
        check((loss, grads), jax.value_and_grad(written_out("cross_entropy"), EVERY)(*tensors), 1e-12)
        with pytest.raises(ValueError, match="^weight.b is float32, and hidden float64: float64 goes with float64 alone$"):
            ours(*tensors[:3], B, BIAS)


def test_an_argument_of_jit_and_grad():
    """A LoraWeight is a tree of weight, a and b; its scale is fixed."""
    lora = LoraWeight(WEIGHT, A, B, SCALE)
    loss, grads = jax.jit(jax.value_and_grad(lambda w: linear_cross_entropy(HIDDEN, w, TARGETS, bias=BIAS)))(lora)
    want, exact = in_double(jax.value_and_grad(written_out("cross_entropy"), EVERY), *TENSORS)
    assert isinstance(grads, LoraWeight) and grads.scale == SCALE
    check((loss, grads.weight, grads.a, grads.b), (want, *exact[1:4]))
    stepped = jax.tree.map(lambda x, g: x - g, lora, grads)
    np.testing.assert_array_equal(stepped.a, A - grads.a)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(lora)]
    assert names == [".weight", ".a", ".b"]


def test_vmap():
    """Over sequences, and over adapters of one weight."""
    def ours(x, a, b, y):
        return linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), y)

    each = jax.vmap(jax.value_and_grad(ours, (0, 1, 2)), (0, None, None, 0))(HIDDEN, A, B, TARGETS)
    one_by_one = [jax.value_and_grad(ours, (0, 1, 2))(x, A, B, y) for x, y in zip(HIDDEN, TARGETS)]
    check(each, jax.tree.map(lambda *parts: np.stack(parts), *one_by_one), 1e-6)
    many = jnp.stack([A, 2 * A]), jnp.stack([B, -B])
    each = jax.grad(lambda a, b: jax.vmap(ours, (None, 0, 0, None))(HIDDEN, a, b, TARGETS).sum(), (0, 1))(*many)
    one_by_one = [jax.grad(ours, (1, 2))(HIDDEN, a, b, TARGETS) for a, b in zip(*many)]
    check(each, jax.tree.map(lambda *parts: np.stack(parts), *one_by_one), 1e-6)


def test_dropout():
    """What a multiplies has been through it, and the weight's states have not."""
    def loss(x, a, b, key):
        kept = jax.random.bernoulli(key, 0.5, x.shape)
        return linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE, lambda x: jnp.where(kept, 2 * x, 0)), TARGETS)

    key = jax.random.key(3)
    kept = np.asarray(jax.random.bernoulli(key, 0.5, HIDDEN.shape))

    def reference(x, a, b):
        return cross_entropy(jax.nn.log_softmax(x @ WEIGHT.T + SCALE * (jnp.where(kept, 2 * x, 0) @ a.T) @ b.T))

    got = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(HIDDEN, A, B, key)
    check(got, in_double(jax.value_and_grad(reference, (0, 1, 2)), HIDDEN, A, B))


def test_a_scale_that_is_learned():
    def ours(scale):
        return linear_cross_entropy(HIDDEN, LoraWeight(WEIGHT, A, B, scale), TARGETS, bias=BIAS)

    got = jax.jit(jax.value_and_grad(ours))(jnp.float32(SCALE))
    want = in_double(
        jax.value_and_grad(lambda scale: written_out("cross_entropy", scale=scale)(*TENSORS)), jnp.float32(SCALE)
    )
    check(got, want)


def largest(jaxpr, only=None):
    """The elements of the largest array that equations make, or those of the primitive of that name."""
    sizes = [0]
    for equation in jaxpr.eqns:
        if only in (None, equation.primitive.name):
            sizes += [math.prod(out.aval.shape) for out in equation.outvars]
        sizes += [largest(inside, only) for inside in jaxprs_in_params(equation.params)]
    return max(sizes)


@pytest.mark.parametrize("ids", [None, IDS], ids=["all entries", "chosen"])
@pytest.mark.parametrize("name", LOSSES)
def test_one_compiled_function_differentiated_by_one_argument_after_another(name, ids):
    loss = jax.jit(lambda x, w, a, b, bias: LOSSES[name][0](x, LoraWeight(w, a, b), bias=bias, vocab_ids=ids))
    every = jax.grad(loss, EVERY)(*TENSORS)
    for wanted in ((0,), (1,), (2, 3), (0, 4), (0,), (2, 3), EVERY, (1,)):
        check(jax.grad(loss, wanted)(*TENSORS), [np.asarray(every[i]) for i in wanted], 1e-5)


def test_plans_of_frozen_heads_and_of_trained_ones():
    want = jax.grad(lambda x, w, a, b: cross_entropy(jax.nn.log_softmax(x @ (w + SCALE * b @ a).T)), (0, 2, 3))
    want = want(HIDDEN, WEIGHT[:K], A, B[:K])
    for plan in ("one_pass", "two_pass", "expected_row"):
        context = logitless.Context(plan=plan)
        for wanted in ((0,), (0, 2), (0, 2, 3)):
            got = jax.grad(
                lambda x, w, a, b: linear_cross_entropy(x, LoraWeight(w, a, b, SCALE), TARGETS, context=context), wanted
            )(HIDDEN, WEIGHT[:K], A, B[:K])
            check(got, [np.asarray(want[(0, None, 1, 2)[i]]) for i in wanted], 1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_a_frozen_weight_has_no_gradient_in_memory(name):
    """What is not differentiated costs nothing, with a LoRA or without, whatever it is that leaves it out."""
    def with_lora(x, w, a, b):
        return LOSSES[name][0](x, LoraWeight(w, a, b, SCALE))

    def bare(x, w):
        return LOSSES[name][0](x, w)

    def largest_of(step, *tensors, only=None):
        return largest(jax.make_jaxpr(step)(*tensors).jaxpr, only)

    for weight in (WEIGHT, PACKED):
        step = jax.value_and_grad(with_lora, (0, 2, 3))
        for run in (step, jax.jit(step), jax.value_and_grad(jax.jit(with_lora), (0, 2, 3))):
            assert largest_of(run, HIDDEN, weight, A, B, only="ffi_call") < V * H
        assert largest_of(jax.grad(bare), HIDDEN, weight, only="ffi_call") < V * H
    closed_over = jax.grad(lambda a, b: with_lora(HIDDEN, WEIGHT, a, b), (0, 1))
    assert largest_of(closed_over, A, B, only="ffi_call") < V * H
    if name != "distillation":  # whose teacher's weight passes through stop_gradient, which copies nothing
        assert largest_of(closed_over, A, B) < V * H
    stopped = jax.grad(lambda w, a: with_lora(HIDDEN, jax.lax.stop_gradient(w), a, B), (0, 1))
    assert largest_of(stopped, WEIGHT, A, only="ffi_call") < V * H
    assert largest_of(jax.grad(with_lora, (0, 1)), HIDDEN, WEIGHT, A, B, only="ffi_call") == V * H
    assert largest_of(jax.grad(bare, 1), HIDDEN, WEIGHT, only="ffi_call") == V * H


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"a": A[:, :7]}, ValueError, "^a has 7 columns, and weight 16$"),
        ({"b": B[:5]}, ValueError, r"^b has shape \(5, 3\): it must be \(70, 3\), as weight and a have it$"),
        ({"b": B[:, :2]}, ValueError, r"^b has shape \(70, 2\): it must be \(70, 3\), as weight and a have it$"),
        ({"a": A[0]}, ValueError, r"^a has shape \(16,\): it must be a tensor of 2 axes$"),
        ({"b": None}, ValueError, "^b is None: it must be a tensor of 2 axes$"),
        ({"a": A[:0], "b": B[:, :0]}, ValueError, r"^a has shape \(0, 16\): it must have a row$"),
        ({"scale": float("nan")}, ValueError, "^scale = nan must be a finite number$"),
        ({"scale": np.float32("inf")}, ValueError, "^scale = inf must be a finite number$"),
        ({"a": jnp.ones((R, H), jnp.int32)}, ValueError, "^weight.a is int32: it must be float32, bfloat16, float16 or f"),
        ({"b": jnp.ones((V, R), jnp.float8_e5m2)}, ValueError, "^weight.b is float8_e5m2: it must be float32, "),
        ({"weight": WEIGHT.astype(jnp.int8)}, ValueError, r"^weight is int8 of shape \(70, 16\): it must have 2 axes of f"),
        ({"hidden": HIDDEN[..., :6]}, ValueError, "^weight.a has 16 columns but hidden has 6\n?"),
        ({"layout": "hidden_vocab"}, ValueError, "^hidden has 16 columns, but weight, hidden_vocab, has 70\n?"),
        ({"backward": "sampled", "noise": 0.01}, Exception, "the noise of its gradients is not estimated: give theta"),
    ],
)
def test_says_what_is_wrong(change, error, message):
    given = {"hidden": HIDDEN, "weight": WEIGHT, "a": A, "b": B, "scale": 1.0, **change}
    hidden, *parts = (given.pop(name) for name in ("hidden", "weight", "a", "b", "scale"))
    with pytest.raises(error, match=message):
        lora = LoraWeight(*parts)
        jax.block_until_ready(jax.grad(lambda x: linear_cross_entropy(x, lora, TARGETS, **given))(hidden))


def test_says_what_is_wrong_of_a_teacher():
    with pytest.raises(ValueError, match="^teacher_weight.a has 16 columns but teacher_hidden has 18$"):
        distillation_loss(HIDDEN, WEIGHT, TEACHER_HIDDEN, LoraWeight(WEIGHT, A, B))
    with pytest.raises(ValueError, match="^teacher_weight.b is int32: it must be float32, "):
        distillation_loss(HIDDEN, WEIGHT, HIDDEN, LoraWeight(WEIGHT, A, B.astype(jnp.int32)))


def test_trees_are_checked_where_they_are_used():
    """JAX makes trees of other things than arrays, and of arrays of other shapes."""
    lora = LoraWeight(WEIGHT, A, B)
    assert jax.tree.map(lambda x: x.shape, lora).b == (V, R)
    with pytest.raises(ValueError, match=r"^b has shape \(69, 3\): it must be \(70, 3\)"):
        linear_cross_entropy(HIDDEN, jax.tree.map(lambda x: x[1:] if x is B else x, lora), TARGETS)


def test_without_pytorch():
    """A LoraWeight needs no PyTorch."""
    program = """
import sys
sys.modules["torch"] = None
import jax.numpy as jnp, numpy as np, logitless
from logitless.jax import linear_cross_entropy
from logitless.lora import LoraWeight
x, w, a, b = np.ones((2, 4), np.float32), np.ones((5, 4), np.float32), np.ones((1, 4), np.float32), np.ones((5, 1), np.float32)
b[2] = 0
y = np.array([1, 2])
lora = LoraWeight(w, a, b, 0.5)
print(float(linear_cross_entropy(x, lora, y)), float(np.float32(logitless.cross_entropy(x, lora, y).loss)))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    ours, theirs = ran.stdout.split()
    assert math.isclose(float(ours), float(theirs), rel_tol=1e-6)
    assert math.isclose(float(ours), math.log(4 * math.exp(2) + 1) - 1, rel_tol=1e-6)


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    lora = LoraWeight(*(torch.tensor(np.asarray(x)) for x in (WEIGHT, A, B)), SCALE)
    got = linear_cross_entropy(HIDDEN, lora, TARGETS)
    np.testing.assert_array_equal(got, linear_cross_entropy(HIDDEN, LoraWeight(WEIGHT, A, B, SCALE), TARGETS))
    torch_loss = pytest.importorskip("logitless.torch").linear_cross_entropy
    with pytest.raises(TypeError, match="^weight must be a torch.Tensor, not ArrayImpl$"):
        torch_loss(torch.ones(2, H), LoraWeight(WEIGHT, A, B), torch.tensor([1, 2]))
