# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The package on NumPy arrays: results, plans, top k, contexts and errors. test_generated_calls.py draws
calls."""

from concurrent.futures import ThreadPoolExecutor

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


def test_results_and_plans():
    hidden, weight, targets = problem(np.float64)
    mean = logitless.cross_entropy(hidden, weight, targets)
    assert mean.metrics["tokens"] == (targets >= 0).sum() and "rows" in mean.plan.describe()
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
    assert (stats.top_ids[:, 0] == stats.argmax).all()
    assert stats.top_mass[part] == pytest.approx(np.exp(stats.top_logps[part]).sum(-1), rel=1e-12)
    assert (stats.top_ids[~part] == -1).all() and (stats.top_mass[~part] == 0).all()
    nothing = logitless.token_stats(hidden[:0], weight, targets[:0], top_k=5)
    assert nothing.top_ids.shape == nothing.top_logps.shape == (0, 5) and nothing.top_mass.shape == (0,)
    for wrong in (-1, 257):
        with pytest.raises(ValueError, match=f"top_k = {wrong} must be an integer from 0 to 256"):
            logitless.token_stats(hidden, weight, targets, top_k=wrong)


def test_sample_is_the_draws_of_token_stats():
    hidden, weight, targets = problem(np.float64)
    part = targets >= 0
    logits = hidden @ weight.T
    for more in ({}, {"top_k": 4}, {"top_k": 4, "top_p": 0.6}):
        ids, logps = logitless.sample(hidden, weight, 9, seed=3, temperature=0.7, **more)
        asked = {"draws": 9, "draw_seed": 3, **{f"draw_{name}": value for name, value in more.items()}}
        stats = logitless.token_stats(hidden, weight, targets, temperature=0.7, **asked)
        assert (stats.drawn_ids[part] == ids[part]).all() and (stats.drawn_logps[part] == logps[part]).all()
        assert (stats.drawn_ids[~part] == -1).all() and (stats.drawn_logps[~part] == 0).all()
        all_logps = logits / 0.7 - np.logaddexp.reduce(logits / 0.7, axis=-1, keepdims=True)
        np.testing.assert_allclose(logps, np.take_along_axis(all_logps, ids, -1), rtol=1e-10)
        given = logitless.sample(logits=logits, num_samples=9, seed=3, temperature=0.7, **more)[0]
        assert (given == ids).all()
    assert (logitless.sample(hidden, weight, 9, seed=4)[0] != logitless.sample(hidden, weight, 9, seed=3)[0]).any()
    greedy, logps = logitless.sample(hidden, weight, 2, seed=3, temperature=0)
    assert (greedy == logits.argmax(-1)[:, None]).all() and logps.shape == greedy.shape
    for wrong, words in (
        ({"temperature": 0, "temperatures": np.ones(len(hidden))}, "temperature = 0 is given with temperatures"),
        ({"num_samples": 0}, "num_samples = 0 must be an integer from 1 to 256"),
        ({"top_k": 257}, "top_k = 257 must be an integer from 0 to 256"),
        ({"top_p": 0.9}, "top_p = 0.9 needs top_k"),
        ({"top_p": 0}, "top_p = 0 must be a number above 0"),
        ({"temperature": -1}, "temperature = -1"),
    ):
        with pytest.raises(ValueError, match=words):
            logitless.sample(hidden, weight, seed=3, **wrong)
    with pytest.raises(TypeError, match="no argument 'targets'"):
        logitless.sample(hidden, weight, seed=3, targets=targets)


def test_topk_overlap_and_topk_union():
    a, b = np.array([[4, 2, 9], [7, -1, -1]]), np.array([[9, 1, 4, 8], [-1, 7, 3, -1]])
    assert logitless.topk_overlap(a, b).tolist() == logitless.topk_overlap(b, a).tolist() == [2, 1]
    assert logitless.topk_overlap(a.reshape(2, 1, 3), b.reshape(2, 1, 4)).shape == (2, 1)
    for shape in ((2,), (2, 1)):
        ids, offsets = logitless.topk_union(a.reshape(*shape, 3), b.reshape(*shape, 4))
        assert ids.tolist() == [4, 2, 9, 1, 8, 7, 3] and offsets.tolist() == [0, 5, 7]
    assert logitless.topk_overlap([1, 2], [2, 3, 4]) == 1
    assert logitless.topk_union([1, 2], [2, 3, 4])[0].tolist() == [1, 2, 3, 4]
    assert logitless.topk_overlap(a[:0], b[:0]).shape == (0,) and logitless.topk_union(a[:0], b[:0])[1].tolist() == [0]
    for function in (logitless.topk_overlap, logitless.topk_union):
        with pytest.raises(ValueError, match=r"a_ids has shape \(2, 3\) and b_ids \(1, 4\)"):
            function(a, b[:1])


def test_an_exception_of_a_sink_is_the_callers():
    hidden, weight, targets = problem()

    def failing(first, count, tile):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        logitless.cross_entropy(hidden, weight, targets, weight_sink=failing)


def test_threads_share_a_context():
    call = problem()
    context = logitless.Context(threads=1, workspace=logitless.Workspace())
    want = logitless.cross_entropy(*call, context=context).loss
    with ThreadPoolExecutor(4) as threads:
        got = threads.map(lambda _: logitless.cross_entropy(*call, context=context).loss, range(80))
    assert set(got) == {want}


@pytest.mark.parametrize(
    "change, error, words",
    [
        (dict(weight=np.zeros((V, H), np.int32)), ValueError, "weight is int32"),
        (dict(hidden=np.zeros((N, 2 * H), np.float32)[:, ::2]), ValueError, "hidden has strides"),
        (dict(hidden=[[1.0]]), TypeError, "hidden is a list"),
        (dict(hidden=None), ValueError, "hidden is missing"),
        (dict(logits=np.zeros((N, V), np.float32)), TypeError, "no argument 'hidden' with the other arguments given"),
        (dict(temperature="hot"), TypeError, "temperature = 'hot': it must be a float"),
        (dict(temperature=10**400), ValueError, "temperature = an int of 1329 bits: it is too large for a float"),
        (dict(ignore_index=2**63), ValueError, "ignore_index = 9223372036854775808: it must be from -92"),
        (dict(reduction="avg"), ValueError, "none of mean, sum, none"),
    ],
)
def test_what_is_refused(change, error, words):
    hidden, weight, targets = problem()
    arguments = {"hidden": hidden, "weight": weight, "targets": targets, **change}
    with pytest.raises(error, match=words):
        logitless.cross_entropy(**arguments)


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
