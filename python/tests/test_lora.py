# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads with a LoRA in logitless.torch: sampled gradients, compilation and messages; and models with PEFT's adapters
on the head, patched, against PEFT's own forward."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import logitless  # noqa: E402
import logitless.torch as lt  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

N, H, V, R = 12, 8, 90, 3
torch.manual_seed(7)
A, B, SCALE = torch.randn(R, H), torch.randn(V, R), 1.5
TARGETS = torch.arange(N) * 7 % V


def leaves(*tensors):
    return [t.clone().requires_grad_() for t in tensors]


# The same seed takes the same part of the vocabulary of the head and of the weight that it stands for.
@pytest.mark.parametrize("backward", [dict(backward="sampled", theta=0.3, seed=4), dict(backward="certified", tolerance=0.6)])
def test_gradients_of_a_sample(backward):
    vocab, rows = 3000, 40
    weight, b = torch.randn(vocab, H, dtype=torch.float64), torch.randn(vocab, R, dtype=torch.float64)
    hidden, a = torch.randn(rows, H, dtype=torch.float64), torch.randn(R, H, dtype=torch.float64)
    targets = torch.arange(rows) * 37 % vocab
    got, want = leaves(hidden, weight, a, b), leaves(hidden, weight, a, b)
    lt.linear_cross_entropy(got[0], LoraWeight(*got[1:], SCALE), targets, **backward).backward()
    lt.linear_cross_entropy(want[0], want[1] + SCALE * want[3] @ want[2], targets, **backward).backward()
    exact = leaves(hidden)[0]
    lt.linear_cross_entropy(exact, weight + SCALE * b @ a, targets).backward()
    assert not torch.allclose(got[0].grad, exact.grad, rtol=1e-3)
    for x, y in zip(got, want):
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-7, atol=1e-10)
    with pytest.raises(ValueError, match="the noise of its gradients is not estimated: give theta"):
        lt.linear_cross_entropy(got[0], LoraWeight(*got[1:], SCALE), targets, backward="sampled").backward()


def test_under_compile_and_checkpoint():
    compiled = torch.compile(lambda x, a, b: lt.linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), TARGETS))
    results = []
    for run in (
        lambda x, a, b: lt.linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), TARGETS),
        compiled,
        lambda *t: torch.utils.checkpoint.checkpoint(
            lambda x, a, b: lt.linear_cross_entropy(x, LoraWeight(WEIGHT, a, b, SCALE), TARGETS), *t, use_reentrant=False
        ),
    ):
        tensors = leaves(HIDDEN, A, B)
        loss = run(*tensors)
        loss.backward()
        results.append([loss.detach(), *(t.grad for t in tensors)])
    for other in results[1:]:
        for got, want in zip(other, results[0]):
            assert torch.equal(got, want)


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"b has shape \(90, 2\): it must be \(90, 3\)"):
        LoraWeight(WEIGHT, A, B[:, :2])
    with pytest.raises(ValueError, match="a has 7 columns, and weight 8"):
        LoraWeight(WEIGHT, A[:, :7], B)
    with pytest.raises(ValueError, match=r"weight has shape \(1, 90, 8\): it must be a tensor of 2 axes"):
        LoraWeight(WEIGHT[None], A, B)
    with pytest.raises(ValueError, match="weight is 'x': it must be a tensor of 2 axes"):
        LoraWeight("x", A, B)
    with pytest.raises(ValueError, match="a has 8 columns but hidden has 6"):
        lt.linear_cross_entropy(HIDDEN[:, :6], LoraWeight(WEIGHT, A, B), TARGETS)
    with pytest.raises(ValueError, match="a is on meta: logitless computes on the CPU"):
        lt.linear_cross_entropy(HIDDEN, LoraWeight(WEIGHT, A.to("meta"), B), TARGETS)
    with pytest.raises(ValueError, match="a is on meta: logitless computes on the CPU"):
        lt.distillation_loss(HIDDEN, WEIGHT, HIDDEN, LoraWeight(WEIGHT, A.to("meta"), B))
    with pytest.raises(ValueError, match="lora_scale is given, and weight is a LoraWeight, which has its own"):
        logitless.cross_entropy(HIDDEN, LoraWeight(WEIGHT, A, B), TARGETS, lora_scale=5.0)
    for scale in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^scale = {scale} must be a finite number$"):
            LoraWeight(WEIGHT, A, B, scale)
    assert LoraWeight(WEIGHT, A, B) != LoraWeight(WEIGHT, A, B)
    with pytest.raises(ValueError, match="sampled cannot run: the head has a LoRA"):
        lt.linear_cross_entropy(HIDDEN.clone().requires_grad_(), LoraWeight(WEIGHT, A, B), TARGETS, backward="sampled")


def peft_model(**config):
    peft = pytest.importorskip("peft")
    from small_models import model_of

    model = model_of("llama")
    adapter = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head", "q_proj"], r=4, **config)
    model = peft.get_peft_model(model, adapter)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize("config", [{}, {"use_rslora": True}, {"lora_alpha": 32, "lora_dropout": 0.3}])
def test_a_model_of_peft(config):
    from small_models import batch

    from logitless.transformers import patch, unpatch

    model = peft_model(**config)
    ids, labels = batch()
    inputs = {"input_ids": ids, "labels": labels}
    results = []
    for patched in (False, True):
        model.train()
        if patched:
            patch(model)
        model.zero_grad()
        torch.manual_seed(11)
        loss = model(**inputs).loss
        loss.backward()
        results.append((loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}))
    (plain, want), (fused, got) = results
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    assert got.keys() == want.keys() and any("lm_head.lora_A" in name for name in got)
    for name, gradient in want.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    with model.disable_adapter():
        fused = model(**inputs).loss
        unpatch(model)
        torch.testing.assert_close(fused, model(**inputs).loss, rtol=1e-5, atol=1e-6)


def inputs_of(batched):
    ids, labels = batched
    return {"input_ids": ids, "labels": labels}


@pytest.fixture
def patched():
    """A model with two adapters that are not zero, of which one is active, before it is patched."""
    peft = pytest.importorskip("peft")
    model = peft_model()
    model.add_adapter("other", peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], r=2, lora_alpha=6))
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def losses_of(model, change, inputs):
    """The loss without and with the patch, of a model in eval mode that `change` has seen."""
    from logitless.transformers import patch, unpatch

    model.eval()
    results = []
    for fuse in (False, True):
        if fuse:
            patch(model)
        with change(model):
            results.append(model(**inputs).loss.detach())
    unpatch(model)
    return results


@pytest.mark.parametrize("state", ["both", "disabled", "merged", "merged and disabled"])
def test_states_of_adapters(patched, state):
    import contextlib

    from small_models import batch

    @contextlib.contextmanager
    def change(model):
        if state == "both":
            model.base_model.set_adapter(["default", "other"])
        if "merged" in state:
            model.merge_adapter()
        with model.disable_adapter() if "disabled" in state else contextlib.nullcontext():
            yield
        if "merged" in state:
            model.unmerge_adapter()

    plain, fused = losses_of(patched, change, inputs_of(batch()))
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)


def test_logits_are_those_of_the_call(patched):
    """Adapters that are switched, or changed in place, between the call and the reading of its logits."""
    from small_models import batch

    from logitless.transformers import compute_loss_func, patch, unpatch

    ids, labels = batch()
    patched.eval()
    with patched.disable_adapter():
        want = patched(input_ids=ids, labels=labels)
    patch(patched)
    with patched.disable_adapter():
        output = patched(input_ids=ids, labels=labels)
    torch.testing.assert_close(output.logits.detach() + 0, want.logits, rtol=1e-4, atol=1e-4)
    loss_of = compute_loss_func(patched)
    with patched.disable_adapter():
        output = patched(input_ids=ids)
    torch.testing.assert_close(loss_of(output, labels), want.loss, rtol=1e-5, atol=1e-6)
    output = patched(input_ids=ids, labels=labels)
    with torch.no_grad():
        patched.get_base_model().lm_head.lora_B["default"].weight.mul_(2)
    with pytest.raises(RuntimeError, match="the head was changed between the call of the model and the reading"):
        output.logits + 0
    output = patched(input_ids=ids, labels=labels)
    unpatch(patched)
    torch.testing.assert_close(output.logits + 0, patched(input_ids=ids).logits, rtol=1e-4, atol=1e-4)


def test_logits_under_autocast(patched):
    from small_models import batch

    from logitless.transformers import patch

    ids, labels = batch()
    patched.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = patched(input_ids=ids).logits
    patch(patched)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = patched(input_ids=ids, labels=labels)
    got = output.logits + 0
    assert got.dtype == want.dtype
    largest = float(want.abs().max())
    torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-7 * largest)  # sums of rounded logits, rounded again


def test_adapters_of_rows(patched):
    from small_models import batch

    from logitless.transformers import patch

    ids, labels = batch()
    patched.eval()
    names = ["default", "other", "__base__"]
    want = patched(input_ids=ids, adapter_names=names).logits
    patch(patched)
    torch.testing.assert_close(patched(input_ids=ids, adapter_names=names).logits, want)
    with pytest.raises(ValueError, match="adapter_names gives rows of one batch adapters of their own"):
        patched(input_ids=ids, labels=labels, adapter_names=names)


@pytest.mark.parametrize("first", ["patch", "adapter"])
def test_beside_a_head_that_is_given(first):
    """patch(head=) and a LoRA on the same head, in either order."""
    peft = pytest.importorskip("peft")
    from small_models import batch, model_of

    from logitless.transformers import patch

    model = model_of("llama").eval().requires_grad_(False)
    weight = model.lm_head.weight
    scales = weight.abs().amax(1, keepdim=True) / 127
    numbers = (weight / scales).round().to(torch.int8)
    given = PackedWeight(numbers.numpy(), "int8", scales.numpy())
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], r=4, init_lora_weights=False)
    inputs = inputs_of(batch())
    if first == "patch":
        patch(model, head=given)
    torch.manual_seed(6)
    wrapped = peft.get_peft_model(model, config).eval()
    if first == "adapter":
        patch(wrapped, head=given)
    got = wrapped(**inputs).loss
    torch.manual_seed(6)
    whole = model_of("llama").eval()
    with torch.no_grad():
        whole.lm_head.weight.copy_(numbers * scales)
    torch.manual_seed(6)
    want = peft.get_peft_model(whole, config).eval()(**inputs).loss
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_model_of_peft_that_is_refused():
    from logitless.transformers import patch

    with pytest.raises(ValueError, match=r"the head's adapter 'default' has DoRA"):
        patch(peft_model(use_dora=True))
    tied = peft_model()
    base = tied.get_base_model()
    base.get_input_embeddings().weight = base.get_output_embeddings().weight
    with pytest.raises(ValueError, match="shares its weight with the input embeddings: merging it would change them"):
        patch(tied)
    peft = pytest.importorskip("peft")
    from small_models import model_of

    ada = peft.AdaLoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], total_step=10)
    with pytest.raises(ValueError, match="the head carries the adapter 'default'"):
        patch(peft.get_peft_model(model_of("llama"), ada))
