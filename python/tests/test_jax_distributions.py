# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.jax's losses of whole distributions: edge cases of top k, teachers, vmap, and messages."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402

import logitless  # noqa: E402
from logitless.jax import (  # noqa: E402
    distillation_loss,
    id_logps,
    set_distillation_loss,
    soft_cross_entropy,
    topk_logps,
)

B, T, H, V, K, G = 3, 4, 7, 41, 5, 6
N = B * T


class Case:
    """A batch of sequences, a teacher with another hidden size, and a set of ids per token."""

    def __init__(self):
        random = np.random.default_rng(0)

        def normal(*shape):
            return jnp.asarray(random.standard_normal(shape), jnp.float32)

        self.x, self.w, self.b = normal(B, T, H), normal(V, H), normal(V)
        self.tx, self.tw, self.tb = normal(B, T, G), normal(V, G), normal(V)
        self.y = jnp.asarray(random.integers(0, V, (B, T)), jnp.int32).at[0, 3].set(-100)
        self.ids = jnp.asarray(np.stack([random.permutation(V)[:K] for _ in range(N)]).reshape(B, T, K), jnp.int32)
        self.share = jnp.asarray(random.dirichlet(np.ones(K), (B, T)), jnp.float32) * 0.8
        self.dense = jnp.asarray(random.dirichlet(np.ones(V), (B, T)), jnp.float32)


def test_topk_logps_of_more_than_a_vocabulary():
    c = Case()
    ids, logps = jax.jit(topk_logps, static_argnums=2)(c.x, c.w, 50, bias=c.b)
    want, order = jax.lax.top_k(jax.nn.log_softmax(c.x @ c.w.T + c.b), V)
    np.testing.assert_array_equal(ids[..., :V], order)
    np.testing.assert_allclose(logps[..., :V], want, atol=1e-5)
    assert (ids[..., V:] == -1).all() and jnp.isneginf(logps[..., V:]).all()
    assert jax.grad(lambda x: topk_logps(x, c.w, 2)[1].sum())(c.x).max() == 0


def test_a_teachers_logits_have_no_head():
    c = Case()
    logits = c.tx @ c.tw.T + c.tb
    with pytest.raises(ValueError, match="give teacher_hidden and teacher_weight, or teacher_logits"):
        distillation_loss(c.x, c.w, c.tx, c.tw, c.y, teacher_logits=logits)
    for beside in ({"teacher_softcap": 2.0}, {"teacher_bias": c.tb}):
        with pytest.raises(ValueError, match="does not go with teacher_logits, which have no head"):
            distillation_loss(c.x, c.w, targets=c.y, teacher_logits=logits, **beside)


def test_no_gradient_flows_to_a_teacher():
    c = Case()
    grads = jax.grad(lambda tx, tw: distillation_loss(c.x, c.w, tx, tw), argnums=(0, 1))(c.tx, c.tw)
    assert all((g == 0).all() for g in grads)
    same = distillation_loss(c.x, c.w, c.x, c.w)
    assert same == 0


def test_vmap_and_a_context():
    c = Case()
    whole = distillation_loss(c.x, c.w, c.tx, c.tw)
    each = jax.vmap(lambda x, tx: distillation_loss(x, c.w, tx, c.tw))(c.x, c.tx)
    np.testing.assert_allclose(each.mean(), whole, rtol=1e-6)
    with pytest.raises(Exception, match="workspace_bytes = 1 is too small"):
        jax.block_until_ready(
            distillation_loss(c.x, c.w, c.tx, c.tw, context=logitless.Context(workspace_bytes=1))
        )


def test_what_is_refused():
    c = Case()
    logps = jnp.log(c.share)
    for call, error, words in (
        (lambda: soft_cross_entropy(c.x, c.w), ValueError, "give probabilities, or ids and weights"),
        (lambda: soft_cross_entropy(c.x, c.w, c.dense, ids=c.ids), ValueError, "give probabilities, or"),
        (lambda: soft_cross_entropy(c.x, c.w, c.dense, weights=c.share), ValueError, "give probabilities, or"),
        (lambda: soft_cross_entropy(c.x, c.w, c.dense, reduction=None), ValueError, "None is not a valid .* reduction"),
        (lambda: distillation_loss(c.x, c.w, c.tx, c.tw, reduction=None), ValueError, "None is not a valid"),
        (lambda: soft_cross_entropy(c.x, c.w, c.dense[..., :-1]), Exception, "probabilities"),
        (lambda: soft_cross_entropy(c.x, c.w, ids=c.ids, weights=-c.share), Exception, "weights of row 0"),
        (lambda: soft_cross_entropy(c.x, c.w, ids=c.ids, weights=c.share[:-1]), ValueError, "weights has shape"),
        (lambda: id_logps(c.x, c.w, c.ids[:-1]), ValueError, "ids has shape"),
        (lambda: id_logps(c.x, c.w, c.share), TypeError, "ids is float32"),
        (lambda: id_logps(c.x, c.w, c.ids.at[0, 0, 0].set(V)), Exception, "ids"),
        (lambda: id_logps(c.x, c.w[:, :-1], c.ids), ValueError, "7 columns"),
        (lambda: topk_logps(c.x, c.w, 257), ValueError, "k = 257"),
        (lambda: topk_logps(c.x, c.w, 2, shift=1), TypeError, "shift"),
        (lambda: distillation_loss(c.x, c.w, c.tx, c.tw[:-1]), Exception, "40"),
        (lambda: distillation_loss(c.x, c.w, c.tx[:-1], c.tw), ValueError, "teacher_hidden has shape"),
        (lambda: distillation_loss(c.x, c.w, c.tx, c.w), ValueError, "teacher_hidden has 6 columns"),
        (lambda: distillation_loss(c.x, c.w, c.tx, c.tw, beta=2.0), Exception, "beta"),
        (lambda: distillation_loss(c.x, c.w, c.tx, c.tw, want_entropy=True), ValueError, "want_entropy"),
        (lambda: set_distillation_loss(c.x, c.w, c.ids, c.share), Exception, "teacher.logps"),
        (lambda: set_distillation_loss(c.x, c.w, c.ids, logps, c.y[:-1]), ValueError, "targets has shape"),
    ):
        with pytest.raises(error, match=words):
            jax.block_until_ready(call())
