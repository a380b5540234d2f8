# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Trainers of TRL beside themselves with logitless.trl: every step's loss and logs, and what is refused."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
trl = pytest.importorskip("trl")
utils = pytest.importorskip("trl.trainer.utils")
if not hasattr(utils, "add_fused_lm_head"):
    pytest.skip(f"TRL {trl.__version__} has no fused head", allow_module_level=True)

from small_models import batch, model_of  # noqa: E402

from logitless import _core  # noqa: E402
from logitless import trl as ours  # noqa: E402
from logitless._absent_logits import AbsentLogits  # noqa: E402
from logitless.trl import patch, unpatch  # noqa: E402

STEPS = 20


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch):
    monkeypatch.setenv("CI", "1")


def tokenizer():
    import tokenizers

    model = tokenizers.models.WordLevel({f"t{i}": i for i in range(97)}, unk_token="t1")
    words = tokenizers.Tokenizer(model)
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="t0", bos_token="t1", eos_token="t2", unk_token="t1"
    )


def text(length):
    return " ".join(f"t{i}" for i in torch.randint(3, 97, (length,)).tolist())


def rows_of(kind, count=16):
    """Prompts and completions of several lengths."""
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
    """Another model than the one that is trained: equal rewards would leave accuracies to rounding."""
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
    more = {"peft_config": peft_config, "train_dataset": data, "processing_class": tokenizer()}
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
    """From here on TRL's own function is an error."""
    forward = lambda *_: pytest.fail("TRL's own head was called")  # noqa: E731
    monkeypatch.setattr(utils._ChunkedLogProbFunction, "forward", staticmethod(forward))


def built(name):
    if name != "llama with a bias":
        return model_of(name)
    model = model_of("llama")
    head, model.lm_head = model.lm_head, torch.nn.Linear(32, 97)
    model.lm_head.weight = head.weight
    return model


CASES = {
    "sft": ("sft", "llama", {}),
    "sft, all positions": ("sft", "opt", dict(completion_only_loss=False, gradient_accumulation_steps=2)),
    "sft, packed": ("sft", "gpt2", dict(max_length=16, packing=True, packing_strategy="wrapped")),
    "sft, dft": ("sft", "tied llama", dict(loss_type="dft", label_smoothing_factor=0.1, gradient_checkpointing=True)),
    "sft, experts": ("sft", "mixtral", {}),
    "dpo": ("dpo", "llama with a bias", {}),
    "dpo, softcap": ("dpo", "gemma2", dict(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.2])),
    "dpo, weights of WPO": ("dpo", "granite", dict(use_weighting=True)),
    "dpo, LD": ("dpo", "cohere2", dict(ld_alpha=0.5, precompute_ref_log_probs=True)),
    "kto": ("kto", "llama", {}),
    "kto, scale": ("kto", "granite", dict(loss_type="apo_zero_unpaired")),
    "grpo": ("grpo", "llama", dict(num_iterations=2)),
    "grpo, entropy": ("grpo", "gemma2", dict(entropy_coef=0.01, top_entropy_quantile=0.5)),
    "grpo, float32 head": ("grpo", "qwen3", dict(cast_lm_head_to_fp32=True, beta=0.0)),
    "rloo": ("rloo", "llama", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_step_of_a_trainer_logs_the_same(case, tmp_path, monkeypatch):
    kind, name, options = CASES[case]
    logs = []
    for fused in (False, True):
        model = built(name)
        if kind in ("grpo", "rloo"):  # which read their reference model from a folder
            model.save_pretrained(tmp_path / "model")
            model = str(tmp_path / "model")
        trainer = trainer_of(kind, model, tmp_path, **options)
        if fused:
            assert patch(trainer) is trainer
            no_head_of_trls(monkeypatch)
        logs.append(logs_of(trainer))
    assert sum("loss" in entry for entry in logs[0]) == STEPS
    assert any(key.startswith("entropy") for key in logs[0][0])
    expect_equal(logs[1], logs[0])


# TRL rounds logits to bfloat16, 8 bits: the largest are about 12.
@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_autocast_and_a_reference_model_that_accelerate_has_wrapped(kind, tmp_path, monkeypatch):
    logs = []
    for fused in (False, True):
        trainer = trainer_of(kind, model_of("llama"), tmp_path, bf16=True, max_steps=3)
        if fused:
            patch(trainer)
            no_head_of_trls(monkeypatch)
        logs.append([entry["loss"] for entry in logs_of(trainer) if "loss" in entry])
    assert logs[1] == pytest.approx(logs[0], abs=2 * 2**-9 * 12)


@pytest.fixture
def lora():
    peft = pytest.importorskip("peft")
    body = ["q_proj", "v_proj", "down_proj"]
    return lambda modules=body, **more: peft.LoraConfig(r=4, lora_alpha=8, target_modules=modules, **more)


def tracks_gradients(monkeypatch):
    """The outputs of each backward."""
    seen = []
    token_grads = _core.token_grads

    def spy(context, arguments, *more):
        seen.append({name for name in arguments if name.startswith("d_")})
        return token_grads(context, arguments, *more)

    monkeypatch.setattr(_core, "token_grads", spy)
    return seen


@pytest.mark.parametrize("saves_head", [False, True])
@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo"])
def test_adapters_on_the_body_and_a_copy_of_the_head(kind, saves_head, lora, tmp_path, monkeypatch):
    logs = []
    for fused in (False, True):
        torch.manual_seed(4)
        config = lora(modules_to_save=["lm_head"]) if saves_head else lora()
        trainer = trainer_of(kind, model_of("llama"), tmp_path, peft_config=config, max_steps=6)
        trainer.args.learning_rate = 1e-2
        if fused:
            patch(trainer)
            no_head_of_trls(monkeypatch)
            wanted = tracks_gradients(monkeypatch)
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
        logs.append(logs_of(trainer))
        now = dict(trainer.model.named_parameters())
        assert all(not torch.equal(now[name], value) for name, value in before.items())
    expect_equal(logs[1], logs[0])
    assert wanted == [{"d_hidden", "d_weight"} if saves_head else {"d_hidden"}] * 6  # a frozen head has no gradient


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


@pytest.mark.parametrize("name", ["llama", "gemma2", "granite", "cohere2"])
@pytest.mark.parametrize("frozen", [False, True])
def test_every_output_and_its_gradients(name, frozen, tmp_path):
    model = model_of(name)
    model.get_output_embeddings().weight.requires_grad_(not frozen)
    trainer = trainer_of("dpo", model, tmp_path, use_weighting=True, disable_dropout=True)
    trainer.model.eval()
    want = fused_call(trainer.model)
    want_grads = gradients_of(trainer.model, want)
    patch(trainer)
    got = fused_call(trainer.model)
    assert got.keys() == want.keys() and "log_sum_sq_probs" in got
    for key in want:
        assert got[key].dtype == want[key].dtype and got[key].requires_grad == want[key].requires_grad
        torch.testing.assert_close(got[key], want[key], atol=2e-5, rtol=1e-5, msg=key)
    grads = gradients_of(trainer.model, got)
    assert grads.keys() == want_grads.keys()
    for parameter, grad in grads.items():
        torch.testing.assert_close(grad, want_grads[parameter], atol=1e-3, rtol=1e-3, msg=parameter)
    unpatch(trainer)
    assert torch.equal(fused_call(trainer.model).log_probs, want.log_probs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("outputs", [(), ("entropy",), utils.FusedCausalLMOutput.__annotations__.keys()])
def test_the_function_itself(dtype, outputs):
    torch.manual_seed(0)
    tensors = [torch.randn(9, 16), torch.randn(67, 16) / 2, torch.randn(67)]
    inputs = [t.to(dtype).requires_grad_() for t in tensors]
    targets = torch.randint(67, (9,))
    rest = (0.7, 32, 5.0, 0.5, tuple(outputs))
    results = []
    for apply in (utils._ChunkedLogProbFunction.apply, ours._LogProbs.apply):
        made = apply(*inputs, targets, *rest)
        (made[0].sum() + (0 if made[1] is None else made[1].square().sum())).backward()
        results.append((made, [t.grad for t in inputs]))
        for t in inputs:
            t.grad = None
    coarse = dtype in (torch.bfloat16, torch.float16)
    (want, want_grads), (got, grads) = results
    for mine, theirs in zip(got, want):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.dtype == theirs.dtype
            torch.testing.assert_close(mine, theirs, atol=3e-2 if coarse else 1e-5, rtol=1e-5)
    for mine, theirs in zip(grads, want_grads):
        torch.testing.assert_close(mine, theirs, atol=1e-1 if coarse else 1e-5, rtol=3e-2 if coarse else 1e-5)


def test_a_batch_without_a_label_and_a_head_of_another_type(tmp_path):
    trainer = patch(trainer_of("sft", model_of("llama"), tmp_path))
    ids, labels = batch()
    output = trainer.model(input_ids=ids, labels=torch.full_like(labels, -100), fused_lm_head=True)
    assert output.loss == 0 and not output.log_probs.any() and not output.is_top1.any()
    output.loss.backward()
    trainer.model.lm_head.double()
    assert fused_call(trainer.model).log_probs.dtype == torch.float32


def test_only_positions_with_a_label_are_computed(tmp_path, monkeypatch):
    rows = []
    token_stats = _core.token_stats
    monkeypatch.setattr(
        _core, "token_stats", lambda context, given: rows.append(len(given["hidden"])) or token_stats(context, given)
    )
    trainer = patch(trainer_of("sft", model_of("llama"), tmp_path))
    _, labels = batch()
    fused_call(trainer.model)
    assert rows == [(labels[:, 1:] != -100).sum()]


def test_calls_without_the_fused_head_and_generation_are_unchanged(tmp_path):
    trainer = trainer_of("grpo", model_of("gemma2"), tmp_path, beta=0.0)
    model = trainer.model.eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    answer = model.generate(ids, max_new_tokens=5, do_sample=False)
    patch(trainer)
    got = model(input_ids=ids, labels=labels)
    assert torch.equal(got.logits, want.logits) and got.loss == want.loss
    assert torch.equal(model.generate(ids, max_new_tokens=5, do_sample=False), answer)


def test_data_parallel_models(tmp_path):
    trainer = patch(trainer_of("sft", model_of("llama"), tmp_path))
    want = fused_call(trainer.model)
    want_grads = gradients_of(trainer.model, want)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(trainer.model)
        got = fused_call(wrapped)
        assert torch.equal(got.log_probs, want.log_probs)
        for name, grad in gradients_of(wrapped, got).items():
            assert torch.equal(grad, want_grads[name.removeprefix("module.")])
        trainer.model = wrapped
        with pytest.raises(ValueError, match="patched already"):
            patch(trainer)
        unpatch(trainer)
    finally:
        torch.distributed.destroy_process_group()


def test_a_trainer_that_compiles_its_model(tmp_path, monkeypatch):
    curves = []
    for fused in (False, True):
        more = dict(torch_compile=True, torch_compile_backend="eager") if fused else {}
        torch._dynamo.reset()
        trainer = trainer_of("sft", model_of("llama"), tmp_path, max_steps=3, **more)
        if fused:
            patch(trainer)
            no_head_of_trls(monkeypatch)
        curves.append(logs_of(trainer))
    expect_equal(curves[1], curves[0])


def test_unpatch_between_two_runs_and_models_that_two_trainers_share(tmp_path):
    trainer = trainer_of("dpo", model_of("llama"), tmp_path, bf16=True, max_steps=1)
    patch(trainer).train()  # now accelerate has wrapped both forwards
    assert unpatch(trainer) is trainer
    with pytest.raises(ValueError, match="the trainer is not patched"):
        unpatch(trainer)
    patch(trainer)
    with pytest.raises(ValueError, match="the trainer is patched already"):
        patch(trainer)
    other = trainer_of("sft", trainer.model, tmp_path)  # which gives the model another head
    with pytest.raises(ValueError, match="the trainer is not patched"):
        unpatch(other)
    patch(other)


def test_a_model_that_logitless_transformers_has_patched(tmp_path, monkeypatch):
    from logitless import transformers as of_models

    model = of_models.patch(model_of("llama"))
    with pytest.warns(UserWarning, match=r"logitless.trl.patch\(trainer\) fuses its loss"):
        trainer = trainer_of("sft", model, tmp_path, max_steps=2)
    patch(trainer)
    no_head_of_trls(monkeypatch)
    trainer.train()


def test_smoothed_labels_by_way_of_compute_loss_func(tmp_path, monkeypatch):
    from logitless import transformers as of_models

    logs = []
    for fused in (False, True):
        model = model_of("gemma2")
        smoothing = dict(label_smoothing_factor=0.1)
        if fused:
            loss = of_models.compute_loss_func(of_models.patch(model), label_smoothing=0.1)
            smoothing = dict(compute_loss_func=loss)
        trainer = trainer_of("sft", model, tmp_path, **smoothing)
        if fused:
            patch(trainer)
            no_head_of_trls(monkeypatch)
            monkeypatch.setattr(AbsentLogits, "materialise", lambda self: pytest.fail("logits were computed"))
        logs.append(logs_of(trainer))
    expect_equal(logs[1], logs[0])


def refused(match, trainer, kind=ValueError):
    with pytest.raises(kind, match=match):
        patch(trainer)
    with pytest.raises(ValueError, match="not patched"):
        unpatch(trainer)


def test_losses_that_are_made_of_logits_are_refused(tmp_path):
    with pytest.warns(FutureWarning, match="label_smoothing_factor"):
        trainer = trainer_of("sft", model_of("llama"), tmp_path, label_smoothing_factor=0.1)
    refused("label_smoothing_factor = 0.1: .*compute_loss_func", trainer)

    def own_loss(outputs, labels, num_items_in_batch=None):
        return outputs.logits.sum()

    with pytest.warns(FutureWarning, match="compute_loss_func"):
        trainer = trainer_of("sft", model_of("llama"), tmp_path, compute_loss_func=own_loss)
    refused("compute_loss_func = <function .*own_loss.*>: it makes the loss of logits", trainer)


def test_a_head_that_deepspeed_takes_apart_is_refused(tmp_path, monkeypatch):
    trainer = trainer_of("sft", model_of("llama"), tmp_path)
    trainer.args.deepspeed = "zero3.json"
    monkeypatch.setattr(ours, "is_deepspeed_zero3_enabled", lambda: True)
    refused("deepspeed = 'zero3.json': with ZeRO stage 3", trainer)


def test_adapters_on_the_head_are_refused_by_name(lora, tmp_path):
    with pytest.raises(ValueError, match="adapter to `lm_head`"):  # by TRL
        trainer_of("sft", model_of("llama"), tmp_path, peft_config=lora(["lm_head"]))
    trainer = trainer_of("kto", model_of("llama"), tmp_path, peft_config=lora())
    trainer.model.add_adapter("late", lora(["lm_head"]))
    refused("model: the head carries the adapter 'late'.*leave lm_head out of target_modules", trainer)


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
    refused(rf"TRL {trl.__version__} hands over hidden, weight, targets, bias: .*TRL 1.16.0", trainer, RuntimeError)
    monkeypatch.undo()
    ours._rename(trainer.model.forward.__func__, {"_use_triton": "another_name"})
    refused(rf"TRL {trl.__version__} reads no _use_triton: .*TRL 1.16.0", trainer, RuntimeError)
