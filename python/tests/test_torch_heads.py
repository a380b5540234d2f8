# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Packed heads and parts of a vocabulary under autograd: each has the bits of the matrix that it stands for."""

import numpy as np
import pytest

import logitless
from logitless.packed import PackedWeight

torch = pytest.importorskip("torch")

from logitless.torch import (  # noqa: E402
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

B, T, H, V = 4, 5, 32, 90
random = np.random.default_rng(7)
INTEGERS = random.integers(-127, 128, (V, H)).astype(np.int8)
SCALES = random.uniform(0.001, 0.005, (V, 2)).astype(np.float32)
Q8_0 = random.integers(0, 256, (V, 34), dtype=np.uint8)
Q8_0[:, :2] = random.uniform(-0.005, 0.005, (V, 1)).astype(np.float16).view(np.uint8)
PACKED = {
    "int8": (PackedWeight(INTEGERS, "int8", SCALES), INTEGERS.astype(np.float32) * SCALES.repeat(H // 2, axis=1)),
    "q8_0": (
        PackedWeight(Q8_0, "q8_0"),
        Q8_0[:, 2:].view(np.int8).astype(np.float32) * Q8_0[:, :2].copy().view(np.float16).astype(np.float32),
    ),
}
torch.manual_seed(0)
HIDDEN, OTHER = torch.randn(2, B, T, H)
BIAS = torch.randn(V)
IDS = torch.arange(0, V, 3)
K = len(IDS)
TARGET = torch.arange(B * T).view(B, T) * 7 % K
TEACHER = torch.randn(K, H) / 4
LOGPS = torch.full((B, T), -3.0)
SETS = torch.arange(B * T * 3).view(B, T, 3) % K


def student(function, *more, **options):
    bias = "linear_bias" if function is linear_cross_entropy else "bias"
    return lambda h, w, b, **kind: function(h, w, *more, **{bias: b}, **options, **kind)


# Each takes hidden states, a weight, a bias and perhaps vocab_ids, over entries of which the first K are there.
CALLS = {
    "cross_entropy": student(linear_cross_entropy, TARGET, label_smoothing=0.1),
    "cross_entropy, one a token": student(linear_cross_entropy, TARGET, reduction="none", softcap=5.0),
    "cross_entropy, sampled": student(linear_cross_entropy, TARGET, backward="sampled", theta=0.2, seed=3),
    "token_logps": student(token_logps, TARGET),
    "token_logps, entropy": lambda *args, **kind: sum(student(token_logps, TARGET, entropy=True)(*args, **kind)),
    "topk_logps": lambda *args, **kind: student(topk_logps, 4)(*args, **kind)[1],
    "policy_loss": student(policy_loss, TARGET, torch.ones(B), old_logps=LOGPS),
    "preference_loss": student(preference_loss, TARGET, ref_logps=LOGPS),
    "kto_loss": student(kto_loss, TARGET, torch.tensor([1, 0, 1, 0]), ref_logps=LOGPS, loss_type="apo_zero_unpaired"),
    "id_logps": student(id_logps, SETS),
    "id_logps, over the set": student(id_logps, SETS, normalise_over="set"),
    "soft_cross_entropy": student(soft_cross_entropy, ids=SETS, weights=torch.full((B, T, 3), 0.3)),
    "set_distillation_loss": student(set_distillation_loss, SETS, torch.full((B, T, 3), -1.5)),
}
OVER_IDS = {
    **CALLS,
    "probabilities": student(linear_cross_entropy, torch.full((B, T, K), 1 / K), label_smoothing=0.1),
    "class weights": student(linear_cross_entropy, TARGET, weight=torch.linspace(0.5, 2, K)),
    "distillation_loss": student(distillation_loss, OTHER, TEACHER),
}


def outcome(call, weight, bias=BIAS, hidden=HIDDEN, **kind):
    """The result of a call, and the gradients of hidden states, bias and, where it has one, weight."""
    leaves = [hidden.clone().requires_grad_(), None if bias is None else bias.clone().requires_grad_()]
    result = call(leaves[0], weight, leaves[1], **kind)
    if result.requires_grad:
        result.backward(torch.linspace(0.5, 1.5, result.numel()).view(result.shape).to(result.dtype))
    return [result.detach(), *(x.grad for x in leaves if x is not None)]


def same(got, want):
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("call", CALLS)
def test_packed(call, packing):
    packed, matrix = PACKED[packing]
    same(outcome(CALLS[call], packed), outcome(CALLS[call], torch.tensor(matrix)))
    hidden = HIDDEN.bfloat16()
    same(
        outcome(CALLS[call], packed, None, hidden, vocab_ids=IDS),
        outcome(CALLS[call], PackedWeight(*rows_of(packed, IDS)), None, hidden),
    )


def rows_of(packed, ids):
    return packed.data[ids], packed.packing, None if packed.scales is None else packed.scales[ids]


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("call", OVER_IDS)
def test_a_part_of_a_vocabulary(call, layout):
    matrix = torch.tensor(PACKED["int8"][1])
    results = []
    for gathered in (False, True):
        weight = matrix.clone() if layout == "rows" else matrix.t().contiguous().t()
        weight.requires_grad_()
        if gathered:
            part = weight[IDS] if layout == "rows" else weight.t().index_select(1, IDS).t()
            assert part.stride() == (weight.stride() if layout == "rows" else (1, K))
            result = outcome(lambda h, w, b: OVER_IDS[call](h, w, b[IDS]), part)
        else:
            result = outcome(OVER_IDS[call], weight, vocab_ids=IDS)
        results.append([*result, weight.grad])
    if layout == "rows":
        same(*results)
    else:  # gathered columns are multiplied as they stand: some BLAS kernels then sum in another order
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_an_entry_that_stands_twice():
    ids = torch.tensor([4, 7, 4, 80])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        weights = [torch.tensor(PACKED["int8"][1]).to(dtype).requires_grad_() for _ in range(2)]
        target = TARGET % 4
        linear_cross_entropy(HIDDEN.to(dtype), weights[0], target, vocab_ids=ids).backward()
        linear_cross_entropy(HIDDEN.to(dtype), weights[1][ids], target).backward()
        assert torch.equal(weights[0].grad, weights[1].grad)
        assert weights[0].grad.abs().sum(1).count_nonzero() == 3


@pytest.mark.parametrize("packing", PACKED)
def test_teachers_and_references(packing):
    packed, matrix = PACKED[packing]
    matrix = torch.tensor(matrix)
    chosen = dict(teacher_vocab_ids=IDS, loss_type="reverse_kl")
    weight = matrix[IDS].clone().requires_grad_()

    def distilled(teacher, **options):
        weight.grad = None
        loss = distillation_loss(HIDDEN, weight, OTHER, teacher, **options)
        loss.backward()
        return [loss.detach(), weight.grad]

    want = distilled(matrix[IDS], loss_type="reverse_kl")
    same(distilled(matrix, **chosen), want)
    same(distilled(packed, **chosen), want)
    for loss, more in ((preference_loss, {}), (kto_loss, {"labels": torch.ones(B), "loss_type": "apo_zero_unpaired"})):
        want = outcome(student(loss, TARGET, ref_hidden=OTHER, ref_weight=matrix[IDS], **more), matrix[IDS], BIAS[:K])
        for reference in (matrix, packed):
            options = dict(ref_hidden=OTHER, ref_weight=reference, ref_vocab_ids=IDS, **more)
            same(outcome(student(loss, TARGET, **options), matrix[IDS], BIAS[:K]), want)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    with autocast:
        loss = distillation_loss(HIDDEN, packed, HIDDEN, packed)
    assert abs(loss) < 1e-6


def test_a_second_backward_and_changes_in_place():
    packed = PACKED["int8"][0]
    hidden, ids = HIDDEN.clone().requires_grad_(), IDS.clone()
    loss = linear_cross_entropy(hidden, packed, TARGET, vocab_ids=ids)
    loss.backward(retain_graph=True)
    first, hidden.grad = hidden.grad, None
    loss.backward(retain_graph=True)
    assert torch.equal(first, hidden.grad)
    for call in (loss, token_logps(hidden, packed, TARGET, vocab_ids=ids).sum()):
        ids.add_(0)
        with pytest.raises(RuntimeError, match="vocab_ids was changed in place"):
            call.backward()


def test_numpy():
    packed, matrix = PACKED["int8"]
    hidden, ids = HIDDEN[0].numpy(), IDS.numpy()
    target = TARGET[0].numpy()

    def results(weight, **more):
        d_hidden = np.empty_like(hidden)
        loss = logitless.cross_entropy(hidden, weight, target, d_hidden=d_hidden, **more).loss
        stats = logitless.token_stats(hidden, weight, target, top_k=3, **more)
        return [torch.tensor(x) for x in (loss, d_hidden, stats.logp, stats.top_ids)]

    same(results(packed), results(matrix))
    same(results(packed, vocab_ids=ids), results(np.ascontiguousarray(matrix[ids])))
    got = logitless.distillation_loss(hidden, matrix, hidden, packed)
    assert got.loss == logitless.distillation_loss(hidden, matrix, hidden, matrix).loss
    rejected = dict(ref_hidden=HIDDEN[1:3].numpy(), loss_type=["sigmoid"])
    pairs = [
        logitless.preference_loss(HIDDEN[:2].numpy(), weight, TARGET[:2].numpy(), ref_weight=weight, **rejected).loss
        for weight in (packed, matrix)
    ]
    assert pairs[0] == pairs[1]
    assert logitless.plan("cross_entropy", hidden=hidden, weight=packed, targets=target).packed_bytes >= 0
    with pytest.raises(ValueError, match="^packing is given, and weight is a PackedWeight, which has its own$"):
        logitless.cross_entropy(hidden, packed, target, packing="int8")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled():
    packed, matrix = PACKED["int8"]

    def plain(hidden, weight, vocab_ids):
        return linear_cross_entropy(hidden * 2, weight, TARGET, vocab_ids=vocab_ids) * 3

    compiled = torch.compile(plain)
    for weight, ids in ((packed, None), (packed, IDS), (torch.tensor(matrix), IDS)):
        results = []
        for function in (plain, compiled):
            hidden = HIDDEN.clone().requires_grad_()
            loss = function(hidden, weight, ids)
            loss.backward()
            results.append([loss.detach(), hidden.grad])
        same(*results)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_for_many_shapes():
    """After some of them torch.compile gives up, and runs functions as they stand."""
    packed, matrix = PACKED["int8"]
    compiled = torch.compile(
        lambda x, y: (linear_cross_entropy(x, packed, y) * 2, token_logps(x, packed, y)), dynamic=False
    )
    hidden, target = HIDDEN.flatten(0, 1).detach(), TARGET.flatten()
    for rows in range(1, 13):
        want = linear_cross_entropy(hidden[:rows], packed, target[:rows]) * 2
        got = compiled(hidden[:rows].clone(), target[:rows].clone())
        same(got, [want, token_logps(hidden[:rows], packed, target[:rows])])


def test_not_traced():
    from torch._subclasses.fake_tensor import FakeTensorMode

    message = "^linear_weight is a PackedWeight: such calls are no operator that fake tensors or a tracer could see$"
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, pytest.raises(ValueError, match=message):
        linear_cross_entropy(mode.from_tensor(HIDDEN), PACKED["int8"][0], mode.from_tensor(TARGET))


@pytest.mark.parametrize(
    "weight, options, error, message",
    [
        (BIAS, {}, RuntimeError, "expected linear_weight with dimensionality at least 2, got 1"),
        ("int8", {"vocab_ids": IDS.int()}, TypeError, "^vocab_ids is torch.int32: it must be a tensor of torch.int64$"),
        ("int8", {"vocab_ids": [1, 2]}, TypeError, "^vocab_ids is list: it must be a tensor of torch.int64$"),
        ("int8", {"vocab_ids": IDS[:0]}, ValueError, r"^vocab_ids has shape \(0,\): it must have one axis"),
        ("int8", {"vocab_ids": IDS + V}, ValueError, r"vocab_ids\[0\] = 90 is no entry of a vocabulary of 90"),
        ("int8", {"hidden": HIDDEN.double()}, ValueError, "float64"),
        ("int8", {"hidden": HIDDEN[..., :8]}, ValueError, "8"),
        ("int8", {"linear_bias": BIAS[:K], "vocab_ids": IDS}, RuntimeError, r"expected linear_bias shape \(90,\)"),
        ("int8", {"target": TARGET + K, "vocab_ids": IDS}, IndexError, "Target out of bounds"),
        ("int8", {"target": HIDDEN[..., :8]}, ValueError, r"^linear_weight is a PackedWeight: class probabilities, "),
        (HIDDEN, {"vocab_ids": IDS}, ValueError, "^vocab_ids is given: linear_weight has 3 axes, and must have 2$"),
    ],
)
def test_says_what_is_wrong(weight, options, error, message):
    weight = PACKED[weight][0] if isinstance(weight, str) else weight
    given = {"hidden": HIDDEN, "target": TARGET, **options}
    with pytest.raises(error, match=message) as raised:
        linear_cross_entropy(given.pop("hidden"), weight, given.pop("target"), **given)
    assert "\n" not in str(raised.value)
