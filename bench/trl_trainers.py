# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures steps of TRL's trainers, plain and with logitless.trl.patch(): seconds and peak memory.

    python bench/trl_trainers.py                         # SmolLM2-135M's width and vocabulary, two layers
    python bench/trl_trainers.py --trainers dpo --lora --bf16
    python bench/trl_trainers.py --vocab 997 --hidden 64 --steps 3   # a quick check; its figures mean nothing

The models are random. Each run has its own process, and the two heads take turns. Memory is the rise of
resident memory since before the first step, including gradients and the optimizer's state. The seconds
exclude the generation of answers, which both run with the model's own head.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
from resident_memory import begin_peak, peak_above  # noqa: E402

TRAINERS = ("sft", "dpo", "kto", "grpo", "rloo", "distillation", "cpo", "orpo", "tpo", "online_dpo", "gkd", "sdft")
EXPERIMENTAL = {"cpo": "CPO", "orpo": "ORPO", "tpo": "TPO", "online_dpo": "OnlineDPO", "gkd": "GKD", "sdft": "SDFT"}
LOGS = ("loss", "grad_norm", "entropy")
# No network, no telemetry by TRL, no progress bars.
QUIET = {"HF_HUB_OFFLINE": "1", "CI": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
QUIET["TRL_EXPERIMENTAL_SILENCE"] = "1"


def tokenizer_of(vocab):
    import tokenizers
    import transformers

    model = tokenizers.models.WordLevel({f"t{i}": i for i in range(vocab)}, unk_token="t1")
    words = tokenizers.Tokenizer(model)
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="t0",
        bos_token="t1",
        eos_token="t2",
        unk_token="t1",
        chat_template="{% for message in messages %}{{ message['content'] }} {% endfor %}",
    )


def rows_of(kind, options):
    import datasets
    import torch

    def text(length):
        return " ".join(f"t{i}" for i in torch.randint(3, options.vocab, (length,)).tolist())

    rows = []
    for i in range(options.batch * options.steps):
        prompt, answer = text(options.prompt), " " + text(options.completion)
        pair = {"prompt": prompt, "chosen": answer, "rejected": " " + text(options.completion)}
        chat = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        rows.append(
            {
                "sft": {"prompt": prompt, "completion": answer},
                **dict.fromkeys(("dpo", "cpo", "orpo"), pair),
                "tpo": {**pair, "reference": " " + text(options.completion)},
                "gkd": {"messages": chat},
                "sdft": {"prompt": prompt, "privileged_context": answer},
                "kto": {"prompt": prompt, "completion": answer, "label": i % 2 == 0},
            }.get(kind, {"prompt": prompt})
        )
    return datasets.Dataset.from_list(rows)


def model_of(options, seed=0):
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=options.vocab,
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=options.hidden // 64 // 3 or 1,
        head_dim=64,
        max_position_embeddings=2 * (options.prompt + options.completion),
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.LlamaForCausalLM(config)


def reward(completion_ids, **_):
    return [sum(i % 7 for i in ids) / len(ids) for ids in completion_ids]


def classes_of(kind):
    import trl

    module, name = trl, "Distillation" if kind == "distillation" else kind.upper()
    if kind in EXPERIMENTAL:
        module, name = importlib.import_module(f"trl.experimental.{kind}"), EXPERIMENTAL[kind]
    return getattr(module, f"{name}Trainer"), getattr(module, f"{name}Config")


def trainer_of(kind, options, folder):
    model = model_of(options)
    arguments = dict(
        output_dir=folder,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        logging_steps=1,
        learning_rate=1e-4,
        report_to=[],
        use_cpu=True,
        bf16=options.bf16,
        gradient_checkpointing=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    more = {"processing_class": tokenizer_of(options.vocab), "train_dataset": rows_of(kind, options)}
    if options.lora:
        import peft

        more["peft_config"] = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"])
    if kind in ("grpo", "rloo"):
        arguments |= dict(num_generations=min(4, options.batch), max_completion_length=options.completion, beta=0.0)
        arguments |= dict(generation_kwargs={"min_new_tokens": options.completion})
        more["reward_funcs"] = reward
    elif kind in ("dpo", "kto", "online_dpo") and not options.lora:
        more["ref_model"] = model_of(options)
    if kind in ("distillation", "sdft", "online_dpo"):  # they sample
        length = "max_new_tokens" if kind == "online_dpo" else "max_completion_length"
        arguments |= {length: options.completion, "generation_kwargs": {"min_new_tokens": options.completion}}
    if kind == "online_dpo":
        more["reward_funcs"] = reward
    if kind in ("distillation", "gkd"):
        more["teacher_model"] = model_of(options, seed=1)
    if kind == "gkd":
        arguments |= dict(lmbda=0.0)
    if kind == "sdft":
        arguments |= dict(distillation_mode="full_logits", num_generations=2)
        model.save_pretrained(os.path.join(folder, "model"))  # it loads the teacher
        model = os.path.join(folder, "model")
    if kind in ("cpo", "orpo"):
        arguments |= dict(max_length=options.prompt + options.completion)
    trainer_class, config_class = classes_of(kind)
    return trainer_class(model=model, args=config_class(**arguments), **more)


def run(kind, head, options):
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(kind, options, folder)
        if head == "fused":
            from logitless.trl import patch

            patch(trainer)
        generating, seconds = [0.0], []
        generate = trainer.model.generate

        def timed_generate(*args, **kwargs):
            started = time.perf_counter()
            try:
                return generate(*args, **kwargs)
            finally:
                generating[0] += time.perf_counter() - started

        class Clock(transformers.TrainerCallback):
            def on_step_begin(self, *args, **kwargs):
                generating[0], self.started = 0.0, time.perf_counter()

            def on_step_end(self, *args, **kwargs):
                seconds.append(time.perf_counter() - self.started - generating[0])

        trainer.model.generate = timed_generate
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(Clock())
        before = begin_peak()
        trainer.train()
        peak = peak_above(before) / 2**20
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    logged = {name: [entry[name] for entry in steps] for name in LOGS if name in steps[0]}
    return {"seconds": seconds, "mib": peak, **logged}


def run_apart(kind, head):
    command = [sys.executable, "-W", "ignore", __file__, "--run", kind, head, *sys.argv[1:]]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **QUIET})
    return json.loads(ran.stdout.splitlines()[-1])


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    names = {key.strip(): value.strip() for key, value in fields.items()}
    return f"{names.get('model name', '?')}, family {names.get('cpu family', '?')}, model {names.get('model', '?')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", nargs="*", choices=TRAINERS, default=["sft", "dpo", "kto", "grpo"])
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="sequences (or pairs) per step")
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--completion", type=int, default=128, help="tokens")
    parser.add_argument("--steps", type=int, default=4, help="steps per run; the first is not timed")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each head")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="under autocast")
    parser.add_argument("--lora", action="store_true", help="adapters on the body, and a frozen head")
    parser.add_argument("--run", nargs=2, metavar=("TRAINER", "HEAD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(*options.run, options)))
        return
    print(f"{processor()}; {options.threads} thread(s)")
    print("plain, fused, ratio:  seconds per step        MiB above the start        relative differences of logs")
    for kind in options.trainers:
        runs = {"plain": [], "fused": []}
        for _ in range(options.rounds):
            for head in runs:
                runs[head].append(run_apart(kind, head))
        seconds = {h: statistics.median(s for r in rs for s in r["seconds"][1:]) for h, rs in runs.items()}
        mib = {h: statistics.median(r["mib"] for r in rs) for h, rs in runs.items()}
        apart = []
        for name in [name for name in LOGS if name in runs["plain"][0]]:
            plain, fused = runs["plain"][0][name], runs["fused"][0][name]
            largest = max(map(abs, plain)) or 1
            apart.append(f"{name} {max(abs(a - b) for a, b in zip(plain, fused, strict=True)) / largest:.1e}")
        print(
            f"{kind:10} {seconds['plain']:10.2f} {seconds['fused']:8.2f} {seconds['fused'] / seconds['plain']:8.2f}"
            f" {mib['plain']:10.0f} {mib['fused']:8.0f} {mib['fused'] / mib['plain']:8.2f}   {', '.join(apart)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
