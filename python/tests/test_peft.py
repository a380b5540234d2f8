# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models with PEFT adapters on the head, compared with PEFT's own forward."""

import contextlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from small_models import batch, model_of  # noqa: E402

from logitless.packed import PackedWeight  # noqa: E402
from logitless.transformers import compute_loss_func, patch, unpatch  # noqa: E402


def peft_model(**config):
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
    """An unpatched model with two nonzero adapters, of which one is active."""
    model = peft_model()
    model.add_adapter("other", peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], r=2, lora_alpha=6))
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def losses_of(model, change, inputs):
    """The losses of a model in eval mode after `change`, without and with patch()."""
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
    """The logits do not change if adapters are switched between the call and the reading, and an in-place
    change is an error."""
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
    ids, labels = batch()
    patched.eval()
    names = ["default", "other", "__base__"]
    want = patched(input_ids=ids, adapter_names=names).logits
    patch(patched)
    torch.testing.assert_close(patched(input_ids=ids, adapter_names=names).logits, want)
    with pytest.raises(ValueError, match="adapter_names gives rows of one batch different adapters"):
        patched(input_ids=ids, labels=labels, adapter_names=names)


@pytest.mark.parametrize("first", ["patch", "adapter"])
def test_beside_a_head_that_is_given(first):
    """patch(head=) and a LoRA on the same head, in either order."""
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
    with pytest.raises(ValueError, match=r"the head's adapter 'default' has DoRA"):
        patch(peft_model(use_dora=True))
    tied = peft_model()
    base = tied.get_base_model()
    base.get_input_embeddings().weight = base.get_output_embeddings().weight
    with pytest.raises(ValueError, match="shares its weight with the input embeddings: merging it would change them"):
        patch(tied)
    ada = peft.AdaLoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], total_step=10)
    with pytest.raises(ValueError, match="the head carries the adapter 'default'"):
        patch(peft.get_peft_model(model_of("llama"), ada))
