# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of a patched model by TRL's trainers, compared with TRL's own head, and what logitless.trl refuses."""

import pytest
from small_models import batch, model_of
from trl_trainers import (
    fused_call,
    gradients_of,
    lora,
    refused,
    torch,
    trainer_of,
    transformers,
    trl,
    utils,
)

from logitless import _core
from logitless import _trl_head, _trl_losses
from logitless import trl as ours
from logitless.trl import patch, unpatch
from trl.trainer import distillation_trainer

pytestmark = pytest.mark.usefixtures("no_telemetry")


@pytest.mark.parametrize("name, frozen", [("llama", False), ("gemma2", True), ("granite", False), ("cohere2", True)])
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
@pytest.mark.parametrize("outputs", [(), utils.FusedCausalLMOutput.__annotations__.keys()])
def test_the_function_itself(dtype, outputs):
    torch.manual_seed(0)
    tensors = [torch.randn(9, 16), torch.randn(67, 16) / 2, torch.randn(67)]
    inputs = [t.to(dtype).requires_grad_() for t in tensors]
    targets = torch.randint(67, (9,))
    rest = (0.7, 32, 5.0, 0.5, tuple(outputs))
    results = []
    for apply in (utils._ChunkedLogProbFunction.apply, _trl_head._LogProbs.apply):
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_divergence_of_two_heads(beta, dtype):
    torch.manual_seed(0)
    shapes = [(3, 5, 16), (67, 16), (67,), (3, 5, 8), (67, 8), (67,)]
    student = [(torch.randn(shape) / 2).to(dtype).requires_grad_() for shape in shapes[:3]]
    teacher = [(torch.randn(shape) / 2).to(dtype) for shape in shapes[3:]]
    mask = torch.ones(3, 5, dtype=torch.int64)
    mask[0, 2:] = mask[2] = 0
    scales = dict(student_logit_scale=2.0, teacher_logit_scale=0.5, temperature=0.7)
    caps = dict(student_final_logit_softcapping=5.0, teacher_final_logit_softcapping=3.0)
    biases = dict(student_lm_head_bias=student[2], teacher_lm_head_bias=teacher[2])
    for items, counted in ((None, mask), (torch.tensor(9.0), mask), (None, mask * 0)):
        results = []
        for function in (distillation_trainer._chunked_divergence_loss, _trl_losses._divergence_loss):
            for t in student:
                t.grad = None
            given = (student[0], teacher[0], student[1], teacher[1], counted, beta, items)
            made = function(*given, **biases, **scales, **caps)
            (made[0] * 3).backward()
            results.append((*(t.detach() for t in made), *(t.grad for t in student)))
        bound = 3e-2 if dtype == torch.bfloat16 else 2e-5
        for mine, theirs in zip(*reversed(results)):
            torch.testing.assert_close(mine, theirs, atol=bound, rtol=bound, check_dtype=theirs.dim() > 0)


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


def test_losses_that_are_made_of_logits_are_refused(tmp_path):
    with pytest.warns(FutureWarning, match="label_smoothing_factor"):
        trainer = trainer_of("sft", model_of("llama"), tmp_path, label_smoothing_factor=0.1)
    refused("label_smoothing_factor = 0.1: .*compute_loss_func", trainer)

    def own_loss(outputs, labels, num_items_in_batch=None):
        return outputs.logits.sum()

    with pytest.warns(FutureWarning, match="compute_loss_func"):
        trainer = trainer_of("sft", model_of("llama"), tmp_path, compute_loss_func=own_loss)
    refused("compute_loss_func = <function .*own_loss.*>: it computes the loss from logits", trainer)


def test_a_head_that_deepspeed_takes_apart_is_refused(tmp_path, monkeypatch):
    trainer = trainer_of("sft", model_of("llama"), tmp_path)
    trainer.args.deepspeed = "zero3.json"
    monkeypatch.setattr(ours, "is_deepspeed_zero3_enabled", lambda: True)
    refused("deepspeed = 'zero3.json': with ZeRO stage 3", trainer)


def test_adapters_on_the_head_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="adapter to `lm_head`"):  # TRL's message
        trainer_of("sft", model_of("llama"), tmp_path, peft_config=lora(["lm_head"]))
    trainer = trainer_of("kto", model_of("llama"), tmp_path, peft_config=lora())
    trainer.model.add_adapter("late", lora(["lm_head"]))
    refused("model: the head carries the adapter 'late'.*leave lm_head out of target_modules", trainer)
    rows = lora()
    rows.trainable_token_indices = [3, 5]
    trainer = trainer_of("sft", model_of("tied llama"), tmp_path, peft_config=rows)
    refused("model: PEFT trains rows of the head .trainable_token_indices", trainer)


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
    with pytest.raises(ValueError, match=rf"SFTTrainer.model has no head of TRL's.*TRL {trl.__version__}.*again"):
        patch(trainer)


def test_another_head_than_the_one_that_is_known_is_refused_with_the_version(tmp_path, monkeypatch):
    trainer = trainer_of("sft", model_of("llama"), tmp_path)

    class Later:
        @staticmethod
        def forward(ctx, hidden, weight, targets, bias):
            pass

    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Later)
    refused(rf"TRL {trl.__version__} passes hidden, weight, targets, bias: .*TRL 1.16.0", trainer, RuntimeError)
    monkeypatch.undo()
    _trl_head._rename(trainer.model.forward.__func__, {"_use_triton": "another_name"})
    refused(rf"TRL {trl.__version__} does not use _use_triton: .*TRL 1.16.0", trainer, RuntimeError)


def test_a_divergence_that_is_not_the_known_one_is_refused_with_the_version(tmp_path, monkeypatch):
    trainer = trainer_of("distillation", model_of("llama"), tmp_path)
    monkeypatch.setattr(distillation_trainer, "_chunked_divergence_loss", lambda hidden, heads: None)
    refused(rf"DistillationTrainer of TRL {trl.__version__} passes hidden, heads: .*TRL 1.16.0", trainer, RuntimeError)
    monkeypatch.setattr(type(trainer), "_compute_loss", lambda self: None)
    refused("does not use _chunked_divergence_loss: .*TRL 1.16.0", trainer, RuntimeError)


def test_the_heads_of_a_distillation_are_refused_by_name(tmp_path):
    trainer = trainer_of("distillation", model_of("llama"), tmp_path)
    trainer.teacher_model.config.final_logit_softcapping = -1.0
    refused("teacher_model: final_logit_softcapping = -1.0 must be above 0", trainer)
    trainer.teacher_model.lm_head = torch.nn.Linear(32, 97, bias=False, device="meta")
    refused("teacher_model: lm_head is on meta", trainer)


def test_unpatch_of_each_kind_of_trainer(tmp_path):
    for kind in ("distillation", "cpo"):
        trainer = trainer_of(kind, model_of("llama"), tmp_path, max_steps=1)
        before = set(vars(trainer))
        patch(trainer).train()
        with pytest.raises(ValueError, match="patched already"):
            patch(trainer)
        unpatch(trainer)
        assert "_compute_loss" not in vars(trainer) and before <= set(vars(trainer))
        assert type(trainer.model.lm_head) is torch.nn.Linear
        with pytest.raises(ValueError, match="not patched"):
            unpatch(trainer)


@pytest.mark.parametrize(
    "kind, option, value",
    [
        ("cpo", "torch_compile", True),
        ("sdft", "distillation_topk", 257),
        ("gkd", "use_uld_loss", True),
    ],
)
def test_options_of_losses_that_read_all_logits_are_refused(kind, option, value, tmp_path):
    model = model_of("llama")
    if kind == "sdft":
        model.save_pretrained(tmp_path / "model")
        model = str(tmp_path / "model")
    trainer = trainer_of(kind, model, tmp_path)
    if option == "use_uld_loss":  # GOLDTrainer sets them
        trainer.teacher_tokenizer, trainer.use_uld_loss = object(), True
    else:
        setattr(trainer.args, option, value)
    refused(f"{option} = {value}: ", trainer)
    assert type(trainer.model.lm_head) is torch.nn.Linear


def test_models_whose_logits_cannot_be_recorded_are_refused(tmp_path, monkeypatch):
    trainer = trainer_of("gkd", model_of("llama"), tmp_path)
    forward = type(trainer.model).forward

    def with_noise(self, *args, **kwargs):
        output = forward(self, *args, **kwargs)
        output.logits = output.logits + 1
        return output

    monkeypatch.setattr(type(trainer.teacher_model), "forward", with_noise)
    trainer.model.forward = forward.__get__(trainer.model)
    refused("teacher_model: LlamaForCausalLM does more to its logits", trainer)
    assert type(trainer.teacher_model.lm_head) is type(trainer.model.lm_head) is torch.nn.Linear


def test_trainers_that_are_not_supported_are_refused_by_name(tmp_path):
    class Trainer(transformers.Trainer):
        pass

    trainer = Trainer(model=model_of("llama"), args=transformers.TrainingArguments(str(tmp_path), use_cpu=True))
    with pytest.raises(ValueError, match="Trainer is not supported: .* SFT, DPO, KTO, GRPO, RLOO, Distillation, A2PO"):
        patch(trainer)
    for name, reason in (("RewardTrainer", "one score per sequence"), ("AsyncGRPOTrainer", "a vLLM server")):
        trainer.__class__ = type(name, (Trainer,), {"__module__": f"trl.{name}"})
        with pytest.raises(ValueError, match=rf"{name} \(TRL {trl.__version__}\) is not supported: .*{reason}"):
            patch(trainer)
