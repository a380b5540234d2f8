# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Weights quantised by bitsandbytes and torchao, if they are installed, and stand-ins with the same
attributes and known numbers; GGUF's blocks compared with the gguf package; and messages."""

import types

import numpy as np
import pytest

import logitless
from logitless.packed import PackedWeight, from_bitsandbytes, from_torchao

torch = pytest.importorskip("torch")

V, H, N = 40, 96, 7
random = np.random.default_rng(3)
HIDDEN = random.standard_normal((N, H)).astype(np.float32)
TARGETS = np.arange(N) * 5 % V
WEIGHT = torch.tensor(random.standard_normal((V, H)) * 0.3, dtype=torch.float32)
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334]
    + [-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    + [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    dtype=np.float32,
)


class Params4bit:
    def __init__(self, data, **state):
        self.data = data
        state = {"quant_type": "nf4", "shape": (V, H), "blocksize": 32, "state2": None, "offset": None, **state}
        self.quant_state = types.SimpleNamespace(**state)


class Int8Params:
    def __init__(self, data, SCB):
        self.data, self.CB, self.SCB = data, None, SCB


class Int8Tensor:
    def __init__(self, qdata, scale, zero_point, block_size, **more):
        self.qdata, self.scale, self.zero_point, self.block_size = qdata, scale, zero_point, block_size
        for name, value in more.items():
            setattr(self, name, value)


def outcome(weight, hidden=HIDDEN, **options):
    d_hidden = np.full_like(hidden, np.nan)
    return logitless.cross_entropy(hidden, weight, TARGETS, d_hidden=d_hidden, **options).loss, d_hidden


def expect_same(packed, want):
    """Checks that `packed` gives bit-identical results to the float32 matrix `want`."""
    assert isinstance(packed, PackedWeight)
    loss, d_hidden = outcome(packed.data, **packed.keywords())
    want_loss, want_d_hidden = outcome(np.ascontiguousarray(want))
    assert loss == want_loss and (d_hidden == want_d_hidden).all()
    teacher = logitless.distillation_loss(HIDDEN, want, HIDDEN, packed.data, **packed.keywords("teacher_"))
    assert abs(teacher.loss) < 1e-6


# Groups that begin with rows, that are longer than a row, and that cross row boundaries.
@pytest.mark.parametrize("blocksize", [16, 96, 64, 4096])
def test_nf4(blocksize):
    codes = torch.tensor(random.integers(0, 256, (V * H // 2, 1), dtype=np.uint8))
    absmax = torch.tensor(random.uniform(0.1, 1, -(-V * H // blocksize)), dtype=torch.float32)
    flat = codes.numpy().reshape(-1)
    numbers = NF4[np.stack([flat >> 4, flat & 15], axis=1).reshape(-1)]
    want = (numbers * absmax.numpy().repeat(blocksize)[: V * H]).reshape(V, H)
    expect_same(from_bitsandbytes(Params4bit(codes, blocksize=blocksize, absmax=absmax)), want)
    stored = codes.reshape(-1).view(torch.bfloat16).reshape(-1, 1)
    expect_same(from_bitsandbytes(Params4bit(stored, blocksize=blocksize, absmax=absmax)), want)


@pytest.mark.parametrize("blocksize, nested, storage", [(32, False, "uint8"), (64, True, "bfloat16"), (128, True, "uint8")])
def test_nf4_of_bitsandbytes(blocksize, nested, storage):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    parameter = bitsandbytes.nn.Params4bit(
        WEIGHT,
        quant_type="nf4",
        blocksize=blocksize,
        compress_statistics=nested,
        quant_storage=getattr(torch, storage),
    ).to("cpu")
    assert (parameter.quant_state.state2 is not None) == nested
    packed = from_bitsandbytes(parameter)
    # Dequantised as a single row: with several, the CPU kernel of bitsandbytes 0.50 is wrong if groups cross
    # rows.
    parameter.quant_state.shape = (1, V * H)
    want = bitsandbytes.functional.dequantize_4bit(parameter.data.view(torch.uint8), parameter.quant_state)
    assert want.dtype == torch.float32
    expect_same(packed, want.numpy().reshape(V, H))


def test_llm_int8():
    integers = torch.tensor(random.integers(-127, 128, (V, H)), dtype=torch.int8)
    maxima = torch.tensor(random.uniform(0.1, 1, V), dtype=torch.float32)
    scales = maxima.numpy() / np.float32(127)
    expect_same(from_bitsandbytes(Int8Params(integers, maxima)), integers.numpy() * scales[:, None])


def test_llm_int8_of_bitsandbytes():
    bitsandbytes = pytest.importorskip("bitsandbytes")
    parameter = bitsandbytes.nn.Int8Params(WEIGHT, has_fp16_weights=False, requires_grad=False).to("cpu")
    packed = from_bitsandbytes(parameter)
    want = bitsandbytes.functional.int8_vectorwise_dequant(parameter.CB, parameter.SCB).numpy()
    np.testing.assert_allclose(packed.data * packed.scales, want, rtol=3e-7)
    expect_same(packed, packed.data * packed.scales)


# One scale per row, per group, per several rows, and for the whole weight.
@pytest.mark.parametrize("block", [(1, H), (1, 32), (4, 16), (V, H)])
@pytest.mark.parametrize("zero", [False, True])
def test_affine_integers(block, zero):
    blocks = (V // block[0], H // block[1])
    integers = torch.tensor(random.integers(-8, 8, (V, H)), dtype=torch.int8)
    scales = torch.tensor(random.uniform(0.01, 0.1, blocks), dtype=torch.bfloat16)
    zeros = torch.tensor(random.integers(-8, 8, blocks), dtype=torch.int8) if zero else None
    spread = [x.float().numpy().repeat(block[0], 0).repeat(block[1], 1) for x in (scales, zeros) if x is not None]
    want = (integers.numpy() - (spread[1] if zero else np.float32(0))) * spread[0]
    expect_same(from_torchao(Int8Tensor(integers, scales, zeros, block)), want)


def test_torchao():
    quantization = pytest.importorskip("torchao.quantization")
    granularity = pytest.importorskip("torchao.quantization.granularity")
    linear = torch.nn.Linear(H, V, bias=False)
    configs = [quantization.Int8WeightOnlyConfig(version=2)]
    for bits in (torch.int4, torch.int8):
        for mapping in (quantization.MappingType.SYMMETRIC, quantization.MappingType.ASYMMETRIC):
            per_group = granularity.PerGroup(32) if bits == torch.int4 else granularity.PerAxis(0)
            configs.append(quantization.IntxWeightOnlyConfig(bits, per_group, mapping_type=mapping, version=2))
    for config in configs:
        linear.weight = torch.nn.Parameter(WEIGHT.clone())
        quantization.quantize_(linear, config)
        want = linear.weight.dequantize().numpy()
        try:
            packed = from_torchao(linear.weight)
        except ValueError as error:  # 8 bits minus a zero point may need 9 bits
            assert "must be integers from -128 to 127" in str(error) and "ASYMMETRIC" in str(config)
            continue
        expect_same(packed, want)


ONES = torch.ones(V, 1)
INTEGERS = torch.ones(V, H, dtype=torch.int8)


@pytest.mark.parametrize(
    "read, value, error, message",
    [
        (from_bitsandbytes, WEIGHT, TypeError, "Tensor is neither a Params4bit nor an Int8Params of bitsandbytes"),
        (from_bitsandbytes, Params4bit(WEIGHT, quant_type="fp4"), ValueError, "quant_type = 'fp4': only 'nf4'"),
        (from_bitsandbytes, Params4bit(WEIGHT, packing_format_for_cpu=True), ValueError, "layout of bitsandbytes' CPU"),
        (from_bitsandbytes, Params4bit(WEIGHT, shape=(4, 7)), ValueError, r"has shape \[4, 7\]: it must have 2 axes"),
        (from_bitsandbytes, Int8Params(WEIGHT, ONES), ValueError, r"Int8Params is float32 of shape \[40, 96\]"),
        (from_torchao, WEIGHT, TypeError, "Tensor is neither an Int8Tensor nor an IntxUnpackedToInt8Tensor of torchao"),
        (from_torchao, Int8Tensor(INTEGERS, ONES, None, (1, H), act_pre_scale=ONES), ValueError, "act_pre_scale is set"),
        (from_torchao, Int8Tensor(INTEGERS, ONES, ONES - 128, (1, H)), ValueError, "must be integers from -128 to 127"),
        (from_torchao, Int8Tensor(INTEGERS[0], ONES, None, (H,)), ValueError, r"has shape \[96\]: it must have 2 axes"),
    ],
)
def test_says_what_is_not_read(read, value, error, message):
    with pytest.raises(error, match=message):
        read(value)


@pytest.mark.parametrize("packing", ["q8_0", "q4_0", "q4_k", "q5_k", "q6_k"])
def test_the_numbers_are_those_of_gguf(packing):
    gguf = pytest.importorskip("gguf")
    kind = getattr(gguf.GGMLQuantizationType, packing.upper())
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    rows = random.integers(0, 256, (V, 256 // numbers, size), dtype=np.uint8)
    # NaN scales would hide the other numbers.
    halves = {"q6_k": (208,), "q4_k": (0, 2), "q5_k": (0, 2)}.get(packing, (0,))
    for at in halves:
        scale = random.uniform(-0.02, 0.02, rows.shape[:2]).astype(np.float16)
        rows[:, :, at : at + 2] = scale.view(np.uint8).reshape(*rows.shape[:2], 2)
    rows = rows.reshape(V, -1)
    weight = gguf.quants.dequantize(rows, kind)
    assert weight.dtype == np.float32 and weight.shape == (V, 256)
    hidden = random.standard_normal((N, 256)).astype(np.float32)
    (loss, d_hidden), (want, wanted) = outcome(rows, hidden, packing=packing), outcome(weight, hidden)
    assert loss == want and (d_hidden == wanted).all()


NUMBERS, SCALES = INTEGERS.numpy(), np.ones((V, 2), np.float32)


@pytest.mark.parametrize(
    "weight, options, message",
    [
        (NUMBERS, {"packing": "q9"}, "packing = 'q9' is none of int8, q8_0, q4_0, q4_k, q5_k, q6_k, nf4"),
        (NUMBERS, {"packing": "int8"}, "scales is null, but int8 needs them"),
        (NUMBERS, {"packing": "int8", "scales": SCALES[:5]}, r"scales has shape \[5, 2\]"),
        (NUMBERS, {"packing": "nf4", "scales": SCALES}, "weight is int8: with packing = 'nf4' it must be uint8"),
        (NUMBERS.view(np.uint8), {"packing": "nf4", "scales": np.ones((V, 2 * H), np.float32)}, "group = 1 is not a multiple of 2, the block of nf4"),
    ],
)
def test_says_what_is_wrong(weight, options, message):
    with pytest.raises(ValueError, match=message):
        outcome(weight, **options)
