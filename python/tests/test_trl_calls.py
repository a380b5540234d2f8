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
    trl,
    utils,
)

from logitless import _core
from logitless import trl as ours
from logitless.trl import patch, unpatch

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
    with pytest.raises(ValueError, match=rf"SFTTrainer.model has no head of TRL's.*TRL {trl.__version__}.*KTO"):
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
    ours._rename(trainer.model.forward.__func__, {"_use_triton": "another_name"})
    refused(rf"TRL {trl.__version__} does not use _use_triton: .*TRL 1.16.0", trainer, RuntimeError)
