# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Sampled and certified gradients from Python: the keywords arrive, from NumPy and from PyTorch."""

import numpy as np
import pytest

import logitless
from logitless import _core

N, H, V = 24, 6, 1500
random = np.random.default_rng(3)
HIDDEN = (1.5 * random.standard_normal((N, H))).astype(np.float32)
WEIGHT = random.standard_normal((V, H)).astype(np.float32)
IDS = np.arange(N) * 37 % V


def gradients(**options):
    d_hidden, d_weight = np.full_like(HIDDEN, np.nan), np.full_like(WEIGHT, np.nan)
    result = logitless.cross_entropy(HIDDEN, WEIGHT, IDS, d_hidden=d_hidden, d_weight=d_weight, **options)
    return result, d_hidden, d_weight


def test_seeds_and_the_noise_arrive():
    exact, *want = gradients()
    assert exact.plan.kept_share == 1
    sampled, one, _ = gradients(backward="sampled", theta=0.2, seed=0)
    assert sampled.loss == exact.loss and 0 < sampled.plan.kept_share < 0.5
    again, other = (gradients(backward="sampled", theta=0.2, seed=seed)[1] for seed in (0, 1))
    assert (again == one).all() and (other != one).any() and (one != want[0]).any()


def test_noise_and_tolerance_arrive():
    result, got, _ = gradients(backward="sampled", noise=0.2)
    assert result.plan.noise_estimate == pytest.approx(0.2, rel=1e-3)
    want = gradients()[1]
    result, got, _ = gradients(backward="certified", tolerance=0.3)
    assert 0 < np.linalg.norm(got - want) <= result.plan.d_hidden_bound
    assert result.plan.kept_share < 0.5 and result.plan.d_weight_bound > 0


torch = pytest.importorskip("torch")


def torch_gradient(function=None, **options):
    from logitless.torch import linear_cross_entropy

    hidden = torch.from_numpy(HIDDEN).requires_grad_()
    weight = torch.from_numpy(WEIGHT).requires_grad_()
    loss = (function or linear_cross_entropy)(hidden, weight, torch.from_numpy(IDS), **options)
    loss.sum().backward()
    return hidden.grad.numpy()


def test_pytorch_draws_its_own_seeds():
    sampled = {"backward": "sampled", "theta": 0.2}
    torch.manual_seed(1)
    first, second = (torch_gradient(**sampled) for _ in range(2))
    assert (first != second).any()
    torch.manual_seed(1)
    assert (torch_gradient(**sampled) == first).all()
    want = gradients(backward="sampled", theta=0.2, seed=7)[1]
    assert (torch_gradient(**sampled, seed=7) == want).all()
    per_token = torch_gradient(**sampled, seed=7, reduction="none")
    np.testing.assert_allclose(per_token / N, want, rtol=1e-5, atol=1e-7)


def test_pytorch_statistics_and_sets():
    from logitless.torch import id_logps, token_logps

    want = gradients(backward="sampled", theta=0.2, seed=7)[1]
    options = {"backward": "sampled", "theta": 0.2, "seed": 7}
    logps = lambda h, w, ids, **o: token_logps(h, w, ids, **o).neg().mean()
    np.testing.assert_allclose(torch_gradient(logps, **options), want, rtol=1e-5, atol=1e-7)
    sets = lambda h, w, ids, **o: id_logps(h, w, ids[:, None], **o).neg().mean()
    np.testing.assert_allclose(torch_gradient(sets, **options), want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("surface", ["torch", "jax"])
@pytest.mark.parametrize("wrong", [{"theta": -3.0}, {"noise": float("nan")}, {"tolerance": 1.0}], ids=str)
def test_an_option_out_of_range_is_refused_before_the_backward(wrong, surface):
    of = pytest.importorskip(f"logitless.{surface}", exc_type=ImportError)
    x, w, ids, weights = HIDDEN, WEIGHT, IDS, np.ones((N, 1), np.float32)
    if surface == "torch":
        x, w, ids, weights = (torch.from_numpy(array) for array in (x, w, ids, weights))
        x = x.clone().requires_grad_()
    for call in (
        lambda: of.token_logps(x, w, ids, **wrong),
        lambda: of.id_logps(x, w, ids[:, None], **wrong),
        lambda: of.soft_cross_entropy(x, w, ids=ids[:, None], weights=weights, reduction="none", **wrong),
    ):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} = .* must be a number"):
            call()


def test_compiled():
    from logitless.torch import linear_cross_entropy

    compiled = torch.compile(linear_cross_entropy, backend="aot_eager")
    want = gradients(backward="sampled", theta=0.2, seed=7)[1]
    got = torch_gradient(compiled, backward="sampled", theta=0.2, seed=7)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    drawn = torch_gradient(compiled, backward="sampled", theta=0.2)
    assert (drawn != got).any()


jax = pytest.importorskip("jax")
if not hasattr(_core, "jax_targets"):
    pytest.skip("built without jax", allow_module_level=True)


def test_jax_reads_the_seed_at_run_time():
    from logitless.jax import linear_cross_entropy

    traced = []

    @jax.jit
    def gradient(hidden, seed):
        traced.append(seed)
        loss = lambda h: linear_cross_entropy(h, WEIGHT, IDS, backward="sampled", theta=0.2, seed=seed)
        return jax.grad(loss)(hidden)

    for seed in (7, 8):
        want = gradients(backward="sampled", theta=0.2, seed=seed)[1]
        np.testing.assert_allclose(gradient(HIDDEN, seed), want, rtol=1e-5, atol=1e-7)
    assert len(traced) == 1


def test_jax_takes_the_other_options():
    from logitless.jax import id_logps, linear_cross_entropy, token_logps

    certified, sampled = {"backward": "certified", "tolerance": 0.3}, {"backward": "sampled", "theta": 0.2, "seed": 7}
    for loss, options in (
        (lambda h, **o: linear_cross_entropy(h, WEIGHT, IDS, **o), certified),
        (lambda h, **o: -token_logps(h, WEIGHT, IDS, **o)[0].mean(), sampled),
        (lambda h, **o: -id_logps(h, WEIGHT, IDS[:, None], **o).mean(), sampled),
    ):
        got = jax.grad(lambda h: loss(h, **options))(HIDDEN)  # noqa: B023
        np.testing.assert_allclose(got, gradients(**options)[1], rtol=1e-5, atol=1e-7)
