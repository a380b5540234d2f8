# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What logitless.trl refuses, and its messages."""

import pytest
from small_models import model_of
from trl_trainers import (
    lora,
    refused,
    torch,
    trainer_of,
    trl,
    utils,
)

from logitless import trl as ours
from logitless.trl import patch

pytestmark = pytest.mark.usefixtures("no_telemetry")


def test_losses_that_are_made_of_logits_are_refused(tmp_path):
    with pytest.warns(FutureWarning, match="label_smoothing_factor"):
        trainer = trainer_of("sft", model_of("llama"), tmp_path, label_smoothing_factor=0.1)
    refused("label_smoothing_factor = 0.1: .*compute_loss_func", trainer)

    def own_loss(outputs, labels, num_items_in_batch=None):
        return outputs.logits.sum()

    with pytest.warns(FutureWarning, match="compute_loss_func"):
        trainer = trainer_of("sft", model_of("llama"), tmp_path, compute_loss_func=own_loss)
    refused("compute_loss_func = <function .*own_loss.*>: it computes the loss from logits", trainer)


def test_a_head_that_deepspeed_takes_apart_is_refused(tmp_path, monkeypatch):
    trainer = trainer_of("sft", model_of("llama"), tmp_path)
    trainer.args.deepspeed = "zero3.json"
    monkeypatch.setattr(ours, "is_deepspeed_zero3_enabled", lambda: True)
    refused("deepspeed = 'zero3.json': with ZeRO stage 3", trainer)


def test_adapters_on_the_head_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="adapter to `lm_head`"):  # TRL's message
        trainer_of("sft", model_of("llama"), tmp_path, peft_config=lora(["lm_head"]))
    trainer = trainer_of("kto", model_of("llama"), tmp_path, peft_config=lora())
    trainer.model.add_adapter("late", lora(["lm_head"]))
    refused("model: the head carries the adapter 'late'.*leave lm_head out of target_modules", trainer)
    rows = lora()
    rows.trainable_token_indices = [3, 5]
    trainer = trainer_of("sft", model_of("tied llama"), tmp_path, peft_config=rows)
    refused("model: PEFT trains rows of the head .trainable_token_indices", trainer)


def test_heads_that_are_more_than_a_matrix_are_refused(tmp_path):
    class Normed(torch.nn.Linear):
        pass

    trainer = trainer_of("dpo", model_of("llama"), tmp_path)
    trainer.ref_model.lm_head.__class__ = Normed
    refused("ref_model: the head is a .*Normed, not a torch.nn.Linear", trainer)
    trainer.ref_model.lm_head = torch.nn.Linear(32, 97, bias=False, device="meta")
    refused("ref_model: lm_head is on meta: logitless computes on the CPU", trainer)


@pytest.mark.parametrize("option, name", [("logit_scale", "cohere2"), ("final_logit_softcapping", "gemma2")])
def test_logits_that_are_not_scaled_up_are_refused(option, name, tmp_path):
    model = model_of(name)
    setattr(model.config, option, -0.5)
    refused(f"model: {option} = -0.5 must be above 0", trainer_of("sft", model, tmp_path))


def test_what_is_no_trainer_with_such_a_head_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"not a LlamaForCausalLM: logitless.transformers.patch\(\) takes a model"):
        patch(model_of("llama"))
    trainer = trainer_of("sft", model_of("llama"), tmp_path)
    del trainer.model.forward
    with pytest.raises(ValueError, match=rf"SFTTrainer.model has no head of TRL's.*TRL {trl.__version__}.*KTO"):
        patch(trainer)


def test_another_head_than_the_one_that_is_known_is_refused_with_the_version(tmp_path, monkeypatch):
    trainer = trainer_of("sft", model_of("llama"), tmp_path)

    class Later:
        @staticmethod
        def forward(ctx, hidden, weight, targets, bias):
            pass

    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Later)
    refused(rf"TRL {trl.__version__} passes hidden, weight, targets, bias: .*TRL 1.16.0", trainer, RuntimeError)
    monkeypatch.undo()
    ours._rename(trainer.model.forward.__func__, {"_use_triton": "another_name"})
    refused(rf"TRL {trl.__version__} does not use _use_triton: .*TRL 1.16.0", trainer, RuntimeError)
