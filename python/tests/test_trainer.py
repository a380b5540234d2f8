# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Training of patched models by Hugging Face's Trainer, PEFT, TRL and torch.compile, compared with training
without patch()."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from small_models import batch, loss_and_gradients, model_of  # noqa: E402

from logitless._absent_logits import AbsentLogits  # noqa: E402
from logitless._logits_on_read import LogitsOnRead  # noqa: E402
from logitless.transformers import argmax, compute_loss_func, patch, unpatch  # noqa: E402


def dataset(count=8):
    torch.manual_seed(2)
    rows = []
    for i in range(count):
        ids = torch.randint(3, 97, (12,))
        labels = ids.clone()
        labels[: i % 4] = -100
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def trainer_of(model, folder, **arguments):
    own = ("compute_metrics", "preprocess_logits_for_metrics", "compute_loss_func")
    keywords = {name: arguments.pop(name) for name in own if name in arguments}
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=arguments.pop("max_steps", 3),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=4,
        logging_steps=1,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        **arguments,
    )
    return transformers.Trainer(
        model=model, args=args, train_dataset=dataset(), eval_dataset=dataset(), **keywords
    )


def curve(trainer):
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses + [trainer.evaluate()["eval_loss"]]


SETTINGS = {
    "plain": {},
    "bf16": dict(bf16=True),
    "gradient accumulation": dict(gradient_accumulation_steps=2),
    "activation checkpointing": dict(gradient_checkpointing=True),
    "all three": dict(bf16=True, gradient_accumulation_steps=2, gradient_checkpointing=True),
}


# Under bf16 the plain head rounds its logits to 8 bits. This changes a loss, log-sum-exp minus logit, by at
# most twice 2**-9 of the largest logit (12 in these models). In float32 only the order of sums differs.
def bound_of(setting):
    return 2 * 2**-9 * 12 if "bf16" in SETTINGS[setting] else 2e-4


@pytest.mark.parametrize(
    "name, setting",
    [("llama", setting) for setting in SETTINGS]
    + [(name, "all three") for name in ("gemma2", "gpt2", "opt")],
)
def test_trainer_trains_as_unpatched(name, setting, tmp_path):
    curves = []
    for fused in (False, True):
        model = model_of(name)
        if fused:
            patch(model)
        trainer = trainer_of(model, tmp_path, **SETTINGS[setting])
        curves.append(curve(trainer))
        assert model.state_dict().keys() == model_of(name).state_dict().keys()
    assert curves[1] == pytest.approx(curves[0], abs=bound_of(setting))


def accuracy(prediction):
    guesses = prediction.predictions
    if guesses.ndim == 3:
        guesses = guesses.argmax(-1)
    counts = prediction.label_ids[:, 1:] != -100
    right = (guesses[:, :-1] == prediction.label_ids[:, 1:])[counts]
    return {"accuracy": float(right.mean()), "tokens": int(counts.sum())}


@pytest.mark.parametrize(
    "reduce, bf16", [(None, False), (argmax, False), (argmax, True), (lambda logits, labels: logits.argmax(dim=-1), False)]
)
def test_evaluation_has_its_metrics(reduce, bf16, tmp_path):
    results = []
    for fused in (False, True):
        model = model_of("llama")
        if fused:
            patch(model)
        trainer = trainer_of(
            model, tmp_path, compute_metrics=accuracy, preprocess_logits_for_metrics=reduce, bf16=bf16
        )
        trainer.train()
        results.append(trainer.evaluate())
    assert results[0]["eval_tokens"] == results[1]["eval_tokens"]
    # Logits that are equal after rounding may change the argmax of at most 4 of the 80 tokens.
    assert results[1]["eval_accuracy"] == pytest.approx(results[0]["eval_accuracy"], abs=0.05 if bf16 else 0)
    bound = bound_of("bf16" if bf16 else "plain")
    assert results[1]["eval_loss"] == pytest.approx(results[0]["eval_loss"], abs=bound)


def test_evaluation_computes_no_logits_that_nobody_reads(tmp_path, monkeypatch):
    computed = []
    whole = AbsentLogits.materialise
    monkeypatch.setattr(AbsentLogits, "materialise", lambda self: computed.append(1) or whole(self))
    model = patch(model_of("llama"))
    trainer_of(model, tmp_path).evaluate()
    trainer_of(model, tmp_path, compute_metrics=accuracy, preprocess_logits_for_metrics=argmax).evaluate()
    assert not computed
    trainer_of(model, tmp_path, compute_metrics=accuracy).evaluate()
    assert len(computed) == 2  # one per batch


@pytest.mark.parametrize("setting", ["plain", "bf16", "gradient accumulation"])
def test_label_smoothing_is_fused_by_compute_loss_func(setting, tmp_path):
    curves = []
    for fused in (False, True):
        model = model_of("llama")
        more = {}
        if fused:
            more["compute_loss_func"] = compute_loss_func(patch(model), label_smoothing=0.1)
        trainer = trainer_of(model, tmp_path, label_smoothing_factor=0.1, **more, **SETTINGS[setting])
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # patch() must not warn
            curves.append(curve(trainer))
    assert curves[1] == pytest.approx(curves[0], abs=bound_of(setting))


def counts_of_labels(*counts):
    """Micro-batches with these numbers of labels."""
    torch.manual_seed(2)
    rows = []
    for count in counts:
        ids = torch.randint(3, 97, (18,))
        labels = ids.clone()
        labels[: 18 - count] = -100
        rows.append({"input_ids": ids, "labels": labels})
    return rows


class TakesNoItems(transformers.LlamaForCausalLM):
    accepts_loss_kwargs = False


class TakesNoKeywords(transformers.LlamaForCausalLM):
    def forward(self, input_ids=None, labels=None):
        return super().forward(input_ids=input_ids, labels=labels)


# Trainer's label smoother shifts labels only for classes with these names.
TakesNoItems.__name__ = TakesNoKeywords.__name__ = "LlamaForCausalLM"


@pytest.mark.parametrize("steps, across, smoothing", [(4, True, 0.1), (1, True, 0.0), (4, None, 0.1)])
@pytest.mark.parametrize(
    "kind",
    [transformers.LlamaForCausalLM, TakesNoItems, TakesNoKeywords],
    ids=["items", "no items", "no keywords"],
)
def test_micro_batches_are_averaged_as_trainer_does(kind, smoothing, steps, across, tmp_path):
    """A model without num_items_in_batch gets the mean of the micro-batches' means, and so does a step whose
    labels cannot be counted (`across` is None). The last step has two micro-batches."""
    curves = []
    for fused in (False, True):
        model = model_of("llama")
        model.__class__ = kind
        more = {}
        if fused:
            more["compute_loss_func"] = compute_loss_func(patch(model), label_smoothing=smoothing)
        trainer = trainer_of(
            model,
            tmp_path,
            max_steps=-1,
            num_train_epochs=1,
            gradient_accumulation_steps=steps,
            average_tokens_across_devices=bool(across),
            label_smoothing_factor=smoothing,
            train_sampling_strategy="sequential",
            **more,
        )
        trainer._train_batch_size = 1
        if across is None:
            trainer._get_num_items_in_batch = lambda *_: None
        trainer.train_dataset = counts_of_labels(16, 3, 3, 3, 9, 2)
        curves.append(curve(trainer))
    assert len(curves[0]) == -(-6 // steps) + 1
    assert curves[1] == pytest.approx(curves[0], abs=bound_of("plain"))


def test_compute_loss_func_makes_no_logits(tmp_path, monkeypatch):
    monkeypatch.setattr(AbsentLogits, "materialise", lambda self: pytest.fail("logits were computed"))
    model = patch(model_of("gemma2"))
    trainer = trainer_of(model, tmp_path, compute_loss_func=compute_loss_func(model, label_smoothing=0.1))
    trainer.train()
    trainer.evaluate()
    monkeypatch.undo()
    ids, _ = batch()
    tokens = model.eval().generate(ids, max_new_tokens=5, do_sample=False)
    assert torch.equal(tokens, unpatch(copy.deepcopy(model)).generate(ids, max_new_tokens=5, do_sample=False))
    with pytest.raises(ValueError, match="label_smoothing = 2"):
        compute_loss_func(model, label_smoothing=2)
    with pytest.raises(ValueError, match="not patched"):
        compute_loss_func(unpatch(model))


def test_label_smoothing_that_is_not_fused_is_told_once(tmp_path):
    model = patch(model_of("llama"))
    with pytest.warns(UserWarning, match="label_smoothing_factor.*compute_loss_func") as told:
        trainer_of(model, tmp_path, label_smoothing_factor=0.1).train()
    assert len([w for w in told if "label_smoothing_factor" in str(w.message)]) == 1


def lora(**more):
    return pytest.importorskip("peft").LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_dropout=0.0, init_lora_weights=False, **more
    )


ATTENTION = ["q_proj", "v_proj"]


@pytest.mark.parametrize(
    "order, bf16", [("adapter first", True), ("patch first", False), ("patch the model inside", False)]
)
def test_adapters_on_attention_layers(order, bf16, tmp_path):
    peft = pytest.importorskip("peft")
    curves = []
    for fused in (False, True):
        model = model_of("llama")
        if fused and order == "patch first":
            patch(model)
        torch.manual_seed(3)
        wrapped = peft.get_peft_model(model, lora(target_modules=ATTENTION))
        if fused and order == "adapter first":
            assert patch(wrapped) is wrapped
        if fused and order == "patch the model inside":
            patch(wrapped.get_base_model())
        ids, labels = batch()
        kind = type(wrapped(input_ids=ids, labels=labels).logits)
        assert (kind is LogitsOnRead) == fused
        curves.append(curve(trainer_of(wrapped, tmp_path, bf16=bf16)))
        if fused:
            with pytest.raises(ValueError, match="already"):
                patch(wrapped)
            assert type(unpatch(wrapped).get_base_model()) is transformers.LlamaForCausalLM
    assert curves[1] == pytest.approx(curves[0], abs=bound_of("bf16" if bf16 else "plain"))


def test_an_adapter_on_the_head_is_fused_and_may_be_merged():
    peft = pytest.importorskip("peft")
    ids, labels = batch()
    on_head = lora(target_modules=[*ATTENTION, "lm_head"])
    torch.manual_seed(3)
    plain = peft.get_peft_model(model_of("llama"), on_head)
    torch.manual_seed(3)
    model = peft.get_peft_model(patch(model_of("llama")), on_head)
    for wrapped in (plain, model):
        torch.manual_seed(4)
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        wrapped.eval()
    want = plain(input_ids=ids, labels=labels).loss
    torch.testing.assert_close(model(input_ids=ids, labels=labels).loss, want, atol=1e-5, rtol=1e-5)
    merged = model.merge_and_unload()
    loss = merged(input_ids=ids, labels=labels).loss
    torch.testing.assert_close(loss, unpatch(merged)(input_ids=ids, labels=labels).loss, atol=1e-5, rtol=1e-5)


def peft_pair(name, config):
    """A plain model with PEFT adapters, and a patched one."""
    peft = pytest.importorskip("peft")
    pair = []
    for fused in (False, True):
        model = model_of(name)
        torch.manual_seed(3)
        pair.append(peft.get_peft_model(model, copy.deepcopy(config)))
        if fused:
            patch(pair[-1])
    return pair


FEW, MANY = [3, 5, 90], list(range(60, 80))  # up to an eighth of the 32 columns, trained rows become a LoRA
TRAINED_ROWS = {
    "few": dict(target_modules=ATTENTION, trainable_token_indices=FEW),
    "many": dict(target_modules=ATTENTION, trainable_token_indices=MANY),
    "of the embeddings by name": dict(target_modules=ATTENTION, trainable_token_indices={"embed_tokens": FEW}),
    "of both, apart": dict(target_modules=ATTENTION, trainable_token_indices={"embed_tokens": FEW, "lm_head": [5, 7]}),
    "all linear": dict(target_modules="all-linear", trainable_token_indices=FEW),
    "LoRA on the embeddings": dict(target_modules=["embed_tokens"], ensure_weight_tying=True),
    "whole embeddings": dict(target_modules=ATTENTION, modules_to_save=["embed_tokens"], ensure_weight_tying=True),
}


@pytest.mark.parametrize(
    "name, which, dtype",
    [("tied llama", which, torch.float32) for which in TRAINED_ROWS]
    + [("opt", "few", torch.float32), ("gemma2", "many", torch.bfloat16), ("tied llama", "few", torch.bfloat16)],
)
def test_what_peft_trains_of_a_tied_head(name, which, dtype):
    """Five steps; then with the adapter disabled and enabled again, merged, and unpatched."""
    config = lora(**TRAINED_ROWS[which])
    config.init_lora_weights = True
    plain, fused = (model.to(dtype) for model in peft_pair(name, config))
    ids, labels = batch()
    # Rounding to bfloat16 changes the logits of the plain head (up to 32) by 2**-4.
    bound = 1e-4 if dtype == torch.float32 else 2**-4
    optimizers = [torch.optim.SGD((p for p in m.parameters() if p.requires_grad), lr=0.1) for m in (plain, fused)]
    for step in range(5 if dtype == torch.float32 else 1):
        want, want_grads = loss_and_gradients(plain, input_ids=ids, labels=labels)
        got, grads = loss_and_gradients(fused, input_ids=ids, labels=labels)
        torch.testing.assert_close(got.float(), want.float(), atol=bound, rtol=0)
        assert grads.keys() == want_grads.keys()
        for parameter, grad in grads.items():
            largest = want_grads[parameter].abs().max().item()
            assert (grad - want_grads[parameter]).abs().max() <= 10 * bound * largest + bound / 10, parameter
        for optimizer in optimizers:
            optimizer.step()
    if dtype != torch.float32:
        return
    assert isinstance(fused(input_ids=ids, labels=labels).logits, LogitsOnRead)
    for model in (plain, fused):
        model.eval()
    want = plain(input_ids=ids, labels=labels)
    torch.testing.assert_close(fused(input_ids=ids, labels=labels).logits[...], want.logits, atol=1e-3, rtol=1e-4)
    with plain.disable_adapter(), fused.disable_adapter(), torch.no_grad():
        want = plain(input_ids=ids, labels=labels).loss
        torch.testing.assert_close(fused(input_ids=ids, labels=labels).loss, want, atol=bound, rtol=0)
    want = plain.merge_and_unload()(input_ids=ids, labels=labels).loss
    merged = fused.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids, labels=labels).loss, want, atol=bound, rtol=0)
    assert unpatch(merged).get_output_embeddings().__class__ is torch.nn.Linear


def test_few_trained_rows_cost_no_gradient_of_the_head():
    _, model = peft_pair("tied llama", lora(**TRAINED_ROWS["few"]))
    ids, labels = batch()
    logits = model(input_ids=ids, labels=labels).logits.absent
    assert logits._weight.weight is model.get_base_model().get_input_embeddings().token_adapter.base_layer.weight
    assert logits._weight.a.shape == (3, 32) and logits._weight.a.requires_grad


def test_a_tied_head_with_a_lora_of_its_own_is_refused():
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(model_of("tied llama"), lora(target_modules=["lm_head"]))
    with pytest.raises(ValueError, match="shares its weight.*ensure_weight_tying=True"):
        patch(model)


@pytest.mark.parametrize("first", ["adapter", "patch"])
def test_a_whole_head_that_peft_trains_is_fused(first):
    peft = pytest.importorskip("peft")
    ids, labels = batch()
    results = []
    for fused in (False, True):
        model = model_of("llama")
        if fused and first == "patch":
            patch(model)
        torch.manual_seed(3)
        wrapped = peft.get_peft_model(model, lora(target_modules=ATTENTION, modules_to_save=["lm_head"]))
        if fused and first == "adapter":
            patch(wrapped)
        with torch.no_grad():
            wrapped.get_base_model().lm_head.modules_to_save["default"].weight.mul_(1.25)
        results.append(loss_and_gradients(wrapped, input_ids=ids, labels=labels))
        assert isinstance(wrapped(input_ids=ids, labels=labels).logits, LogitsOnRead) == fused
        with wrapped.disable_adapter(), torch.no_grad():  # the original head
            results.append((wrapped(input_ids=ids, labels=labels).loss, {}))
    for (want, want_grads), (got, grads) in zip(results[:2], results[2:]):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        assert grads.keys() == want_grads.keys()
        for parameter, grad in grads.items():
            torch.testing.assert_close(grad, want_grads[parameter], atol=2e-5, rtol=1e-3, msg=parameter)
    assert any("modules_to_save" in name for name in results[2][1])


def test_a_trainer_of_trl_that_calls_its_own_head_is_told():
    utils = pytest.importorskip("trl.trainer.utils")
    model = patch(model_of("llama"))
    with pytest.warns(UserWarning, match="TRL calls its own head"):
        utils.add_fused_lm_head(model)
    ids, labels = batch()
    want = unpatch(copy.deepcopy(model))(input_ids=ids, labels=labels, fused_lm_head=True).log_probs
    assert torch.equal(model(input_ids=ids, labels=labels, fused_lm_head=True).log_probs, want)
    with pytest.raises(ValueError, match="replaced by a trainer of TRL"):
        patch(unpatch(model))


def compiled(model):
    """The compiled model, and the list of its graphs. A graph break is an error."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend=backend), graphs


@pytest.mark.parametrize("name, autocast", [("llama", True), ("gemma2", False), ("granite", False), ("gpt2", True)])
def test_a_compiled_model_is_one_graph(name, autocast):
    model = patch(model_of(name))
    ids, labels = batch()
    run, graphs = compiled(model)
    for items in (29, 31):
        inputs = dict(input_ids=ids, labels=labels, num_items_in_batch=torch.tensor(items))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            want, want_grads = loss_and_gradients(model, **inputs)
            model.zero_grad()
            output = run(**inputs)
        output.loss.backward()
        assert output.loss.dtype == torch.float32
        torch.testing.assert_close(output.loss, want, atol=1e-5, rtol=1e-5)
        for parameter, value in model.named_parameters():
            torch.testing.assert_close(value.grad, want_grads[parameter], atol=2e-5, rtol=1e-3, msg=parameter)
    assert len(graphs) == 1
    assert all(node.target is not torch.nn.functional.cross_entropy for node in graphs[0].graph.nodes)
    assert any("logitless" in str(node.target) for node in graphs[0].graph.nodes)
    for read in (lambda: output.logits + 1, lambda: output.logits[0], lambda: output.logits.softmax(-1)):
        with pytest.raises(RuntimeError, match="without them"):
            read()
    if not autocast:  # where rounding may make logits equal
        assert torch.equal(output.logits.argmax(-1), model(input_ids=ids).logits.argmax(-1))


def test_a_compiled_model_in_eval_mode_has_its_logits():
    model = model_of("gemma2").eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    run, _ = compiled(patch(model))
    with torch.no_grad():
        got = run(input_ids=ids, labels=labels)
        torch.testing.assert_close(got.logits, want.logits)
        torch.testing.assert_close(got.loss, want.loss, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(run(input_ids=ids).logits, want.logits)


def test_a_compiled_model_can_be_patched():
    model = model_of("llama")
    ids, labels = batch()
    run, graphs = compiled(model)
    want = run(input_ids=ids, labels=labels).loss
    assert patch(run) is run
    torch.testing.assert_close(run(input_ids=ids, labels=labels).loss, want, atol=1e-5, rtol=1e-5)
    assert len(graphs) == 2
    assert unpatch(run) is run and type(model) is transformers.LlamaForCausalLM
    assert torch.equal(run(input_ids=ids, labels=labels).loss, want)


def test_trainer_compiles_a_patched_model(tmp_path):
    curves, smoothing = [], 0.1
    for fused in (False, True):
        model = model_of("llama")
        more = {"torch_compile": True, "torch_compile_backend": "aot_eager"} if fused else {}
        if fused:
            more["compute_loss_func"] = compute_loss_func(patch(model), label_smoothing=smoothing)
        torch._dynamo.reset()
        curves.append(curve(trainer_of(model, tmp_path, label_smoothing_factor=smoothing, **more)))
    assert curves[1] == pytest.approx(curves[0], abs=2e-4)


def tokenizer():
    import tokenizers

    entries = {f"t{i}": i for i in range(97)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(entries, unk_token="t1"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="t0", bos_token="t1", eos_token="t2", unk_token="t1"
    )


def test_trls_sft_trainer_takes_compute_loss_func(tmp_path, monkeypatch):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"input_ids": row["input_ids"].tolist()} for row in dataset()])
    curves = []
    for fused in (False, True):
        model = model_of("llama")
        more = {}
        if fused:
            more["compute_loss_func"] = compute_loss_func(patch(model))
            monkeypatch.setattr(AbsentLogits, "materialise", lambda self: pytest.fail("logits were computed"))
        arguments = trl.SFTConfig(
            output_dir=str(tmp_path),
            max_steps=3,
            per_device_train_batch_size=2,
            logging_steps=1,
            learning_rate=1e-2,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = trl.SFTTrainer(model, arguments, train_dataset=rows, processing_class=tokenizer(), **more)
        trainer.train()
        curves.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert curves[1] == pytest.approx(curves[0], abs=2e-4)
