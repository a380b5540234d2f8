# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Fine-tunes SmolLM2-135M with Hugging Face's Trainer, with the model's own head or a fused one.

    python examples/python/trainer.py --head fused --text examples/data/kjv.txt

The two heads see the same batches from the same weights, so their losses are the same.
"""

import argparse
import tempfile

import smollm2
import torch
import transformers


def blocks(tokenizer, path, length):
    with open(path, encoding="utf-8") as file:
        ids = tokenizer(file.read()[: 400 * length])["input_ids"]
    return [
        {"input_ids": ids[i : i + length], "labels": ids[i : i + length]}
        for i in range(0, len(ids) - length, length)
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", choices=["plain", "fused"], default="fused")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--text", default="examples/data/kjv.txt")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("-o", "--output", help="writes losses, seconds and memory as JSON")
    options = parser.parse_args()

    model, tokenizer = smollm2.load(getattr(torch, options.dtype))
    if options.head == "fused":
        from logitless.transformers import patch

        patch(model)

    run = smollm2.Run(options.head)

    class Record(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if logs and "loss" in logs:
                run.step(logs["loss"])

    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
    )
    data = blocks(tokenizer, options.text, options.length)
    transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Record()]).train()
    run.finish(options.output)


if __name__ == "__main__":
    main()
