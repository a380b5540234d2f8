# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Copies of patched models, of every kind that programs make, compute with their own parameters."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import batch, expect_close, loss_and_gradients, model_of  # noqa: E402

from logitless._logits_on_read import LogitsOnRead  # noqa: E402
from logitless.transformers import patch, unpatch  # noqa: E402


def through_torch_save(model, folder):
    torch.save(model, folder / "model.pt")
    return torch.load(folder / "model.pt", weights_only=False)


COPIES = {
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "to a process": lambda model, folder: ForkingPickler.loads(ForkingPickler.dumps(model)),
    "torch.save": through_torch_save,
}


@pytest.mark.parametrize(
    "name, how",
    [("llama", "to a process"), ("tied llama", "torch.save"), ("gemma2", "pickle"), ("opt", "deepcopy"), ("llama", "deepcopy")],
)
def test_a_copy_is_patched_by_itself(name, how, tmp_path):
    ids, labels = batch()
    model = patch(model_of(name))
    other = COPIES[how](model, tmp_path)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    plain = model_of(name)
    plain.load_state_dict(other.state_dict())
    inputs = dict(input_ids=ids, labels=labels)
    expect_close(loss_and_gradients(other, **inputs), loss_and_gradients(plain, **inputs), 5e-5)
    assert all(p.grad is None for p in model.parameters())  # the original is unchanged
    assert isinstance(other(input_ids=ids, labels=labels).logits, LogitsOnRead)
    # Each can be unpatched on its own.
    unpatch(other)
    assert type(other) is type(plain) and type(other.get_output_embeddings()) is torch.nn.Linear
    assert isinstance(model(input_ids=ids, labels=labels).logits, LogitsOnRead)


def test_a_shallow_copy_outlives_the_original():
    ids, labels = batch()
    model = patch(model_of("llama"))
    other = copy.copy(model)
    want = model(input_ids=ids, labels=labels).loss
    unpatch(model)
    assert torch.equal(other(input_ids=ids, labels=labels).loss, want)


def test_a_saved_model_is_one_of_transformers(tmp_path):
    ids, labels = batch()
    model = patch(model_of("gemma2"))
    model.save_pretrained(tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).architectures == ["Gemma2ForCausalLM"]
    want = model(input_ids=ids, labels=labels).loss
    for classes in (transformers.AutoModelForCausalLM, type(model)):
        other = classes.from_pretrained(tmp_path)
        output = other(input_ids=ids, labels=labels)
        assert not isinstance(output.logits, LogitsOnRead)  # it is not patched
        torch.testing.assert_close(output.loss, want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(patch(other)(input_ids=ids, labels=labels).loss, want)


def test_two_threads_share_a_model():
    """One thread computes losses while the other generates."""
    ids, labels = batch()
    model = patch(model_of("llama")).eval()
    want_loss = model(input_ids=ids, labels=labels).loss
    want_logits = model(input_ids=ids).logits

    def same(what):
        with torch.no_grad():
            if what == "loss":
                return torch.equal(model(input_ids=ids, labels=labels).loss, want_loss)
            logits = model(input_ids=ids).logits
            return type(logits) is torch.Tensor and torch.equal(logits, want_logits)

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(same, ("loss", "logits", "loss") * 20))
