# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.jax's losses of whole distributions against losses written out in JAX, and against logitless itself."""

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
        self.mask = jnp.asarray(random.integers(0, 2, (B, T)), jnp.bool_).at[0, 0].set(True)


def logits_of(x, w, b, softcap=0.0):
    logits = x.astype(jnp.float32) @ w.astype(jnp.float32).T + b.astype(jnp.float32)
    return softcap * jnp.tanh(logits / softcap) if softcap else logits


def logps_of(x, w, b, softcap=0.0, temperature=1.0):
    return jax.nn.log_softmax(logits_of(x, w, b, softcap) / temperature)


def at(logps, ids):
    return jnp.take_along_axis(logps, ids, -1)


def mean(losses, counts):
    return jnp.where(counts, losses, 0).sum() / counts.sum()


def kl(log_a, log_b):
    return (jnp.exp(log_a) * (log_a - log_b)).sum(-1)


def divergence(name, s, t):
    mixed = jnp.logaddexp(jnp.log(0.3) + t, jnp.log(0.7) + s)
    return {
        "forward_kl": lambda: kl(t, s),
        "reverse_kl": lambda: kl(s, t),
        "jsd": lambda: 0.3 * kl(t, mixed) + 0.7 * kl(s, mixed),
        "skew_kl": lambda: kl(t, jnp.logaddexp(jnp.log(0.2) + t, jnp.log(0.8) + s)),
        "skew_reverse_kl": lambda: kl(s, jnp.logaddexp(jnp.log(0.2) + s, jnp.log(0.8) + t)),
        "total_variation": lambda: jnp.abs(jnp.exp(s) - jnp.exp(t)).sum(-1) / 2,
        "mixed_kl": lambda: 0.6 * kl(t, s) + 0.4 * kl(s, t),
        "acceptance": lambda: -jnp.log(jnp.exp(jnp.minimum(s, t)).sum(-1)),
        "lk_hybrid": lambda: lk_hybrid(s, t),
    }[name]()


def lk_hybrid(s, t):
    weight = jnp.exp(-3 * jax.lax.stop_gradient(jnp.exp(jnp.minimum(s, t)).sum(-1)))
    return weight * kl(t, s) + (1 - weight) * jnp.abs(jnp.exp(s) - jnp.exp(t)).sum(-1) / 2


def expect_same(ours, theirs, case, compiled, bound=2e-5):
    """Values and gradients of two functions of (hidden, weight, bias)."""
    both = [jax.value_and_grad(f, argnums=(0, 1, 2)) for f in (ours, theirs)]
    inputs = case.x, case.w, case.b
    (got, grads), (want, wanted) = (jax.jit(f)(*inputs) if compiled else f(*inputs) for f in both)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=bound)
    for grad, expected in zip(grads, wanted):
        assert grad.dtype == case.x.dtype
        np.testing.assert_allclose(
            grad.astype(jnp.float32), expected.astype(jnp.float32), atol=bound, rtol=10 * bound
        )


@pytest.mark.parametrize("compiled", [False, True])
def test_soft_cross_entropy(compiled):
    c = Case()
    for subtract in (False, True):

        def sparse(x, w, b, subtract=subtract):
            return 3 * soft_cross_entropy(
                x, w, ids=c.ids, weights=c.share, bias=b, mask=c.mask, softcap=2.0, subtract_entropy=subtract
            )

        def written(x, w, b, subtract=subtract):
            losses = -(c.share * at(logps_of(x, w, b, 2.0), c.ids)).sum(-1)
            if subtract:
                losses += (c.share * jnp.log(c.share)).sum(-1)
            return 3 * mean(losses, c.mask)

        expect_same(sparse, written, c, compiled)
    expect_same(
        lambda x, w, b: soft_cross_entropy(x, w, c.dense, bias=b, temperature=0.5),
        lambda x, w, b: -(c.dense * logps_of(x, w, b, temperature=0.5)).sum(-1).mean(),
        c,
        compiled,
    )


@pytest.mark.parametrize("over", ["vocabulary", "set"])
def test_id_logps(over):
    c = Case()

    def theirs(x, w, b):
        if over == "vocabulary":
            return at(logps_of(x, w, b), c.ids)
        return jax.nn.log_softmax(at(logits_of(x, w, b), c.ids))

    def ours(x, w, b):
        return id_logps(x, w, c.ids, bias=b, normalise_over=over)

    assert ours(c.x, c.w, c.b).shape == (B, T, K)
    weights = jnp.arange(N * K, dtype=jnp.float32).reshape(B, T, K) / 100
    expect_same(*((lambda x, w, b, f=f: (f(x, w, b) * weights).sum()) for f in (ours, theirs)), c, True)


@pytest.mark.parametrize("k", [1, 6, 50])
def test_topk_logps(k):
    c = Case()
    ids, logps = jax.jit(topk_logps, static_argnums=2)(c.x, c.w, k, bias=c.b)
    want, order = jax.lax.top_k(logps_of(c.x, c.w, c.b), min(k, V))
    np.testing.assert_array_equal(ids[..., :V], order)
    np.testing.assert_allclose(logps[..., :V], want, atol=1e-5)
    assert (ids[..., V:] == -1).all() and jnp.isneginf(logps[..., V:]).all()
    assert jax.grad(lambda x: topk_logps(x, c.w, 2)[1].sum())(c.x).max() == 0


PARAMETERS = {
    "jsd": {"beta": 0.3},
    "skew_kl": {"skew": 0.2},
    "skew_reverse_kl": {"skew": 0.2},
    "mixed_kl": {"forward_weight": 0.6},
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", logitless._core.fields("distillation_loss")["loss_type"]["choices"])
def test_distillation_loss(name, dtype):
    c = Case(dtype)
    options = {"loss_type": name, **PARAMETERS.get(name, {})}

    def ours(x, w, b):
        return distillation_loss(
            x, w, c.tx, c.tw, c.y, bias=b, teacher_bias=c.tb, softcap=3.0, teacher_softcap=2.0, hard_weight=0.5, **options
        )

    def theirs(x, w, b):
        s, t = logps_of(x, w, b, 3.0), logps_of(c.tx, c.tw, c.tb, 2.0)
        hard = -at(s, jnp.maximum(c.y, 0)[..., None])[..., 0]
        return mean(divergence(name, s, t) + 0.5 * hard, c.y >= 0)

    expect_same(ours, theirs, c, True, 2e-5 if dtype == jnp.float32 else 2e-2)


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


@pytest.mark.parametrize("outside", logitless._core.fields("set_distillation_loss")["outside"]["choices"])
def test_set_distillation_loss(outside):
    c = Case()

    def theirs(x, w, b):
        s = logps_of(x, w, b)
        log_s, log_t = at(s, c.ids), jnp.log(c.share)
        if outside == "renormalised":
            log_s = jax.nn.log_softmax(log_s)
        if outside in ("renormalised", "teacher_renormalised"):
            log_t = jax.nn.log_softmax(log_t)
        losses = kl(log_t, log_s)
        rest = 1 - jnp.exp(log_s).sum(-1), 1 - jnp.exp(log_t).sum(-1)
        if outside == "tail":
            losses += rest[1] * jnp.log(rest[1] / rest[0])
        if outside == "generalised":
            losses += (jnp.exp(log_s) - jnp.exp(log_t)).sum(-1)
        return mean(losses, c.y >= 0)

    expect_same(
        lambda x, w, b: set_distillation_loss(x, w, c.ids, jnp.log(c.share), c.y, bias=b, outside=outside),
        theirs,
        c,
        True,
    )


def test_given_tails():
    c = Case()
    tail = jnp.log1p(-c.share.sum(-1))
    arguments = c.x, c.w, c.ids, jnp.log(c.share)
    given = set_distillation_loss(*arguments, teacher_outside_logps=tail)
    np.testing.assert_allclose(given, set_distillation_loss(*arguments), rtol=1e-5)


@pytest.mark.parametrize("task", ["soft", "distillation", "set"])
def test_a_loss_a_token(task):
    c = Case()

    def loss(x, w, b, reduction):
        if task == "soft":
            return soft_cross_entropy(x, w, ids=c.ids, weights=c.share, bias=b, reduction=reduction)
        if task == "set":
            return set_distillation_loss(x, w, c.ids, jnp.log(c.share), c.y, bias=b, reduction=reduction)
        return distillation_loss(x, w, c.tx, c.tw, c.y, bias=b, reduction=reduction)

    each = loss(c.x, c.w, c.b, "none")
    assert each.shape == (B, T)
    assert each[0, 3] == 0 or task == "soft"
    weights = jnp.linspace(1, 2, N).reshape(B, T)
    expect_same(
        lambda x, w, b: loss(x, w, b, "none").sum(), lambda x, w, b: loss(x, w, b, "sum"), c, True, 1e-5
    )
    # Of a row alone: what the weight leaves.
    weighted = jax.grad(lambda x: (weights * loss(x, c.w, c.b, "none")).sum())(c.x)
    plain = jax.grad(lambda x: loss(x, c.w, c.b, "sum"))(c.x)
    np.testing.assert_allclose(weighted, weights[..., None] * plain, atol=1e-6)


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
