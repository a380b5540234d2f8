# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Labels of a patched model that leave nothing to learn, or that do not fit."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_models import batch, loss_and_gradients, model_of  # noqa: E402

from logitless.transformers import patch  # noqa: E402


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("items", [0, torch.tensor(0)])
def test_a_step_without_a_label_has_loss_0(items, compiled):
    """Trainer counts the labels of all parts of a step: truncated prompts may leave none. Without patch() the loss
    is NaN and all gradients are 0."""
    model = patch(model_of("llama"))
    ids, labels = batch()
    run = torch.compile(model, fullgraph=True, backend="eager") if compiled else model
    none = torch.full_like(labels, -100)
    none[:, 0] = 5  # which nothing predicts
    loss = run(input_ids=ids, labels=none, num_items_in_batch=items).loss
    loss.backward()
    assert loss == 0
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    with pytest.raises(ValueError, match="normaliser = 0 must be"):
        run(input_ids=ids, labels=labels, num_items_in_batch=items)


def test_a_batch_without_a_label_has_loss_0():
    model = patch(model_of("llama"))
    ids, labels = batch()
    loss, grads = loss_and_gradients(model, input_ids=ids, labels=torch.full_like(labels, -100))
    assert loss == 0 and not any(grad.any() for grad in grads.values())


def test_labels_of_another_length_are_named():
    model = patch(model_of("llama"))
    ids, labels = batch()
    with pytest.raises(ValueError, match=r"labels have shape \(3, 16\), and logits \(3, 17, 97\)"):
        model(input_ids=ids, labels=labels[:, 1:])
