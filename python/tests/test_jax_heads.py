# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads of logitless.jax that are packed, or of which some entries are chosen: each has the bits of the matrix that it
stands for."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402

import logitless  # noqa: E402
from logitless.jax import (  # noqa: E402
    distillation_loss,
    id_logps,
    linear_cross_entropy,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
    topk_logps,
)
from logitless.packed import PackedWeight  # noqa: E402

N, H, V, K = 12, 32, 90, 30
random = np.random.default_rng(5)
HIDDEN = jnp.asarray(random.standard_normal((3, 4, H)), jnp.float32)
BIAS = jnp.asarray(random.standard_normal(V), jnp.float32)
TARGETS = jnp.asarray(np.arange(N).reshape(3, 4) * 7 % K, jnp.int32).at[1, 2].set(-100)
IDS = jnp.asarray(random.permutation(V)[:K], jnp.int32)
SETS = jnp.asarray([[random.permutation(K)[:5] for _ in range(4)] for _ in range(3)], jnp.int32)
SHARES = jnp.asarray(random.dirichlet(np.ones(5), (3, 4)), jnp.float32)
NUMBERS = random.integers(-127, 128, (V, H)).astype(np.int8)
SCALES = random.uniform(0.005, 0.02, (V, 2)).astype(np.float32)


def q8_0():
    blocks = np.empty((V, 34), np.uint8)
    scales = random.uniform(0.005, 0.02, (V, 1)).astype(np.float16)
    blocks[:, :2], blocks[:, 2:] = scales.view(np.uint8), NUMBERS.view(np.uint8)
    return PackedWeight(blocks, "q8_0"), scales.astype(np.float32) * NUMBERS


PACKED = {
    "int8": (PackedWeight(NUMBERS, "int8", SCALES), NUMBERS * SCALES.repeat(H // 2, axis=1)),
    "one scale a row": (PackedWeight(NUMBERS, "int8", SCALES[:, 0].copy()), NUMBERS * SCALES[:, :1]),
    "q8_0": q8_0(),
}
MATRIX = jnp.asarray(PACKED["int8"][1])
LOSSES = {
    "cross_entropy": lambda x, w, **more: linear_cross_entropy(x, w, TARGETS, softcap=9.0, **more),
    "token_logps": lambda x, w, **more: sum(column.sum() for column in token_logps(x, w, TARGETS, **more)),
    "soft": lambda x, w, **more: soft_cross_entropy(x, w, ids=SETS, weights=SHARES, **more),
    "soft, a token": lambda x, w, **more: soft_cross_entropy(
        x, w, ids=SETS, weights=SHARES, reduction="none", **more
    ).sum(),
    "id_logps": lambda x, w, **more: id_logps(x, w, SETS, **more).sum(),
    "set_distillation": lambda x, w, **more: set_distillation_loss(x, w, SETS, jnp.log(SHARES) - 0.2, **more),
    "distillation": lambda x, w, **more: distillation_loss(x, w, x + 1, teacher_of(w, **more), **more),
}


def teacher_of(weight, bias=None, vocab_ids=None, **more):
    """The head itself as a plain matrix of the entries that a call is over."""
    weight = MATRIX if isinstance(weight, PackedWeight) else weight
    return weight if vocab_ids is None else weight[vocab_ids]


def same(got, want):
    got, want = jax.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_packed(name, compiled):
    def run(x, w, b):
        return jax.value_and_grad(lambda x, b: 3 * LOSSES[name](x, w, bias=b), argnums=(0, 1))(x, b)

    run = jax.jit(run) if compiled else run
    packed, matrix = PACKED["int8"]
    same(run(HIDDEN, packed, BIAS), run(HIDDEN, jnp.asarray(matrix), BIAS))


@pytest.mark.parametrize("kind", PACKED)
def test_packings(kind):
    packed, matrix = PACKED[kind]
    assert packed.shape == matrix.shape
    grad = jax.jit(jax.value_and_grad(linear_cross_entropy))
    got, want = grad(HIDDEN, packed, TARGETS), grad(HIDDEN, jnp.asarray(matrix), TARGETS)
    assert got[0] == want[0]
    # Other plans: only d_hidden is wanted of the packed one.
    np.testing.assert_allclose(got[1], want[1], atol=1e-6)
    same(topk_logps(HIDDEN, packed, 3), topk_logps(HIDDEN, jnp.asarray(matrix), 3))
    half = [distillation_loss(HIDDEN, MATRIX, HIDDEN, teacher) for teacher in (packed, jnp.asarray(matrix))]
    assert half[0] == half[1]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "name, layout", [("cross_entropy", "hidden_vocab"), *((name, "vocab_hidden") for name in LOSSES)]
)
def test_chosen_entries(name, layout, compiled):
    """Gradients of the head are whole: those of a gather, as JAX makes them."""
    def run(loss):
        function = jax.value_and_grad(loss, argnums=(0, 1, 2))
        return (jax.jit(function) if compiled else function)(HIDDEN, MATRIX, BIAS)

    def chosen(x, w, b):
        w = w if layout == "vocab_hidden" else w.T
        more = {} if layout == "vocab_hidden" else {"layout": layout}
        return 3 * LOSSES[name](x, w, bias=b, vocab_ids=IDS, **more)

    same(run(chosen), run(lambda x, w, b: 3 * LOSSES[name](x, w[IDS], bias=b[IDS])))


def test_nf4_is_that_of_numpy():
    codes = random.integers(0, 256, (V, H // 2), dtype=np.uint8)
    packed = PackedWeight(codes, "nf4", random.uniform(0.1, 0.4, (V, 4)).astype(np.float32))
    assert packed.shape == (V, H)
    d_hidden = np.empty(HIDDEN.shape, np.float32)
    want = logitless.cross_entropy(np.asarray(HIDDEN), packed, np.asarray(TARGETS), d_hidden=d_hidden)
    loss, grad = jax.jit(jax.value_and_grad(linear_cross_entropy))(HIDDEN, packed, TARGETS)
    assert loss == np.float32(want.loss)
    np.testing.assert_array_equal(grad, d_hidden)


def test_an_entry_may_be_chosen_twice():
    ids = IDS.at[1].set(IDS[0])
    got = jax.grad(lambda w: linear_cross_entropy(HIDDEN, w, TARGETS, vocab_ids=ids))(MATRIX)
    want = jax.grad(lambda w: linear_cross_entropy(HIDDEN, w[ids], TARGETS))(MATRIX)
    same(got, want)


def test_chosen_entries_of_packed_heads():
    packed, matrix = PACKED["int8"]
    rows = np.asarray(IDS)
    gathered = PackedWeight(packed.data[rows], "int8", packed.scales[rows])
    got = jax.value_and_grad(lambda x: linear_cross_entropy(x, packed, TARGETS, bias=BIAS, vocab_ids=IDS))(HIDDEN)
    want = jax.value_and_grad(lambda x: linear_cross_entropy(x, gathered, TARGETS, bias=BIAS[IDS]))(HIDDEN)
    assert got[0] == want[0]
    np.testing.assert_allclose(got[1], want[1], atol=1e-6)
    student = MATRIX[:K]
    got = distillation_loss(HIDDEN, student, HIDDEN, packed, teacher_vocab_ids=IDS)
    assert got == distillation_loss(HIDDEN, student, HIDDEN, jnp.asarray(matrix)[IDS])
    same(topk_logps(HIDDEN, packed, 3, vocab_ids=IDS), topk_logps(HIDDEN, jnp.asarray(matrix)[IDS], 3))


def test_vmap():
    packed, _ = PACKED["int8"]
    each = jax.vmap(lambda x, y: linear_cross_entropy(x, packed, y, vocab_ids=IDS))(HIDDEN, TARGETS)
    same(each, jnp.stack([linear_cross_entropy(x, packed, y, vocab_ids=IDS) for x, y in zip(HIDDEN, TARGETS)]))


@pytest.mark.parametrize(
    "weight, options, error, message",
    [
        (PackedWeight(NUMBERS, "q9"), {}, ValueError, "^packing = 'q9' is none of int8, q8_0, "),
        (PackedWeight(NUMBERS, "q8_0"), {}, ValueError, "^data has rows of 32 bytes, which is no multiple of 34, "),
        (PackedWeight(NUMBERS[0], "int8"), {}, ValueError, r"^data has shape \[32\]: it must have 2 axes$"),
        (PackedWeight(NUMBERS, "int8"), {}, Exception, "scales is null, but int8 needs them"),
        (
            PackedWeight(NUMBERS.view(np.uint8), "int8", SCALES),
            {},
            ValueError,
            "^weight.data is uint8: with packing = 'int8' it must be int8$",
        ),
        (
            PackedWeight(NUMBERS, "int8", SCALES.astype(np.float64)),
            {},
            ValueError,
            "^weight.scales is float64: it must be float32$",
        ),
        (
            PackedWeight(NUMBERS, "int8", SCALES[:5]),
            {},
            ValueError,
            r"^weight.scales has shape \(5, 2\): it must have one number, or a divisor of 32, for each of the 90 rows$",
        ),
        (PACKED["int8"][0], {"hidden": HIDDEN[..., :8]}, ValueError, "^hidden has 8 columns, but weight, "),
        (PACKED["int8"][0], {"layout": "hidden_vocab"}, Exception, "does not go with a packed weight"),
        (NUMBERS, {}, ValueError, r"^weight is int8 of shape \(90, 32\): it must have 2 axes of floats, or be a Packed"),
        (MATRIX, {"vocab_ids": IDS[:0]}, ValueError, r"^vocab_ids has shape \(0,\): it must have one axis, and an"),
        (MATRIX, {"vocab_ids": SHARES}, TypeError, "^vocab_ids is float32: token ids are integers$"),
        (MATRIX, {"vocab_ids": IDS + V}, Exception, r"vocab_ids\[0\] = \d+ is no entry of a vocabulary of 90"),
        (MATRIX, {"vocab_ids": IDS[:5]}, Exception, "outside"),
    ],
)
def test_says_what_is_wrong(weight, options, error, message):
    with pytest.raises(error, match=message):
        jax.block_until_ready(
            linear_cross_entropy(**{"hidden": HIDDEN, "weight": weight, "targets": TARGETS, **options})
        )


def test_a_packed_weight_has_no_gradient():
    packed, _ = PACKED["int8"]
    with pytest.raises(TypeError, match="real- or complex-valued inputs .*int8"):
        jax.grad(lambda w: linear_cross_entropy(HIDDEN, w, TARGETS))(packed)


def test_repr():
    assert repr(PACKED["int8"][0]) == "PackedWeight(int8[90, 32], packing='int8', scales=float32[90, 2])"
    assert repr(PACKED["q8_0"][0]) == "PackedWeight(uint8[90, 34], packing='q8_0')"


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    packed, _ = PACKED["int8"]
    tensors = PackedWeight(torch.tensor(packed.data), "int8", torch.tensor(packed.scales))
    assert repr(tensors) == repr(packed) and tensors.shape == packed.shape
    same(token_logps(HIDDEN, tensors, TARGETS), token_logps(HIDDEN, packed, TARGETS))
