# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models with PEFT adapters on the head, compared with PEFT's own forward."""

import contextlib
import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from small_models import batch, expect_close, loss_and_gradients, model_of  # noqa: E402

from logitless._logits_on_read import LogitsOnRead  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402
from logitless.transformers import compute_loss_func, patch, unpatch  # noqa: E402


ATTENTION = ["q_proj", "v_proj"]


def lora(target_modules=None, **more):
    return peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=target_modules or [*ATTENTION, "lm_head"], **more)


def with_adapter(model, **config):
    torch.manual_seed(3)
    wrapped = peft.get_peft_model(model, lora(**config))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2)
            if "modules_to_save" in name:
                parameter.mul_(1.25)
    return wrapped


CONFIGS = {
    "attention": dict(target_modules=ATTENTION),
    "head": {},
    "rank-stabilised": {"use_rslora": True},
    "dropout": {"lora_alpha": 32, "lora_dropout": 0.3},
    "whole head": dict(target_modules=ATTENTION, modules_to_save=["lm_head"]),
}
ORDERS = ["adapter, patch", "patch, adapter", "patch of the model inside"]
CASES = [*((name, ORDERS[0]) for name in CONFIGS), *((name, ORDERS[1]) for name in ("attention", "head", "whole head"))]


@pytest.mark.parametrize("config, order", [*CASES, ("attention", ORDERS[2])])
def test_a_model_of_peft(config, order):
    """Loss and gradients; then with the adapter disabled, and merged."""
    inputs, results = inputs_of_batch(), []
    for patched in (False, True):
        model = model_of("llama")
        if patched and order == ORDERS[1]:
            patch(model)
        wrapped = with_adapter(model, **CONFIGS[config]).train()
        if patched and order == ORDERS[0]:
            assert patch(wrapped) is wrapped
        if patched and order == ORDERS[2]:
            patch(wrapped.get_base_model())
        assert isinstance(wrapped(**inputs).logits, LogitsOnRead) == patched
        torch.manual_seed(11)
        results.append([loss_and_gradients(wrapped, **inputs)])
        with torch.no_grad():
            with wrapped.disable_adapter():
                results[-1].append((wrapped(**inputs).loss, {}))
            if patched:
                with pytest.raises(ValueError, match="already"):
                    patch(wrapped)
            merged = wrapped.merge_and_unload()
            results[-1].append((merged(**inputs).loss, {}))
    assert type(unpatch(merged).lm_head) is torch.nn.Linear
    for want, got in zip(*results):
        expect_close(got, want)


def inputs_of_batch():
    return dict(zip(("input_ids", "labels"), batch()))


@pytest.fixture
def two_adapters():
    """An unpatched model with two nonzero adapters, of which one is active."""
    model = with_adapter(model_of("llama"))
    model.add_adapter("other", peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], r=2, lora_alpha=6))
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


@pytest.mark.parametrize("state", ["both", "merged", "merged and disabled"])
def test_states_of_adapters(two_adapters, state):
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

    inputs, losses = inputs_of_batch(), []
    for fuse in (False, True):
        if fuse:
            patch(two_adapters)
        with change(two_adapters):
            losses.append(two_adapters(**inputs).loss.detach())
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)


def test_logits_are_those_of_the_call(two_adapters):
    """The logits do not change if adapters are switched between the call and the reading, and an in-place
    change is an error."""
    ids, labels = batch()
    with two_adapters.disable_adapter():
        want = two_adapters(input_ids=ids, labels=labels)
    patch(two_adapters)
    with two_adapters.disable_adapter():
        output = two_adapters(input_ids=ids, labels=labels)
    torch.testing.assert_close(output.logits.detach() + 0, want.logits, rtol=1e-4, atol=1e-4)
    loss_of = compute_loss_func(two_adapters)
    with two_adapters.disable_adapter():
        output = two_adapters(input_ids=ids)
    torch.testing.assert_close(loss_of(output, labels), want.loss, rtol=1e-5, atol=1e-6)
    output = two_adapters(input_ids=ids, labels=labels)
    with torch.no_grad():
        two_adapters.get_base_model().lm_head.lora_B["default"].weight.mul_(2)
    with pytest.raises(RuntimeError, match="the head was changed between the call of the model and the reading"):
        output.logits + 0
    output = two_adapters(input_ids=ids, labels=labels)
    unpatch(two_adapters)
    torch.testing.assert_close(output.logits + 0, two_adapters(input_ids=ids).logits, rtol=1e-4, atol=1e-4)


def test_logits_under_autocast(two_adapters):
    ids, labels = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = two_adapters(input_ids=ids).logits
    patch(two_adapters)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = two_adapters(input_ids=ids, labels=labels)
    got = output.logits + 0
    assert got.dtype == want.dtype
    largest = float(want.abs().max())
    torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-7 * largest)  # sums of rounded logits, rounded again


def test_adapters_of_rows(two_adapters):
    ids, labels = batch()
    names = ["default", "other", "__base__"]
    want = two_adapters(input_ids=ids, adapter_names=names).logits
    patch(two_adapters)
    torch.testing.assert_close(two_adapters(input_ids=ids, adapter_names=names).logits, want)
    with pytest.raises(ValueError, match="adapter_names gives rows of one batch different adapters"):
        two_adapters(input_ids=ids, labels=labels, adapter_names=names)


@pytest.mark.parametrize("first", ["patch", "adapter"])
def test_beside_a_head_that_is_given(first):
    """patch(head=) and a LoRA on the same head, in either order."""
    model = model_of("llama").eval().requires_grad_(False)
    weight = model.lm_head.weight
    scales = weight.abs().amax(1, keepdim=True) / 127
    numbers = (weight / scales).round().to(torch.int8)
    given = PackedWeight(numbers.numpy(), "int8", scales.numpy())
    inputs = inputs_of_batch()
    if first == "patch":
        patch(model, head=given)
    wrapped = with_adapter(model, target_modules=["lm_head"]).eval()
    if first == "adapter":
        patch(wrapped, head=given)
    whole = model_of("llama")
    with torch.no_grad():
        whole.lm_head.weight.copy_(numbers * scales)
    want = with_adapter(whole, target_modules=["lm_head"]).eval()(**inputs).loss
    torch.testing.assert_close(wrapped(**inputs).loss, want, rtol=1e-5, atol=1e-6)


def test_a_model_of_peft_that_is_refused():
    ada = peft.AdaLoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], total_step=10)
    with pytest.raises(ValueError, match="the head carries the adapter 'default'"):
        patch(peft.get_peft_model(model_of("llama"), ada))


def peft_pair(name, config):
    """A plain model with PEFT adapters, and a patched one."""
    pair = []
    for fused in (False, True):
        torch.manual_seed(3)
        pair.append(peft.get_peft_model(model_of(name), copy.deepcopy(config)))
        if fused:
            patch(pair[-1])
    return pair


FEW, MANY = [3, 5, 90], list(range(60, 80))  # up to an eighth of the 32 columns, trained rows become a LoRA
TRAINED_ROWS = {
    "few": dict(target_modules=ATTENTION, trainable_token_indices=FEW),
    "many": dict(target_modules=ATTENTION, trainable_token_indices=MANY),
    "of the embeddings by name": dict(target_modules=ATTENTION, trainable_token_indices={"embed_tokens": FEW}),
    "of both, apart": dict(target_modules=ATTENTION, trainable_token_indices={"embed_tokens": FEW, "lm_head": [5, 7]}),
    "all linear": dict(target_modules="all-linear", trainable_token_indices=FEW),
    "LoRA on the embeddings": dict(target_modules=["embed_tokens"], ensure_weight_tying=True),
    "whole embeddings": dict(target_modules=ATTENTION, modules_to_save=["embed_tokens"], ensure_weight_tying=True),
}


@pytest.mark.parametrize(
    "name, which, dtype",
    [("tied llama", which, torch.float32) for which in TRAINED_ROWS]
    + [("opt", "few", torch.float32), ("gemma2", "many", torch.bfloat16), ("tied llama", "few", torch.bfloat16)],
)
def test_what_peft_trains_of_a_tied_head(name, which, dtype):
    """Five steps; then with the adapter disabled and enabled again, merged, and unpatched."""
    config = lora(**TRAINED_ROWS[which])
    plain, fused = (model.to(dtype) for model in peft_pair(name, config))
    ids, labels = batch()
    # Rounding to bfloat16 changes the logits of the plain head (up to 32) by 2**-4.
    bound = 1e-4 if dtype == torch.float32 else 2**-4
    optimizers = [torch.optim.SGD((p for p in m.parameters() if p.requires_grad), lr=0.1) for m in (plain, fused)]
    for step in range(5 if dtype == torch.float32 else 1):
        want, want_grads = loss_and_gradients(plain, input_ids=ids, labels=labels)
        got, grads = loss_and_gradients(fused, input_ids=ids, labels=labels)
        torch.testing.assert_close(got.float(), want.float(), atol=bound, rtol=0)
        assert grads.keys() == want_grads.keys()
        for parameter, grad in grads.items():
            largest = want_grads[parameter].abs().max().item()
            assert (grad - want_grads[parameter]).abs().max() <= 10 * bound * largest + bound / 10, parameter
        for optimizer in optimizers:
            optimizer.step()
    if dtype != torch.float32:
        return
    assert isinstance(fused(input_ids=ids, labels=labels).logits, LogitsOnRead)
    plain.eval(), fused.eval()
    want = plain(input_ids=ids, labels=labels)
    torch.testing.assert_close(fused(input_ids=ids, labels=labels).logits[...], want.logits, atol=1e-3, rtol=1e-4)
    with plain.disable_adapter(), fused.disable_adapter(), torch.no_grad():
        want = plain(input_ids=ids, labels=labels).loss
        torch.testing.assert_close(fused(input_ids=ids, labels=labels).loss, want, atol=bound, rtol=0)
    want = plain.merge_and_unload()(input_ids=ids, labels=labels).loss
    merged = fused.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids, labels=labels).loss, want, atol=bound, rtol=0)
    assert unpatch(merged).get_output_embeddings().__class__ is torch.nn.Linear


def test_few_trained_rows_cost_no_gradient_of_the_head():
    _, model = peft_pair("tied llama", lora(**TRAINED_ROWS["few"]))
    ids, labels = batch()
    logits = model(input_ids=ids, labels=labels).logits.absent
    assert logits._weight.weight is model.get_base_model().get_input_embeddings().token_adapter.base_layer.weight
    assert logits._weight.a.shape == (3, 32) and logits._weight.a.requires_grad
