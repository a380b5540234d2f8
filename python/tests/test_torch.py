# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless.torch against PyTorch's own functions."""

import gc
import itertools

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
if not hasattr(F, "linear_cross_entropy"):
    pytest.skip("this PyTorch has no linear_cross_entropy to compare with", allow_module_level=True)

from logitless.torch import (  # noqa: E402
    LinearCrossEntropyLoss,
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_options,
    token_logps,
)

N, H, V = 13, 7, 41
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def tensors(dtype, layout="rows", bias=True, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(N, H, dtype=torch.float64).to(dtype)
    w = torch.randn(V, H, dtype=torch.float64).to(dtype)
    b = torch.randn(V, dtype=torch.float64).to(dtype) if bias else None
    if layout == "columns":
        x = x.T.contiguous().T
        w = w.T.contiguous().T
    elif layout == "strided":
        x = torch.stack([x, x], dim=-1).flatten(1)[:, ::2]
        w = torch.cat([w, w], dim=1)[:, :H]
    y = torch.randint(0, V, (N,))
    y[3] = y[7] = -100
    return x, w, b, y


def both(x, w, b, y, wants, upstream=None, **options):
    """(loss, gradients) of ours and of PyTorch's in float64 of the same numbers."""
    results = []
    for ours in (True, False):
        leaves = [
            (
                None
                if t is None
                else (t.detach().clone(memory_format=torch.preserve_format) if ours else t.detach().double())
            )
            for t in (x, w, b)
        ]
        for leaf, want in zip(leaves, wants):
            if leaf is not None:
                leaf.requires_grad_(want)
        given = dict(options)
        if not ours and given.get("weight") is not None:
            given["weight"] = given["weight"].double()
        function = linear_cross_entropy if ours else F.linear_cross_entropy
        loss = function(leaves[0], leaves[1], y, linear_bias=leaves[2], **given)
        if loss.requires_grad:
            loss.backward(None if upstream is None else upstream.to(loss.dtype))
        results.append((loss.detach(), [None if t is None else t.grad for t in leaves]))
    return results


GRID = list(
    itertools.product(
        [torch.float64, torch.float32, torch.bfloat16, torch.float16],
        ["mean", "sum", "none"],
        ["rows", "columns", "strided"],
        [
            (True, True, True),
            (True, False, False),
            (False, True, False),
            (False, False, True),
            (False, False, False),
        ],
        [False, True],  # bias
        [None, "weights"],
        [0.0, 0.1],  # label smoothing
        [None, 5],  # ignore_index
    )
)


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_grid(dtype, reduction):
    cases = 0
    for case in GRID:
        if case[0] != dtype or case[1] != reduction:
            continue
        _, _, layout, wants, bias, weights, smoothing, ignored = case
        x, w, b, y = tensors(dtype, layout, bias)
        if ignored is not None:
            y = torch.where(y < 0, ignored, y)
        weight = (
            (torch.rand(V) + 0.5).to(dtype) if weights else None
        )  # float32 numbers: ours rounds them to that
        upstream = torch.rand(N) if reduction == "none" else torch.tensor(0.75)
        (loss, grads), (want_loss, want_grads) = both(
            x,
            w,
            b,
            y,
            wants,
            upstream,
            weight=weight,
            reduction=reduction,
            label_smoothing=smoothing,
            ignore_index=ignored,
        )
        assert loss.dtype == dtype and loss.shape == want_loss.shape, case
        scale = max(1.0, want_loss.abs().max().item())
        torch.testing.assert_close(loss.double(), want_loss, atol=BOUND[dtype] * scale, rtol=0, msg=str(case))
        for grad, want, tensor in zip(grads, want_grads, (x, w, b)):
            assert (grad is None) == (want is None), case
            if grad is not None:
                assert grad.dtype == dtype and grad.shape == tensor.shape
                scale = max(1.0, want.abs().max().item())
                torch.testing.assert_close(
                    grad.double(), want, atol=BOUND[dtype] * scale, rtol=0, msg=str(case)
                )
        cases += 1
    assert cases == len(GRID) // 12


def test_leading_axes_and_vectors():
    x, w, b, y = tensors(torch.float64)
    x, y = x[:12], y[:12]
    want = F.linear_cross_entropy(x, w, y, reduction="none")
    for shape in [(12,), (3, 4), (2, 2, 3), (1, 3, 2, 2)]:
        got = linear_cross_entropy(x.view(*shape, H), w, y.view(shape), reduction="none")
        assert got.shape == shape
        torch.testing.assert_close(got.flatten(), want)
    one = linear_cross_entropy(x[0], w, y[0])
    torch.testing.assert_close(one, F.linear_cross_entropy(x[0], w, y[0]))


def test_gradcheck():
    x, w, b, y = tensors(torch.float64)
    x, w, b = (t.requires_grad_() for t in (x, w, b))
    for reduction in ("mean", "sum", "none"):
        for beyond in ({}, {"softcap": 3.0, "temperature": 0.7, "z_loss": 0.01}):
            assert torch.autograd.gradcheck(
                lambda x, w, b: linear_cross_entropy(x, w, y, linear_bias=b, reduction=reduction, **beyond),
                (x, w, b),
            )
    assert torch.autograd.gradcheck(
        lambda x, w, b: token_logps(x, w, y, linear_bias=b, entropy=True), (x, w, b)
    )


def test_beyond_pytorch():
    x, w, _, y = tensors(torch.float64)
    logits = 3 * torch.tanh(x @ w.T / 3) / 0.7
    want = F.cross_entropy(logits, y) + 0.01 * logits.logsumexp(1)[y >= 0].square().mean()
    got = linear_cross_entropy(x, w, y, softcap=3.0, temperature=0.7, z_loss=0.01)
    torch.testing.assert_close(got, want)
    shifted = linear_cross_entropy(x[:12].view(3, 4, H), w, y[:12].view(3, 4), shift=True)
    want = F.linear_cross_entropy(
        x[:12].view(3, 4, H)[:, :-1].reshape(-1, H), w, y[:12].view(3, 4)[:, 1:].reshape(-1)
    )
    torch.testing.assert_close(shifted, want)


def test_the_type_of_the_loss():
    x, w, _, y = tensors(torch.bfloat16)
    want = F.cross_entropy(x.double() @ w.double().T, y)
    x.requires_grad_()
    loss = linear_cross_entropy(x, w, y, loss_dtype=torch.float32)
    assert loss.dtype == torch.float32 and linear_cross_entropy(x, w, y).dtype == torch.bfloat16
    torch.testing.assert_close(loss.double(), want, rtol=1e-6, atol=0)
    (grad,) = torch.autograd.grad(loss, x)
    (same,) = torch.autograd.grad(linear_cross_entropy(x, w, y), x)
    assert grad.dtype == torch.bfloat16 and torch.equal(grad, same)


def test_token_logps():
    x, w, b, y = tensors(torch.float64)
    logps = F.log_softmax(x @ w.T + b, dim=1)
    got, entropy = token_logps(x, w, y, linear_bias=b, entropy=True)
    taken = y >= 0
    torch.testing.assert_close(got[taken], logps[torch.arange(N)[taken], y[taken]])
    torch.testing.assert_close(entropy[taken], -(logps.exp() * logps).sum(1)[taken])
    assert (got[~taken] == 0).all()


def test_half_precision_keeps_small_gradients():
    """A gradient scaler's factor reaches gradients that float16 alone would have lost."""
    x, w, _, y = tensors(torch.float16)
    x.requires_grad_()
    (1e-9 * linear_cross_entropy(x, w, y).float() * 1e9).backward()
    assert x.grad.abs().sum() > 0


def test_backward_twice_and_accumulation():
    x, w, _, y = tensors(torch.float64)
    w.requires_grad_()
    loss = linear_cross_entropy(x, w, y)
    loss.backward(torch.tensor(2.0, dtype=torch.float64), retain_graph=True)
    first = w.grad.clone()
    loss.backward()
    torch.testing.assert_close(w.grad, 1.5 * first)


def test_targets_changed_in_place_are_noticed():
    x, w, _, y = tensors(torch.float64)
    w.requires_grad_()
    losses = linear_cross_entropy(x, w, y, reduction="none")
    y.zero_()
    with pytest.raises(RuntimeError, match="targets was changed in place"):
        losses.sum().backward()


def test_double_backward_is_refused():
    x, w, _, y = tensors(torch.float64)
    w.requires_grad_()
    (grad,) = torch.autograd.grad(linear_cross_entropy(x, w, y), w, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.sum().backward()


def test_tied_weights_and_non_leaves():
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(V, H).double()
    ids = torch.randint(0, V, (5, 6))
    results = []
    for function in (linear_cross_entropy, F.linear_cross_entropy):
        embedding.zero_grad()
        states = torch.tanh(embedding(ids))
        function(states[:, :-1].reshape(-1, H), embedding.weight, ids[:, 1:].reshape(-1)).backward()
        results.append(embedding.weight.grad.clone())
    torch.testing.assert_close(*results)


def test_all_ignored_is_zero():
    x, w, _, y = tensors(torch.float32)
    x.requires_grad_()
    loss = linear_cross_entropy(x, w, torch.full_like(y, -100))
    loss.backward()
    assert loss.item() == 0 and (x.grad == 0).all()


def test_autocast():
    x, w, b, y = tensors(torch.float32)
    w.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(x, w, y, linear_bias=b)
        want = F.linear_cross_entropy(x, w, y, linear_bias=b)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), want.double(), atol=5e-2, rtol=0)
    loss.backward()
    assert w.grad.dtype == torch.float32


def test_probabilities_take_pytorchs_path():
    x, w, _, _ = tensors(torch.float64)
    p = torch.rand(N, V, dtype=torch.float64).softmax(1)
    with pytest.warns(UserWarning, match="class probabilities"):
        got = linear_cross_entropy(x, w, p)
    torch.testing.assert_close(got, F.linear_cross_entropy(x, w, p))


@pytest.mark.parametrize(
    "change",
    [
        dict(input=torch.zeros(N, H + 1)),
        dict(input=torch.zeros(())),
        dict(linear_weight=torch.zeros(H)),
        dict(linear_bias=torch.zeros(V + 1)),
        dict(linear_weight=torch.zeros(V, H, dtype=torch.float64)),
        dict(target=torch.zeros(N, dtype=torch.int32)),
        dict(target=torch.zeros(N + 1, dtype=torch.int64)),
        dict(target=torch.full((N,), V)),
        dict(target=torch.full((N,), -1)),
        dict(weight=torch.ones(V - 1)),
        dict(reduction="average"),
        dict(target=torch.zeros(N, V, dtype=torch.int64)),
        dict(label_smoothing=1.5),
    ],
    ids=lambda change: next(iter(change)),
)
def test_bad_input_has_pytorchs_exceptions(change):
    x, w, _, y = tensors(torch.float32)
    arguments = {"input": x, "linear_weight": w, "target": y, **change}
    with pytest.raises(Exception) as want:
        F.linear_cross_entropy(**arguments)
    with pytest.raises(want.type):
        linear_cross_entropy(**arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, w, y: (x, w, y.float()), RuntimeError, r"[Ee]xpected"),
        (lambda x, w, y: (x.to("meta"), w, y), ValueError, "input is on meta: logitless computes on the CPU"),
        (lambda x, w, y: (x[:, 1:], w, y), RuntimeError, r"in_features.*got 6 and 7"),
        (lambda x, w, y: (x, w, y + 2**40), IndexError, r"10995116277\d\d is outside \[0, 41\)"),
        (lambda x, w, y: (x, w, y.int()), RuntimeError, "target of dtype torch.int64, got torch.int32"),
        (lambda x, w, y: (x, w.T, y), RuntimeError, "in_features.*got 7 and 41"),
        (lambda x, w, y: (x.bfloat16(), w, y), RuntimeError, "one dtype, got torch.bfloat16, torch.float32"),
        (lambda x, w, y: (x.numpy(), w, y), TypeError, "input must be a torch.Tensor, not ndarray"),
        (lambda x, w, y: (x, w, y.tolist()), TypeError, "target must be a torch.Tensor, not list"),
    ],
)
def test_mistakes_are_named(change, error, message):
    """The table of docs/python.md."""
    x, w, _, y = tensors(torch.float32)
    with pytest.raises(error, match=message):
        linear_cross_entropy(*change(x, w, y))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_checkpoint(reduction):
    x, w, _, y = tensors(torch.float64)
    results = []
    for function in (linear_cross_entropy, F.linear_cross_entropy):
        for use_reentrant in (False, True):
            leaf = x.clone().requires_grad_()

            def loss(rows, function=function):
                return function(torch.tanh(rows), w, y, reduction=reduction).sum()

            torch.utils.checkpoint.checkpoint(loss, leaf, use_reentrant=use_reentrant).backward()
            results.append(leaf.grad)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


def test_inference_mode():
    x, w, _, y = tensors(torch.float32)
    with torch.inference_mode():
        got, want = linear_cross_entropy(x, w, y.clone()), F.linear_cross_entropy(x, w, y.clone())
        torch.testing.assert_close(got, want)
        policy_loss(x, w, y.clamp(min=0), torch.ones(1), old_logps=torch.zeros(N))


def test_compiled_second_derivatives_are_refused():
    x, w, _, y = tensors(torch.float64)
    x.requires_grad_()
    loss = torch.compile(linear_cross_entropy, backend="eager", fullgraph=True)(x, w, y)
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        grad.square().sum().backward()


def test_views_that_negate():
    x, w, b, y = tensors(torch.float32)
    got = linear_cross_entropy(torch._neg_view(x), torch._neg_view(w), y, linear_bias=torch._neg_view(b))
    torch.testing.assert_close(got, F.linear_cross_entropy(x, w, y, linear_bias=-b))


def expanded(tensor, axis):
    """The tensor with its first entry of the axis in the place of all others: a stride of 0."""
    return tensor.narrow(axis, 0, 1).expand(tensor.shape)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("of", ["x rows", "x columns", "w rows", "w columns", "b", "y", "class weights", "all"])
def test_expanded_tensors(of, reduction):
    x, w, b, y = tensors(torch.float64)
    weights = torch.rand(V, dtype=torch.float64)
    x, y = x[:12].reshape(3, 4, H), y[:12].reshape(3, 4)
    x, y = (expanded(x, 0), expanded(y, 0)) if of == "all" else (x, y)
    changed = {
        "x rows": lambda: (expanded(x, 1), w, b, y, weights),
        "x columns": lambda: (expanded(x, 2), w, b, y, weights),
        "w rows": lambda: (x, expanded(w, 0), b, y, weights),
        "w columns": lambda: (x, expanded(w, 1), b, y, weights),
        "b": lambda: (x, w, expanded(b, 0), y, weights),
        "y": lambda: (x, w, b, expanded(y, 1), weights),
        "class weights": lambda: (x, w, b, y, expanded(weights, 0)),
        "all": lambda: (x, expanded(w, 0), expanded(b, 0), y, expanded(weights, 0)),
    }
    def plain(input, linear_weight, target, *, linear_bias, **options):
        logits = F.linear(input, linear_weight, linear_bias).flatten(0, -2)
        loss = F.cross_entropy(logits, target.flatten(), **options)
        return loss.view(target.shape) if loss.dim() else loss

    results = []
    for function in (linear_cross_entropy, plain):
        *given, ids, of_class = changed[of]()
        leaves = [tensor.detach().requires_grad_() for tensor in given]
        assert [leaf.stride() for leaf in leaves] == [tensor.stride() for tensor in given]
        of_class = of_class.float() if function is linear_cross_entropy else of_class.float().double()
        loss = function(
            leaves[0], leaves[1], ids, linear_bias=leaves[2], weight=of_class, reduction=reduction
        )
        results.append((loss, *torch.autograd.grad(loss.sum(), leaves)))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


def test_expanded_tensors_of_the_other_losses():
    x, w, b, y = tensors(torch.float64)
    x, y = expanded(x[:12].reshape(3, 4, H), 0), expanded(y[:12].reshape(3, 4).abs() % V, 0)
    logps = expanded(torch.full((3, 4), -3.0, dtype=torch.float64), 0)
    advantages = expanded(torch.ones(3, dtype=torch.float64), 0)
    mask = expanded(torch.ones(3, 4) > 0, 0)
    torch.testing.assert_close(token_logps(x, w, y), token_logps(x.clone(), w, y.clone()), atol=0, rtol=0)
    ours, plain = (
        policy_loss(
            hidden, w, ids, weights, old_logps=logp, ref_logps=logp, mask=mask, beta=0.1
        )
        for hidden, ids, weights, logp in (
            (x, y, advantages, logps),
            (x.contiguous(), y.contiguous(), advantages.contiguous(), logps.contiguous()),
        )
    )
    assert ours == plain and ours.isfinite()
    pairs = (expanded(x, 1).repeat(2, 1, 1)[:4], w, expanded(y, 1)[:1].expand(4, 4))
    reference = {"ref_input": expanded(x[:1], 1).expand(4, 4, H), "ref_weight": expanded(w, 0)}
    whole = [tensor.contiguous() for tensor in pairs]
    whole_reference = {name: tensor.contiguous() for name, tensor in reference.items()}
    assert preference_loss(*pairs, **reference) == preference_loss(*whole, **whole_reference)
    labels = expanded(torch.ones(4, dtype=torch.bool), 0)
    assert kto_loss(*pairs, labels, ref_logps=expanded(torch.zeros(4), 0)).isfinite()


def test_is_an_operator_to_those_who_trace():
    x, w, _, y = tensors(torch.float32)
    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    traced = make_fx(lambda *inputs: linear_cross_entropy(*inputs))(x, w, y)
    torch.testing.assert_close(traced(2 * x, w, y), F.linear_cross_entropy(2 * x, w, y))
    with torch._subclasses.FakeTensorMode() as mode:
        fake = linear_cross_entropy(*(mode.from_tensor(t) for t in (x, w, y)))
    assert fake.shape == () and fake.dtype == torch.float32


def test_in_the_place_of_pytorchs(monkeypatch):
    x, w, _, y = tensors(torch.float64)
    p = torch.rand(N, V, dtype=torch.float64).softmax(1)
    want = F.linear_cross_entropy(x, w, p)
    monkeypatch.setattr(F, "linear_cross_entropy", linear_cross_entropy)
    with pytest.warns(UserWarning, match="class probabilities"):
        torch.testing.assert_close(F.linear_cross_entropy(x, w, p), want)


def test_bytes_are_targets():
    x, w, _, y = tensors(torch.float32)
    y = y.clamp(min=0)
    assert linear_cross_entropy(x, w, y.byte()) == linear_cross_entropy(x, w, y)


def test_what_is_no_mistake():
    x, w, _, y = tensors(torch.float32)
    assert linear_cross_entropy(x[:0], w, y[:0]) == 0
    wide = torch.randn(N, 2 * H)
    torch.testing.assert_close(
        linear_cross_entropy(wide[:, ::2], w, y), F.linear_cross_entropy(wide[:, ::2], w, y)
    )
    # The graph holds what its backward reads.
    hidden = x.clone().requires_grad_()
    held = hidden
    loss = linear_cross_entropy(hidden, w.clone(), y.clone(), reduction="none").sum()
    del hidden
    gc.collect()
    loss.backward()
    x.requires_grad_()
    F.linear_cross_entropy(x, w, y, reduction="sum").backward()
    torch.testing.assert_close(held.grad, x.grad)


def test_module_and_training_beside_pytorch():
    """PyTorch's threads and ours take turns in one process, for some steps of a small model."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    losses = []
    for fused in (True, False):
        torch.manual_seed(0)
        body = torch.nn.Sequential(
            torch.nn.Embedding(V, 32), torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, H)
        )
        head = LinearCrossEntropyLoss(H, V)
        optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2)
        ids = torch.randint(0, V, (8, 33), generator=torch.Generator().manual_seed(3))
        curve = []
        for _ in range(20):
            optimizer.zero_grad()
            states, targets = body(ids[:, :-1]), ids[:, 1:]
            if fused:
                loss = head(states, targets)
            else:
                loss = F.cross_entropy(head.linear(states).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(curve)
    assert torch.get_num_threads() == threads
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert losses[0][-1] < losses[0][0]


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


def test_a_normaliser_takes_the_place_of_the_number_of_tokens():
    x, w, b, y = tensors(torch.float64)
    want = F.linear_cross_entropy(x, w, y, linear_bias=b, reduction="sum") / 29
    for items in (29, 29.0, torch.tensor(29), torch.tensor([29.0])):
        torch.testing.assert_close(linear_cross_entropy(x, w, y, linear_bias=b, normaliser=items), want)
    with pytest.raises(ValueError, match="normaliser"):
        linear_cross_entropy(x, w, y, normaliser=29, reduction="sum")
    with pytest.raises(ValueError, match="normaliser requires a gradient"):
        linear_cross_entropy(x, w, y, normaliser=torch.tensor(29.0, requires_grad=True))
    with pytest.raises(ValueError, match="softcap and normaliser cannot be had where target holds class prob"):
        linear_cross_entropy(x, w, (x @ w.T).softmax(1), normaliser=29, softcap=3.0)


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


def test_options_of_the_context():
    x, w, _, y = tensors(torch.float32)
    want = linear_cross_entropy(x, w, y)
    try:
        set_options(plan="two_pass", workspace_bytes=1 << 20, threads=1)
        torch.testing.assert_close(linear_cross_entropy(x, w, y), want)
        with pytest.raises(ValueError, match="three_pass"):
            set_options(plan="three_pass")
    finally:
        set_options()
