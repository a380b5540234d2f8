# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The logits that a patched model returns in a call with labels are computed when they are read, or on request."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_models import batch, model_of  # noqa: E402

from logitless.transformers import argmax, patch  # noqa: E402


def test_logits_on_request():
    model = model_of("gemma2").eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    patch(model, return_logits=True)
    got = model(input_ids=ids, labels=labels)
    torch.testing.assert_close(got.logits, want.logits)
    as_tuple = model(input_ids=ids, labels=labels, return_dict=False)
    torch.testing.assert_close(as_tuple[1], want.logits)


@pytest.mark.parametrize("name", ["gemma2", "cohere2", "opt"])
def test_logits_of_a_model_in_eval_mode_are_computed_when_they_are_read(name):
    model = model_of(name).eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    patch(model)
    for reading in (
        lambda logits: logits,
        lambda logits: logits.float().softmax(-1),
        lambda logits: logits[:, :-1].contiguous().view(-1, 97),
        lambda logits: logits.detach()[0, 3:].to(torch.float64),
        lambda logits: torch.from_numpy(logits.detach().cpu().numpy()),
        lambda logits: copy.deepcopy(logits.detach()),
        lambda logits: torch.cat([logits, logits]),
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
    read = [0, mask, (..., 3), (..., None), (every, -1, every), [0, 2], (..., slice(5, 5))]
    deferred += [(every, every, every, ...), (every, ..., most, every)]
    deferred += [(..., some), (some, some, some), (every, every, some, ...), (..., slice(None, None, 3))]
    for key in deferred + read:
        logits = model(input_ids=ids, labels=labels).logits
        part = logits[key]
        assert (logits._computed is None) == any(key is d for d in deferred)
        torch.testing.assert_close(part[...] * 1, model(input_ids=ids).logits[key])


@pytest.mark.parametrize("name", ["gemma2", "gpt2"])
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
