# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tensors that are changed in place between a loss of logitless.torch and its backward: the gradient is that of the
values which the forward read, or a RuntimeError says what was changed."""

import pytest

torch = pytest.importorskip("torch")

from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402
from torch_cases import named  # noqa: E402
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
)

B, T, H, V, K = 4, 3, 5, 11, 7
PACKED_ROWS = torch.arange(V * H).view(V, H) % 17 - 8


def ids(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) * 5 % K


def numbers(*shape):
    return torch.linspace(0.3, 1.2, torch.Size(shape).numel()).view(shape)


def packed(with_arrays):
    data, scales = PACKED_ROWS.to(torch.int8), numbers(V, 1) / 9
    return PackedWeight(data.numpy(), "int8", scales.numpy()) if with_arrays else PackedWeight(data, "int8", scales)


def lora(weight):
    return LoraWeight(weight, torch.randn(2, H), torch.randn(V, 2), 0.5)


HEADS = {
    "matrix": lambda: torch.randn(V, H).requires_grad_(),
    "frozen": lambda: torch.randn(V, H),
    "packed": lambda: packed(False),
    "packed arrays": lambda: packed(True),
    "lora": lambda: lora(torch.randn(V, H)),
    "lora of packed": lambda: lora(packed(False)),
}


def of_tokens():
    """What most functions take beside their own tensors."""
    return {"bias": torch.randn(V), "temperatures": numbers(B, T).double(), "vocab_ids": torch.arange(1, K + 1)}


def sets():
    return {"ids": ids(B, T, 2), "id_counts": torch.full((B, T), 2), **of_tokens()}


def pairs(**more):
    return {"targets": ids(B, T), "ref_hidden": torch.randn(B, T, H), "ref_weight": torch.randn(V, H), **of_tokens(), **more}


REFERENCE = {"ref_bias": torch.randn(V), "ref_vocab_ids": torch.arange(2, K + 2)}
TEACHER = {"teacher_hidden": torch.randn(B, T, H), "teacher_bias": torch.randn(V), "teacher_vocab_ids": torch.arange(K)}
TOKENS = {"chosen_ids": ids(B, T), "advantages": numbers(B), "mask": torch.ones(B, T, dtype=torch.bool)}
LOGPS = {name: -numbers(B, T) for name in ("old_logps", "ref_logps", "sampling_logps", "teacher_logps")}
# (function, its tensors, its options), by name; each is called anew with copies of the tensors.
CALLS = {
    **{
        f"cross-entropy {reduction}": (
            linear_cross_entropy,
            lambda: {"targets": ids(B, T), "class_weights": numbers(K), **of_tokens()},
            {"reduction": reduction, "label_smoothing": 0.1},
        )
        for reduction in ("mean", "none")
    },
    **{
        f"probabilities {reduction}": (
            linear_cross_entropy,
            lambda: {"targets": torch.rand(B, T, K), "class_weights": numbers(K), **of_tokens()},
            {"reduction": reduction},
        )
        for reduction in ("sum", "none")
    },
    **{
        f"packed documents {reduction}": (
            linear_cross_entropy,
            lambda: {"hidden": torch.randn(B * T, H), "targets": ids(B * T), "offsets": torch.tensor([0, 5, B * T])},
            {"reduction": reduction, "shift": 1},
        )
        for reduction in ("mean", "none")
    },
    "token_logps": (token_logps, lambda: {"targets": ids(B, T), **of_tokens()}, {"entropy": True, "lse": True}),
    "id_logps": (id_logps, sets, {}),
    "id_logps of sets": (id_logps, sets, {"normalise_over": "set"}),
    "id_logps with offsets": (
        id_logps,
        lambda: {"ids": ids(2 * B * T), "id_offsets": torch.arange(0, 2 * B * T + 1, 2)},
        {},
    ),
    **{
        f"soft {reduction}": (
            soft_cross_entropy,
            lambda: {**sets(), "weights": numbers(B, T, 2), "mask": torch.ones(B, T)},
            {"reduction": reduction},
        )
        for reduction in ("mean", "none")
    },
    **{
        f"set distillation {reduction}": (
            set_distillation_loss,
            lambda: {
                **sets(),
                "teacher_logps": -2 - numbers(B, T, 2),
                "teacher_outside_logps": -2 - numbers(B, T),
                "targets": ids(B, T),
            },
            {"reduction": reduction},
        )
        for reduction in ("mean", "none")
    },
    **{
        f"distillation {reduction}": (
            distillation_loss,
            lambda: {**TEACHER, "teacher_weight": torch.randn(V, H), "targets": ids(B, T), **of_tokens()},
            {"reduction": reduction, "loss_type": "jsd"},
        )
        for reduction in ("mean", "none")
    },
    "distillation of a LoRA": (
        distillation_loss,
        lambda: {**TEACHER, "teacher_weight": lora(torch.randn(V, H)), **of_tokens()},
        {"reduction": "none"},
    ),
    "distillation of a packed head": (
        distillation_loss,
        lambda: {**TEACHER, "teacher_weight": packed(True), **of_tokens()},
        {"reduction": "none"},
    ),
    "distillation of logits": (
        distillation_loss,
        lambda: {"teacher_logits": torch.randn(B, T, K), **of_tokens()},
        {"reduction": "none"},
    ),
    "policy": (
        policy_loss,
        lambda: {**TOKENS, **LOGPS, **of_tokens()},
        {"beta": 0.1, "teacher_weight": 0.2, "entropy_bonus": 0.1, "sampler_correction": "token_truncate"},
    ),
    "policy of kept ids": (
        policy_loss,
        lambda: {
            **TOKENS,
            "kept_ids": torch.stack([ids(B, T), (ids(B, T) + 1) % K], dim=-1),
            "kept_counts": torch.full((B, T), 2),
            "old_logps": -numbers(B, T),
        },
        {},
    ),
    "preference": (preference_loss, lambda: pairs(**REFERENCE), {}),
    "kto": (
        kto_loss,
        lambda: pairs(labels=torch.tensor([1, 0, 1, 0]), kl_logps=-numbers(B), kl_ref_logps=-2 * numbers(B), **REFERENCE),
        {},
    ),
    "a2po": (
        kto_loss,
        lambda: {"targets": ids(B, T), "ref_logps": -numbers(B), "reward_targets": numbers(B), **of_tokens()},
        {"loss_type": "a2po"},
    ),
}


def tensors_in(given):
    """(name, tensor) of all that a call is given, those inside of heads included."""
    for name, value in given.items():
        if isinstance(value, LoraWeight):
            yield from tensors_in({f"{name}.{part}": getattr(value, part) for part in ("weight", "a", "b")})
        elif isinstance(value, PackedWeight):
            for part, array in (("data", value.data), ("scales", value.scales)):
                # An array of NumPy shows the memory of a tensor, which is what can be told to have changed.
                yield f"{name}.{part}", array if isinstance(array, torch.Tensor) else array.base
        else:
            yield name, value


def given_to(call, head):
    torch.manual_seed(5)
    function, own, options = CALLS[call]
    given = {"hidden": torch.randn(B, T, H), "weight": HEADS[head](), **own()}
    if "id_offsets" in given:
        given["hidden"] = torch.randn(B * T, H)
    given = {name: v.clone() if isinstance(v, torch.Tensor) and not v.requires_grad else v for name, v in given.items()}
    given["hidden"].requires_grad_()
    return function, named(function, given), options


def gradients(call, head, changes=None, again=False):
    """The gradients of a call of which the tensor `changes` is another one when its backward runs."""
    function, given, options = given_to(call, head)
    result = function(**given, **options)
    loss = sum(part.sum() for part in result) if isinstance(result, tuple) else result.sum()
    leaves = [t for _, t in tensors_in(given) if t.requires_grad]
    if again:
        torch.autograd.grad(loss, leaves, retain_graph=True)
    with torch.no_grad():
        for name, tensor in tensors_in(given):
            if name != changes:
                continue
            elif tensor.dtype == torch.bool:
                tensor.logical_not_()
            elif tensor.is_floating_point():
                tensor.mul_(0.5)
            else:
                tensor.floor_divide_(2)  # still ids of the vocabulary
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("call", CALLS)
def test_a_change_in_place_never_changes_a_gradient(call, head, again):
    _, given, _ = given_to(call, head)
    want = gradients(call, head, again=again)
    outcomes = {}
    for name, _ in tensors_in(given):
        try:
            got = gradients(call, head, name, again)
        except RuntimeError as error:
            assert "in place" in str(error) or "inplace" in str(error), error
            outcomes[name] = "error"
            continue
        assert all(torch.equal(one, other) for one, other in zip(got, want)), name
        outcomes[name] = "same"
    if again or call.split()[-1] == "none":
        # What a backward half reads is told: what is "same" here was copied, or is not read.
        assert "error" in outcomes.values(), outcomes


def test_ids_changed_before_the_backward_of_one_number():
    weight, hidden = torch.randn(9, 4, requires_grad=True), torch.randn(3, 4)
    chosen = torch.tensor([1, 2, 3])
    loss = linear_cross_entropy(hidden, weight, torch.tensor([0, 1, 2]), vocab_ids=chosen)
    chosen.copy_(torch.tensor([6, 7, 8]))
    with pytest.raises(RuntimeError, match="^vocab_ids was changed in place between the loss and its backward"):
        loss.backward()
    assert weight.grad is None


def test_lists_that_are_changed():
    hidden, weight, target = torch.randn(B, T, H, requires_grad=True), torch.randn(V, H), ids(B, T)
    losses, weights = ["sigmoid", "ipo"], [1.0, 0.5]
    loss = preference_loss(hidden, weight, target, loss_type=losses, loss_weights=weights, ref_logps=-numbers(B))
    (want,) = torch.autograd.grad(loss, hidden, retain_graph=True)
    losses[0], weights[0] = "hinge", 3.0
    assert torch.equal(torch.autograd.grad(loss, hidden)[0], want)


def test_tensors_that_one_number_does_not_read_again_may_change():
    """A trainer may fill its buffers with the next batch."""
    function, given, options = given_to("policy", "matrix")
    del given["vocab_ids"]
    want = torch.autograd.grad(function(**given, **options), next(iter(given.values())))
    loss = function(**given, **options)
    for name in ("chosen_ids", "advantages", "mask", "old_logps", "ref_logps", "temperatures"):
        given[name].zero_()
    assert torch.equal(torch.autograd.grad(loss, next(iter(given.values())))[0], want[0])
