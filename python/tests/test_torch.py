# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch against PyTorch's own functions."""

import itertools
import random
import subprocess
import sys

import pytest
from torch_cases import F, N, V, tensors, torch

from logitless._torch_versions import linear_cross_entropy as of_pytorch
from logitless.torch import (
    LinearCrossEntropyLoss,
    distillation_loss,
    linear_cross_entropy,
    set_distillation_loss,
    soft_cross_entropy,
)


BOUND = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
GRID = {
    "wants": [(True, True, True), (True, False, False), (False, True, False), (False, False, True), (False, False, False)],
    "bias": [False, True],
    "weights": [False, True],
    "smoothing": [0.0, 0.1],
    "ignored": [-100, 5],
}


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_grid(dtype, reduction):
    """A sample of all combinations, compared with PyTorch's function in float64."""
    for case in random.Random(f"{dtype} {reduction}").sample(list(itertools.product(*GRID.values())), 20):
        wants, bias, weights, smoothing, ignored = case
        results = []
        for function, kind in ((linear_cross_entropy, dtype), (of_pytorch, torch.float64)):
            *leaves, y = tensors(dtype)
            x, w, b = (leaf.to(kind).requires_grad_(want) for leaf, want in zip(leaves, wants))
            leaves = [leaf for leaf in (x, w, b if bias else y) if leaf.requires_grad]
            classes = torch.linspace(0.5, 1.5, V).to(dtype).to(kind) if weights else None
            options = dict(weight=classes, reduction=reduction, label_smoothing=smoothing, ignore_index=ignored)
            loss = function(x, w, torch.where(y < 0, ignored, y), linear_bias=b if bias else None, **options)
            upstream = torch.linspace(0.5, 1, loss.numel(), dtype=loss.dtype).view_as(loss)
            results.append([loss.detach(), *(torch.autograd.grad(loss, leaves, upstream) if leaves else ())])
        for got, want in zip(*results, strict=True):
            assert got.dtype == dtype and got.shape == want.shape, case
            bound = BOUND[dtype] * max(1.0, want.abs().max().item())
            torch.testing.assert_close(got.double(), want, atol=bound, rtol=0, msg=str(case))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_of_float16_are_rounded_once_they_are_scaled(reduction, frozen):
    """A loss scale preserves gradients that float16 would underflow, and the upstream gradient undoes the
    scale."""
    x, w, _, y = tensors(torch.float16)
    leaves = [x.requires_grad_(), *([] if frozen else [w.requires_grad_()])]
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    logits = wide[0] @ (w.double() if frozen else wide[1]).T
    want = torch.autograd.grad(F.cross_entropy(logits, y, reduction=reduction).sum(), wide)
    for scale in (1e-9, 1e9):
        loss = linear_cross_entropy(x, w, y, reduction=reduction, loss_scale=scale, loss_dtype=torch.float32)
        for got, exact in zip(torch.autograd.grad(loss.sum() / scale, leaves), want):
            torch.testing.assert_close(got.double(), exact, atol=1e-3, rtol=2e-3)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_checkpoint(reduction):
    x, w, _, y = tensors(torch.float64)
    results = []
    for function in (linear_cross_entropy, of_pytorch):
        for use_reentrant in (False, True):
            leaf = x.clone().requires_grad_()

            def loss(rows, function=function):
                return function(torch.tanh(rows), w, y, reduction=reduction).sum()

            torch.utils.checkpoint.checkpoint(loss, leaf, use_reentrant=use_reentrant).backward()
            results.append(leaf.grad)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_in_the_place_of_pytorchs(monkeypatch):
    x, w, _, y = tensors(torch.float64)
    p = torch.rand(N, V, dtype=torch.float64).softmax(1)
    want = of_pytorch(x, w, p)
    monkeypatch.setattr(F, "linear_cross_entropy", linear_cross_entropy, raising=False)
    torch.testing.assert_close(F.linear_cross_entropy(x, w, p), want)


def test_a_normaliser_takes_the_place_of_the_number_of_tokens():
    x, w, b, y = tensors(torch.float64)
    want = of_pytorch(x, w, y, linear_bias=b, reduction="sum") / 29
    for items in (29, 29.0, torch.tensor(29), torch.tensor([29.0])):
        torch.testing.assert_close(linear_cross_entropy(x, w, y, linear_bias=b, num_items_in_batch=items), want)
    with pytest.raises(ValueError, match="num_items_in_batch"):
        linear_cross_entropy(x, w, y, num_items_in_batch=29, reduction="sum")
    with pytest.raises(ValueError, match="num_items_in_batch requires a gradient"):
        linear_cross_entropy(x, w, y, num_items_in_batch=torch.tensor(29.0, requires_grad=True))
    p = (x @ w.T).softmax(1)
    want = F.cross_entropy(3 * torch.tanh((x @ w.T) / 3), p, reduction="sum") / 29
    torch.testing.assert_close(linear_cross_entropy(x, w, p, num_items_in_batch=29, softcap=3.0), want)
    with pytest.raises(ValueError, match="z_loss is not supported if target holds class prob"):
        linear_cross_entropy(x, w, p, z_loss=0.1)


def weighted_mean(x, w, y, classes, weights, mean_over):
    """The loss with token weights, and its gradients, by autograd on all logits."""
    losses = F.cross_entropy(x @ w.T, y, classes, reduction="none")
    counted = torch.where(y < 0, 0, (torch.ones(V, dtype=x.dtype) if classes is None else classes)[y.clamp(min=0)])
    loss = (weights * losses).sum() / (weights * counted if mean_over == "token_weights" else counted).sum()
    return [loss.detach(), *torch.autograd.grad(loss, (x, w))]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("mean_over", ["tokens", "token_weights"])
def test_token_weights_are_those_of_a_weighted_sum(mean_over, compiled):
    x, w, _, y = tensors(torch.float64)
    x, w = x.requires_grad_(), w.requires_grad_()
    weights, module = torch.linspace(0, 2, N, dtype=torch.float64), LinearCrossEntropyLoss(*w.shape[::-1], mean_over=mean_over)
    module.linear = torch.nn.Linear(*w.shape[::-1], bias=False, dtype=torch.float64)
    module.linear.weight = torch.nn.Parameter(w.detach())

    def loss_of(x, w, classes):
        return linear_cross_entropy(x, w, y, weight=classes, token_weights=weights, mean_over=mean_over)

    function = torch.compile(loss_of, fullgraph=True, backend="aot_eager") if compiled else loss_of
    for classes in (None, torch.linspace(0.5, 1.5, V, dtype=torch.float64)):
        loss, want = function(x, w, classes), weighted_mean(x, w, y, classes, weights, mean_over)
        torch.testing.assert_close([loss.detach(), *torch.autograd.grad(loss, (x, w))], want)
    torch.testing.assert_close(module(x, y, weights).detach(), loss_of(x, w, None).detach())
    losses = linear_cross_entropy(x, w, y, token_weights=weights, reduction="none")
    torch.testing.assert_close(losses, weights * linear_cross_entropy(x, w, y, reduction="none"))
    probabilities = F.one_hot(y.clamp(min=0), V).double()
    soft = linear_cross_entropy(x, w, probabilities, token_weights=torch.where(y < 0, 0, weights), reduction="sum")
    torch.testing.assert_close(soft, losses.sum())


def test_token_weights_that_require_a_gradient_are_refused():
    x, w, _, y = tensors(torch.float64)
    given = {"token_weights": torch.ones(N, requires_grad=True)}
    p, ids = torch.full((N, V), 1 / V).double(), y.clamp(min=0)[:, None]
    for call in (
        lambda: linear_cross_entropy(x, w, y, **given),
        lambda: torch.compile(linear_cross_entropy, backend="aot_eager")(x, w, y, **given),
        lambda: soft_cross_entropy(x, w, p, **given),
        lambda: distillation_loss(x, w, x, w, **given),
        lambda: set_distillation_loss(x, w, ids, -torch.ones(N, 1), **given),
    ):
        with pytest.raises(ValueError, match="^token_weights requires a gradient, but gets none: detach it"):
            call()


def test_an_older_pytorch_is_named():
    """`logitless.torch` needs PyTorch 2.6."""
    older = "import torch; torch.__version__ = '2.5.1'; import logitless.torch"
    result = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert result.returncode == 1
    assert "ImportError: logitless.torch needs PyTorch 2.6 or later, not 2.5.1" in result.stderr
