# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models with a quantised head: loss and gradients are bit-identical to a patched model with the
dequantised head. The layers are from bitsandbytes and torchao, if they are installed, or stand-ins with
the same attributes, or of an unknown class."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import batch, loss_and_gradients, model_of  # noqa: E402

from logitless.packed import PackedWeight, from_bitsandbytes  # noqa: E402
from logitless.transformers import absent_logits, patch, unpatch  # noqa: E402

V, H = 97, 32


class Int8Params(torch.nn.Parameter):
    """Like bitsandbytes' class before the first forward pass."""

    def __new__(cls, data, SCB):
        self = torch.Tensor._make_subclass(cls, data, False)
        self.CB, self.SCB = data, SCB
        return self

    def __deepcopy__(self, memo):
        return Int8Params(self.data.clone(), self.SCB.clone())

    def __reduce_ex__(self, protocol):
        return Int8Params, (self.data, self.SCB)


class Linear8bitLt(torch.nn.Linear):
    def forward(self, input):
        return torch.nn.functional.linear(input, numbers_of(self.weight), self.bias)


def numbers_of(weight):
    return weight.data * (weight.SCB / 127)[:, None]


class QuantLinear(torch.nn.Module):
    """A quantised layer of an unknown class, without a weight."""

    def __init__(self, numbers):
        super().__init__()
        self.register_buffer("qweight", numbers)
        self.bias = None

    def forward(self, input):
        return torch.nn.functional.linear(input, self.qweight, self.bias)


def standing_in(model):
    scales = model.lm_head.weight.detach().abs().amax(1)
    head = Linear8bitLt(H, V, bias=False)
    head.weight = Int8Params((model.lm_head.weight.detach() / scales[:, None] * 127).round().to(torch.int8), scales)
    model.lm_head = head
    return numbers_of(head.weight), {}


def with_bitsandbytes(model):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    head = bitsandbytes.nn.Linear8bitLt(H, V, bias=False, has_fp16_weights=False)
    head.weight = bitsandbytes.nn.Int8Params(model.lm_head.weight.detach(), has_fp16_weights=False, requires_grad=False)
    model.lm_head = head.to("cpu")
    packed = from_bitsandbytes(model.lm_head.weight)
    return torch.tensor(packed.data * packed.scales), {}


def with_torchao(model):
    quantization = pytest.importorskip("torchao.quantization")
    quantization.quantize_(model.lm_head, quantization.Int8WeightOnlyConfig(version=2))
    return model.lm_head.weight.dequantize(), {}


def given(model):
    numbers, _ = standing_in(model)
    packed = from_bitsandbytes(model.lm_head.weight)
    model.lm_head = QuantLinear(numbers)
    return numbers, {"head": packed}


def plain_and_given(model):
    numbers, _ = standing_in(model)
    packed = from_bitsandbytes(model.lm_head.weight)
    model.lm_head = torch.nn.Linear(H, V, bias=False).requires_grad_(False)
    model.lm_head.weight.copy_(numbers)
    return numbers, {"head": packed}


KINDS = [standing_in, with_bitsandbytes, with_torchao, given, plain_and_given]


def models(kind, name="llama"):
    """A patched model with a quantised head, and a plain one with the dequantised head."""
    model, plain = model_of(name), model_of(name)
    for one in (model, plain):
        if one.config.tie_word_embeddings:
            one.lm_head.weight = torch.nn.Parameter(one.lm_head.weight.detach().clone())
    numbers, options = kind(model)
    with torch.no_grad():
        plain.lm_head.weight.copy_(numbers)
    plain.lm_head.requires_grad_(False)
    return patch(model, **options), plain


def expect_same(got, want):
    assert torch.equal(got[0], want[0]) and got[1].keys() == want[1].keys()
    for name in got[1]:
        assert torch.equal(got[1][name], want[1][name]), name


@pytest.mark.parametrize("kind, name", [*((kind, "llama") for kind in KINDS), (standing_in, "gemma2"), (given, "cohere2")])
def test_loss_and_gradients(kind, name):
    model, plain = models(kind, name)
    ids, labels = batch()
    inputs = dict(input_ids=ids, labels=labels)
    want = loss_and_gradients(patch(plain), **inputs)
    for _ in range(2):
        expect_same(loss_and_gradients(model, **inputs), want)
    with pytest.raises(RuntimeError, match="logits are read"):
        model(**inputs).logits.softmax(-1)
    # Calls that compute logits run the head's own code.
    unpatch(plain)
    near = dict(atol=0.1 if kind is with_bitsandbytes else 1e-4, rtol=1e-4)  # its layer also rounds hidden states
    for mode in (True, False):
        model.train(mode)
        torch.testing.assert_close(model(input_ids=ids).logits, plain(input_ids=ids).logits, **near)
    output = model(**inputs)
    want_logits = plain(**inputs).logits
    assert output.logits.shape == want_logits.shape and torch.equal(output.logits.argmax(-1), want_logits.argmax(-1))
    torch.testing.assert_close(output.logits + 0, want_logits, **near)
    assert torch.equal(model.generate(ids, max_new_tokens=2, do_sample=False)[:, :17], ids)
    expect_same(loss_and_gradients(model, **inputs), want)
    head = type(unpatch(model).lm_head)
    assert head in (torch.nn.Linear, QuantLinear) or head.__name__ == "Linear8bitLt"
    assert "_logitless_packed" not in vars(model.lm_head)


@pytest.mark.parametrize("kind, how", [(standing_in, copy.deepcopy), (given, lambda model: pickle.loads(pickle.dumps(model)))])
def test_a_copy_is_patched_by_itself(kind, how):
    model, plain = models(kind)
    ids, labels = batch()
    other = how(model)
    unpatch(model)
    want = loss_and_gradients(patch(plain), input_ids=ids, labels=labels)
    expect_same(loss_and_gradients(other, input_ids=ids, labels=labels), want)


def test_says_what_is_wrong():
    model = model_of("llama")
    numbers, options = given(model)
    name = f"{QuantLinear.__module__}.QuantLinear"
    with pytest.raises(ValueError, match=rf"^the head is a {name}, not a torch.nn.Linear: .* patch\(model, head=...\)"):
        patch(model)
    with pytest.raises(TypeError, match="^head is a Tensor: it must be a logitless.packed.PackedWeight$"):
        patch(model, head=numbers)
    model = model_of("llama")
    with pytest.raises(ValueError, match="^the head's weight requires a gradient, but a packed head"):
        patch(model, **options)
    short = PackedWeight(options["head"].data[:90], "int8", options["head"].scales[:90])
    with pytest.raises(ValueError, match="^head has 90 vocabulary entries, but the model's has 97$"):
        patch(model, head=short)

    class Sparse(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return torch.Tensor._make_wrapper_subclass(cls, (V, H))

    sparse = torch.Tensor._make_wrapper_subclass(Sparse, (V, H))
    model.lm_head.weight = torch.nn.Parameter(sparse, requires_grad=False)
    with pytest.raises(ValueError, match=r"^the head's weight is a .*Sparse, which is neither a plain tensor nor one"):
        patch(model)
    model.lm_head = Linear8bitLt(H, V, bias=False)
    with pytest.raises(ValueError, match=r"^the head's weight is torch.float32, in a .*Linear8bitLt$"):
        patch(model)
    model.lm_head.weight = Int8Params(torch.zeros(V, H, dtype=torch.int8), None)
    with pytest.raises(ValueError, match="^Int8Params has no SCB: it is not quantised yet"):
        patch(model)


@pytest.mark.parametrize("kind", [standing_in, with_bitsandbytes, with_torchao])
def test_what_trl_asks_for(kind):
    pytest.importorskip("trl")
    from logitless._trl_head import _log_probs

    model = model_of("llama")
    numbers, _ = kind(model)
    targets, outputs = torch.arange(9) * 11 % V, ("entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
    results = []
    for weight in (model.lm_head.weight, numbers):
        torch.manual_seed(0)
        hidden = torch.randn(9, H, requires_grad=True)
        columns = _log_probs(hidden, weight, None, targets, 0.8, 4096, 2.0, 0.5, outputs)
        columns[0].sum().backward()
        results.append([*(x for x in columns if x is not None), hidden.grad])
    assert len(results[0]) == len(outputs) + 2
    assert all(torch.equal(one, other) for one, other in zip(*results))


@pytest.mark.parametrize("kind", [standing_in, with_torchao])
def test_log_probabilities_without_a_loss(kind):
    """logitless.lm_eval with a quantised head."""
    model, plain = models(kind)
    ids, _ = batch()
    targets = ids.roll(-1).flatten()
    found = []
    for one in (model, patch(plain)):
        one.eval()
        with torch.no_grad():
            absent = absent_logits(one, lambda one=one: one(ids).logits)
        stats = absent.spans([(0, 17)] * 3).token_stats(targets, argmax=True)
        sets = absent.spans([(0, 17)] * 3).set_logps(targets, torch.arange(0, 52))
        found.append([stats["logp"], stats["argmax"], sets])
    assert all(torch.equal(one, other) for one, other in zip(*found))
