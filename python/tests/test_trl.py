# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""TRL's trainers with and without logitless.trl have the same losses and logs in every step."""

import warnings

import pytest
from small_models import model_of
from trl_trainers import (
    CASES,
    EXPERIMENTAL,
    expect_equal,
    logs_of,
    lora,
    no_head_of_trls,
    steps_of,
    torch,
    trainer_of,
    trainer_of_case,
)

from logitless import _core
from logitless._absent_logits import AbsentLogits
from logitless.trl import patch, unpatch

pytestmark = pytest.mark.usefixtures("no_telemetry")


def both_logs(make, monkeypatch):
    """The logs of make(False), and those of make(True) with patch()."""
    logs = [logs_of(make(False))]
    trainer = make(True)
    assert patch(trainer) is trainer
    no_head_of_trls(monkeypatch)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "logitless")  # that the loss reads all logits
        return *logs, logs_of(trainer)


@pytest.mark.parametrize("case", CASES)
def test_every_step_of_a_trainer_logs_the_same(case, tmp_path, monkeypatch):
    kind = CASES[case][0]
    want, got = both_logs(lambda _: trainer_of_case(case, tmp_path), monkeypatch)
    assert sum("loss" in entry for entry in want) == steps_of(kind)
    assert kind in EXPERIMENTAL or any(key.startswith("entropy") for key in want[0])
    expect_equal(got, want)


# TRL rounds logits to bfloat16, which has 8 bits. The largest logits are about 12.
def test_autocast_and_a_reference_model_that_accelerate_has_wrapped(tmp_path, monkeypatch):
    logs = both_logs(lambda _: trainer_of("dpo", model_of("llama"), tmp_path, bf16=True, max_steps=3), monkeypatch)
    want, got = ([entry["loss"] for entry in log if "loss" in entry] for log in logs)
    assert len(want) == 3 and got == pytest.approx(want, abs=2 * 2**-9 * 12)


def tracks_gradients(monkeypatch):
    """Records the gradients that each backward computes."""
    seen = []
    token_grads = _core.token_stats_backward

    def spy(context, arguments, *more):
        seen.append({name for name in arguments if name.startswith("d_")})
        return token_grads(context, arguments, *more)

    monkeypatch.setattr(_core, "token_stats_backward", spy)
    return seen


@pytest.mark.parametrize("kind, saves_head", [("dpo", False), ("kto", True)])
def test_adapters_on_the_body_and_a_copy_of_the_head(kind, saves_head, tmp_path, monkeypatch):
    logs = []
    for fused in (False, True):
        torch.manual_seed(4)
        config = lora(modules_to_save=["lm_head"]) if saves_head else lora()
        trainer = trainer_of(kind, model_of("llama"), tmp_path, peft_config=config, max_steps=3)
        trainer.args.learning_rate = 1e-2
        if fused:
            patch(trainer)
            no_head_of_trls(monkeypatch)
            wanted = tracks_gradients(monkeypatch)
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
        logs.append(logs_of(trainer))
        now = dict(trainer.model.named_parameters())
        assert all(not torch.equal(now[name], value) for name, value in before.items())
    expect_equal(logs[1], logs[0])
    assert wanted == [{"d_hidden", "d_weight"} if saves_head else {"d_hidden"}] * 3  # a frozen head has no gradient


def test_a_trainer_that_compiles_its_model(tmp_path, monkeypatch):
    def make(fused):
        torch._dynamo.reset()
        more = dict(torch_compile=True, torch_compile_backend="eager") if fused else {}
        return trainer_of("sft", model_of("llama"), tmp_path, max_steps=2, **more)

    want, got = both_logs(make, monkeypatch)
    expect_equal(got, want)


def test_unpatch_between_two_runs_and_models_that_two_trainers_share(tmp_path):
    trainer = trainer_of("dpo", model_of("llama"), tmp_path, bf16=True, max_steps=1)
    patch(trainer).train()  # then accelerate has wrapped both forwards
    assert unpatch(trainer) is trainer
    with pytest.raises(ValueError, match="the trainer is not patched"):
        unpatch(trainer)
    patch(trainer)
    with pytest.raises(ValueError, match="the trainer is patched already"):
        patch(trainer)
    other = trainer_of("sft", trainer.model, tmp_path)  # the new trainer replaces the model's forward
    with pytest.raises(ValueError, match="the trainer is not patched"):
        unpatch(other)
    patch(other)


def test_smoothed_labels_by_way_of_compute_loss_func(tmp_path, monkeypatch):
    """The model is patched by logitless.transformers, too."""
    from logitless import transformers as of_models

    def make(fused):
        model = model_of("gemma2")
        if not fused:
            return trainer_of("sft", model, tmp_path, label_smoothing_factor=0.1)
        loss = of_models.compute_loss_func(of_models.patch(model), label_smoothing=0.1)
        monkeypatch.setattr(AbsentLogits, "materialise", lambda self: pytest.fail("logits were computed"))
        with pytest.warns(UserWarning, match=r"use logitless.trl.patch\(trainer\) to fuse its loss"):
            return trainer_of("sft", model, tmp_path, compute_loss_func=loss)

    want, got = both_logs(make, monkeypatch)
    expect_equal(got, want)
