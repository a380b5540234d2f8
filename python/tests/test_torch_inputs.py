# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Which tensors logitless.torch takes, and what it says of others."""

import gc

import pytest
from torch_cases import F, H, N, V, named, tensors, torch

from logitless.lora import LoraWeight
from logitless.torch import (
    distillation_loss,
    id_logps,
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
    topk_logps,
)


def test_probabilities_that_require_a_gradient_take_pytorchs_path():
    x, w, _, _ = tensors(torch.float64)
    p = torch.rand(N, V, dtype=torch.float64).softmax(1).requires_grad_()
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
        (lambda x, w, y: (x, w, y.float()), RuntimeError, "target of dtype torch.int64, got torch.float32"),
        (lambda x, w, y: (x[None], w, y[None].float()), RuntimeError, "torch.int64, got torch.float32"),
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
    """The table of docs/pytorch.md."""
    x, w, _, y = tensors(torch.float32)
    with pytest.raises(error, match=message):
        linear_cross_entropy(*change(x, w, y))


@pytest.mark.parametrize("wrong", [torch.int64, torch.bool, torch.complex64, "float32", float], ids=str)
def test_the_type_of_a_loss_is_one_of_floating_point(wrong):
    x, w, _, y = tensors(torch.float32)
    y, p = y.clamp(min=0), torch.full((N, V), 1 / V)
    for call in (
        lambda: linear_cross_entropy(x, w, y, loss_dtype=wrong),
        lambda: linear_cross_entropy(x, w, p, loss_dtype=wrong),
        lambda: soft_cross_entropy(x, w, p, dtype=wrong, reduction="none"),
        lambda: distillation_loss(x, w, x, w, dtype=wrong),
        lambda: set_distillation_loss(x, w, y[:, None], -torch.ones(N, 1), dtype=wrong),
    ):
        with pytest.raises(TypeError, match=r"^(loss_)?dtype = .* must be a floating-point torch.dtype, such as"):
            call()


ROW, FLAGS, COUNTS = torch.ones(N), torch.ones(N) > 0, torch.ones(N, dtype=torch.int64)
STATES, HEAD, LIST = torch.randn(N, H), torch.randn(V, H), torch.arange(N)[:, None]
COLUMN = {"bias": torch.ones(V), "temperatures": ROW}
# All tensors of each function beside hidden states and head.
TENSORS = {
    linear_cross_entropy: {"targets": COUNTS, "class_weights": torch.ones(V), **COLUMN},
    token_logps: {"targets": COUNTS, **COLUMN},
    topk_logps: {"k": 2, **COLUMN},
    id_logps: {"ids": LIST, "id_counts": COUNTS, **COLUMN},
    soft_cross_entropy: {"ids": LIST, "weights": LIST / V, "id_counts": COUNTS, "mask": FLAGS, **COLUMN},
    set_distillation_loss: {"ids": LIST, "teacher_logps": -2.0 - LIST, "teacher_outside_logps": -ROW, "targets": COUNTS},
    distillation_loss: {"teacher_hidden": STATES, "teacher_weight": HEAD, "teacher_bias": HEAD[:, 0], "targets": COUNTS},
    policy_loss: {"chosen_ids": LIST[:, 0], "advantages": ROW, "mask": FLAGS, "kept_ids": LIST, **COLUMN},
    preference_loss: {"ref_hidden": STATES[:, None], "ref_weight": HEAD, "ref_bias": torch.ones(V), "targets": LIST},
    kto_loss: {"targets": LIST, "labels": ROW, "ref_logps": -ROW, "kl_logps": -ROW, "kl_ref_logps": -ROW},
}


@pytest.mark.parametrize("function", TENSORS, ids=lambda f: f.__name__)
def test_what_is_no_tensor_is_a_type_error_that_names_it(function):
    given = {"hidden": STATES, "weight": HEAD, **TENSORS[function]}
    if function in (preference_loss, kto_loss):
        given["hidden"] = STATES[:, None]
        given = {name: t[:12] if len(t) == N else t for name, t in given.items()}  # pairs
    given = named(function, given)
    function(**given)
    for name, tensor in given.items():
        for wrong in (tensor.tolist(), tensor.numpy()) if isinstance(tensor, torch.Tensor) else ():
            with pytest.raises(TypeError, match=rf"^{name} must be a torch.Tensor, not {type(wrong).__name__}$"):
                function(**{**given, name: wrong})
    lora = LoraWeight(HEAD, HEAD[:2], HEAD[:, :2])
    hidden, weight = list(given)[:2]
    with pytest.raises(TypeError, match=f"^{hidden} must be a torch.Tensor, not ndarray$"):
        function(**{**given, hidden: given[hidden].numpy(), weight: lora})


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
    reference = {"ref_hidden": expanded(x[:1], 1).expand(4, 4, H), "ref_weight": expanded(w, 0)}
    whole = [tensor.contiguous() for tensor in pairs]
    whole_reference = {name: tensor.contiguous() for name, tensor in reference.items()}
    assert preference_loss(*pairs, **reference) == preference_loss(*whole, **whole_reference)
    labels = expanded(torch.ones(4, dtype=torch.bool), 0)
    assert kto_loss(*pairs, labels, ref_logps=expanded(torch.zeros(4), 0)).isfinite()


EACH = torch.rand(3, 4, generator=torch.Generator().manual_seed(1)) + 0.5  # an entry a token
SETS = (torch.arange(36) * 7 % V).view(3, 4, 3)
OF_TOKENS = {
    "temperatures": (
        lambda x, w, y, t: linear_cross_entropy(x, w, y, temperatures=t),
        lambda x, w, y, t: token_logps(x, w, y, temperatures=t),
        lambda x, w, y, t: topk_logps(x, w, 2, temperatures=t)[1],
        lambda x, w, y, t: id_logps(x, w, SETS, temperatures=t),
        lambda x, w, y, t: policy_loss(x, w, y, torch.ones(3), temperatures=t),
        lambda x, w, y, t: kto_loss(
            x, w, y, torch.ones(3), ref_logps=-EACH, loss_type="apo_zero_unpaired", temperatures=t
        ),
        lambda x, w, y, t: distillation_loss(x, w, 2 * x, w, temperatures=t),
        lambda x, w, y, t: soft_cross_entropy(x, w, ids=SETS, weights=SETS / V, temperatures=t),
        lambda x, w, y, t: set_distillation_loss(x, w, SETS, -SETS.float() - 2, temperatures=t),
    ),
    "old_logps": (lambda x, w, y, t: policy_loss(x, w, y, torch.ones(3), old_logps=-3 * t),),
    "mask": (
        lambda x, w, y, t: policy_loss(x, w, y, torch.ones(3), mask=t > 1),
        lambda x, w, y, t: soft_cross_entropy(x, w, ids=SETS, weights=SETS / V, mask=t > 1),
    ),
    "advantages": (lambda x, w, y, t: policy_loss(x, w, y, t),),
    "ref_logps": (lambda x, w, y, t: kto_loss(x, w, y, torch.ones(3), ref_logps=-t, loss_type="apo_zero_unpaired"),),
    "id_counts": (lambda x, w, y, t: id_logps(x, w, SETS, id_counts=t.mul(2).long()),),
    "kept_counts": (
        lambda x, w, y, t: policy_loss(
            x, w, SETS[..., 0], torch.ones(3), kept_ids=SETS, kept_counts=t.add(1).long(), old_logps=-EACH
        ),
    ),
    "teacher_outside_logps": (
        lambda x, w, y, t: set_distillation_loss(x, w, SETS, -SETS.float() - 2, teacher_outside_logps=-9 * t),
    ),
}


@pytest.mark.parametrize("name, call", [(name, call) for name, calls in OF_TOKENS.items() for call in calls])
def test_shapes_are_those_of_tokens(name, call):
    x, w, _, y = tensors(torch.float32)
    x, y = x[:12].reshape(3, 4, H), y[:12].abs().reshape(3, 4) % V
    assert torch.equal(call(x, w, y, EACH), call(x, w, y, EACH.flatten()))
    for wrong in (EACH.t(), EACH[:2], EACH[None], EACH.view(2, 6)):
        with pytest.raises(ValueError, match=rf"^expected {name} of shape .*\(3, 4\) or \(12,\), got "):
            call(x, w, y, wrong)


def test_shapes_are_those_of_sequences():
    x, w, _, y = tensors(torch.float32)
    x, y = x[:12].reshape(3, 4, H), y[:12].abs().reshape(3, 4) % V
    each = torch.tensor([1.0, -2, 0.5])
    kto = {"ref_logps": -EACH, "loss_type": "a2po", "reward_targets": each}
    calls = {
        "advantages": lambda t, x=x, y=y, **more: policy_loss(x, w, y, t, old_logps=-EACH.view(y.shape), **more),
        "scores": lambda t: policy_loss(x, w, y, each, scores=t, loss_type="topr", old_logps=-EACH),
        "ref_logps": lambda t: kto_loss(x, w, y, each > 0, loss_type="apo_zero_unpaired", ref_logps=-t.abs()),
        "labels": lambda t: kto_loss(x, w, y, t > 0, **kto),
        "sequence_weights": lambda t: kto_loss(x, w, y, sequence_weights=t.abs(), **kto),
        "reward_targets": lambda t: kto_loss(x, w, y, **{**kto, "reward_targets": t}),
    }
    for name, call in calls.items():
        assert torch.equal(call(each), call(each[:, None]))
        for wrong in (each[None], each[:2], each[0]):
            with pytest.raises(ValueError, match=rf"^expected {name} of shape \(3,\) or \(3, 1\)"):
                call(wrong)
    packed = {"x": x.flatten(0, 1), "y": y.flatten(), "offsets": torch.arange(0, 13, 4)}
    torch.testing.assert_close(calls["advantages"](each, **packed), calls["advantages"](each))


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
