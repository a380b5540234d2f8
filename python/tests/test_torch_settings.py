# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""set_options(), options() and context= of logitless.torch: the context of a call, and options for which a
backward half has no plan."""

import asyncio
import copy
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch_cases import torch

import logitless._torch_call as torch_call
import logitless._torch_ranks as torch_ranks
from logitless import Context, _core
from logitless._torch_head import HeadTensors
from logitless.lora import LoraWeight
from logitless.packed import PackedWeight
from logitless.torch import (
    LinearCrossEntropyLoss,
    distillation_loss,
    id_logps,
    kto_loss,
    linear_cross_entropy,
    options,
    policy_loss,
    preference_loss,
    set_distillation_loss,
    set_options,
    soft_cross_entropy,
    token_logps,
    topk_logps,
)

B, T, H, V = 4, 3, 6, 40


@pytest.fixture(autouse=True)
def defaults():
    set_options()
    yield
    set_options()


@pytest.mark.parametrize("frozen", [False, True])
def test_options_that_are_set_while_a_context_is_made(monkeypatch, frozen):
    """A thread reads options and begins to create a context. Before that ends, another thread sets other
    options."""
    reading, go_on = threading.Event(), threading.Event()

    def context():
        return torch_call.current_settings().context(frozen=True) if frozen else torch_call.current_context()

    def slow(**options):
        reading.set()
        assert go_on.wait(60)
        return Context(**options)

    set_options(threads=1)
    monkeypatch.setattr(torch_call, "Context", slow)
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(context)
        assert reading.wait(60)
        monkeypatch.setattr(torch_call, "Context", Context)
        set_options(threads=2)
        go_on.set()
        assert made.result().threads == 1
    assert context().threads == 2 and context() is context()


def in_force():
    return torch_call.current_settings().options


def test_set_options_keeps_what_it_is_not_given():
    set_options(plan="two_pass")
    set_options(workspace_bytes=1 << 20, threads=1)
    assert in_force() == {"plan": "two_pass", "workspace_bytes": 1 << 20, "threads": 1}
    set_options(plan="one_pass", threads=None)
    assert in_force() == {"plan": "one_pass", "workspace_bytes": 1 << 20}
    for error, wrong in ((TypeError, {"nonsense": None}), (ValueError, {"plan": "nonsense"})):
        with pytest.raises(error, match="nonsense"):
            set_options(row_tile=8, **wrong)
    torch_call.current_context()
    assert len(torch_call.current_settings().contexts) == 1  # contexts of other options are given back
    assert in_force() == {"plan": "one_pass", "workspace_bytes": 1 << 20}
    set_options(plan=None)
    assert in_force() == {"workspace_bytes": 1 << 20}
    set_options()
    assert in_force() == {}


def test_blocks_of_options():
    set_options(plan="one_pass", row_tile=8)
    before = torch_call.current_context()
    with options(plan="two_pass"):
        assert in_force() == {"plan": "two_pass", "row_tile": 8}
        with pytest.raises(ZeroDivisionError), options(workspace_bytes=1 << 20, row_tile=None):
            assert in_force() == {"plan": "two_pass", "workspace_bytes": 1 << 20}
            _ = 1 / 0
        assert in_force() == {"plan": "two_pass", "row_tile": 8}
        assert torch_call.current_context() is torch_call.current_context()
    assert torch_call.current_context() is before
    for error, wrong in ((TypeError, {"nonsense": None}), (ValueError, {"plan": "nonsense"})):
        with pytest.raises(error, match="nonsense"), options(**wrong):
            pytest.fail("the block ran")
    assert torch_call.current_context() is before
    with options(plan="two_pass"):
        set_options(vocab_tile=64, plan="auto")  # options that the block does not set take effect at once
        assert in_force() == {"plan": "two_pass", "vocab_tile": 64, "row_tile": 8}
    assert in_force() == {"plan": "auto", "vocab_tile": 64, "row_tile": 8}

    @options(threads=1)
    def decorated(again):
        assert in_force()["threads"] == 1
        return decorated(False) if again else in_force()["threads"]

    assert decorated(True) == 1 and "threads" not in in_force()


def test_blocks_of_threads_and_of_tasks():
    together = threading.Barrier(3)

    def block(plan):
        with options(plan=plan):
            together.wait(60)
            seen = in_force()
            together.wait(60)
            return seen

    with options(workspace_bytes=1 << 20), ThreadPoolExecutor(2) as threads:
        seen = threads.map(block, ("one_pass", "two_pass"))
        together.wait(60)
        assert in_force() == {"workspace_bytes": 1 << 20}
        together.wait(60)
        assert list(seen) == [{"plan": "one_pass"}, {"plan": "two_pass"}]

    async def task(plan):
        with options(plan=plan):
            await asyncio.sleep(0)
            return in_force()

    async def tasks():
        return await asyncio.gather(task("one_pass"), task("two_pass"))

    assert asyncio.run(tasks()) == [{"plan": "one_pass"}, {"plan": "two_pass"}]


def calls():
    """{name: function of (hidden, weight)}. If a name ends in "none", backward() computes the gradients."""
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
@pytest.mark.parametrize("plan", ["auto", "one_pass", "two_pass", "expected_row"])
def test_no_plan_is_refused_by_backward_alone(plan, mode):
    """If a function returns, its backward runs: options without a backward plan are refused in the forward."""
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
    assert "computed" in outcomes  # at least for calls without gradients


@pytest.mark.parametrize("name", [name for name in calls() if name.endswith("none")])
def test_one_pass_and_gradients_that_come_later(name):
    set_options(plan="one_pass")
    hidden, weight = torch.randn(B, T, H, requires_grad=True), torch.randn(V, H)
    from_options = r'^plan = "one_pass", from set_options\(\) or options\(\), .*"auto" or "two_pass"$'
    with pytest.raises(ValueError, match=from_options):
        calls()[name](hidden, weight)
    with torch.no_grad():
        assert calls()[name](hidden, weight).isfinite().all()


@pytest.mark.parametrize("name", calls())
def test_no_grad_makes_no_gradients(monkeypatch, name):
    """Even if parameters require gradients, an evaluation computes one product and allocates no gradients."""
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


def callers():
    """calls(), topk_logps(), class probabilities and the module."""
    out = calls()
    y = torch.randint(V, (B, T))
    out["topk_logps"] = lambda x, w, **k: topk_logps(x, w, 2, **k)[1]
    out["class probabilities"] = lambda x, w, **k: linear_cross_entropy(x, w, torch.ones(B, T, V) / V, **k)

    def module(x, w, **k):
        module = LinearCrossEntropyLoss(H, V, **k)
        module.linear.weight = torch.nn.Parameter(w.detach())
        return module(x.flatten(0, 1), y.flatten())

    out["module"] = module
    return out


@pytest.fixture
def ran(monkeypatch):
    """The halves of calls that ran, as (function of _core, context, plan or None)."""
    halves = []

    def recorded(name, function):
        def run(context, *arguments):
            result = function(context, *arguments)
            plan = result[0] if isinstance(result, tuple) else result
            plan = plan.get("plan") if isinstance(plan, dict) else plan
            halves.append((name, context, getattr(plan, "kind", None)))
            return result

        return run

    for name in dir(_core):
        if f"plan_{name.removesuffix('_backward').removesuffix('_forward')}" in dir(_core):
            monkeypatch.setattr(_core, name, recorded(name, getattr(_core, name)))
    return halves


@pytest.mark.parametrize("how", ["options", "context"])
@pytest.mark.parametrize("name", callers())
def test_a_backward_runs_with_the_options_of_its_forward(ran, name, how):
    """Both of two backwards, outside of all blocks."""
    x, w = torch.randn(B, T, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    call = callers()[name]
    ran.clear()
    with options(plan="two_pass", workspace_bytes=1 << 22):
        given = Context(plan="two_pass", threads=1) if how == "context" else torch_call.current_context()
        loss = call(x, w, **({"context": given} if how == "context" else {}))
        assert torch_call.current_settings().given is None
    assert len(ran) == 1
    if name != "topk_logps":
        loss.sum().backward(retain_graph=True)
        loss.sum().backward()
        assert len(ran) > 1
    assert all(context is given for _, context, _ in ran)
    if how == "context":
        for wrong in ({"plan": "two_pass"}, "two_pass", _core.Context({})):
            with pytest.raises(TypeError, match="^context must be a logitless.Context, not (dict|str|Context)$"):
                call(x, w, context=wrong)


def test_which_plan_a_backward_half_has(ran):
    """With a frozen head, the forward half keeps expected rows, and the backward half computes no products."""
    matrix, packed = torch.randn(V, H), PackedWeight(torch.ones(V, H, dtype=torch.int8), "int8", torch.ones(V, 1))

    def kind_of(weight, **given):
        result = token_logps(torch.randn(B, H, requires_grad=True), weight, torch.arange(B), **given)
        (sum(part.sum() for part in result) if isinstance(result, tuple) else result.sum()).backward()
        return ran[-1][2]

    a, b = torch.randn(3, H, requires_grad=True), torch.randn(V, 3)
    assert kind_of(matrix) == kind_of(LoraWeight(matrix, a, b)) == kind_of(packed) == "expected_row"
    assert kind_of(matrix, entropy=True) == "two_pass"
    assert kind_of(LoraWeight(matrix, a, b.requires_grad_())) == kind_of(matrix.requires_grad_()) == "two_pass"


def test_context_of_a_frozen_head(ran):
    """The forward half keeps expected rows, as without context=; the other options are the context's."""
    x, w, y = torch.randn(B, H, requires_grad=True), torch.randn(V, H), torch.randint(V, (B,))
    context = Context(threads=1)
    for _ in range(2):
        linear_cross_entropy(x, w, y, reduction="none", context=context).sum().backward()
    assert [kind for *_, kind in ran] == ["expected_row"] * 4
    made = {id(given): given for _, given, _ in ran}
    assert len(made) == 2 and id(context) in made and all(given.threads == 1 for given in made.values())
    gone = weakref.ref(context)
    made.clear(), ran.clear()
    del context
    assert gone() is None


def test_context_of_a_group(monkeypatch):
    class Group:
        """A stand-in for a process group with one rank."""

        rank, size = 0, 1

    group, context = Group(), Context(threads=1)
    monkeypatch.setattr(torch_ranks, "GroupCommunicator", lambda group: None)
    made = [torch_ranks.context_of(group, torch_call.Settings.of(context)) for _ in range(2)]
    assert made[0] is made[1] and made[0].threads == 1
    context._options["vocab_ranks"] = group
    with pytest.raises(ValueError, match="^context has vocab_ranks, and group is given: give one of them$"):
        torch_ranks.context_of(group, torch_call.Settings.of(context))


def test_contexts_that_pytorch_or_the_operator_cannot_have():
    context, w, y = Context(), torch.randn(V, H), torch.randint(V, (B,))
    with pytest.raises(ValueError, match="^context is not supported if linear_weight has more than 2 axes"):
        linear_cross_entropy(torch.randn(B, H), torch.randn(V, 2, H), torch.randint(V, (B, 2)), context=context)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as fake:
        x = fake.from_tensor(torch.randn(B, H))
        with pytest.raises(ValueError, match="^context is given: such calls are not an operator"):
            linear_cross_entropy(x, w, y, context=context)


def test_copies_of_a_module_with_a_context(ran):
    module = copy.deepcopy(LinearCrossEntropyLoss(H, V, context=Context(plan="two_pass", threads=1)))
    pickle.loads(pickle.dumps(module))(torch.randn(B, H), torch.randint(V, (B,)))
    assert ran[-1][2] == "two_pass" and ran[-1][1].threads == 1


def test_stats_name_the_plan():
    x, w, y = torch.randn(B, H, requires_grad=True), torch.randn(V, H, requires_grad=True), torch.randint(V, (B,))
    for plan in ("two_pass", "one_pass"):
        with options(plan=plan):
            _, stats = linear_cross_entropy(x, w, y, return_stats=True)
        assert pickle.loads(pickle.dumps(stats)).plan == stats.plan == plan
    assert linear_cross_entropy(x, w, y, reduction="none", return_stats=True)[1].plan == "forward_only"


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiled_calls_and_their_options(ran, reduction):
    w, y = torch.randn(V, H, requires_grad=True), torch.randint(V, (B,))
    context = Context(plan="two_pass")
    first = "two_pass" if reduction == "mean" else "forward_only"

    def plans(function):
        torch._dynamo.reset()
        ran.clear()
        function(torch.randn(B, H, requires_grad=True)).sum().backward()
        return [kind for *_, kind in ran]

    def loss(x, **k):
        return linear_cross_entropy(x * 1.0, w, y, reduction=reduction, **k)

    def block_inside(x):
        with options(plan="two_pass"):
            return loss(x)

    compiled = torch.compile(loss, fullgraph=True)

    def block_around(x):
        with options(plan="two_pass"):
            return compiled(x)

    # With reduction="none", the backward of a compiled call uses the options in force when it runs.
    backward = [] if reduction == "mean" else ["forward_only", "two_pass"]
    assert plans(block_around) == plans(torch.compile(block_inside)) == [first, *backward]
    with options(plan="two_pass"):
        assert set(plans(compiled)) == {first, "two_pass"}
    assert set(plans(torch.compile(lambda x: loss(x, context=context)))) == {first, "two_pass"}  # eager
    assert all(given is context for _, given, _ in ran)
    for refused in (lambda x: loss(x, context=context), block_inside):
        with pytest.raises(torch._dynamo.exc.Unsupported):
            plans(torch.compile(refused, fullgraph=True))
    assert torch_call.current_settings().options == {} and torch_call.current_settings().given is None
