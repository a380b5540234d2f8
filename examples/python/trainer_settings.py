# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Trains SmolLM2-135M with Hugging Face's Trainer in each of its usual settings, with the model's own head
and patched, and prints a table of both losses.

    python examples/python/trainer_settings.py --text examples/data/kjv.txt

Needs peft, in addition to the packages in smollm2.py. `--settings` selects settings.
"""

import argparse
import copy
import tempfile

import peft
import smollm2
import torch
import transformers
from trainer import blocks

from logitless.transformers import argmax, compute_loss_func, patch

# Arguments of Trainer, and changes made to the model first.
SETTINGS = {
    "float32": {},
    "bf16=True": {"bf16": True},
    "gradient accumulation": {"gradient_accumulation_steps": 2},
    "activation checkpointing": {"gradient_checkpointing": True},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "LoRA, then patch": {"adapter": "before"},
    "patch, then LoRA": {"adapter": "after"},
    "torch.compile": {"torch_compile": True},
    "deepcopy": {"copied": True},
}


def lora(model):
    torch.manual_seed(0)
    return peft.get_peft_model(
        model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
    )


def accuracy(prediction):
    ids = prediction.predictions
    right = ids[:, :-1] == prediction.label_ids[:, 1:]
    return {"accuracy": right.mean()}


def losses(model, fused, data, steps, batch, adapter=None, copied=False, **arguments):
    """Return the losses of the steps, then the evaluation's loss and accuracy."""
    more = {}
    if fused and adapter != "before":
        patch(model)
    if adapter:
        model = lora(model)
    if fused and adapter == "before":
        patch(model)
    if copied:
        model = copy.deepcopy(model)
    if fused and "label_smoothing_factor" in arguments:
        more["compute_loss_func"] = compute_loss_func(
            model, label_smoothing=arguments["label_smoothing_factor"]
        )
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            max_steps=steps,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=batch,
            learning_rate=1e-4,
            lr_scheduler_type="constant",
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=data[: -2 * batch],
        eval_dataset=data[-2 * batch :],
        compute_metrics=accuracy,
        preprocess_logits_for_metrics=argmax,
        **more,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    result = trainer.evaluate()
    curve = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return [*curve, result["eval_loss"]], result["eval_accuracy"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", default="examples/data/kjv.txt")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=128)
    options = parser.parse_args()
    model, tokenizer = smollm2.load(torch.float32)
    data = blocks(tokenizer, options.text, options.length)
    print(
        "| setting | last loss, plain | patched | differ by at most | eval loss, plain | patched | accuracy, plain | patched |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in options.settings:
        torch._dynamo.reset()
        (plain, plain_right), (fused, fused_right) = (
            losses(copy.deepcopy(model), fused, data, options.steps, options.batch, **SETTINGS[name])
            for fused in (False, True)
        )
        apart = max(abs(a - b) for a, b in zip(plain, fused))
        print(
            f"| {name} | {plain[-2]:.6f} | {fused[-2]:.6f} | {apart:.1e} | {plain[-1]:.6f} | {fused[-1]:.6f} "
            f"| {plain_right:.4f} | {fused_right:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
