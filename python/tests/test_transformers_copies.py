# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Copies of patched models, of every kind that programs make, compute with their own parameters."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import batch, loss_and_gradients, model_of  # noqa: E402

from logitless._logits_on_read import LogitsOnRead  # noqa: E402
from logitless.transformers import patch, unpatch  # noqa: E402


def through_torch_save(model, folder):
    torch.save(model, folder / "model.pt")
    return torch.load(folder / "model.pt", weights_only=False)


COPIES = {
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "pickle, protocol 2": lambda model, folder: pickle.loads(pickle.dumps(model, protocol=2)),
    "torch.save": through_torch_save,
}


@pytest.mark.parametrize(
    "name, how", [*(("llama", how) for how in COPIES), ("tied llama", "torch.save"), ("gemma2", "pickle"), ("opt", "deepcopy")]
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
    want, want_grads = loss_and_gradients(plain, input_ids=ids, labels=labels)
    got, grads = loss_and_gradients(other, input_ids=ids, labels=labels)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert grads.keys() == want_grads.keys()
    for parameter, grad in grads.items():
        torch.testing.assert_close(grad, want_grads[parameter], atol=5e-5, rtol=1e-3, msg=parameter)
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


def step_elsewhere(model, queue):
    ids, labels = batch()
    loss, grads = loss_and_gradients(model, input_ids=ids, labels=labels)
    kind = type(model(input_ids=ids, labels=labels).logits).__name__
    queue.put((loss.item(), sum(g.double().norm().item() for g in grads.values()), kind))


def test_a_model_in_another_process_is_patched():
    ids, labels = batch()
    model = patch(model_of("llama"))
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=step_elsewhere, args=(model, queue))
    process.start()
    loss, norm, kind = queue.get(timeout=600)
    process.join()
    want, grads = loss_and_gradients(model, input_ids=ids, labels=labels)
    assert kind == "LogitsOnRead"
    assert loss == pytest.approx(want.item(), abs=1e-6)
    assert norm == pytest.approx(sum(g.double().norm().item() for g in grads.values()), rel=1e-5)


def test_an_averaged_model_is_patched():
    """torch.optim.swa_utils copies the model and averages the copy's parameters."""
    ids, labels = batch()
    model = patch(model_of("llama"))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)
    averaged.update_parameters(model)
    averaged.update_parameters(model)
    output = averaged(input_ids=ids, labels=labels)
    assert isinstance(output.logits, LogitsOnRead)
    plain = model_of("llama")
    plain.load_state_dict(averaged.module.state_dict())
    torch.testing.assert_close(output.loss, plain(input_ids=ids, labels=labels).loss, atol=1e-5, rtol=1e-5)


def test_two_threads_share_a_model():
    """One thread computes losses while the other generates."""
    import threading

    ids, labels = batch()
    model = patch(model_of("llama")).eval()
    want_loss = model(input_ids=ids, labels=labels).loss
    want_logits = model(input_ids=ids).logits
    wrong = []

    def ask(what):
        with torch.no_grad():
            for _ in range(20):
                if what == "loss":
                    same = torch.equal(model(input_ids=ids, labels=labels).loss, want_loss)
                else:
                    logits = model(input_ids=ids).logits
                    same = type(logits) is torch.Tensor and torch.equal(logits, want_logits)
                if not same:
                    wrong.append(what)

    threads = [threading.Thread(target=ask, args=(what,)) for what in ("loss", "logits", "loss")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
