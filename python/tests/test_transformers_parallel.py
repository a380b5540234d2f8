# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models under DistributedDataParallel, which looks for unused parameters in the outputs and copies
outputs, and on ranks that split the head, each in its own process."""

import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_models import batch, model_of  # noqa: E402

from logitless._logits_on_read import LogitsOnRead  # noqa: E402
from logitless.transformers import compute_loss_func, patch  # noqa: E402


@pytest.fixture
def one_rank(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


SETTINGS = [{}, dict(find_unused_parameters=True), dict(static_graph=True)]  # the second one is Trainer's


def steps(model, loss_of):
    """Losses and gradients of two steps."""
    results = []
    for _ in range(2):
        model.zero_grad()
        loss = loss_of(model)
        loss.backward()
        grads = {name.removeprefix("module."): p.grad.clone() for name, p in model.named_parameters()}
        results.append((loss.detach(), grads))
    return results


@pytest.mark.parametrize("labels_apart", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradients_of_every_parameter(settings, labels_apart, one_rank):
    model = patch(model_of("llama"))
    ids, labels = batch()
    if labels_apart:
        function = compute_loss_func(model, label_smoothing=0.1)
        # accelerate casts outputs under mixed precision.
        forward = model.forward
        model.forward = lambda **inputs: {"logits": forward(**inputs).logits.float()}

        def loss_of(called):
            return function(called(input_ids=ids), labels)

    else:

        def loss_of(called):
            return called(input_ids=ids, labels=labels).loss

    want = steps(model, loss_of)
    got = steps(torch.nn.parallel.DistributedDataParallel(model, **settings), loss_of)
    for (loss, grads), (want_loss, want_grads) in zip(got, want):
        assert torch.equal(loss, want_loss)
        for name, grad in grads.items():
            assert torch.equal(grad, want_grads[name]), name


def test_a_copy_of_logits_waits_and_keeps_its_history():
    model = patch(model_of("gemma2"))
    compute_loss_func(model)
    ids, _ = batch()
    for copy in (lambda x: x.clone(), torch.clone, lambda x: x.float()[:, :-1].clone()):
        copied = copy(model(input_ids=ids).logits)
        assert isinstance(copied, LogitsOnRead) and copied._computed is None and copied.grad_fn is not None
        model.zero_grad()
        copied.sum().backward()
        assert model.model.embed_tokens.weight.grad.any()
    logits = model(input_ids=ids).logits
    torch.testing.assert_close(logits.clone() * 1, logits * 1)


@pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="FSDP2 of this PyTorch does not run on CPUs"
)
def test_two_processes_with_split_heads_and_batches():
    pytest.importorskip("peft")
    program = pathlib.Path(__file__).with_name("split_heads.py")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("ranks have the gradients of plain models\n")
