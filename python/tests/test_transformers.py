# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models beside themselves: loss and gradient of every parameter, logits, and what is refused."""

import copy
import pathlib
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import MODELS, batch, loss_and_gradients, model_of  # noqa: E402

from logitless._absent_logits import AbsentLogits  # noqa: E402
from logitless.transformers import argmax, patch, unpatch  # noqa: E402


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


def test_logits_of_a_model_that_trains_explain_themselves():
    model = patch(model_of("llama"))
    ids, labels = batch()
    logits = model(input_ids=ids, labels=labels).logits
    for read in (
        lambda: logits + 1,
        lambda: logits[0],
        lambda: logits[..., 5],
        lambda: logits.softmax(-1),
        lambda: logits.numpy(),
        lambda: logits[:, :-1].reshape(-1, 97),
        lambda: torch.log_softmax(logits, dim=-1),
    ):
        with pytest.raises(RuntimeError, match="without them.*return_logits=True"):
            read()
    assert "has not computed" in repr(logits)


@pytest.mark.parametrize("name", ["llama", "gemma2", "cohere2", "granite", "gpt2", "opt"])
def test_logits_of_a_model_in_eval_mode_are_computed_when_they_are_read(name):
    model = model_of(name).eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    patch(model)
    for reading in (
        lambda logits: logits,
        lambda logits: logits.float().softmax(-1),
        lambda logits: logits[:, :-1].contiguous().view(-1, 97),
        lambda logits: logits[..., 5],
        lambda logits: logits.detach()[0, 3:].to(torch.float64),
        lambda logits: torch.from_numpy(logits.detach().cpu().numpy()),
        lambda logits: copy.deepcopy(logits.detach()),
        lambda logits: torch.cat([logits, logits]),
        lambda logits: torch.tensor(logits.tolist()),
        lambda logits: logits.sum().backward(),
    ):
        got = model(input_ids=ids, labels=labels)
        assert isinstance(got.logits, torch.Tensor) and got.logits._computed is None
        for attribute in ("shape", "dtype", "device", "ndim"):
            assert getattr(got.logits, attribute) == getattr(want.logits, attribute)
        torch.testing.assert_close(got.loss, want.loss, atol=1e-5, rtol=1e-5)
        got, expected = reading(got.logits), reading(model_logits(model, ids))
        if got is not None:
            torch.testing.assert_close(got[...], expected)


def model_logits(model, ids):
    logits = model(input_ids=ids).logits
    assert type(logits) is torch.Tensor
    return logits


def test_logits_that_are_read_after_the_head_has_changed_are_refused():
    model = patch(model_of("llama")).eval()
    ids, labels = batch()
    logits = model(input_ids=ids, labels=labels).logits
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    for reading in (lambda: logits + 1, lambda: logits.argmax(-1), lambda: logits[:, :-1].float() + 1):
        with pytest.raises(RuntimeError, match="the head was changed"):
            reading()


def test_logits_have_the_history_that_they_would_have():
    model = patch(model_of("llama")).eval()
    ids, labels = batch()
    with torch.no_grad():
        without = model(input_ids=ids, labels=labels).logits
    assert not (without * 1).requires_grad
    logits = model(input_ids=ids, labels=labels).logits
    with torch.no_grad():
        assert not (logits * 1).requires_grad
    assert (logits * 1).requires_grad
    assert not (logits.detach() * 1).requires_grad
    with torch.inference_mode():
        logits = model(input_ids=ids, labels=labels).logits
    assert not (logits * 1).requires_grad


def test_slices_of_logits_are_those_of_the_computed_ones():
    model = patch(model_of("gemma2")).eval()
    ids, labels = batch()
    every, most, some = slice(None), slice(None, -1), slice(1, 3)
    mask = labels != -100
    deferred = [most, ..., (..., most, every), (some, most), (some, most, every), (every, ...), (..., every)]
    read = [0, mask, (..., some), (some, some, some), (..., 3), (..., None), (every, -1, every), [0, 2]]
    deferred += [(every, every, every, ...), (every, ..., most, every)]
    read += [(every, every, some, ...), (every, ..., every, some), (..., every, every, some)]
    for key in deferred + read:
        logits = model(input_ids=ids, labels=labels).logits
        part = logits[key]
        assert (logits._computed is None) == any(key is d for d in deferred)
        torch.testing.assert_close(part[...] * 1, model(input_ids=ids).logits[key])


@pytest.mark.parametrize("name", ["llama", "gemma2", "granite", "gpt2"])
def test_argmax_needs_no_logits(name):
    ids, labels = batch()
    model = model_of(name).eval()
    want = model(input_ids=ids).logits.argmax(-1)
    patch(model)
    for mode in (model.eval, model.train):
        mode()
        logits = model(input_ids=ids, labels=labels).logits
        assert torch.equal(logits.argmax(dim=-1), want)
        assert torch.equal(torch.argmax(logits[..., :-1, :], 2), want[:, :-1])
        assert torch.equal(argmax((logits, None), labels), want)
        assert logits._computed is None


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


def test_a_loss_that_is_not_a_causal_lms_is_refused():
    small = dict(d_model=32, vocab_size=97)
    bart = transformers.BartConfig(
        **small, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4
    )
    for model in (
        transformers.XLNetLMHeadModel(transformers.XLNetConfig(**small, n_layer=1, n_head=4, d_inner=48)),
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(**small, num_layers=1, num_heads=4, d_kv=8)
        ),
        transformers.BartForConditionalGeneration(bart),
        transformers.BartForCausalLM(bart),
    ):
        before = type(model)
        with pytest.raises(ValueError, match=f"loss of {before.__name__}.*not that of a causal LM"):
            patch(model)
        assert type(model) is before
    model = model_of("llama")
    model.loss_function = lambda *_, **__: 0
    with pytest.raises(ValueError, match="one of your own"):
        patch(model)
    del model._loss_function
    patch(model)
    with pytest.raises(ValueError, match="unpatch.model. before you set another"):
        model.loss_function = lambda *_, **__: 0


def test_a_forward_that_was_replaced_is_refused():
    model = model_of("llama")
    model.forward = model.forward
    with pytest.raises(ValueError, match="forward was replaced"):
        patch(model)
    del model.forward
    patch(model).lm_head.forward = lambda x: x
    ids, labels = batch()
    with pytest.raises(ValueError, match="head's forward was replaced"):
        model(input_ids=ids, labels=labels)


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


def quoted_messages():
    """The messages that docs/troubleshooting.md quotes of patch(), and of calls of a patched model."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    section = page.split("## patch() refuses a model")[1].split("\n## ")[0]
    return [row[3 : row.index("`", 3)] for row in section.splitlines() if row.startswith("| `")]


def provoked_messages(recwarn):
    model = model_of("llama")

    def patching(change, call=None):
        other = copy.deepcopy(model)
        change(other)
        with pytest.raises((ValueError, RuntimeError)) as caught:
            patch(other)
            if call:
                call(other)
        return str(caught.value)

    ids, labels = batch()

    def set_loss(m):
        m.loss_function = print

    def replace_head(m):
        m.lm_head = torch.nn.Sequential(m.lm_head)

    def replace_forward(m):
        m.forward = m.forward

    def replace_forward_of_head(m):
        m.lm_head.forward = m.lm_head.forward

    def change_head(m):
        logits = m.eval()(input_ids=ids, labels=labels).logits
        m.lm_head.weight.data.mul_(2)
        torch.nn.init.zeros_(m.lm_head.weight)
        logits.softmax(-1)

    yield patching(patch)
    yield patching(set_loss)
    yield patching(lambda m: None, set_loss)
    yield patching(replace_head)
    yield patching(lambda m: m.lm_head.register_forward_hook(print))
    yield patching(lambda m: torch.nn.utils.parametrizations.weight_norm(m.lm_head))
    yield patching(replace_forward_of_head)
    yield patching(replace_forward)
    yield patching(lambda m: m.to("meta")).replace("meta", "cuda:0")
    yield patching(lambda m: None, lambda m: m(input_ids=ids, labels=labels).logits.softmax(-1))
    yield patching(lambda m: None, change_head)
    with pytest.raises(RuntimeError) as caught:
        AbsentLogits(torch.randn(3, 8), torch.nn.Linear(8, 11)) * torch.ones(11)
    yield str(caught.value)
    small = dict(d_model=32, vocab_size=97, n_layer=1, n_head=4, d_inner=48)
    with pytest.raises(ValueError) as caught:
        patch(transformers.XLNetLMHeadModel(transformers.XLNetConfig(**small)))
    yield str(caught.value)
    recwarn.clear()
    patch(model)(input_ids=ids)
    yield str(recwarn.pop(UserWarning).message)
    utils = pytest.importorskip("trl.trainer.utils")
    utils.add_fused_lm_head(model)
    yield str(recwarn.pop(UserWarning).message)
    peft = pytest.importorskip("peft")
    adapter = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], use_dora=True)
    with pytest.raises(ValueError) as caught:
        patch(peft.get_peft_model(model_of("llama"), adapter))
    yield str(caught.value)
    tied = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"])
    with pytest.raises(ValueError) as caught:
        patch(peft.get_peft_model(model_of("tied llama"), tied))
    yield str(caught.value)


def test_troubleshooting_quotes_the_messages(recwarn):
    quoted = quoted_messages()
    provoked = list(provoked_messages(recwarn))
    for message in provoked:
        assert any(
            message == q or (q.endswith("...") and message.startswith(q[:-3])) for q in quoted
        ), message
    assert len(set(provoked)) == len(quoted)


def test_gradients_of_a_sample():
    """The options of patch() arrive, and the loss is that of exact gradients."""
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
