# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Training of patched models by Hugging Face's Trainer and under torch.compile, compared with training without
patch()."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from small_models import batch, loss_and_gradients, model_of  # noqa: E402

from logitless._absent_logits import AbsentLogits  # noqa: E402
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


# Under bf16 the plain head rounds its logits to 8 bits. This changes a loss, log-sum-exp minus logit, by at
# most twice 2**-9 of the largest logit (12 in these models). In float32 only the order of sums differs.
def bound_of(bf16):
    return 2 * 2**-9 * 12 if bf16 else 2e-4


@pytest.mark.parametrize("name, bf16", [("llama", False), ("gemma2", True), ("opt", True)])
def test_trainer_trains_as_unpatched(name, bf16, tmp_path):
    more = dict(bf16=True, gradient_accumulation_steps=2, gradient_checkpointing=True) if bf16 else {}
    curves = []
    for fused in (False, True):
        model = model_of(name)
        if fused:
            patch(model)
        curves.append(curve(trainer_of(model, tmp_path, **more)))
        assert model.state_dict().keys() == model_of(name).state_dict().keys()
    assert curves[1] == pytest.approx(curves[0], abs=bound_of(bf16))


def accuracy(prediction):
    guesses = prediction.predictions
    if guesses.ndim == 3:
        guesses = guesses.argmax(-1)
    counts = prediction.label_ids[:, 1:] != -100
    right = (guesses[:, :-1] == prediction.label_ids[:, 1:])[counts]
    return {"accuracy": float(right.mean()), "tokens": int(counts.sum())}


@pytest.mark.parametrize("reduce, bf16", [(None, False), (argmax, True)])
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
    assert results[1]["eval_loss"] == pytest.approx(results[0]["eval_loss"], abs=bound_of(bf16))


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


@pytest.mark.parametrize(
    "kind, steps, across, smoothing",
    [
        (transformers.LlamaForCausalLM, 1, True, 0.0),
        (transformers.LlamaForCausalLM, 4, None, 0.1),
        (transformers.LlamaForCausalLM, 4, True, 0.1),
        (TakesNoItems, 4, True, 0.1),
        (TakesNoKeywords, 4, True, 0.1),
    ],
    ids=["one batch", "not counted", "items", "no items", "no keywords"],
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
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # patch() must not warn
            curves.append(curve(trainer))
    assert len(curves[0]) == -(-6 // steps) + 1
    assert curves[1] == pytest.approx(curves[0], abs=bound_of(False))


def test_compute_loss_func_makes_no_logits(tmp_path, monkeypatch):
    monkeypatch.setattr(AbsentLogits, "materialise", lambda self: pytest.fail("logits were computed"))
    model = patch(model_of("gemma2"))
    trainer = trainer_of(model, tmp_path, compute_loss_func=compute_loss_func(model, label_smoothing=0.1))
    trainer.train()
    trainer.evaluate()
    with pytest.raises(ValueError, match="label_smoothing = 2"):
        compute_loss_func(model, label_smoothing=2)
    with pytest.raises(ValueError, match="not patched"):
        compute_loss_func(unpatch(model))


def test_label_smoothing_that_is_not_fused_is_told_once(tmp_path):
    model = patch(model_of("llama"))
    with pytest.warns(UserWarning, match="label_smoothing_factor.*compute_loss_func") as told:
        trainer_of(model, tmp_path, label_smoothing_factor=0.1).train()
    assert len([w for w in told if "label_smoothing_factor" in str(w.message)]) == 1


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


@pytest.mark.parametrize("name, autocast", [("llama", True), ("gemma2", False)])
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
        curves.append(curve(trainer_of(model, tmp_path, label_smoothing_factor=smoothing, max_steps=2, **more)))
    assert curves[1] == pytest.approx(curves[0], abs=2e-4)
