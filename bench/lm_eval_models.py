# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures log-likelihoods of lm-evaluation-harness with its own model `hf` and with `logitless`, each in its
own process.

    python bench/lm_eval_models.py                          # SmolLM2-135M's width and vocabulary, two layers
    python bench/lm_eval_models.py --vocab 151936           # with the vocabulary of Qwen 2.5
    python bench/lm_eval_models.py --real --dtype bfloat16  # SmolLM2-135M-Instruct itself (examples/python)

`rolling` scores whole documents, in windows of --max-length. `choices` asks questions with four answers of
four words, and reads the question again with each answer. `letters` has one-token answers, so it reads each
question once. The processes take turns. Prints the median time, the median peak of resident memory above the
loaded model, the largest difference between two log-likelihoods, and how many greedy flags differ.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"
FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "examples", "python"))
sys.path.insert(0, os.path.join(FOLDER, "peers"))
from resident_memory import begin_peak, peak_above  # noqa: E402

TASKS = ("rolling", "choices", "letters")
MODELS = ("hf", "logitless")


def random_model(options):
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=options.vocab,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=options.layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, options.dtype))
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(options.vocab)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    special = dict(bos_token="w1", eos_token="w2", pad_token="w0")
    return model, transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)


def words_of(options):
    """Return a function that returns the given number of words, from a text or random."""
    if not options.real:
        draw = random.Random(0)
        return lambda count: " ".join(f"w{draw.randrange(3, options.vocab)}" for _ in range(count))
    with open(os.path.join(FOLDER, "..", "examples", "data", "kjv.txt"), encoding="utf-8") as file:
        text = iter(file.read().split())
    return lambda count: " ".join(next(text) for _ in range(count))


def requests_of(task, options):
    from lm_eval.api.instance import Instance

    words = words_of(options)
    if task == "rolling":
        given = [(words(options.length),) for _ in range(options.documents)]
        kind = "loglikelihood_rolling"
    else:
        kind, given = "loglikelihood", []
        for _ in range(options.questions):
            context = words(options.context)
            for letter in "ABCD":
                answer = words(4) if task == "choices" else letter if options.real else f"w{ord(letter)}"
                given.append((context, " " + answer))
    return [Instance(request_type=kind, doc={}, arguments=arguments, idx=0) for arguments in given]


def run(model_name, task, options):
    """Run one task, in this process, after a warm-up request."""
    import torch
    from lm_eval.models.huggingface import HFLM

    from logitless.lm_eval import LogitlessLM

    if options.real:
        import smollm2

        model, tokenizer = smollm2.load(getattr(torch, options.dtype))
    else:
        model, tokenizer = random_model(options)
    made = HFLM if model_name == "hf" else LogitlessLM
    lm = made(model, tokenizer=tokenizer, batch_size=options.batch, max_length=options.max_length)
    score = lm.loglikelihood_rolling if task == "rolling" else lm.loglikelihood
    requests = requests_of(task, options)
    lm.loglikelihood(requests_of("letters", options)[:1])
    before = begin_peak()
    started = time.perf_counter()
    answers = score(requests)
    seconds = time.perf_counter() - started
    peak = peak_above(before)
    if task == "rolling":
        answers = [(logp, None) for logp in answers]
    print(json.dumps({"seconds": seconds, "peak": peak, "answers": answers}))


def measured(model_name, task):
    """Run a model and a task in its own process, and return what it printed."""
    arguments = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--run", model_name, task]
    made = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(made.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="SmolLM2-135M-Instruct, on the text of examples/data")
    parser.add_argument("--vocab", type=int, default=49152, help="of the random model")
    parser.add_argument("--layers", type=int, default=2, help="of the random model; SmolLM2-135M has 30")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--length", type=int, default=3000, help="words of a document")
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--context", type=int, default=150, help="words of a question")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--run", nargs=2, metavar=("MODEL", "TASK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return run(*options.run, options)
    name = "SmolLM2-135M" if options.real else f"random, {options.vocab} entries, {options.layers} layers"
    print(f"{name}, {options.dtype}, batch {options.batch}: seconds and MiB of hf and logitless, and logitless ÷ hf")
    for task in options.tasks:
        results = {model: [] for model in MODELS}
        for _ in range(options.rounds):
            for model in MODELS:
                results[model].append(measured(model, task))
        seconds = [statistics.median(r["seconds"] for r in results[model]) for model in MODELS]
        peaks = [statistics.median(r["peak"] for r in results[model]) / 2**20 for model in MODELS]
        theirs, ours = (results[model][0]["answers"] for model in MODELS)
        apart = [abs(a[0] - b[0]) for a, b in zip(theirs, ours, strict=True)]
        print(
            f"{task:8} {seconds[0]:7.2f} s {seconds[1]:7.2f} s {seconds[1] / seconds[0]:6.2f}  "
            f"{peaks[0]:7.0f} MiB {peaks[1]:5.0f} MiB {peaks[1] / peaks[0]:6.2f}  "
            f"differ by {max(apart):.1e} of {max(abs(a[0]) for a in theirs):.0f}, "
            f"and in {sum(a[1] != b[1] for a, b in zip(theirs, ours))} of {len(ours)} greedy flags",
            flush=True,
        )


if __name__ == "__main__":
    main()
