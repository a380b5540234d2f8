# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The harness's models `hf` and `logitless` give the same answers, also in whole evaluations; and what is
refused."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("lm_eval")

import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from small_models import SMALL, model_of, tokenizer_of  # noqa: E402

from logitless._absent_logits import AbsentLogits  # noqa: E402
from logitless.lm_eval import LogitlessLM  # noqa: E402

TASKS = pathlib.Path(__file__).parent / "lm_eval_tasks"
NAMES = ("tiny_choices", "tiny_texts")
# One word for each entry of the models' vocabulary except the four special ones.
WORDS = sorted(set(re.findall(r"\w+", "".join(path.read_text() for path in TASKS.glob("*.jsonl")))))
WORDS += [f"word{i}" for i in range(SMALL["vocab_size"] - 4 - len(WORDS))]
# A logit is a sum of 32 float32 products, so its error is about sqrt(32) * 2^-24 of the norms, which are at
# most 20. A log-probability has errors from the target's logit and from the log-sum-exp.
PER_TOKEN = 2 * 32**0.5 * 20 * 2.0**-24
TOKENIZER = tokenizer_of(["<pad>", "<s>", "</s>", "<unk>", *WORDS])


def model_with_bias():
    model = model_of("llama")
    head = torch.nn.Linear(SMALL["hidden_size"], SMALL["vocab_size"])
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight)
        head.bias.normal_(std=3)
    model.set_output_embeddings(head)
    return model


def named(name):
    return model_with_bias() if name == "bias" else model_of(name)


def pair(model, **arguments):
    arguments = {"tokenizer": TOKENIZER, **arguments}
    return HFLM(model, **arguments), LogitlessLM(model, **arguments)


def instance(*arguments, kind="loglikelihood"):
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def words(count, seed):
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def greedy(model, context, count):
    ids = torch.tensor([TOKENIZER.encode(context)])
    after = model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False)[0, ids.shape[1] :]
    return TOKENIZER.decode(after)


def requests_of(model):
    """Requests of various lengths: greedy and other continuations, one-word and longer answers, no context,
    and texts longer than max_length = 64."""
    given = []
    lengths = ((1, 1), (3, 7), (12, 2), (30, 30), (62, 2), (64, 1), (90, 20), (5, 64))
    for i, (context, continuation) in enumerate(lengths):
        given.append((words(context, i), " " + words(continuation, 100 + i)))
    for i in (20, 21):
        given += [(words(9, i), " " + words(1, seed)) for seed in range(4)]
        given += [(words(9, i), " " + words(2 + seed, seed)) for seed in range(3)]
        given += [(words(4 + i, i), " " + greedy(model, words(4 + i, i), count)) for count in (1, 3)]
    given += [("", words(3, 30)), ("", words(1, 31)), (words(3, 32) + " ", words(2, 33)), given[0]]
    return [instance(*pair) for pair in given]


def texts_of():
    return [instance(words(n, n), kind="loglikelihood_rolling") for n in (1, 9, 63, 64, 65, 150)]


def check_answers(got, want, tokens):
    assert [greedy for _, greedy in got] == [greedy for _, greedy in want]
    for (logp, _), (want_logp, _), count in zip(got, want, tokens, strict=True):
        assert abs(logp - want_logp) <= PER_TOKEN * count


def tokens_of(requests):
    return [len(request.args[-1].split()) for request in requests]


def check_texts(ours, hf):
    texts = texts_of()
    for got, want, count in zip(ours.loglikelihood_rolling(texts), hf.loglikelihood_rolling(texts), tokens_of(texts)):
        assert abs(got - want) <= PER_TOKEN * count


@pytest.mark.parametrize(
    "name, batch_size",
    [("llama", 1), ("bias", 4), ("gemma2", 4), ("cohere2", 4)],
)
def test_answers_are_those_of_hf(name, batch_size):
    hf, ours = pair(named(name), batch_size=batch_size)
    requests = requests_of(hf.model)
    want = hf.loglikelihood(requests)
    assert {greedy for _, greedy in want} == {True, False}
    check_answers(ours.loglikelihood(requests), want, tokens_of(requests))
    check_texts(ours, hf)


@pytest.mark.parametrize("arguments", [{"logits_cache": False}, {"max_length": 20}, {"prefix_token_id": 7}])
def test_arguments_of_hf(arguments):
    hf, ours = pair(model_of("llama"), batch_size=3, **arguments)
    requests = [r for r in requests_of(hf.model) if len(r.args[1].split()) <= hf.max_length]
    check_answers(ours.loglikelihood(requests), hf.loglikelihood(requests), tokens_of(requests))
    check_texts(ours, hf)


def test_continuations_of_several_lengths_that_read_the_same_tokens():
    hf, ours = pair(model_of("llama"))
    one = HFLM(hf.model, tokenizer=TOKENIZER, logits_cache=False)
    a, b, c, d, e = WORDS[:5]
    requests = [instance(f"{a} {b}", f" {c} {d}"), instance(f"{a} {b} {c}", f" {e}"), instance(f"{a} {b} {c}", f" {d}")]
    # With its cache, hf uses the wrong positions for a continuation that is shorter than the longest: it
    # takes the first log-probabilities instead of the last.
    check_answers(ours.loglikelihood(requests), one.loglikelihood(requests), tokens_of(requests))


def test_entries_that_a_bias_leaves_out():
    hf, ours = pair(model_with_bias(), batch_size=2)
    with torch.no_grad():
        hf.model.lm_head.bias[4:40] = -torch.inf
    requests = [instance("a b", f" {word}") for word in (*WORDS[30:42], f"{WORDS[3]} {WORDS[50]}")]
    want = hf.loglikelihood(requests)
    assert sum(logp == -torch.inf for logp, _ in want) == 7
    for (got, greedy), (logp, want_greedy) in zip(ours.loglikelihood(requests), want, strict=True):
        assert got == pytest.approx(logp, rel=1e-5) and greedy == want_greedy


def test_a_model_that_makes_nan():
    ours = LogitlessLM(model_of("llama"), tokenizer=TOKENIZER)
    with torch.no_grad():
        ours.model.lm_head.weight[5] = torch.nan
    ((logp, greedy),) = ours.loglikelihood([instance(words(3, 1), " " + words(2, 2))])
    assert logp != logp and not greedy


def test_what_is_computed(monkeypatch):
    """The model is called as often as by hf, one row of the head is computed per scored token, and no logits."""
    hf, ours = pair(model_of("llama"), batch_size=4)
    requests = requests_of(hf.model)
    calls, rows, token_stats = {HFLM: [], LogitlessLM: []}, [], AbsentLogits.token_stats

    def stats(self, targets, **wanted):
        rows.append(len(targets))
        return token_stats(self, targets, **wanted)

    def called(self, ids, *arguments, **keywords):
        calls[type(self)].append(ids.shape)
        return model_call(self, ids, *arguments, **keywords)

    model_call = HFLM._model_call
    monkeypatch.setattr(HFLM, "_model_call", called)
    monkeypatch.setattr(AbsentLogits, "token_stats", stats)
    monkeypatch.setattr(AbsentLogits, "materialise", lambda self: pytest.fail("logits were computed"))
    hf.loglikelihood(requests)
    ours.loglikelihood(requests)
    assert calls[HFLM] == calls[LogitlessLM] and len(rows) == len(calls[HFLM])
    # One-word answers after the same context, and repeated requests, are scored once.
    shared = {(r.args[0], *r.args[1].split()[:-1]): len(r.args[1].split()) for r in requests}
    assert sum(rows) <= sum(shared.values()) < sum(tokens_of(requests))


def test_batch_size_of_its_own_choice():
    ours = LogitlessLM(model_of("llama"), tokenizer=TOKENIZER, batch_size="auto", max_batch_size=4)
    four = LogitlessLM(ours.model, tokenizer=TOKENIZER, batch_size=4)
    requests = requests_of(ours.model)
    assert ours.loglikelihood(requests) == four.loglikelihood(requests)
    assert ours.loglikelihood_rolling(texts_of()) == four.loglikelihood_rolling(texts_of())


@pytest.mark.parametrize("model_type", [torch.bfloat16, torch.float32, torch.float64])
def test_log_probabilities_are_not_rounded_to_the_model_s_type(model_type):
    model = model_of("llama").to(model_type)
    ours = LogitlessLM(model, tokenizer=TOKENIZER)
    ids = TOKENIZER.encode(words(30, 1))
    (got,) = ours.loglikelihood_rolling([instance(TOKENIZER.decode(ids))])
    with torch.no_grad():
        states = model.model(torch.tensor([[1, *ids[:-1]]])).last_hidden_state[0]
        logps = (states.double() @ model.lm_head.weight.double().T).log_softmax(-1)
    want = logps.gather(1, torch.tensor(ids)[:, None]).sum().item()
    assert abs(got - want) <= len(ids) * (1e-12 if model_type == torch.float64 else PER_TOKEN)


def test_mixed_precision():
    hf, ours = pair(model_of("gemma2"), mixed_precision_dtype="bfloat16", softmax_dtype="float32")
    requests = requests_of(hf.model)
    answers = zip(ours.loglikelihood(requests), hf.loglikelihood(requests), tokens_of(requests))
    for (got, _), (want, _), count in answers:
        # hf rounds logits to 8 bits, before and after the softcap, which keeps them between -2 and 2.
        assert abs(got - want) <= count * 8 * 2.0**-8


def saved(folder, name="llama"):
    model_of(name).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("config", [dict(modules_to_save=["lm_head"]), {}], ids=["whole head", "LoRA on the head"])
def test_peft_on_the_body_and_on_the_head(config, tmp_path):
    peft = pytest.importorskip("peft")
    folder, adapter = saved(tmp_path / "model"), str(tmp_path / "adapter")
    torch.manual_seed(2)
    target = ["q_proj"] if config else ["q_proj", "lm_head"]
    lora = peft.LoraConfig(r=2, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=target, **config)
    peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(folder), lora).save_pretrained(adapter)
    arguments = dict(dtype="float32", peft=adapter, batch_size=4)
    hf, ours = HFLM(folder, device="cpu", **arguments), LogitlessLM(folder, **arguments)
    requests = requests_of(hf.model)
    want = hf.loglikelihood(requests)
    check_answers(ours.loglikelihood(requests), want, tokens_of(requests))
    assert LogitlessLM(folder, dtype="float32", batch_size=4).loglikelihood(requests[:1]) != want[:1]


def test_prompt_tuning():
    peft = pytest.importorskip("peft")
    torch.manual_seed(3)
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    hf, ours = pair(peft.get_peft_model(model_of("llama"), config).eval(), batch_size=2, max_length=40)
    requests = [instance(words(n, n), " " + words(2, n)) for n in (3, 20)]
    check_answers(ours.loglikelihood(requests), hf.loglikelihood(requests), tokens_of(requests))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with the tasks, extended by the paths of their data."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in NAMES:
        shutil.copy(TASKS / f"{name}.yaml", folder)
        where = {"data_files": {"test": str(TASKS / f"{name}.jsonl")}, "cache_dir": str(folder / "cache")}
        with open(folder / f"{name}.yaml", "a") as file:
            file.write(f"dataset_kwargs: {json.dumps(where)}\n")
    return folder


def evaluated(model, tasks, **arguments):
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return lm_eval.simple_evaluate(model, tasks=list(NAMES), task_manager=manager, bootstrap_iters=0, **arguments)


def numbers_of(results):
    return {
        f"{task} {name}": value
        for task, metrics in results["results"].items()
        for name, value in metrics.items()
        if isinstance(value, float)
    }


def flat(answers):
    """The log-likelihoods, and the greedy flags if the task has them, as one list."""
    return [part for answer in answers for part in (answer if isinstance(answer, tuple) else [answer])]


def test_whole_evaluations(tasks, tmp_path):
    """From Python, and from the command line."""
    folder = saved(tmp_path / "model", "gemma2")
    arguments = dict(model_args={"pretrained": folder, "dtype": "float32"}, batch_size=4)
    want = evaluated("hf", tasks, device="cpu", **arguments)
    got = evaluated("logitless", tasks, **arguments)
    numbers = numbers_of(want)
    assert {"tiny_choices acc,none", "tiny_choices acc_norm,none", "tiny_texts word_perplexity,none"} <= numbers.keys()
    assert numbers_of(got) == pytest.approx(numbers, rel=1e-5)
    for task in NAMES:
        for ours, theirs in zip(got["samples"][task], want["samples"][task], strict=True):
            assert ours["doc"] == theirs["doc"] and ours["arguments"] == theirs["arguments"]
            assert flat(ours["filtered_resps"]) == pytest.approx(flat(theirs["filtered_resps"]), rel=1e-5)
    run = f"run --model logitless --model_args pretrained={folder},dtype=float32 --tasks {','.join(NAMES)}"
    run += f" --include_path {tasks} --output_path {tmp_path}/out.json"
    ran = subprocess.run([sys.executable, "-m", "logitless.lm_eval", *run.split()], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (path,) = tmp_path.glob("out_*.json")
    got = numbers_of(json.loads(path.read_text()))  # with standard errors
    assert {name: got[name] for name in numbers} == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"parallelize": True}, "parallelize = True"),
        ({"tp_plan": "auto"}, "tp_plan = 'auto'"),
        ({"autogptq": True}, "autogptq = True.*GPTQ"),
        ({"device": "mps"}, "device = mps.*CPU"),
        ({"backend": "seq2seq"}, "backend = seq2seq, of a model of type llama"),
        ({"softmax_dtype": "bfloat16"}, "softmax_dtype = bfloat16.*float32"),
    ],
)
def test_refused_arguments(arguments, message, folder):
    with pytest.raises(ValueError, match=message):
        LogitlessLM(folder, **{"dtype": "float32", **arguments})


def test_a_gpu_is_refused_and_the_harness_s_default_without_one_is_the_cpu(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "cuda:0", "cpu:0", torch.device("cpu"), None):
        assert LogitlessLM(folder, device=device).device.type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="device = cuda:0.*CPU"):
        LogitlessLM(folder, device="cuda:0")


def test_refused_models():
    t5 = transformers.T5Config(vocab_size=97, d_model=32, d_ff=48, num_layers=1, num_heads=4, d_kv=8)

    class Negative(transformers.LlamaForCausalLM):
        def forward(self, *arguments, **keywords):
            output = super().forward(*arguments, **keywords)
            output.logits = output.logits * -2.0
            return output

    given = "pretrained must be a model of transformers.* not "
    for model, error, message in (
        (transformers.T5ForConditionalGeneration(t5), ValueError, "backend = seq2seq, of a model of type t5"),
        (Negative(model_of("llama").config), ValueError, "Negative does more to its logits than logitless supports.*-2.0"),
        (None, TypeError, given + "a NoneType$"),
        (torch.nn.Linear(2, 3), TypeError, given + "a Linear$"),
    ):
        with pytest.raises(error, match=message):
            LogitlessLM(model, tokenizer=TOKENIZER)


def test_no_requests_and_refused_ones():
    ours = LogitlessLM(model_of("llama"), tokenizer=TOKENIZER)
    assert ours.loglikelihood([]) == [] and ours.loglikelihood_rolling([]) == []
    with pytest.raises(ValueError, match="continuation of 65.*max_length = 64"):
        ours.loglikelihood([instance(words(3, 1), " " + words(65, 2))])
    with pytest.raises(ValueError, match="continuation of 0"):
        ours.loglikelihood([instance(words(3, 1), " ")])


def test_a_patched_model():
    from logitless.transformers import compute_loss_func, patch

    model = model_of("llama")
    hf, _ = pair(model)
    requests = requests_of(model)
    want = hf.loglikelihood(requests)
    compute_loss_func(patch(model))
    check_answers(LogitlessLM(model, tokenizer=TOKENIZER).loglikelihood(requests), want, tokens_of(requests))
