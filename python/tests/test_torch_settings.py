# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""set_options() of logitless.torch: which context a call gets, and options that leave a backward half no plan."""

import threading

import pytest
from torch_cases import torch

import logitless._torch_call as torch_call
import logitless._torch_ranks as torch_ranks
from logitless import Context
from logitless._torch_head import HeadTensors
from logitless.lora import LoraWeight
from logitless.torch import (
    distillation_loss,
    id_logps,
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_distillation_loss,
    set_options,
    soft_cross_entropy,
    token_logps,
)

B, T, H, V = 4, 3, 6, 40


@pytest.fixture(autouse=True)
def defaults():
    set_options()
    yield
    set_options()


class Group:
    """Stands for a process group: a communicator of one rank."""

    rank, size = 0, 1


def of_group(monkeypatch):
    group = Group()
    monkeypatch.setattr(torch_ranks, "GroupCommunicator", lambda group: None)
    return lambda: torch_ranks.context_of(group)


@pytest.mark.parametrize("which", ["alone", "frozen", "group"])
def test_options_that_are_set_while_a_context_is_made(monkeypatch, which):
    """A thread reads options and begins to make a context; before it ends, another thread sets other options."""
    context_of = {
        "alone": torch_call.current_context,
        "frozen": lambda: torch_call.current_context(frozen=True),
        "group": of_group(monkeypatch),
    }[which]
    module = torch_ranks if which == "group" else torch_call
    reading, go_on = threading.Event(), threading.Event()

    def slow(**options):
        reading.set()
        assert go_on.wait(60)
        return Context(**options)

    set_options(threads=1)
    monkeypatch.setattr(module, "Context", slow)
    made = []
    thread = threading.Thread(target=lambda: made.append(context_of()))
    thread.start()
    assert reading.wait(60)
    monkeypatch.setattr(module, "Context", Context)
    set_options(threads=2)
    go_on.set()
    thread.join()
    assert made[0].threads == 1
    assert context_of().threads == 2 and context_of() is context_of()


def test_contexts_of_other_options_are_given_back():
    made = set()
    for _ in range(2):
        for bytes in (1 << 20, 1 << 21):
            set_options(workspace_bytes=bytes)
            made.add(id(torch_call.current_settings()))
            torch_call.current_context()
            assert len(torch_call.current_settings().contexts) == 1
    assert torch_call.current_settings().options == {"workspace_bytes": 1 << 21}
    with pytest.raises(ValueError, match="plan"):
        set_options(plan="nonsense")
    assert torch_call.current_settings().options == {"workspace_bytes": 1 << 21}


def calls():
    """Functions of (hidden, weight), by name; under the names with 'none' and of log-probabilities backward() computes."""
    torch.manual_seed(0)
    y, ids = torch.randint(V, (B, T)), torch.arange(B * T * 2).view(B, T, 2)
    teacher = torch.randn(B, T, H), torch.randn(V, H)
    weights, logps, advantages = torch.rand(B, T, 2), -torch.rand(B, T, 2) - 2, torch.randn(B)
    out = {}
    for how in ("mean", "none"):
        given = {"reduction": how}
        out[f"cross-entropy {how}"] = lambda x, w, o=given, **k: linear_cross_entropy(x, w, y, **o, **k)
        out[f"soft {how}"] = lambda x, w, o=given, **k: soft_cross_entropy(x, w, ids=ids, weights=weights, **o, **k)
        out[f"sets {how}"] = lambda x, w, o=given, **k: set_distillation_loss(x, w, ids, logps, **o, **k)
        out[f"teacher {how}"] = lambda x, w, o=given, **k: distillation_loss(x, w, *teacher, **o, **k)
    out["token_logps none"] = lambda x, w, **k: token_logps(x, w, y, **k)
    out["id_logps none"] = lambda x, w, **k: id_logps(x, w, ids, **k)
    out["id_logps of sets none"] = lambda x, w, **k: id_logps(x, w, ids, normalise_over="set", **k)
    out["policy"] = lambda x, w, **k: policy_loss(x, w, y, advantages, **k)
    out["preference"] = lambda x, w, **k: preference_loss(x, w, y, ref_logps=-torch.rand(B), **k)
    out["kto"] = lambda x, w, **k: kto_loss(x, w, y, torch.tensor([1, 0, 1, 0]), ref_logps=-torch.rand(B), **k)
    return out


MODES = {
    "exact": {},
    "noise": {"backward": "sampled", "noise": 0.1},
    "theta": {"backward": "sampled", "theta": 0.5, "seed": 1},
    "certified": {"backward": "certified", "tolerance": 1e-2},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plan", ["auto", "one_pass", "two_pass", "expected_row", "dense"])
def test_no_plan_is_refused_by_backward_alone(plan, mode):
    """What a function has returned can be differentiated: what cannot has been refused before."""
    outcomes = set()
    for name, call in calls().items():
        for hidden_wants, head in ((1, 0), (0, 1), (1, 1), (1, "lora"), (0, 0)):
            hidden = torch.randn(B, T, H).requires_grad_(bool(hidden_wants))
            weight = torch.randn(V, H).requires_grad_(head == 1)
            if head == "lora":
                weight = LoraWeight(weight, torch.randn(2, H), torch.randn(V, 2).requires_grad_())
            set_options(plan=plan)
            try:
                loss = call(hidden, weight, **MODES[mode]).sum()
            except ValueError as error:
                assert "cannot run" in str(error) or "plan" in str(error) or "normalise_over" in str(error), error
                outcomes.add("refused")
                continue
            outcomes.add("computed")
            if loss.requires_grad:
                loss.backward(retain_graph=True)
                loss.backward()
    assert "computed" in outcomes  # what wants no gradient, at least


@pytest.mark.parametrize("name", [name for name in calls() if name.endswith("none")])
def test_one_pass_and_gradients_that_come_later(name):
    set_options(plan="one_pass")
    hidden, weight = torch.randn(B, T, H, requires_grad=True), torch.randn(V, H)
    with pytest.raises(ValueError, match=r'^plan = "one_pass", from set_options\(\), .* set plan="auto" or "two_pass"$'):
        calls()[name](hidden, weight)
    with torch.no_grad():
        assert calls()[name](hidden, weight).isfinite().all()
    set_options(plan="two_pass")
    calls()[name](hidden, weight).sum().backward()


@pytest.mark.parametrize("name", calls())
def test_no_grad_makes_no_gradients(monkeypatch, name):
    """Of parameters, either: an evaluation takes one product, and no memory for gradients."""
    wanted = []
    outputs = HeadTensors.outputs
    monkeypatch.setattr(HeadTensors, "outputs", lambda call, needs: wanted.append(any(needs)) or outputs(call, needs))
    hidden, weight = torch.randn(B, T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            calls()[name](hidden, weight)
            calls()[name](hidden, LoraWeight(weight, torch.randn(2, H), torch.randn(V, 2, requires_grad=True)))
    assert not any(wanted)
    calls()[name](hidden, weight).sum().backward()
    assert any(wanted)


def test_one_pass_compiled():
    set_options(plan="one_pass")
    y = torch.randint(V, (B,))
    hidden, weight = torch.randn(B, H, requires_grad=True), torch.randn(V, H)
    compiled = torch.compile(lambda x: linear_cross_entropy(x, weight, y, reduction="none"), fullgraph=True)
    with pytest.raises(ValueError, match='plan = "one_pass"'):
        compiled(hidden)
    compiled(hidden.detach())
