# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Small TRL trainers for the tests. Tests that import this are skipped if TRL, or its fused head, is missing."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
utils = pytest.importorskip("trl.trainer.utils")
if not hasattr(utils, "add_fused_lm_head"):
    pytest.skip(f"TRL {trl.__version__} has no fused head", allow_module_level=True)

from small_models import batch, model_of, tokenizer_of  # noqa: E402

from logitless.trl import patch, unpatch  # noqa: E402

STEPS = 4


def text(length):
    return " ".join(f"t{i}" for i in torch.randint(3, 97, (length,)).tolist())


def rows_of(kind, count=16):
    """Prompts and completions of various lengths."""
    torch.manual_seed(3)
    rows = []
    for i in range(count):
        prompt, a, b = text(3 + i % 3), text(4 + i % 5), text(5 + i % 4)
        rows.append(
            {
                "sft": {"prompt": prompt, "completion": " " + a},
                "dpo": {"prompt": prompt, "chosen": " " + a, "rejected": " " + b},
                "kto": {"prompt": prompt, "completion": " " + a, "label": i % 2 == 0},
            }.get(kind, {"prompt": prompt})
        )
    return datasets.Dataset.from_list(rows)


def reward(completion_ids, **_):
    return [sum(i % 7 for i in ids) / len(ids) for ids in completion_ids]


CLASSES = {
    "sft": (trl.SFTTrainer, trl.SFTConfig),
    "dpo": (trl.DPOTrainer, trl.DPOConfig),
    "kto": (trl.KTOTrainer, trl.KTOConfig),
    "grpo": (trl.GRPOTrainer, trl.GRPOConfig),
    "rloo": (trl.RLOOTrainer, trl.RLOOConfig),
}


def reference_of(model):
    """A reference that differs from the model, so that accuracies do not depend on the rounding of equal
    rewards."""
    reference = copy.deepcopy(model)
    with torch.no_grad():
        reference.get_output_embeddings().weight.mul_(0.9)
    return reference


def trainer_of(kind, model, folder, peft_config=None, compute_loss_func=None, **options):
    trainer_class, config_class = CLASSES[kind]
    own = {"grpo": {"beta": 0.04}, "rloo": {"beta": 0.04}}.get(kind, {})
    if kind in ("grpo", "rloo"):
        own |= dict(num_generations=4, max_completion_length=5, temperature=0.8)
    arguments = dict(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        logging_steps=1,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        disable_tqdm=True,
        seed=5,
    )
    data = rows_of(kind)
    more = {"peft_config": peft_config, "train_dataset": data, "processing_class": tokenizer_of([f"t{i}" for i in range(97)])}
    if kind in ("grpo", "rloo"):
        more["reward_funcs"] = reward
    elif kind in ("dpo", "kto"):
        more["ref_model"] = None if peft_config else reference_of(model)
    else:
        more["compute_loss_func"] = compute_loss_func
    if kind == "sft":
        more["eval_dataset"] = data
    return trainer_class(model=model, args=config_class(**{**arguments, **own, **options}), **more)


def logs_of(trainer):
    trainer.train()
    if trainer.eval_dataset is not None:
        trainer.evaluate()
    clocks = ("runtime", "_per_second", "step_time", "flos")
    return [
        {name: value for name, value in entry.items() if not any(clock in name for clock in clocks)}
        for entry in trainer.state.log_history
    ]


def expect_equal(got, want, absolute=1e-4):
    assert len(got) == len(want)
    for mine, theirs in zip(got, want):
        assert mine == pytest.approx(theirs, abs=absolute, rel=1e-5, nan_ok=True)


def no_head_of_trls(monkeypatch):
    """Makes a call of TRL's own function an error."""
    forward = lambda *_: pytest.fail("TRL's own head was called")  # noqa: E731
    monkeypatch.setattr(utils._ChunkedLogProbFunction, "forward", staticmethod(forward))


def built(name):
    if name != "llama with a bias":
        return model_of(name)
    model = model_of("llama")
    head, model.lm_head = model.lm_head, torch.nn.Linear(32, 97)
    model.lm_head.weight = head.weight
    return model


def lora(modules=("q_proj", "v_proj", "down_proj"), **more):
    peft = pytest.importorskip("peft")
    return peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(modules), **more)


def fused_call(model, **more):
    ids, labels = batch()
    return model(input_ids=ids, labels=labels, fused_lm_head=True, **more)


def gradients_of(model, output):
    weights = torch.arange(output.log_probs.numel()).view_as(output.log_probs) / 10
    loss = (output.log_probs * weights).sum()
    if output.entropy is not None:
        loss = loss + (output.entropy * weights.flip(0)).sum()
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def refused(match, trainer, kind=ValueError):
    with pytest.raises(kind, match=match):
        patch(trainer)
    with pytest.raises(ValueError, match="not patched"):
        unpatch(trainer)
