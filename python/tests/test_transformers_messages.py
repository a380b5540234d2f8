# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md quotes the messages of patch() and of patched models."""

import copy
import pathlib

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import batch, model_of, model_with, past_its_head  # noqa: E402

from logitless.transformers import patch  # noqa: E402


def quoted_messages():
    """The messages of patch() and of patched models that docs/troubleshooting.md quotes."""
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
    clamped = model_with(lambda logits: logits.clamp(-30, 30))
    late = model_with(lambda logits: logits if logits.shape[1] < 3 else logits.clamp(-30, 30))
    masked = model_with(lambda logits: logits.masked_fill(torch.arange(97) == 4, -torch.inf))
    ids[0, 6] = labels[0, 6] = 4
    for call in (
        lambda: patch(clamped),
        lambda: patch(late)(input_ids=ids, labels=labels),
        lambda: patch(masked)(input_ids=ids, labels=labels),
        lambda: patch(copy.deepcopy(model))(input_ids=ids, labels=labels, num_items_in_batch=0),
        lambda: patch(past_its_head()),
        lambda: patch(None),
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError)) as caught:
            call()
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
