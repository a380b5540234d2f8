# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models beside themselves: loss and gradient of every parameter, generation, and what is refused."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from logitless.transformers import AbsentLogits, patch, unpatch  # noqa: E402

SMALL = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)


def model_of(name):
    torch.manual_seed(0)
    if name == "llama":
        config = transformers.LlamaConfig(**SMALL, tie_word_embeddings=False)
    elif name == "tied llama":
        config = transformers.LlamaConfig(**SMALL, tie_word_embeddings=True)
    elif name == "qwen3":
        config = transformers.Qwen3Config(**SMALL)
    elif name == "gemma2":
        config = transformers.Gemma2Config(**SMALL, final_logit_softcapping=2.0)
    elif name == "cohere2":
        config = transformers.Cohere2Config(**SMALL, logit_scale=0.25)
    elif name == "granite":
        config = transformers.GraniteConfig(**SMALL, logits_scaling=4.0)
    elif name == "mixtral":
        config = transformers.MixtralConfig(
            **SMALL, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True
        )
    model = transformers.AutoModelForCausalLM.from_config(config)
    # Random heads are so small that a softcap or a scale would not show.
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model


MODELS = ["llama", "tied llama", "qwen3", "gemma2", "cohere2", "granite", "mixtral"]


def batch():
    torch.manual_seed(1)
    ids = torch.randint(3, 97, (3, 17))
    labels = ids.clone()
    labels[0, :5] = -100
    return ids, labels


def loss_and_gradients(model, **inputs):
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("items", [None, 29])
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_of_every_parameter(name, items):
    model = model_of(name)
    ids, labels = batch()
    inputs = dict(input_ids=ids, labels=labels)
    if items:
        inputs["num_items_in_batch"] = torch.tensor(items)
    want, want_grads = loss_and_gradients(model, **inputs)
    got, grads = loss_and_gradients(patch(model), **inputs)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert grads.keys() == want_grads.keys()
    for parameter, grad in grads.items():
        torch.testing.assert_close(grad, want_grads[parameter], atol=2e-5, rtol=1e-3, msg=parameter)
    back, _ = loss_and_gradients(unpatch(model), **inputs)
    assert back == want


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


@pytest.mark.parametrize("name", ["gemma2", "cohere2", "granite"])
def test_logits_on_request(name):
    model = model_of(name).eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    patch(model, return_logits=True)
    got = model(input_ids=ids, labels=labels)
    torch.testing.assert_close(got.logits, want.logits)
    as_tuple = model(input_ids=ids, labels=labels, return_dict=False)
    torch.testing.assert_close(as_tuple[1], want.logits)


def test_scaling_absent_logits_leaves_them_as_they_are():
    head = torch.nn.Linear(8, 11)
    logits = AbsentLogits(torch.randn(3, 8), head)
    plain = logits.materialise()
    torch.testing.assert_close((2 * logits / 4).materialise(), plain / 2)
    capped = torch.tanh(logits / 3.0) * 3.0
    torch.testing.assert_close(capped.materialise(), 3 * torch.tanh(plain / 3))
    torch.testing.assert_close(logits.materialise(), plain)
    with pytest.raises(RuntimeError, match="scaled by a tensor"):
        logits * torch.ones(11)


def test_absent_logits_explain_themselves():
    model = patch(model_of("llama"))
    ids, labels = batch()
    logits = model(input_ids=ids, labels=labels).logits
    for read in (
        lambda: logits.shape,
        lambda: logits[0],
        lambda: torch.argmax(logits),
        lambda: logits.argmax(-1),
    ):
        with pytest.raises(RuntimeError, match="without them.*return_logits=True"):
            read()
    assert "has not computed" in repr(logits)


def test_heads_that_are_refused():
    model = model_of("llama")
    hook = model.lm_head.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="hooks"):
        patch(model)
    hook.remove()

    class Adapter(torch.nn.Linear):
        pass

    other = copy.deepcopy(model)
    other.lm_head = Adapter(32, 97)
    with pytest.raises(ValueError, match="Adapter"):
        patch(other)
    patch(model)
    with pytest.raises(ValueError, match="already"):
        patch(model)
    unpatch(model)
    with pytest.raises(ValueError, match="not patched"):
        unpatch(model)


def test_training_follows_the_unpatched_model():
    """Thirty steps of AdamW from the same weights."""
    curves = []
    for fused in (False, True):
        model = model_of("qwen3")
        if fused:
            patch(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        ids, labels = batch()
        curve = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        curves.append(curve)
    assert curves[1] == pytest.approx(curves[0], abs=1e-3)
    assert curves[1][-1] < 0.5 * curves[1][0]
