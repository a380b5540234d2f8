# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch under torch.compile, and its operators under tracing."""

import pytest
from torch_cases import N, V, tensors, torch

from logitless.packed import PackedWeight
from logitless.torch import linear_cross_entropy


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Forgets what earlier tests in the process have compiled, or made the compiler skip."""
    torch._dynamo.reset()


def test_compiled_second_derivatives_are_refused():
    x, w, _, y = tensors(torch.float64)
    x.requires_grad_()
    loss = torch.compile(linear_cross_entropy, backend="eager", fullgraph=True)(x, w, y)
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.square().sum().backward()


@pytest.mark.parametrize("dtype, reduction", [(torch.float32, "none"), (torch.bfloat16, "mean")], ids=str)
def test_compiled(dtype, reduction):
    """A single graph with the operator in it. Results equal the eager call."""

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
        others = {"class_weights": torch.rand(V), "temperatures": torch.rand(N).double() + 0.5}
        others |= {"token_weights": torch.rand(N).double(), "num_items_in_batch": None}
        if reduction == "mean":
            others["num_items_in_batch"] = torch.tensor(7)
        for given in (others, dict.fromkeys(others)):
            torch.library.opcheck(
                torch.ops.logitless.linear_cross_entropy.default,
                (x, w, b, y, *given.values()),
                {"needs": [True, True, False], "dtype": torch.float32, "reduction": reduction, "z_loss": 0.1},
            )


# Hidden states that a call has to copy. Their gradients have the copy's memory order.
COPIED = {
    "of a convolution": torch.randn(3, 8, 5).transpose(1, 2),
    "[H, N]": torch.randn(8, 15).t(),
    "4 axes": torch.randn(2, 3, 5, 8).transpose(0, 1),
    "5 axes": torch.randn(2, 3, 2, 2, 8).permute(2, 1, 0, 3, 4),
    "overlapping": torch.randn(64).as_strided((3, 5, 8), (5, 1, 2)),
}


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("layout", COPIED)
def test_gradients_of_copied_inputs_have_the_strides_that_a_fake_one_has(layout, reduction):
    x, w = COPIED[layout].detach().requires_grad_(), torch.randn(20, 16)[:, ::2].requires_grad_()
    y = torch.randint(0, 20, x.shape[:-1])
    torch._dynamo.reset()

    def step(x, w):
        return linear_cross_entropy(x, w, y, reduction=reduction).sum()

    eager, compiled = (
        torch.autograd.grad(f(x, w), (x, w)) for f in (step, torch.compile(step, fullgraph=True, backend="aot_eager"))
    )
    torch.testing.assert_close(compiled, eager)
    y = y.flatten(0, -2) if y.dim() > 2 else y  # as the function passes them to its operators
    inputs, needs = (x.detach(), w.detach(), None, y, None, None, None), [True, True, False]
    if reduction == "mean":
        _, *real = torch.ops.logitless.linear_cross_entropy(*inputs, None, needs=needs, dtype=x.dtype)
    else:
        real = torch.ops.logitless.linear_cross_entropy_backward(
            *inputs, torch.rand(y.shape), needs=needs, reduction=reduction
        )
    for grad, tensor in zip(real, (x, w)):
        assert grad.stride() == torch.empty_like(tensor).stride()


def test_compiled_calls_refuse_what_eager_ones_refuse_and_take_what_they_take():
    x, w, _, y = tensors(torch.float32)
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    with pytest.raises(IndexError, match="Target out of bounds: target\\["):
        compiled(x, w, y + V)
    for function in (linear_cross_entropy, compiled):
        assert function(x, w, y, softcap=None, z_loss=None, temperature=None) == linear_cross_entropy(x, w, y)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_loss_scale_that_overflowed_is_seen_in_the_gradients(number, compiled):
    x, w, _, y = tensors(torch.float32)
    x, w = x.requires_grad_(), w.requires_grad_()
    function = linear_cross_entropy
    if compiled:
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    upstream = torch.ones(N)
    upstream[3] = number  # an ignored token
    grads = torch.autograd.grad(function(x, w, y, reduction="none"), (x, w), upstream)
    assert all(grad.isfinite().all() for grad in grads)
    upstream[4] = number
    for reduction, given in (("none", upstream), ("mean", torch.tensor(number))):
        grads = torch.autograd.grad(function(x, w, y, reduction=reduction), (x, w), given)
        assert not any(grad.isfinite().all() for grad in grads)


def test_sizes_that_only_the_run_knows():
    x, w, _, y = tensors(torch.float32)
    x, w, kept = x.requires_grad_(), w.requires_grad_(), y > 15

    def step(x, w, y, kept):
        return linear_cross_entropy(x[kept][:, None].expand(-1, 2, -1).transpose(0, 1), w, y[kept].expand(2, -1))

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        grads = [torch.autograd.grad(f(x, w, y, kept), (x, w)) for f in (step, compiled)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_of_float16_are_rounded_once_they_are_scaled(reduction):
    """A loss scale preserves gradients that float16 would underflow."""
    x, w, _, y = tensors(torch.float16)
    x, w = (1e-3 * x).requires_grad_(), (1e-3 * w).requires_grad_()

    def step(x, w):
        loss = linear_cross_entropy(x, w, y, reduction=reduction, loss_scale=1e-6, loss_dtype=torch.float32)
        return loss.sum() * 2.0**16

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    eager, ours = (torch.autograd.grad(f(x, w), (x, w)) for f in (step, compiled))
    assert all(grad.dtype == torch.float16 and (grad != 0).any() for grad in ours)
    assert all(torch.equal(one, other) for one, other in zip(eager, ours))


def test_a_compiled_call_reads_a_tensor_normaliser_when_it_runs():
    """A new value of num_items_in_batch does not recompile the graph."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    def step(x, w, y, items):
        return linear_cross_entropy(x, w, y, num_items_in_batch=items)

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


PACKED = PackedWeight(torch.arange(V * 8).view(V, 8).remainder(9).to(torch.int8), "int8", torch.full((V, 1), 0.1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("weight, ids", [(PACKED, None), (torch.randn(V, 8), torch.arange(0, V, 3))], ids=["packed", "part"])
def test_heads_that_are_no_operator_break_the_graph(weight, ids):
    target = torch.arange(N)

    def step(hidden):
        return linear_cross_entropy(hidden * 2, weight, target, vocab_ids=ids) * 3

    hidden = torch.randn(N, 8, requires_grad=True)
    eager, ours = (torch.autograd.grad(f(hidden), hidden)[0] for f in (step, torch.compile(step, backend="aot_eager")))
    assert torch.equal(eager, ours)
    if weight is PACKED:
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            with pytest.raises(ValueError, match="^linear_weight is a PackedWeight: such calls are not an operator"):
                step(mode.from_tensor(hidden.detach()))
