# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch under torch.compile, and as an operator of those who trace."""

import pytest
from torch_cases import F, N, V, tensors, torch

from logitless.torch import linear_cross_entropy


def test_compiled_second_derivatives_are_refused():
    x, w, _, y = tensors(torch.float64)
    x.requires_grad_()
    loss = torch.compile(linear_cross_entropy, backend="eager", fullgraph=True)(x, w, y)
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.square().sum().backward()


def test_is_an_operator_to_those_who_trace():
    x, w, _, y = tensors(torch.float32)
    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    traced = make_fx(lambda *inputs: linear_cross_entropy(*inputs))(x, w, y)
    torch.testing.assert_close(traced(2 * x, w, y), F.linear_cross_entropy(2 * x, w, y))
    with torch._subclasses.FakeTensorMode() as mode:
        fake = linear_cross_entropy(*(mode.from_tensor(t) for t in (x, w, y)))
    assert fake.shape == () and fake.dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled(dtype, reduction):
    """One graph, with the operator in it: the results are those of the eager call."""

    def step(x, w, b, y):
        return (
            2 * linear_cross_entropy(torch.sin(x), w, y, linear_bias=b, reduction=reduction, softcap=5.0)
        ).sum()

    results = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        x, w, b, y = tensors(dtype)
        x, w = x.requires_grad_(), w.requires_grad_()
        loss = function(x, w, b, y)
        loss.backward()
        results.append((loss.detach(), x.grad, w.grad))
    for eager, compiled in zip(*results):
        torch.testing.assert_close(eager, compiled)


def test_the_operator_keeps_its_contract():
    x, w, b, y = tensors(torch.float32)
    x, w = x.requires_grad_(), w.requires_grad_()
    for reduction in ("mean", "none"):
        others = {"class_weights": torch.rand(V), "temperatures": torch.rand(N).double() + 0.5, "normaliser": None}
        if reduction == "mean":
            others["normaliser"] = torch.tensor(7)
        for given in (others, dict.fromkeys(others)):
            torch.library.opcheck(
                torch.ops.logitless.linear_cross_entropy.default,
                (x, w, b, y, *given.values()),
                {"needs": [True, True, False], "dtype": torch.float32, "reduction": reduction, "z_loss": 0.1},
            )


def test_a_compiled_call_reads_a_tensor_normaliser_when_it_runs():
    """One graph for all values: num_items_in_batch is another one in every step."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    def step(x, w, y, items):
        return linear_cross_entropy(x, w, y, normaliser=items)

    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for items in (3, 5, 8):
        results = []
        for function in (step, compiled):
            x, w, _, y = tensors(torch.float64)
            loss = function(x.requires_grad_(), w.requires_grad_(), y, torch.tensor(items))
            loss.backward()
            results.append((loss.detach(), x.grad, w.grad))
        assert all(torch.equal(eager, same) for eager, same in zip(*results))
    assert len(graphs) == 1
