# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures steps of TRL's trainers, plain and with logitless.trl.patch(): seconds and peak memory. Or compares what
they log.

    python bench/trl_trainers.py                         # SmolLM2-135M's width and vocabulary, two layers
    python bench/trl_trainers.py --trainers dpo --lora --bf16
    python bench/trl_trainers.py --vocab 997 --hidden 64 --steps 3   # a quick check; its figures mean nothing

The models are random. Each run has its own process, and the two heads take turns. Memory is the rise of
resident memory since before the first step, including gradients and the optimizer's state. The seconds
exclude the generation of answers, which both run with the model's own head.

    python bench/trl_trainers.py --compare --steps 20    # the small trainers of the tests; needs pytest

prints how far losses and other logged numbers of a patched trainer are from the plain one's: the largest difference,
divided by the number's largest size, or by 0.01 if all its values are smaller. Then the largest difference of a
parameter after the last step. Both trainers are also compared with a patched one whose models are float64. With
`torchrun --nproc-per-node 2` in place of `python` ranks share the batches.
"""

import argparse
import importlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
from resident_memory import begin_peak, peak_above  # noqa: E402

TRAINERS = ("sft", "dpo", "kto", "grpo", "rloo", "distillation", "cpo", "orpo", "tpo", "online_dpo", "gkd", "sdft")
EXPERIMENTAL = {"cpo": "CPO", "orpo": "ORPO", "tpo": "TPO", "online_dpo": "OnlineDPO", "gkd": "GKD", "sdft": "SDFT"}
ONLY_COMPARED = ("a2po", "gmpo", "gold", "iw_opd", "sdpo")
NOT_IN_FLOAT64 = ("sdpo",)  # plain TRL, too, then samples from probabilities that are NaN
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


def differences(got, want):
    """{name: largest difference of a logged number}, relative to its largest size or to 0.01."""
    apart = {}
    names = {name for entry in want for name, value in entry.items() if isinstance(value, (int, float))}
    for name in sorted(names - {"train_loss"}):  # which is the mean of the losses
        pairs = [(a[name], b[name]) for a, b in zip(got, want, strict=True) if name in b]
        pairs = [(a, b) for a, b in pairs if not (math.isnan(a) and math.isnan(b))]
        if pairs:
            gaps = [math.inf if math.isnan(a - b) else abs(a - b) for a, b in pairs]
            apart[name] = max(gaps) / max(0.01, *(abs(b) for _, b in pairs))
    return apart


def log_of(case, run, options):
    """What the trainer of a test logs, and its parameters after the last step."""
    import torch
    import transformers
    from trl_trainers import logs_of, trainer_of_case

    from logitless.trl import patch

    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of_case(case, pathlib.Path(folder), max_steps=options.steps)
        trainer.remove_callback(transformers.PrinterCallback)
        if run == "float64":
            for name in ("model", "ref_model", "teacher_model"):
                if getattr(trainer, name, None) is not None:
                    model = getattr(trainer, name).double()
                    model.config._experts_implementation = "eager"  # the default has no float64
        if run != "plain":
            patch(trainer)
        logs = logs_of(trainer)
        model = trainer.accelerator.unwrap_model(trainer.model)
        return logs, torch.cat([p.detach().double().flatten() for p in model.parameters()])


def compare(options):
    os.environ.update(QUIET)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python/tests"))
    import torch
    import transformers
    from trl_trainers import CASES

    transformers.utils.logging.disable_progress_bar()
    # Each rank loads models from its own folder, but save_pretrained() writes on rank 0 only.
    transformers.PreTrainedModel.should_save_on_this_rank = lambda *_: True
    torch.set_num_threads(options.threads)
    show = print if os.environ.get("RANK", "0") == "0" else lambda *_, **__: None
    show(f"{options.steps} steps; loss, the log that differs most, parameters")
    show(f"{'':20}{'patched and plain':52}{'plain and float64':52}patched and float64")
    for case, (kind, *_) in CASES.items():
        if options.trainers and kind not in options.trainers:
            continue
        runs = ("plain", "patched") if kind in NOT_IN_FLOAT64 else ("plain", "patched", "float64")
        results = {run: log_of(case, run, options) for run in runs}
        line = f"{case:20}"
        for a, b in (("patched", "plain"), ("plain", "float64"), ("patched", "float64")):
            if b not in results:
                continue
            apart = differences(results[a][0], results[b][0])
            most = max(apart, key=apart.get)
            parameters = (results[a][1] - results[b][1]).abs().max()
            line += f"{apart['loss']:.1e}, {most} {apart[most]:.1e}, {parameters:.1e}".ljust(52)
        show(line.rstrip(), flush=True)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    names = {key.strip(): value.strip() for key, value in fields.items()}
    return f"{names.get('model name', '?')}, family {names.get('cpu family', '?')}, model {names.get('model', '?')}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS + ONLY_COMPARED, metavar="NAME")
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
    parser.add_argument("--compare", action="store_true", help="compare logs of small trainers, and measure nothing")
    parser.add_argument("--run", nargs=2, metavar=("TRAINER", "HEAD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(*options.run, options)))
        return
    if options.compare:
        return compare(options)
    print(f"{processor()}; {options.threads} thread(s)")
    print("plain, fused, ratio:  seconds per step        MiB above the start        relative differences of logs")
    for kind in options.trainers or ("sft", "dpo", "kto", "grpo"):
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
