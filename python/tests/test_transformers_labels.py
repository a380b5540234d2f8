# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Labels of a patched model that are all ignored, or that do not fit."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_models import batch, loss_and_gradients, model_of  # noqa: E402

from logitless.transformers import compute_loss_func, patch, unpatch  # noqa: E402


@pytest.mark.parametrize("compiled, items", [(False, 0), (True, torch.tensor(0))])
def test_a_step_without_a_label_has_loss_0(items, compiled):
    """Trainer counts the labels of a whole step, which may be 0 with truncated prompts. Without patch() the
    loss is then NaN and all gradients are 0."""
    model = patch(model_of("llama"))
    ids, labels = batch()
    run = torch.compile(model, fullgraph=True, backend="eager") if compiled else model
    none = torch.full_like(labels, -100)
    none[:, 0] = 5  # the first label is never predicted
    loss = run(input_ids=ids, labels=none, num_items_in_batch=items).loss
    loss.backward()
    assert loss == 0
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    with pytest.raises(ValueError, match="num_items_in_batch = 0 must be a finite number above 0"):
        run(input_ids=ids, labels=labels, num_items_in_batch=items)


def test_a_batch_without_a_label_has_loss_0():
    model = patch(model_of("llama"))
    ids, labels = batch()
    loss, grads = loss_and_gradients(model, input_ids=ids, labels=torch.full_like(labels, -100))
    assert loss == 0 and not any(grad.any() for grad in grads.values())


def test_labels_of_another_length_are_named():
    model = patch(model_of("llama"))
    ids, labels = batch()
    with pytest.raises(ValueError, match=r"labels have shape \(3, 16\), but logits \(3, 17, 97\)"):
        model(input_ids=ids, labels=labels[:, 1:])


@pytest.mark.parametrize("shifted, items", [(False, None), (True, 11)])
def test_labels_of_another_shape_are_those_of_the_plain_model(shifted, items):
    """transformers shifts labels along their last axis, whatever their shape, and flattens them."""
    model = model_of("llama")
    ids, labels = batch()
    for given in (labels.T.contiguous(), labels.flatten(), labels[None], labels.view(17, 3)):
        inputs = dict(input_ids=ids, labels=given, num_items_in_batch=items)
        if shifted:
            inputs["shift_labels"] = given
        want, want_grads = loss_and_gradients(model, **inputs)
        got, grads = loss_and_gradients(patch(model), **inputs)
        unpatch(model)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(grads["lm_head.weight"], want_grads["lm_head.weight"], atol=2e-5, rtol=1e-3)


def test_compute_loss_func_names_labels_of_another_shape():
    """Trainer's label smoother shifts logits and labels along their own axes, and fails if these differ."""
    model = patch(model_of("llama"))
    ids, labels = batch()
    loss = compute_loss_func(model, label_smoothing=0.1)
    for given in (labels.T, labels.flatten(), labels[:, 1:]):
        with pytest.raises(ValueError, match=r"labels have shape .*, but logits \(3, 17, 97\)"):
            loss(model(input_ids=ids), given)


@pytest.mark.parametrize("items", [-1, float("nan"), float("inf"), torch.tensor(0)])
def test_a_number_of_items_that_divides_nothing_is_named(items):
    model = patch(model_of("llama"))
    ids, labels = batch()
    with pytest.raises(ValueError, match="num_items_in_batch = .* must be a finite number above 0"):
        model(input_ids=ids, labels=labels, num_items_in_batch=items)
    with pytest.raises(ValueError, match="num_items_in_batch = .* must be a finite number above 0"):
        compute_loss_func(model)(model(input_ids=ids), labels, num_items_in_batch=items)


def test_compute_loss_func_of_logits_that_are_there():
    """Such as from a model that was unpatched. The sum of the losses is then also divided by
    num_items_in_batch."""
    ids, labels = batch()
    loss_of = compute_loss_func(patch(model_of("llama")), label_smoothing=0.1)
    output = model_of("llama")(input_ids=ids)
    rows = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    for items, divisor in ((None, (labels[:, 1:] != -100).sum()), (11, 11)):
        want = torch.nn.functional.cross_entropy(*rows, label_smoothing=0.1, reduction="sum") / divisor
        torch.testing.assert_close(loss_of(output, labels, num_items_in_batch=items), want, atol=1e-5, rtol=1e-5)


def test_a_loss_of_another_vocabulary_than_that_of_the_head_is_named():
    model = patch(model_of("llama"))
    model.config.vocab_size = 96
    ids, labels = batch()
    with pytest.raises(RuntimeError, match="of 97 vocabulary entries, where the loss has vocab_size = 96"):
        model(input_ids=ids, labels=labels)
