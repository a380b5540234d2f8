# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Group-relative policy optimisation of SmolLM2-135M by TRL's GRPOTrainer, with TRL's head or a fused one.

    pip install trl==1.16.0
    python examples/python/grpo_trl.py --head fused --steps 4

TRL's loss is a function of per-token log-probabilities and entropies, which one method of its trainer
computes. The subclass here computes them from hidden states with logitless.torch.token_logps: no logits are
kept, and prompts cost nothing. TRL's own method (--head plain) computes tiles of up to 4,096 x 32,768 logits
and, on a CPU, also for prompts. Both sample with the model's own head from one seed, so their answers and
their losses are the same. Questions, reward, updates per round and timing are as in grpo.py.

logitless.trl.patch(trainer) does the same in one call, also for TRL's other trainers. The subclass shows how
to do it in your own trainer.
"""

import argparse
import tempfile

import datasets
import smollm2
import torch
import transformers
import trl
from grpo import QUESTIONS

from logitless.torch import token_logps


class FusedGRPOTrainer(trl.GRPOTrainer):
    def _get_per_token_logps_and_entropies(
        self,
        model,
        input_ids,
        attention_mask,
        logits_to_keep,
        batch_size=None,
        compute_entropy=False,
        compute_aux_loss=False,
        **images,
    ):
        """Return (log-probabilities of the last tokens, their entropies if requested, None)."""
        if compute_aux_loss or any(value is not None for value in images.values()):
            raise NotImplementedError("this example has neither images nor a mixture of experts")
        model, parts = self.accelerator.unwrap_model(model), []
        head, rows = model.get_output_embeddings(), batch_size or len(input_ids)
        for ids, attention in zip(input_ids.split(rows), attention_mask.split(rows)):
            states = model.base_model(ids, attention_mask=attention, use_cache=False).last_hidden_state
            part = token_logps(
                states[:, -logits_to_keep - 1 : -1],
                head.weight,
                ids.masked_fill(attention == 0, -100)[:, -logits_to_keep:],
                bias=head.bias,
                entropy=compute_entropy,
                temperature=self.temperature,
            )
            parts.append(part if compute_entropy else (part,))
        logps, *entropies = (torch.cat(column).float() for column in zip(*parts))
        return logps, entropies[0] if compute_entropy else None, None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", choices=["plain", "fused"], default="fused")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("-o", "--output", help="writes losses, rewards, seconds and memory as JSON")
    options = parser.parse_args()
    model, tokenizer = smollm2.load(torch.float32)
    arguments = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        max_steps=options.steps,
        per_device_train_batch_size=len(QUESTIONS) * options.group,
        num_generations=options.group,
        max_completion_length=options.tokens,
        num_iterations=2,
        loss_type="grpo",
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    run = smollm2.Run(options.head)
    generate = model.generate

    def timed_generate(*args, **kwargs):
        ids = generate(*args, **kwargs)
        run.lap("sampling_seconds")
        return ids

    def reward(completions, **_):
        run.lap("old_logps_seconds")  # TRL has just computed them.
        return [text.lower().count("e") / max(len(text), 1) for text in completions]

    class Record(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if logs and "loss" in logs:
                # Only the first update on a round's answers logs their reward.
                self.reward = logs.get("reward", getattr(self, "reward", None))
                run.step(logs["loss"], rewards=self.reward, entropies=logs["entropy"])

    model.generate = timed_generate
    chats = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in QUESTIONS]
    trainer = {"plain": trl.GRPOTrainer, "fused": FusedGRPOTrainer}[options.head](
        model=model,
        reward_funcs=reward,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"prompt": chats}),
        processing_class=tokenizer,
        callbacks=[Record()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    run.lap("setup_seconds")
    trainer.train()
    run.finish(options.output)


if __name__ == "__main__":
    main()
