# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models compared with unpatched ones: loss, gradients of all parameters, and what is refused."""

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import CONFIGS, batch, expect_close, loss_and_gradients, model_of  # noqa: E402

from logitless.transformers import compute_loss_func, patch, unpatch  # noqa: E402


@pytest.mark.parametrize("name, items", [*((name, None) for name in CONFIGS), ("llama", 29), ("mixtral", 29)])
def test_loss_and_gradients_of_every_parameter(name, items):
    model = model_of(name)
    ids, labels = batch()
    inputs = dict(input_ids=ids, labels=labels)
    if items:
        inputs["num_items_in_batch"] = torch.tensor(items)
    want = loss_and_gradients(model, **inputs)
    expect_close(loss_and_gradients(patch(model), **inputs), want)
    assert unpatch(model)(**inputs).loss == want[0]


def test_shifted_labels_and_bfloat16():
    model = model_of("llama")
    ids, labels = batch()
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    want = model(input_ids=ids, labels=labels).loss
    patch(model)
    torch.testing.assert_close(model(input_ids=ids, labels=labels, shift_labels=shifted).loss, want)
    model.bfloat16()
    loss = model(input_ids=ids, labels=labels).loss
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, want, atol=5e-2, rtol=0)


def test_generation_and_logits_without_labels_are_unchanged():
    model = model_of("gemma2").eval()
    ids, labels = batch()
    want_logits = model(input_ids=ids).logits
    want = model.generate(ids, max_new_tokens=5, do_sample=False)
    patch(model)
    assert torch.equal(model(input_ids=ids).logits, want_logits)
    assert torch.equal(model.generate(ids, max_new_tokens=5, do_sample=False), want)
    last = model(input_ids=ids, logits_to_keep=1).logits
    assert last.shape == (3, 1, 97)


def test_a_model_that_takes_more_than_token_ids_is_not_tried():
    model = model_of("llama")

    class Wants(transformers.LlamaForCausalLM):
        def forward(self, input_ids, sound, labels=None, **kwargs):
            return super().forward(input_ids, labels=labels, **kwargs)

    model.__class__ = Wants
    ids, labels = batch()
    want = model(ids, None, labels=labels).loss
    torch.testing.assert_close(patch(model)(ids, None, labels=labels).loss, want, atol=1e-5, rtol=1e-5)


def test_what_is_no_model_is_a_type_error():
    pytest.importorskip("accelerate")
    given = {
        "a NoneType": None,
        "a Linear": torch.nn.Linear(2, 3),
        "the class LlamaForCausalLM": transformers.LlamaForCausalLM,
    }
    for what, value in given.items():
        for function in (patch, unpatch, compute_loss_func):
            with pytest.raises(TypeError, match=f"model must be a model of transformers.* not {what}$"):
                function(value)


def test_heads_that_are_refused():
    class Adapter(torch.nn.Linear):
        pass

    model = model_of("llama")
    model.lm_head = Adapter(32, 97)
    with pytest.raises(ValueError, match="Adapter"):
        patch(model)
    with pytest.raises(ValueError, match="not patched"):
        unpatch(model)


def test_a_loss_that_is_not_a_causal_lms_is_refused():
    small = dict(d_model=32, vocab_size=97)
    t5 = transformers.T5Config(**small, num_layers=1, num_heads=4, d_kv=8)
    layers = {f"{part}coder_{what}": count for part in ("en", "de") for what, count in (("layers", 1), ("attention_heads", 4))}
    bart = transformers.BartForCausalLM(transformers.BartConfig(**small, **layers))
    for model in (transformers.T5ForConditionalGeneration(t5), bart):
        before = type(model)
        with pytest.raises(ValueError, match=f"loss of {before.__name__}.*not that of a causal LM"):
            patch(model)
        assert type(model) is before


def test_a_head_of_another_size_is_found():
    model = patch(model_of("llama"))
    model.resize_token_embeddings(101)
    ids, labels = batch()
    output = model(input_ids=ids, labels=labels)
    assert output.logits.shape == (3, 17, 101)
    torch.testing.assert_close(
        output.loss, unpatch(model)(input_ids=ids, labels=labels).loss, atol=1e-5, rtol=1e-5
    )


def test_labels_by_position_are_labels():
    model = patch(model_of("llama"))
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels).loss
    assert torch.equal(model(ids, None, None, None, None, labels).loss, want)


def test_training_without_labels_is_told_once():
    model = patch(model_of("llama"))
    ids, _ = batch()
    with pytest.warns(UserWarning, match="trains in a call without labels.*compute_loss_func"):
        model(input_ids=ids).logits.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(input_ids=ids)
        with torch.no_grad():
            patch(model_of("llama"))(input_ids=ids)
        patch(model_of("llama")).eval()(input_ids=ids)


def test_gradients_of_a_sample():
    """The options of patch() arrive, and the loss stays exact."""
    model = model_of("llama")
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels).loss
    patch(model, backward="sampled", theta=0.5)
    torch.testing.assert_close(model(input_ids=ids, labels=labels).loss, want)
    patch(unpatch(model), backward="sampled", noise=10.0)
    with pytest.raises(ValueError, match="^noise = 10 must be"):
        model(input_ids=ids, labels=labels)
    with pytest.raises(TypeError, match="noises"):
        patch(unpatch(model), backward="sampled", noises=0.1)
