# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads that are packed, or of which some entries are chosen: each has the bits of the matrix that it stands for."""

import numpy as np
import pytest

import logitless

N, H, V = 12, 8, 90
random = np.random.default_rng(5)
HIDDEN = random.standard_normal((N, H)).astype(np.float32)
NUMBERS = random.integers(-127, 128, (V, H)).astype(np.int8)
SCALES = random.uniform(0.005, 0.02, (V, 2)).astype(np.float32)
WEIGHT = NUMBERS.astype(np.float32) * SCALES.repeat(H // 2, axis=1)
ONES = np.ones((V, 2 * H), np.float32)
IDS = np.arange(0, V, 3)
TARGETS = np.arange(N) * 7 % len(IDS)


def gradient(weight, **options):
    d_hidden = np.full_like(HIDDEN, np.nan)
    result = logitless.cross_entropy(HIDDEN, weight, TARGETS, d_hidden=d_hidden, **options)
    return result.loss, d_hidden


def test_packed():
    loss, want = gradient(WEIGHT)
    got_loss, got = gradient(NUMBERS, packing="int8", scales=SCALES)
    assert got_loss == loss and (got == want).all()
    one_scale = NUMBERS.astype(np.float32) * SCALES[:, :1]
    loss, want = gradient(one_scale)
    got_loss, got = gradient(NUMBERS, packing="int8", scales=np.ascontiguousarray(SCALES[:, 0]))
    assert got_loss == loss and (got == want).all()


def test_chosen_entries():
    loss, want = gradient(np.ascontiguousarray(WEIGHT[IDS]))
    for weight, options in ((WEIGHT, {}), (NUMBERS, {"packing": "int8", "scales": SCALES})):
        got_loss, got = gradient(weight, vocab_ids=IDS, **options)
        assert got_loss == loss and (got == want).all()
    d_weight = np.full((len(IDS), H), np.nan, np.float32)
    logitless.cross_entropy(HIDDEN, WEIGHT, TARGETS, vocab_ids=IDS, d_weight=d_weight)
    plain = np.empty_like(d_weight)
    logitless.cross_entropy(HIDDEN, np.ascontiguousarray(WEIGHT[IDS]), TARGETS, d_weight=plain)
    assert (d_weight == plain).all()


def test_a_packed_teacher_over_a_draft_vocabulary():
    student = random.standard_normal((len(IDS), H)).astype(np.float32)
    want = logitless.distillation_loss(HIDDEN, student, HIDDEN, np.ascontiguousarray(WEIGHT[IDS]))
    got = logitless.distillation_loss(
        HIDDEN, student, HIDDEN, NUMBERS, teacher_packing="int8", teacher_scales=SCALES, teacher_vocab_ids=IDS
    )
    assert got.loss == want.loss


def test_lora():
    rank, scale = 3, 1.5
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((rank, H), (V, rank)))
    targets = np.arange(N) * 7 % V
    whole = WEIGHT + np.float32(scale) * b @ a
    d_whole, want = np.empty_like(whole), np.empty_like(HIDDEN)
    loss = logitless.cross_entropy(HIDDEN, whole, targets, d_hidden=want, d_weight=d_whole).loss
    lora = {"lora_a": a, "lora_b": b, "lora_scale": scale}
    for weight, packed in ((WEIGHT, {}), (NUMBERS, {"packing": "int8", "scales": SCALES})):
        d_a, d_b, d_hidden = np.full_like(a, np.nan), np.full_like(b, np.nan), np.full_like(HIDDEN, np.nan)
        result = logitless.cross_entropy(
            HIDDEN, weight, targets, d_hidden=d_hidden, d_lora_a=d_a, d_lora_b=d_b, **lora, **packed
        )
        np.testing.assert_allclose(result.loss, loss, rtol=1e-5)
        np.testing.assert_allclose(d_hidden, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(d_a, scale * b.T @ d_whole, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(d_b, scale * d_whole @ a.T, rtol=1e-4, atol=1e-5)
        before = d_a.copy()
        logitless.cross_entropy(HIDDEN, weight, targets, d_lora_a=d_a, accumulate=True, **lora, **packed)
        np.testing.assert_allclose(d_a, 2 * before, rtol=1e-5, atol=1e-6)
    student = random.standard_normal((V, H)).astype(np.float32)
    of_whole = logitless.distillation_loss(HIDDEN, student, HIDDEN, whole).loss
    of_teacher = {"teacher_" + name: value for name, value in lora.items()}
    of_lora = logitless.distillation_loss(HIDDEN, student, HIDDEN, WEIGHT, **of_teacher).loss
    np.testing.assert_allclose(of_lora, of_whole, rtol=1e-5)


@pytest.mark.parametrize("packing", ["q8_0", "q4_0", "q4_k", "q5_k", "q6_k"])
def test_the_numbers_are_those_of_gguf(packing):
    gguf = pytest.importorskip("gguf")
    kind = getattr(gguf.GGMLQuantizationType, packing.upper())
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    rows = random.integers(0, 256, (V, 256 // numbers, size), dtype=np.uint8)
    # Scales that are no numbers would hide all others.
    halves = {"q6_k": (208,), "q4_k": (0, 2), "q5_k": (0, 2)}.get(packing, (0,))
    for at in halves:
        scale = random.uniform(-0.02, 0.02, rows.shape[:2]).astype(np.float16)
        rows[:, :, at : at + 2] = scale.view(np.uint8).reshape(*rows.shape[:2], 2)
    rows = rows.reshape(V, -1)
    weight = gguf.quants.dequantize(rows, kind)
    assert weight.dtype == np.float32 and weight.shape == (V, 256)
    hidden = random.standard_normal((N, 256)).astype(np.float32)
    results = []
    for given, options in ((weight, {}), (rows, {"packing": packing})):
        d_hidden = np.full_like(hidden, np.nan)
        loss = logitless.cross_entropy(hidden, given, TARGETS, d_hidden=d_hidden, **options).loss
        results.append((loss, d_hidden))
    assert results[0][0] == results[1][0] and (results[0][1] == results[1][1]).all()


@pytest.mark.parametrize(
    "weight, options, message",
    [
        (NUMBERS, {"packing": "q9"}, "packing = 'q9' is none of int8, q8_0, q4_0, q4_k, q5_k, q6_k, nf4"),
        (NUMBERS, {"packing": "int8"}, "scales is null, but int8 needs them"),
        (NUMBERS, {"packing": "int8", "scales": SCALES[:5]}, r"scales has shape \[5, 2\]"),
        (NUMBERS, {"packing": "int8", "scales": SCALES.astype(np.float64)}, "scales is float64: it must be float32"),
        (NUMBERS.view(np.uint8), {"packing": "nf4"}, "scales is null, but nf4 needs them"),
        (NUMBERS, {"packing": "nf4", "scales": SCALES}, "weight is int8: with packing = 'nf4' it must be uint8"),
        (NUMBERS.view(np.uint8), {"packing": "nf4", "scales": ONES}, "group = 1 is no multiple of 2, the block of nf4"),
        (NUMBERS, {"packing": "q8_0"}, "weight is int8: with packing = 'q8_0' it must be uint8"),
        (NUMBERS.view(np.uint8), {"packing": "q8_0"}, "weight has rows of 8 bytes, which is no multiple of 34"),
        (NUMBERS, {}, "weight is int8: it must be float32, bfloat16, float16 or float64"),
        (WEIGHT, {"vocab_ids": np.array([0, V])}, r"vocab_ids\[1\] = 90 is no entry of a vocabulary of 90"),
    ],
)
def test_says_what_is_wrong(weight, options, message):
    with pytest.raises(ValueError, match=message):
        gradient(weight, **options)
