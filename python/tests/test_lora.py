# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads with a LoRA under autograd, against autograd through the weight that they stand for; and PEFT's own forward
against a patched model's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import logitless.torch as lt  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

N, H, V, R = 12, 8, 90, 3
torch.manual_seed(7)
HIDDEN, WEIGHT, BIAS = torch.randn(N, H), torch.randn(V, H), torch.randn(V)
A, B, SCALE = torch.randn(R, H), torch.randn(V, R), 1.5
TARGETS = torch.arange(N) * 7 % V
IDS = torch.arange(0, V, 3)


def leaves(*tensors, frozen=()):
    return [t.clone().requires_grad_(i not in frozen) for i, t in enumerate(tensors)]


def compare(ours, reference, frozen=(), tolerance=1e-5):
    """ours(hidden, weight, a, b), and reference(hidden, weight + scale b a), have one loss and one gradient each."""
    got = leaves(HIDDEN, WEIGHT, A, B, frozen=frozen)
    want = leaves(HIDDEN, WEIGHT, A, B, frozen=frozen)
    loss = ours(*got)
    expected = reference(want[0], want[1] + SCALE * want[3] @ want[2])
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance, check_dtype=False)
    loss.sum().backward()
    expected.sum().backward()
    for i, (x, y) in enumerate(zip(got, want)):
        if i in frozen:
            assert x.grad is None
        else:
            torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", [(), (1,), (0, 1), (2, 3)])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_linear_cross_entropy(frozen, reduction):
    compare(
        lambda x, w, a, b: lt.linear_cross_entropy(x, LoraWeight(w, a, b, SCALE), TARGETS, linear_bias=BIAS, reduction=reduction),
        lambda x, w: torch.nn.functional.cross_entropy(x @ w.T + BIAS, TARGETS, reduction=reduction),
        frozen,
    )


def test_other_functions():
    compare(
        lambda x, w, a, b: lt.token_logps(x, LoraWeight(w, a, b, SCALE), TARGETS),
        lambda x, w: torch.log_softmax(x @ w.T, -1)[torch.arange(N), TARGETS],
    )
    teacher = torch.randn(V, H)
    compare(
        lambda x, w, a, b: lt.distillation_loss(x, LoraWeight(w, a, b, SCALE), HIDDEN, teacher, divergence="forward_kl"),
        lambda x, w: torch.nn.functional.kl_div(
            torch.log_softmax(x @ w.T, -1), torch.softmax(HIDDEN @ teacher.T, -1), reduction="batchmean"
        ),
    )
    whole = WEIGHT + SCALE * B @ A
    of_lora = lt.distillation_loss(HIDDEN, teacher, HIDDEN, LoraWeight(WEIGHT, A, B, SCALE))
    torch.testing.assert_close(of_lora, lt.distillation_loss(HIDDEN, teacher, HIDDEN, whole))


def test_chosen_entries():
    targets = torch.arange(N) % len(IDS)
    compare(
        lambda x, w, a, b: lt.linear_cross_entropy(x, LoraWeight(w, a, b, SCALE), targets, vocab_ids=IDS),
        lambda x, w: torch.nn.functional.cross_entropy(x @ w[IDS].T, targets),
    )


def test_beside_a_packed_weight():
    numbers = torch.randint(-127, 128, (V, H), dtype=torch.int8)
    packed = PackedWeight(numbers.numpy(), "int8", np.full(V, 0.01, np.float32))
    compare(
        lambda x, w, a, b: lt.linear_cross_entropy(x, LoraWeight(packed, a, b, SCALE), TARGETS),
        lambda x, w: torch.nn.functional.cross_entropy(x @ (w - WEIGHT + numbers * 0.01).T, TARGETS),
        frozen=(1,),
    )


def test_bfloat16_beside_float32():
    hidden, weight, a, b = HIDDEN.bfloat16(), WEIGHT.bfloat16(), *leaves(A, B)
    loss = lt.linear_cross_entropy(hidden, LoraWeight(weight, a, b, SCALE), TARGETS, loss_dtype=torch.float32)
    want = torch.nn.functional.cross_entropy(
        hidden.float() @ weight.float().T + SCALE * (hidden.float() @ A.T) @ B.T, TARGETS
    )
    torch.testing.assert_close(loss, want, rtol=1e-3, atol=1e-3)
    loss.backward()
    assert a.grad.dtype == b.grad.dtype == torch.float32


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"b has shape \(90, 2\): it must be \(90, 3\)"):
        LoraWeight(WEIGHT, A, B[:, :2])
    with pytest.raises(ValueError, match="a has 7 columns but hidden has 8"):
        lt.linear_cross_entropy(HIDDEN, LoraWeight(WEIGHT, A[:, :7], B), TARGETS)
    with pytest.raises(ValueError, match="sampled cannot run: the head has a LoRA"):
        lt.linear_cross_entropy(HIDDEN.clone().requires_grad_(), LoraWeight(WEIGHT, A, B), TARGETS, backward="sampled")


def peft_model(**config):
    peft = pytest.importorskip("peft")
    from small_models import model_of

    model = model_of("llama")
    adapter = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head", "q_proj"], r=4, **config)
    model = peft.get_peft_model(model, adapter)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize("config", [{}, {"use_rslora": True}, {"lora_alpha": 32, "lora_dropout": 0.3}])
def test_a_model_of_peft(config):
    from small_models import batch

    from logitless.transformers import patch, unpatch

    model = peft_model(**config)
    ids, labels = batch()
    inputs = {"input_ids": ids, "labels": labels}
    results = []
    for patched in (False, True):
        model.train()
        if patched:
            patch(model)
        model.zero_grad()
        torch.manual_seed(11)
        loss = model(**inputs).loss
        loss.backward()
        results.append((loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}))
    (plain, want), (fused, got) = results
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    assert got.keys() == want.keys() and any("lm_head.lora_A" in name for name in got)
    for name, gradient in want.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    with model.disable_adapter():
        fused = model(**inputs).loss
        unpatch(model)
        torch.testing.assert_close(fused, model(**inputs).loss, rtol=1e-5, atol=1e-6)


def test_a_model_of_peft_that_is_refused():
    from logitless.transformers import patch

    with pytest.raises(ValueError, match=r"the head's adapter 'default' has DoRA"):
        patch(peft_model(use_dora=True))
    tied = peft_model()
    base = tied.get_base_model()
    base.get_input_embeddings().weight = base.get_output_embeddings().weight
    with pytest.raises(ValueError, match="shares its weight with the input embeddings"):
        patch(tied)
