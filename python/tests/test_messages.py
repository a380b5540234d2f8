# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""On each surface, messages use the caller's names for arguments."""

import numpy as np
import pytest

import logitless

B, T, H, V, K = 2, 3, 4, 7, 2
N = B * T
HIDDEN = np.ones((B, T, H), np.float32)
WEIGHT = np.eye(V, H, dtype=np.float32)
TARGETS = np.arange(N).reshape(B, T)
IDS = np.tile(np.arange(K), (N, 1))
LOGPS = np.full((N, K), -2.0, np.float32)
PACKED = np.ones((V, H), np.int8)
PYTORCHS = {"hidden": "input", "weight": "linear_weight", "bias": "linear_bias", "targets": "target", "class_weights": "weight"}


@pytest.mark.parametrize(
    "function, change, message",
    [
        ("cross_entropy", {"weight": WEIGHT[:, :3]}, r"weight is \[\d+, 3\] but hidden has 4 columns"),
        ("cross_entropy", {"hidden": HIDDEN.astype(">f4")}, "hidden is an ndarray.*only supports native byte order"),
        ("cross_entropy", {"vocab_ids": np.array([0, 9])}, r"vocab_ids\[1\] = 9 is outside \[0, 7\)"),
        ("cross_entropy", {"vocab_ids": np.array([], np.int64)}, "vocab_ids has no elements: a call is over at least"),
        (
            "cross_entropy",
            {"weight": PACKED, "packing": "int8", "scales": WEIGHT[:, 0] + 1, "hidden": HIDDEN.astype(np.float64)},
            r"hidden is float64, but weight is packed \(int8\), which needs float32, bfloat16 or float16",
        ),
        ("cross_entropy", {"d_weight": np.zeros((V, 3), np.float32)}, r"d_weight is \[7, 3\] but weight is \[7, 4\]"),
        ("soft_cross_entropy", {"ids": None}, "ids and weights are missing: give these, or probabilities"),
        ("set_distillation_loss", {"teacher_logps": -LOGPS}, "teacher_logps of row 0, entry 0, = 2 must be a log-prob"),
        ("distillation_loss", {"teacher_weight": WEIGHT[:, :3]}, r"teacher_weight is \[\d+, 3\] but teacher_hidden has 4"),
        ("policy_loss", {"chosen_ids": TARGETS.T}, r"chosen_ids is \[3, 2\] but hidden is \[2, 3, 4\]: both must have"),
        ("policy_loss", {"advantages": None}, r"advantages is not given but must have one per sequence \(2\) or one per"),
        ("preference_loss", {"ref_logps": None, "ref_hidden": HIDDEN}, "ref_weight is not given"),
        ("cross_entropy", {"context": 4}, "context must be a logitless.Context, not int"),
        ("policy_loss", {"kept_ids": IDS + 1}, r"kept_ids of row 0 does not have chosen_ids\[0\] = 0"),
    ],
)
def test_numpy(function, change, message):
    arguments = {
        "cross_entropy": {"targets": TARGETS},
        "id_logps": {"ids": IDS},
        "soft_cross_entropy": {"ids": IDS, "weights": -LOGPS},
        "set_distillation_loss": {"ids": IDS, "teacher_logps": LOGPS},
        "distillation_loss": {"teacher_hidden": HIDDEN, "teacher_weight": WEIGHT},
        "preference_loss": {"targets": TARGETS, "ref_logps": np.zeros(B)},
        "kto_loss": {"targets": TARGETS, "labels": np.ones(B, bool), "ref_logps": np.zeros(B)},
        "policy_loss": {"chosen_ids": TARGETS, "advantages": np.ones(B)},
    }[function]
    with pytest.raises((ValueError, TypeError), match=f"^(a reference )?{message}"):
        getattr(logitless, function)(**{"hidden": HIDDEN, "weight": WEIGHT, **arguments, **change})


@pytest.mark.parametrize(
    "function, change, error, message",
    [
        ("linear_cross_entropy", {"targets": 9}, IndexError, r"Target out of bounds: target\[0\] = 9 is outside"),
        ("linear_cross_entropy", {"bias": (V + 1,)}, RuntimeError, r"expected linear_bias shape \(7,\)"),
        ("token_logps", {"bias": (V + 1,)}, ValueError, "bias has 8 entries but the vocabulary"),
        ("token_logps", {"targets": 9}, ValueError, r"targets\[0\] = 9 is outside"),
        ("distillation_loss", {"teacher_weight": (V, 5)}, ValueError, r"teacher_weight is \[\d+, 5\] but teacher_hidden"),
        ("preference_loss", {"ref_hidden": (B, 5, H)}, ValueError, "ref_hidden has 10 rows but hidden has 6"),
    ],
)
def test_pytorch(function, change, error, message):
    torch = pytest.importorskip("torch")
    import logitless.torch

    def tensor(name, value):
        if isinstance(value, tuple):
            return torch.ones(value)
        if name in ("ids", "vocab_ids"):
            return torch.tensor(value)
        if name == "targets":
            return torch.full((B, T), value)
        return torch.full((V,), value) if name == "class_weights" else value

    arguments = {"hidden": (B, T, H), "weight": (V, H)}
    if function in ("linear_cross_entropy", "token_logps", "preference_loss"):
        arguments["targets"] = 0
    other = {"distillation_loss": "teacher_", "preference_loss": "ref_"}.get(function)
    if other:
        arguments.update({f"{other}hidden": (B, T, H), f"{other}weight": (V, H)})
    if function == "id_logps":
        arguments["hidden"] = (N, H)
    arguments.update(change)
    with pytest.raises(error, match=f"^{message}"):
        call = getattr(logitless.torch, function)
        names = PYTORCHS if function == "linear_cross_entropy" else {}
        call(**{names.get(n, n): tensor(n, v) for n, v in arguments.items() if v is not None})


def test_a_lora():
    torch = pytest.importorskip("torch")
    import logitless.torch as functions
    from logitless.lora import LoraWeight

    x, w, a, b = torch.ones(N, H), torch.ones(V, H), torch.ones(2, H), torch.ones(V, 2)
    ids = torch.arange(N)
    for message, call in {
        r"b has shape \(7, 1\): it must be \(7, 2\)": lambda: LoraWeight(w, a, b[:, :1]),
        "a has 3 columns but weight has 4": lambda: LoraWeight(w, a[:, 1:], b),
        "weight is 'x': it must be a tensor of 2 axes": lambda: LoraWeight("x", a, b),
        "scale = nan must be a finite number$": lambda: LoraWeight(w, a, b, float("nan")),
        "scale = inf must be a finite number$": lambda: LoraWeight(w, a, b, float("inf")),
        "a has 4 columns but hidden has 3": lambda: functions.linear_cross_entropy(x[:, 1:], LoraWeight(w, a, b), ids),
        "lora_scale is given, and weight is a LoraWeight, which has its own": lambda: logitless.cross_entropy(
            x, LoraWeight(w, a, b), ids, lora_scale=5.0
        ),
        "a is on meta: logitless computes on the CPU": lambda: functions.distillation_loss(
            x, w, x, LoraWeight(w, a.to("meta"), b)
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    assert LoraWeight(w, a, b) != LoraWeight(w, a, b)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"bias": np.zeros(3, np.float32)}, "bias has 3 entries but the vocabulary has 7"),
        ({"bias": np.zeros(0, np.float32)}, r"bias has shape \(0,\)"),
        ({"class_weights": np.zeros(0, np.float32)}, r"class_weights has shape \(0,\)"),
        ({"weight": np.eye(V, 5, dtype=np.float32)}, "hidden has 4 columns, but weight, vocab_hidden, has 5"),
    ],
)
def test_jax(change, message):
    jax = pytest.importorskip("jax")
    from logitless.jax import linear_cross_entropy

    with jax.enable_x64(True), pytest.raises(Exception, match=message):
        linear_cross_entropy(**{"hidden": HIDDEN, "weight": WEIGHT, "targets": TARGETS, **change}).block_until_ready()
