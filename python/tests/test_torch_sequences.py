# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Policy, preference and KTO losses of logitless.torch: references, labels, refused arguments, and
compilation. test_generated_torch.py draws values and gradients."""

import math

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from logitless.lora import LoraWeight  # noqa: E402
from logitless.torch import (  # noqa: E402
    distillation_loss,
    kto_loss,
    policy_loss,
    preference_loss,
    token_logps,
)

H, V = 7, 41


def sequences(dtype=torch.float64, batch=4, time=5):
    torch.manual_seed(2)
    x = torch.randn(batch, time, H, dtype=dtype).requires_grad_()
    w = torch.randn(V, H, dtype=dtype).requires_grad_()
    y = torch.randint(0, V, (batch, time))
    logps = F.log_softmax(x @ w.T, dim=-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return x, w, y, logps


def test_log_probabilities_of_0_make_a_loss_reference_free():
    x, w, y, logps = sequences()
    sums, labels = logps.sum(1), torch.tensor([True, False, True, False])
    for call in (lambda **r: preference_loss(x, w, y, **r), lambda **r: kto_loss(x, w, y, labels, **r)):
        with pytest.raises(ValueError, match="is not given but .* needs it: ref_logps of 0 make the loss reference-free$"):
            call()
        call(ref_logps=torch.zeros(4))
    want = -F.logsigmoid(0.1 * (sums[:2] - sums[2:])).mean()
    torch.testing.assert_close(preference_loss(x, w, y, ref_logps=torch.zeros(4)), want)


def test_what_is_wrong_with_a_batch_is_named():
    x, w, y, logps = sequences()
    advantages, kept = torch.ones(4, dtype=torch.float64), y[..., None]
    for message, batch in {
        "old_logps requires a gradient": {"old_logps": logps},
        "kept_counts and kept_offsets belong to kept_ids": {"kept_counts": torch.ones(4, 5, dtype=torch.int64)},
        "expected kept_ids of shape": {"kept_ids": kept[:, :2]},
    }.items():
        with pytest.raises(ValueError, match=message):
            policy_loss(x, w, y, advantages, **batch)
    averages = {"ref_logps_are": "averages", "average_log_prob": True}
    with pytest.raises(ValueError, match="ref_logps_are = averages is set but .* has one entry per token"):
        preference_loss(x, w, y, ref_logps=logps.detach(), **averages)
    for part in ({"ref_hidden": x}, {"ref_weight": w}, {"ref_bias": w[:, 0]}, {"ref_vocab_ids": torch.arange(V)}):
        with pytest.raises(ValueError, match="ref_hidden and ref_weight give a reference together, but one of them is missing"):
            preference_loss(x, w, y, ref_logps=torch.zeros(4), **part)


@pytest.mark.parametrize("labels", [[1, -1, 1, 0], [0.5, 1, 0, 0], [256, 0, 1, 0], [math.nan, 0, 0, 1]], ids=str)
def test_labels_are_0_or_1(labels):
    x, w, y, _ = sequences()
    kind = {"ref_logps": torch.zeros(4), "loss_type": "apo_zero_unpaired"}
    with pytest.raises(ValueError, match=f"^labels has {labels[labels[0] == 1]}: each must be 0 or 1, or a bool$"):
        kto_loss(x, w, y, torch.tensor(labels), **kind)
    want = kto_loss(x, w, y, torch.tensor([True, False, True, False]), **kind)
    for dtype in (torch.uint8, torch.int64, torch.bfloat16):
        assert kto_loss(x, w, y, torch.tensor([1, 0, 1, 0], dtype=dtype), **kind) == want


@pytest.mark.parametrize("function", [policy_loss, preference_loss, kto_loss], ids=lambda f: f.__name__)
def test_what_the_library_takes_beside_a_loss_is_no_argument_of_it(function):
    x, w, y, logps = sequences()
    batch = {"old_logps": logps.detach(), "advantages": torch.ones(4)}
    if function is not policy_loss:
        batch = {"ref_logps": logps.detach(), **({"labels": torch.ones(4)} if function is kto_loss else {})}
    beside = {"input": x, "linear_weight": w, "d_hidden": x, "d_weight": w, "accumulate": True, "weight_sink": print}
    beside.update(logits=logps, linear_bias=w[:, 0], layout="hidden_vocab", class_weights=w[:, 0], lora_scale=2.0, kept_ids=y)
    for name, value in beside.items():
        if (function, name) != (policy_loss, "kept_ids"):
            with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected .* '{name}'$"):
                function(x, w, y, **batch, **{name: value})


@pytest.mark.parametrize("lora", [False, True], ids=["matrix", "lora"])
def test_a_reference_or_teacher_is_cast_as_the_model_is_under_autocast(lora):
    """If reference and model are equal, their log-probabilities are bit-identical."""
    x, w, y, _ = sequences(torch.float32)
    b = torch.randn(V)
    weight = LoraWeight(w, torch.randn(2, H), torch.randn(V, 2), 3.7, torch.nn.Identity()) if lora else w
    reference = {"ref_hidden": x, "ref_weight": weight, "ref_bias": b, "bias": b}
    with torch.autocast("cpu", torch.bfloat16):
        pairs = preference_loss(x, weight, y, **reference)
        kto = kto_loss(x, weight, y, torch.ones(4), loss_type="apo_zero_unpaired", **reference)
        distilled = distillation_loss(x, weight, x, weight, bias=b, teacher_bias=b)
    assert (pairs.item(), kto.item(), distilled.item()) == (pytest.approx(math.log(2), abs=1e-7), 0.5, 0)


@pytest.mark.parametrize("function", [preference_loss, token_logps])
def test_a_compiled_call_breaks_its_graph_once_and_has_the_same_results(function):
    more = {"ref_logps": torch.zeros(4, 6)} if function is preference_loss else {}

    def step(x, w, y):
        return (2 * function(torch.sin(x), w, y, **more)).sum()

    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    results = []
    for run in (step, torch.compile(step, backend=backend)):
        torch.manual_seed(0)
        x, w = torch.randn(4, 6, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
        loss = run(x, w, torch.randint(0, V, (4, 6)))
        loss.backward()
        results.append((loss.detach(), x.grad, w.grad))
    assert all(torch.equal(eager, compiled) for eager, compiled in zip(*results))
    assert len(graphs) == 2  # one before the call, and one after it
