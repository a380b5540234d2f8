# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The package on NumPy arrays: losses against float64, arrays as they come, and what is refused."""

import threading

import numpy as np
import pytest

import logitless

N, H, V = 21, 9, 57


def problem(dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    hidden = random.standard_normal((N, H)).astype(dtype)
    weight = random.standard_normal((V, H)).astype(dtype)
    targets = random.integers(0, V, N)
    targets[::5] = -100
    return hidden, weight, targets


def reference(hidden, weight, targets, bias=0.0):
    """Loss, gradient of hidden and of weight, in float64."""
    x, w = hidden.astype(np.float64), weight.astype(np.float64)
    logits = x @ w.T + bias
    logits -= logits.max(axis=1, keepdims=True)
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    taken = targets >= 0
    rows = np.arange(len(targets))[taken]
    loss = -logp[rows, targets[taken]].mean()
    g = np.exp(logp)
    g[rows, targets[taken]] -= 1
    g[~taken] = 0
    g /= taken.sum()
    return loss, g @ w, g.T @ x


@pytest.mark.parametrize("dtype, bound", [(np.float32, 1e-5), (np.float64, 1e-12), (np.float16, 5e-3)])
@pytest.mark.parametrize("ids", [np.int64, np.int32])
def test_cross_entropy_is_the_reference(dtype, bound, ids):
    hidden, weight, targets = problem(dtype)
    d_hidden, d_weight = np.empty_like(hidden), np.empty_like(weight)
    result = logitless.cross_entropy(
        hidden, weight, targets.astype(ids), d_hidden=d_hidden, d_weight=d_weight
    )
    loss, want_hidden, want_weight = reference(hidden, weight, targets)
    assert abs(result.loss - loss) < 1e-5
    np.testing.assert_allclose(d_hidden, want_hidden, atol=bound)
    np.testing.assert_allclose(d_weight, want_weight, atol=bound)
    assert result.metrics["tokens"] == (targets >= 0).sum()
    assert result.per_token_loss.shape == (N,) and result.per_token_loss[0] == 0
    assert "rows" in result.plan.describe()


def test_arrays_are_read_and_written_where_they_stand():
    hidden, weight, targets = problem()
    want = logitless.cross_entropy(hidden, weight, targets).loss
    wide = np.full((N, H + 3), np.nan, np.float32)
    wide[:, :H] = hidden
    assert logitless.cross_entropy(wide[:, :H], weight, targets).loss == want
    batched = np.full((3, 10, H), np.nan, np.float32)
    batched[:, :7] = hidden.reshape(3, 7, H)
    out = np.full((3, 10, H), 7, np.float32)
    got = logitless.cross_entropy(batched[:, :7], weight, targets.reshape(3, 7), d_hidden=out[:, :7])
    assert got.loss == want
    assert (out[:, 7:] == 7).all() and not (out[:, :7] == 7).any()
    # A head that is stored as [H, V] is given as its transposed view, and so is the memory of its gradient.
    transposed = np.ascontiguousarray(weight.T)
    d_weight = np.empty_like(transposed)
    assert abs(logitless.cross_entropy(hidden, transposed.T, targets, d_weight=d_weight.T).loss - want) < 1e-6
    np.testing.assert_allclose(d_weight.T, reference(hidden, weight, targets)[2], atol=1e-6)
    with pytest.raises(ValueError, match=r"^weight is \[9, 57\] but hidden has 9 columns: weight is \[V, H\]"):
        logitless.cross_entropy(hidden, transposed, targets)
    assert abs(logitless.cross_entropy(logits=hidden @ weight.T, targets=targets).loss - want) < 1e-5


def test_options_reach_the_library():
    hidden, weight, targets = problem(np.float64)
    bias = np.linspace(-1, 1, V)
    assert (
        abs(
            logitless.cross_entropy(hidden, weight, targets, bias=bias).loss
            - reference(hidden, weight, targets, bias)[0]
        )
        < 1e-12
    )
    mean = logitless.cross_entropy(hidden, weight, targets)
    total = logitless.cross_entropy(hidden, weight, targets, reduction="sum")
    assert abs(total.loss - mean.loss * mean.metrics["tokens"]) < 1e-9
    assert logitless.cross_entropy(hidden, weight, targets, label_smoothing=0.5).loss != mean.loss
    ones = np.ones(V, np.float32)
    assert logitless.cross_entropy(hidden, weight, targets, class_weights=ones).loss == pytest.approx(
        mean.loss
    )
    stats = logitless.token_stats(hidden, weight, targets, entropy=True, argmax=True, rank=True)
    assert set(stats) == {"logp", "lse", "entropy", "argmax", "rank", "max_logit", "log_sum"}
    assert stats.logp == pytest.approx(mean.per_token_logps) and stats["logp"] is stats.logp
    assert stats.cross is None and stats.rank.dtype == np.int64
    with pytest.raises(KeyError, match="cross"):
        stats["cross"]
    with pytest.raises(ValueError, match="top_mass needs top_ids"):
        stats.top_mass  # noqa: B018
    nothing = logitless.token_stats(hidden[:0], weight, targets[:0], entropy=True)
    assert nothing.logp.shape == nothing.entropy.shape == (0,) and nothing.rank is None
    plan = logitless.plan("cross_entropy", hidden=hidden, weight=weight, targets=targets)
    assert plan.kind == "forward_only" and plan.least_workspace_bytes > 0
    planned = logitless.plan("token_stats", hidden=hidden, weight=weight, targets=targets, top_k=5)
    assert planned.kind == "forward_only" and planned.workspace_bytes > plan.workspace_bytes


def test_top_k():
    hidden, weight, targets = problem(np.float64)
    stats = logitless.token_stats(hidden, weight, targets, argmax=True, top_k=5)
    assert set(stats) == {"logp", "lse", "argmax", "max_logit", "log_sum", "top_ids", "top_logps"}
    part = targets >= 0
    logits = hidden @ weight.T
    want = np.argsort(-logits, axis=-1, kind="stable")[:, :5]
    assert stats.top_ids.shape == stats.top_logps.shape == (len(targets), 5)
    assert (stats.top_ids[part] == want[part]).all() and (stats.top_ids[:, 0] == stats.argmax).all()
    logps = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    logps = np.take_along_axis(logps, want, -1)
    assert stats.top_logps[part] == pytest.approx(logps[part], rel=1e-12)
    assert stats.top_mass[part] == pytest.approx(np.exp(logps[part]).sum(-1), rel=1e-12)
    assert (stats.top_ids[~part] == -1).all() and (stats.top_mass[~part] == 0).all()
    whole = logitless.token_stats(hidden, weight, targets, top_k=200)
    assert (whole.top_ids[part][:, V:] == -1).all() and (whole.top_logps[part][:, V:] == -np.inf).all()
    assert whole.top_mass[part] == pytest.approx(np.ones(part.sum()))
    nothing = logitless.token_stats(hidden[:0], weight, targets[:0], top_k=5)
    assert nothing.top_ids.shape == nothing.top_logps.shape == (0, 5) and nothing.top_mass.shape == (0,)
    for wrong in (-1, 257):
        with pytest.raises(ValueError, match=f"top_k = {wrong} must be an integer from 0 to 256"):
            logitless.token_stats(hidden, weight, targets, top_k=wrong)


def test_topk_overlap():
    a, b = np.array([[4, 2, 9], [7, -1, -1]]), np.array([[9, 1, 4, 8], [-1, 7, -1, -1]])
    assert logitless.topk_overlap(a, b).tolist() == logitless.topk_overlap(b, a).tolist() == [2, 1]
    assert logitless.topk_overlap(a.reshape(2, 1, 3), b.reshape(2, 1, 4)).shape == (2, 1)
    assert logitless.topk_overlap([1, 2], [2, 3, 4]) == 1
    assert logitless.topk_overlap(a[:0], b[:0]).shape == (0,)
    with pytest.raises(ValueError, match=r"a_ids of shape \(2, 3\) and b_ids of shape \(1, 4\)"):
        logitless.topk_overlap(a, b[:1])


def test_topk_union():
    a, b = np.array([[4, 2, 9], [7, -1, -1]]), np.array([[9, 1, 4, 8], [-1, 7, 3, -1]])
    ids, offsets = logitless.topk_union(a, b)
    assert ids.tolist() == [4, 2, 9, 1, 8, 7, 3] and offsets.tolist() == [0, 5, 7]
    ids, offsets = logitless.topk_union(a.reshape(2, 1, 3), b.reshape(2, 1, 4))
    assert offsets.tolist() == [0, 5, 7]
    assert logitless.topk_union([1, 2], [2, 3, 4])[0].tolist() == [1, 2, 3, 4]
    assert logitless.topk_union(a[:0], b[:0])[1].tolist() == [0]
    with pytest.raises(ValueError, match=r"a_ids of shape \(2, 3\) and b_ids of shape \(1, 4\)"):
        logitless.topk_union(a, b[:1])


def test_policy_preference_and_kto_losses():
    hidden, weight, targets = problem(np.float64)
    hidden, targets = hidden[:20], np.abs(targets[:20]) % V
    logps = logitless.token_stats(hidden, weight, targets).logp
    batched = hidden.reshape(4, 5, H)
    ids = targets.reshape(4, 5)
    advantages = np.array([1.0, -1.0, 0.5, -0.5])
    d_hidden = np.empty_like(batched)
    policy = logitless.policy_loss(
        batched, weight, ids, advantages=advantages, old_logps=logps, d_hidden=d_hidden
    )
    assert policy.loss == pytest.approx(-advantages.mean()) and policy.metrics["mean_ratio"] == pytest.approx(
        1
    )
    assert np.abs(d_hidden).sum() > 0
    pairs = logitless.preference_loss(
        batched, weight, ids, loss_type=["sigmoid"], ref_hidden=batched, ref_weight=weight
    )
    assert pairs.loss == pytest.approx(np.log(2)) and pairs.sequence_logps.shape == (4,)
    kto = logitless.kto_loss(
        batched, weight, ids, labels=np.array([1, 0, 1, 0], np.uint8), ref_logps=pairs.sequence_logps
    )
    assert kto.sequence_losses.shape == (4,) and kto.loss > 0


def test_a_sink_gets_every_entry_once():
    hidden, weight, targets = problem()
    got = np.zeros_like(weight)
    seen = []

    def sink(first, count, tile):
        seen.append((first, count))
        got[first : first + count] += tile

    logitless.cross_entropy(hidden, weight, targets, weight_sink=sink)
    assert sum(count for _, count in seen) == V
    np.testing.assert_allclose(got, reference(hidden, weight, targets)[2], atol=1e-6)

    def failing(first, count, tile):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        logitless.cross_entropy(hidden, weight, targets, weight_sink=failing)


def test_threads_share_a_context():
    hidden, weight, targets = problem()
    context = logitless.Context(threads=1, workspace=logitless.Workspace())
    want = logitless.cross_entropy(hidden, weight, targets, context=context).loss
    got = []
    threads = [
        threading.Thread(
            target=lambda: got.extend(
                logitless.cross_entropy(hidden, weight, targets, context=context).loss for _ in range(20)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 80


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(targets=np.zeros(N)), ValueError, "targets is float64"),
        (dict(targets=np.full(N, V)), ValueError, f"{V}"),
        (dict(weight=np.zeros((V, H + 1), np.float32)), ValueError, "10"),
        (dict(weight=np.zeros((V, H), np.int32)), ValueError, "weight is int32"),
        (dict(hidden=np.zeros((N, 2 * H), np.float32)[:, ::2]), ValueError, "hidden has strides"),
        (dict(hidden=np.zeros(N, np.float32)), ValueError, "hidden has shape"),
        (dict(hidden=[[1.0]]), TypeError, "hidden is a list"),
        (dict(hidden=None), ValueError, "hidden is missing"),
        (dict(temprature=1.0), TypeError, "no argument 'temprature'; did you mean temperature?"),
        (dict(logits=np.zeros((N, V), np.float32)), TypeError, "no argument 'hidden' beside the others"),
        (dict(temperature="hot"), TypeError, "temperature = 'hot': it must be a float"),
        (dict(shift=0.5), TypeError, "shift = 0.5: it must be an int"),
        (dict(temperature=10**400), ValueError, "temperature = an int of 1329 bits: no float"),
        (dict(ignore_index=2**63), ValueError, "ignore_index = 9223372036854775808: it must be from -92"),
        (dict(want_entropy=1), TypeError, "want_entropy = 1: it must be a bool"),
        (dict(temperature=0.0), ValueError, "temperature = 0"),
        (dict(reduction="avg"), ValueError, "none of mean, sum, none"),
        (dict(layout="hidden_vocab"), TypeError, "cross_entropy has no argument 'layout'"),
    ],
)
def test_what_is_refused(change, error, words):
    hidden, weight, targets = problem()
    arguments = {"hidden": hidden, "weight": weight, "targets": targets, **change}
    with pytest.raises(error, match=words):
        logitless.cross_entropy(**arguments)


def test_read_only_arrays():
    hidden, weight, targets = problem()
    hidden.flags.writeable = weight.flags.writeable = targets.flags.writeable = False
    assert logitless.cross_entropy(hidden, weight, targets).loss > 0
    with pytest.raises(TypeError, match="d_weight"):
        logitless.cross_entropy(hidden, weight, targets, d_weight=weight)


def test_contexts_refuse_what_is_none():
    with pytest.raises(ValueError, match="threads"):
        logitless.Context(threads=-1)
    with pytest.raises(ValueError, match="threads = 1099511627776: it must be from -2147483648 to"):
        logitless.Context(threads=2**40)
    with pytest.raises(TypeError, match="slices is a list: it must be a list of ints of 64 bits"):
        logitless.Context(slices=[2**64])
    with pytest.raises(ValueError, match="no_such"):
        logitless.Context(gemm_backend="no_such")
    with pytest.raises(ValueError, match="none of auto"):
        logitless.Context(plan="three_pass")
    assert logitless.Context(threads=1).threads == 1
    assert logitless.environment()["version"] == logitless.__version__
