# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.jax's losses of whole distributions against logitless itself."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402

import logitless  # noqa: E402
from logitless import _core  # noqa: E402
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
    """A batch of three sequences, a teacher of another width, and a set of ids for each token."""

    def __init__(self, dtype=jnp.float32, seed=0):
        random = np.random.default_rng(seed)

        def normal(*shape):
            return jnp.asarray(random.standard_normal(shape), dtype)

        self.x, self.w, self.b = normal(B, T, H), normal(V, H), normal(V)
        self.tx, self.tw, self.tb = normal(B, T, G), normal(V, G), normal(V)
        self.y = jnp.asarray(random.integers(0, V, (B, T)), jnp.int32).at[0, 3].set(-100)
        self.ids = jnp.asarray(np.stack([random.permutation(V)[:K] for _ in range(N)]).reshape(B, T, K), jnp.int32)
        share = random.dirichlet(np.ones(K), N) * random.uniform(0.5, 0.9, (N, 1))
        self.share = jnp.asarray(share.reshape(B, T, K), jnp.float32)
        self.dense = jnp.asarray(random.dirichlet(np.ones(V), N).reshape(B, T, V), jnp.float32)


def logps_of(x, w, b):
    return jax.nn.log_softmax(x @ w.T + b)


@pytest.mark.parametrize("k", [1, 6, 50])
def test_topk_logps(k):
    c = Case()
    ids, logps = jax.jit(topk_logps, static_argnums=2)(c.x, c.w, k, bias=c.b)
    want, order = jax.lax.top_k(logps_of(c.x, c.w, c.b), min(k, V))
    np.testing.assert_array_equal(ids[..., :V], order)
    np.testing.assert_allclose(logps[..., :V], want, atol=1e-5)
    assert (ids[..., V:] == -1).all() and jnp.isneginf(logps[..., V:]).all()
    assert jax.grad(lambda x: topk_logps(x, c.w, 2)[1].sum())(c.x).max() == 0


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_teachers_logits_may_be_finished(reduction):
    c = Case(jnp.float32)
    logits = c.tx @ c.tw.T + c.tb
    options = {"loss_type": "jsd", "temperature": 2.0, "reduction": reduction}

    def of(**teacher):
        def loss(x, w, b):
            return distillation_loss(x, w, targets=c.y, bias=b, **teacher, **options).sum()

        return jax.value_and_grad(loss, (0, 1, 2))(c.x, c.w, c.b)

    heads = of(teacher_hidden=c.tx, teacher_weight=c.tw, teacher_bias=c.tb)
    for got, want in zip(jax.tree.leaves(of(teacher_logits=logits)), jax.tree.leaves(heads)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    with pytest.raises(ValueError, match="give teacher_hidden and teacher_weight, or teacher_logits"):
        distillation_loss(c.x, c.w, c.tx, c.tw, c.y, teacher_logits=logits)
    for beside in ({"teacher_softcap": 2.0}, {"teacher_bias": c.tb}):
        with pytest.raises(ValueError, match="is given beside teacher_logits, which have no head"):
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


def another(name, field):
    """A value of an option that is not its default, and that changes a loss."""
    if name == "ignore_index":
        return int(Case().y[0, 0])
    if name == "round_logits_to":
        return "bfloat16"
    if name == "tail_floor":
        return 0.9  # above what the case's tails have
    if "choices" in field:
        return next(choice for choice in field["choices"] if choice not in (field["default"], "none"))
    if field["type"] == "bool":
        return not field["default"]
    if field["type"] == "float":
        return (field["default"] or 0) / 2 + 0.125
    if field["type"] == "int":
        return field["default"] + 1
    return np.linspace(0.5, 1.5, N, dtype=np.float32).astype(np.float64)


# What an option needs beside it to change a loss.
BESIDE = {
    "beta": {"loss_type": "jsd"},
    "skew": {"loss_type": "skew_kl"},
    "forward_weight": {"loss_type": "mixed_kl"},
    "acceptance_decay": {"loss_type": "lk_hybrid"},
    "temperature_squared": {"temperature": 0.7},
    "hard_temperature": {"hard_weight": 0.5},
    "temperature_meaning": {"temperature": 0.7},
    "teacher_softcap": {},
}
REFUSED = {
    "soft_cross_entropy": {"ignore_index", "shift"},
    "id_logps": {"ignore_index", "shift"},
    "distillation_loss": {"temperature_meaning", "want_entropy", "want_agreement"},
    "set_distillation_loss": {"temperature_meaning"},
}


@pytest.mark.parametrize("task", REFUSED)
def test_every_option_arrives_and_changes_the_result(task):
    """Each alone at another value gives the bits that logitless gives without JAX, and other ones than its default."""
    c = Case()
    y = jnp.where(c.y < 0, 3, c.y)
    a = {name: np.asarray(value) for name, value in vars(c).items()}

    def ours(**options):
        if task == "soft_cross_entropy":
            loss = soft_cross_entropy(c.x, c.w, ids=c.ids, weights=c.share, bias=c.b, **options)
        elif task == "id_logps":
            loss = id_logps(c.x, c.w, c.ids, bias=c.b, **options)
        elif task == "distillation_loss":
            loss = distillation_loss(c.x, c.w, c.tx, c.tw, y, bias=c.b, **options)
        else:
            loss = set_distillation_loss(c.x, c.w, c.ids, jnp.log(c.share), y, bias=c.b, **options)
        return np.asarray(loss).ravel()

    def theirs(**options):
        ids, share = a["ids"].reshape(N, K), a["share"].reshape(N, K)
        logps = np.asarray(jnp.log(c.share)).reshape(N, K)
        targets = np.asarray(y)
        if task == "soft_cross_entropy":
            loss = logitless.soft_cross_entropy(a["x"], a["w"], ids=ids, weights=share, bias=a["b"], **options).loss
        elif task == "id_logps":
            loss = logitless.id_logps(a["x"], a["w"], ids, bias=a["b"], **options).logps
        elif task == "distillation_loss":
            loss = logitless.distillation_loss(
                a["x"], a["w"], a["tx"], a["tw"], targets, bias=a["b"], **options
            ).loss
        else:
            loss = logitless.set_distillation_loss(
                a["x"], a["w"], ids, logps, targets, bias=a["b"], **options
            ).loss
        return np.asarray(loss, np.float32).ravel()

    np.testing.assert_array_equal(ours(), theirs())
    fields = {**_core.fields(task), "softcap": {"type": "float", "default": 0.0}}
    if task == "distillation_loss":
        fields["teacher_softcap"] = fields["softcap"]
    changed = 0
    for name, field in fields.items():
        base = BESIDE.get(name, {})
        value = another(name, field)
        if name in REFUSED[task]:
            with pytest.raises(Exception, match=name):
                ours(**{**base, name: value})
            continue
        got = ours(**{**base, name: value})
        np.testing.assert_array_equal(got, theirs(**{**base, name: value}), err_msg=name)
        if name != "mean_over" and name != "hard_temperature":
            assert not np.array_equal(got, ours(**base)), name
        changed += 1
    assert changed >= 5
    with pytest.raises(TypeError, match="smoothing"):
        ours(smoothing=0.1)


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
