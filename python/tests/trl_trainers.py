# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Small TRL trainers for the tests. Tests that import this are skipped if TRL, or its fused head, is missing."""

import copy
import importlib

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
utils = pytest.importorskip("trl.trainer.utils")
if not hasattr(utils, "add_fused_lm_head"):
    pytest.skip(f"TRL {trl.__version__} has no fused head", allow_module_level=True)

from small_models import batch, model_of, tokenizer_of  # noqa: E402

from trl.kernels import chunked_divergence  # noqa: E402

from logitless import _lazy_logits  # noqa: E402
from logitless.trl import patch, unpatch  # noqa: E402

STEPS = 4


def text(length):
    return " ".join(f"t{i}" for i in torch.randint(3, 97, (length,)).tolist())


# TRL's experimental trainers, by module and name.
EXPERIMENTAL = {
    "a2po": "A2PO",
    "cpo": "CPO",
    "gkd": "GKD",
    "gmpo": "GMPO",
    "gold": "GOLD",
    "iw_opd": "IWOPD",
    "online_dpo": "OnlineDPO",
    "orpo": "ORPO",
    "sdft": "SDFT",
    "sdpo": "SDPO",
    "tpo": "TPO",
}
PREFERENCES = ("dpo", "cpo", "orpo", "tpo")
WITH_REWARDS = ("grpo", "rloo", "gmpo", "a2po", "online_dpo", "sdpo")
WITH_TEACHER = ("distillation", "gkd", "gold", "iw_opd")
FROM_FOLDER = ("grpo", "rloo", "gmpo", "sdft", "sdpo")  # they load a second model
CHATS = ("gkd", "iw_opd")

# Trainers, models and options that train alike with the patch and without it. bench/trl_trainers.py --compare trains
# them for longer than the tests do.
CASES = {
    "sft, all positions": ("sft", "opt", dict(completion_only_loss=False, gradient_accumulation_steps=2)),
    "sft, packed": ("sft", "gpt2", dict(max_length=16, packing=True, packing_strategy="wrapped")),
    "sft, dft": ("sft", "tied llama", dict(loss_type="dft", label_smoothing_factor=0.1, gradient_checkpointing=True)),
    "sft, experts": ("sft", "mixtral", {}),
    "dpo": ("dpo", "llama with a bias", {}),
    "dpo, softcap": ("dpo", "gemma2", dict(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.2])),
    "dpo, LD": ("dpo", "cohere2", dict(ld_alpha=0.5, precompute_ref_log_probs=True)),
    "kto, scale": ("kto", "granite", dict(loss_type="apo_zero_unpaired")),
    "grpo": ("grpo", "llama", dict(num_iterations=2)),
    "grpo, entropy": ("grpo", "gemma2", dict(entropy_coef=0.01, top_entropy_quantile=0.5)),
    "grpo, float32 head": ("grpo", "qwen3", dict(cast_lm_head_to_fp32=True, beta=0.0)),
    "rloo": ("rloo", "llama", {}),
    "gmpo": ("gmpo", "llama", {}),
    "distillation": ("distillation", "llama with a bias", dict(beta=0.3, gradient_accumulation_steps=2)),
    "distillation, tied": ("distillation", "tied llama", dict(beta=1.0)),
    "gkd": ("gkd", "cohere2", {}),
    "gold": ("gold", "llama", {}),
    "iw_opd": ("iw_opd", "llama", {}),
    "cpo": ("cpo", "gemma2", dict(loss_type="simpo", cpo_alpha=0.5)),
    "orpo": ("orpo", "mixtral", {}),
    "tpo": ("tpo", "tied llama", {}),
    "online dpo": ("online_dpo", "qwen3", {}),
    "a2po": ("a2po", "llama", {}),
    "sdft": ("sdft", "granite", dict(distillation_add_tail=True)),
    "sdpo": ("sdpo", "gemma2", dict(distillation_mode="full_logits", distillation_alpha=0.5)),
}


def steps_of(kind):
    return 2 if kind in EXPERIMENTAL else STEPS


def classes_of(kind):
    """The trainer and its configuration."""
    if kind not in EXPERIMENTAL:
        name = {"distillation": "Distillation"}.get(kind, kind.upper())
        return getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config")
    name = EXPERIMENTAL[kind]
    module = importlib.import_module(f"trl.experimental.{kind}")
    return getattr(module, f"{name}Trainer"), getattr(module, f"{name}Config")


def row_of(kind, i):
    prompt, a, b, c = text(3 + i % 3), text(4 + i % 5), text(5 + i % 4), text(4 + i % 3)
    if kind == "gold":  # it only tokenises with a tokenizer of bytes
        ids = tokenizer()(f"{prompt} {a}")["input_ids"]
        mask = [int(n >= 3 + i % 3) for n in range(len(ids))]
        texts = {"original_prompt_text": prompt, "original_completion_text": a}
        return {"input_ids": ids, "completion_mask": mask, **texts}
    if kind in CHATS:
        return {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": a}]}
    if kind in PREFERENCES:
        pair = {"prompt": prompt, "chosen": " " + a, "rejected": " " + b}
        return {**pair, "reference": " " + c} if kind == "tpo" else pair
    return {
        "sft": {"prompt": prompt, "completion": " " + a},
        "kto": {"prompt": prompt, "completion": " " + a, "label": i % 2 == 0},
        "sdft": {"prompt": prompt, "privileged_context": a},
    }.get(kind, {"prompt": prompt})


def rows_of(kind, count=16):
    """Prompts and completions of various lengths."""
    torch.manual_seed(3)
    return datasets.Dataset.from_list([row_of(kind, i) for i in range(count)])


def reward(completion_ids, **_):
    return [sum(i % 7 for i in ids) / len(ids) for ids in completion_ids]


def success(completions, **_):
    """A reward of 0 or 1."""
    return [float(len(completion) % 2) for completion in completions]


def reference_of(model):
    """A reference that differs from the model, so that accuracies do not depend on the rounding of equal
    rewards."""
    reference = copy.deepcopy(model)
    with torch.no_grad():
        reference.get_output_embeddings().weight.mul_(0.9)
    return reference


def tokenizer():
    made = tokenizer_of([f"t{i}" for i in range(97)])
    made.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    return made


def own_options(kind):
    if kind in ("grpo", "rloo", "gmpo"):
        return dict(beta=0.04, num_generations=4, max_completion_length=5, temperature=0.8)
    return {
        "a2po": dict(max_completion_length=3, num_value_samples=4, filter_all_incorrect=False),
        "cpo": dict(max_length=32),
        "distillation": dict(max_completion_length=5, temperature=0.8),
        "gkd": dict(max_new_tokens=5),
        "gold": dict(max_completion_length=5),
        "iw_opd": dict(max_completion_length=5),
        "online_dpo": dict(max_new_tokens=5, max_length=32),
        "orpo": dict(max_length=32),
        "sdft": dict(max_completion_length=5, num_generations=2, temperature=0.8, distillation_topk=5),
        "sdpo": dict(max_completion_length=5, num_generations=2, success_reward_threshold=0.5),
    }.get(kind, {})


def trainer_of(kind, model, folder, peft_config=None, compute_loss_func=None, **options):
    trainer_class, config_class = classes_of(kind)
    arguments = dict(
        output_dir=str(folder),
        max_steps=steps_of(kind),
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
    more = {"train_dataset": data, "processing_class": tokenizer()}
    if kind != "a2po":
        more["peft_config"] = peft_config
    if kind in WITH_REWARDS:
        more["reward_funcs"] = success if kind in ("a2po", "sdpo") else reward
    elif kind in ("dpo", "kto"):
        more["ref_model"] = None if peft_config else reference_of(model)
    elif kind == "sft":
        more["compute_loss_func"] = compute_loss_func
    if kind == "online_dpo":
        more["ref_model"] = None if peft_config else reference_of(model)
    if kind in WITH_TEACHER:
        more["teacher_model"] = reference_of(model)
    if kind == "iw_opd":  # it reads the teacher's tokenizer
        tokenizer().save_pretrained(folder / "teacher")
        more["teacher_model"].config._name_or_path = str(folder / "teacher")
    if kind in ("sft", "cpo", "distillation"):
        more["eval_dataset"] = data
    args = config_class(**{**arguments, **own_options(kind), **options})
    return trainer_class(model=model, args=args, **more)


def built(name):
    if name != "llama with a bias":
        return model_of(name)
    model = model_of("llama")
    head, model.lm_head = model.lm_head, torch.nn.Linear(32, 97)
    model.lm_head.weight = head.weight
    return model


def trainer_of_case(case, folder, **more):
    kind, name, options = CASES[case]
    model = built(name)
    if kind in FROM_FOLDER:
        model.save_pretrained(folder / "model")
        model = str(folder / "model")
    return trainer_of(kind, model, folder, **{**options, **more})


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
    """Makes calls of TRL's own functions an error, and logits that a loss reads as a whole."""
    forward = lambda *_: pytest.fail("TRL's own head was called")  # noqa: E731
    monkeypatch.setattr(utils._ChunkedLogProbFunction, "forward", staticmethod(forward))
    monkeypatch.setattr(chunked_divergence.ChunkedDivergenceFunction, "forward", staticmethod(forward))
    monkeypatch.setattr(_lazy_logits, "dense_rows", lambda *_: pytest.fail("logits were computed"))


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
