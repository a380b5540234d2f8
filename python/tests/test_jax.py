# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.jax: contexts, shards, seeds, second derivatives and messages. test_generated_jax.py draws values,
gradients and types, and test_fields.py tests options."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402

import logitless  # noqa: E402
import logitless.jax as lj  # noqa: E402
from logitless import _core  # noqa: E402
from logitless.jax import linear_cross_entropy, token_logps, topk_logps  # noqa: E402

N, H, V = 12, 7, 41


def arrays(dtype, seed=0):
    random = np.random.default_rng(seed)
    x = jnp.asarray(random.standard_normal((N, H)), dtype)
    w = jnp.asarray(random.standard_normal((V, H)), dtype)
    b = jnp.asarray(random.standard_normal(V), dtype)
    y = jnp.asarray(random.integers(0, V, N), jnp.int32).at[3].set(-100)
    return x, w, b, y


@pytest.mark.parametrize("vocab_ids", [None, jnp.arange(V)], ids=["all", "chosen"])
def test_gradients_of_float16_are_rounded_once_they_are_scaled(vocab_ids):
    """A loss scale preserves gradients that float16 would underflow."""
    x, w, b, y = arrays(jnp.float16)
    x, w = x * jnp.float16(1e-3), w * jnp.float16(1e-3)

    def step(x, w, b):
        loss = linear_cross_entropy(x, w, y, bias=b, vocab_ids=vocab_ids, loss_scale=1e-6)
        return loss * 2.0**16

    grads = jax.grad(step, argnums=(0, 1, 2))(x, w, b)
    wide = jax.grad(step, argnums=(0, 1, 2))(*(a.astype(jnp.float32) for a in (x, w, b)))
    for grad, want in zip(grads, wide):
        assert grad.dtype == jnp.float16 and (grad != 0).any()
        np.testing.assert_allclose(grad.astype(jnp.float32), want, rtol=2e-3, atol=2**-24)


def test_shapes_are_those_of_tokens():
    x, w, _, y = arrays(jnp.float32)
    x, y, each = x.reshape(3, 4, H), y.reshape(3, 4), jnp.linspace(0.5, 2, N).reshape(3, 4)
    calls = (linear_cross_entropy, token_logps, lambda *a, **k: topk_logps(*a[:2], 2, **k))
    for function in calls:
        want = function(x, w, y, temperatures=each)
        jax.tree.map(np.testing.assert_array_equal, function(x, w, y, temperatures=each.reshape(-1)), want)
        for wrong in (each.T, each[:2], each[None], jnp.ones(())):
            with pytest.raises(ValueError, match=r"^temperatures has shape .*: hidden's leading axes are \(3, 4\)$"):
                function(x, w, y, temperatures=wrong)
    with pytest.raises(ValueError, match="^class_weights has shape .*: it must have one axis, and at least one entry$"):
        linear_cross_entropy(x, w, y, class_weights=jnp.ones((1, V)))


def test_a_seed_has_32_bits():
    x, w, _, y = arrays(jnp.float32)

    def gradient(seed):
        return jax.grad(lambda x: linear_cross_entropy(x, w, y, backward="sampled", theta=5.0, seed=seed))(x)

    for wrong in (2**31, 2**32 + 5, -(2**31) - 1, np.int64(2**40), np.array(2**40)):
        with pytest.raises(ValueError, match=rf"^seed = {wrong} must be from -2\^31 to 2\^31 - 1"):
            gradient(wrong)
    with pytest.raises(TypeError, match="^seed is float64: it must be an integer"):
        gradient(2.5)
    want = gradient(5)
    for same in (jnp.uint32(5), np.int64(5), jnp.array([5])):
        np.testing.assert_array_equal(gradient(same), want)
    assert np.isfinite(gradient(jnp.uint32(2**32 - 1))).all()
    np.testing.assert_array_equal(jax.jit(gradient)(5), want)
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"^seed = 4294967301 must be"):
        gradient(2**32 + 5)


def test_second_derivatives_are_refused_with_a_reason():
    x, w, b, y = arrays(jnp.float32)
    ids, y = jnp.maximum(y, 0)[:, None], jnp.maximum(y, 0)
    functions = {
        "cross-entropy": lambda x: linear_cross_entropy(x, w, y, bias=b),
        "token_logps": lambda x: token_logps(x, w, y)[0].sum(),
        "id_logps": lambda x: lj.id_logps(x, w, ids).sum(),
        "soft": lambda x: lj.soft_cross_entropy(x, w, jnp.full((N, V), 1 / V)),
        "distillation": lambda x: lj.distillation_loss(x, w, jnp.flip(x), w),
        "set distillation": lambda x: lj.set_distillation_loss(x, w, ids, jnp.full((N, 1), -1.0)),
    }
    for name, f in functions.items():
        twice = {"jit": jax.jit(jax.hessian(f)), "product": lambda x, f=f: jax.jvp(jax.grad(f), (x,), (x,))}
        for how, second in twice.items():
            with pytest.raises(ValueError, match="^logitless computes no second derivatives"):
                second(x)
                pytest.fail(f"{how} of {name}")


def test_top_k_and_teachers_have_no_gradient():
    x, w, _, _ = arrays(jnp.float32)
    grads = jax.grad(lambda tx, tw: lj.distillation_loss(x, w, tx, tw), argnums=(0, 1))(2 * x, w)
    assert all((g == 0).all() for g in grads)
    assert jax.grad(lambda x: topk_logps(x, w, 2)[1].sum())(x).max() == 0


def test_jit_reads_the_seed_of_draws():
    x, w, _, _ = arrays(jnp.float32)
    draw = jax.jit(lambda x, seed: lj.sample(x, w, 50, seed=seed, temperature=2.0, top_k=3))
    for seed in (1, 2):
        ids, logps = draw(x, seed)
        want = logitless.sample(np.asarray(x), np.asarray(w), 50, seed=seed, temperature=2.0, top_k=3)
        assert (ids == want[0]).all() and np.allclose(logps, want[1], rtol=1e-6)
    assert draw._cache_size() == 1 and (draw(x, 1)[0] != draw(x, 2)[0]).any()
    assert (lj.sample(x, w, 2, seed=1, temperature=0)[0] == (x @ w.T).argmax(-1)[:, None]).all()
    with pytest.raises(ValueError, match="top_p = 0.5 needs top_k"):
        lj.sample(x, w, seed=1, top_p=0.5)


def test_what_is_refused():
    x, w, _, y = arrays(jnp.float32)
    ids, share, dense = jnp.maximum(y, 0)[:, None], jnp.full((N, 1), 0.5), jnp.full((N, V), 1 / V)
    cross_entropy, soft, sets = linear_cross_entropy, lj.soft_cross_entropy, lj.set_distillation_loss
    logits = x @ w.T
    for call, error, words in (
        (lambda: cross_entropy(x, w, y.astype(jnp.float32)), TypeError, "targets is float32"),
        (lambda: cross_entropy(x, w, y[:-1]), ValueError, "leading axes"),
        (lambda: cross_entropy(x[:, :-1], w, y), ValueError, "6 columns"),
        (lambda: cross_entropy(x, w, y, layout="vh"), ValueError, "layout"),
        (lambda: cross_entropy(x, w, y, reduction="none"), ValueError, "reduction"),
        (lambda: cross_entropy(x, w, y, reduction=None), ValueError, "^None is not a valid value for reduction$"),
        (lambda: cross_entropy(x, w, y.at[0].set(V)), Exception, "outside"),
        (lambda: cross_entropy(x, w, np.asarray(y).astype(np.int64) + 2**32), ValueError, "targets holds 42949.*32 bits"),
        (lambda: soft(x, w), ValueError, "give probabilities, or ids and weights"),
        (lambda: soft(x, w, dense, ids=ids), ValueError, "give probabilities, or"),
        (lambda: soft(x, w, dense, weights=share), ValueError, "give probabilities, or"),
        (lambda: soft(x, w, dense, reduction=None), ValueError, "None is not a valid .* reduction"),
        (lambda: soft(x, w, ids=ids, weights=share[:-1]), ValueError, "weights has shape"),
        (lambda: lj.id_logps(x, w, ids[:-1]), ValueError, "ids has shape"),
        (lambda: lj.id_logps(x, w, share), TypeError, "ids is float32"),
        (lambda: topk_logps(x, w, 257), ValueError, "k = 257"),
        (lambda: lj.distillation_loss(x, w, x[:-1], w), ValueError, "teacher_hidden has shape"),
        (lambda: lj.distillation_loss(x, w, x, w[:, 1:]), ValueError, "teacher_hidden has 7 columns"),
        (lambda: lj.distillation_loss(x, w, x, w, teacher_logits=logits), ValueError, "give teacher_hidden and teach"),
        (lambda: lj.distillation_loss(x, w, teacher_logits=logits, teacher_softcap=2.0), ValueError, "have no head"),
        (lambda: lj.distillation_loss(x, w, x, w, want_entropy=True), ValueError, "want_entropy"),
        (lambda: sets(x, w, ids, jnp.log(share), y[:-1]), ValueError, "targets has shape"),
    ):
        with pytest.raises(error, match=words):
            jax.block_until_ready(call())


def test_a_context_arrives():
    x, w, b, y = arrays(jnp.float32)
    for name, field in _core.fields("context").items():
        if name in ("workspace", "slices", "own_d_hidden", "sum_d_weight"):
            continue  # options for memory and for ranks
        value = {"simd_target": "plain", "gemm_backend": "openblas"}.get(name)
        if value is None:
            value = field["choices"][-1] if "choices" in field else 3 if "tile" in name or "block" in name else 1
        attributes = _core.jax_attributes("cross_entropy", {}, logitless.Context(**{name: value}))
        assert attributes[f"context.{name}"] == value
    step = jax.jit(jax.value_and_grad(linear_cross_entropy), static_argnames=("context",))
    with pytest.raises(Exception, match="workspace_bytes = 1 is too small"):
        jax.block_until_ready(step(x, w, y, context=logitless.Context(workspace_bytes=1)))
    with pytest.raises(ValueError, match="context has ranks or a workspace"):
        linear_cross_entropy(x, w, y, context=logitless.Context(slices=[V]))


def test_shards_of_a_batch():
    program = pathlib.Path(__file__).with_name("jax_devices.py")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("shards agree\n")
