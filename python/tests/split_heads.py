# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Two gloo processes train patched models whose heads are split over them, or whose batches are, and are
compared with plain models in one process. test_transformers_parallel.py runs this program."""

import contextlib
import functools
import importlib.util
import sys
import tempfile
import warnings
from unittest import mock

import peft
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from small_models import batch, model_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from logitless._logits_on_read import LogitsOnRead
from logitless._model_head import read_lazily
from logitless.torch import linear_cross_entropy
from logitless.transformers import compute_loss_func, patch, unpatch

RANKS = 2
# Imported before the ranks are forked. Tests of TRL's own head are left out without TRL.
if importlib.util.find_spec("trl"):
    from trl.trainer import utils as of_trl

    from logitless._trl_head import TrlHead
else:
    of_trl = None


def inputs_of(rank):
    ids, labels = batch()
    ids, labels = ids[:, :16].roll(rank, 1), labels[:, :16].clone()
    labels[rank:, : 6 * rank] = -100  # the ranks have different numbers of labels
    return dict(input_ids=ids, labels=labels)


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()


def gradients(model):
    of_fsdp1 = isinstance(model, FullyShardedDataParallel) and model._use_orig_params
    gathered = contextlib.nullcontext()
    if of_fsdp1:
        gathered = FullyShardedDataParallel.summon_full_params(model, with_grads=True)
    with gathered:
        names = {name.replace("_fsdp_wrapped_module.", ""): p for name, p in model.named_parameters()}
        return {name.removeprefix("module."): full(p.grad) for name, p in names.items() if p.grad is not None}


def outcomes(model, inputs, steps=2):
    """Losses and gradients of some steps."""
    results = []
    for _ in range(steps):
        model.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        results.append((full(loss.detach()), gradients(model)))
    return results


def mean(results):
    """The mean over ranks of gradients."""
    return {name: sum(grads[name] for _, grads in results) / len(results) for name in results[0][1]}


def expect(got, loss, grads, bound=2e-5, what=""):
    for found, of_names in got:
        torch.testing.assert_close(found, loss, atol=bound, rtol=bound, msg=lambda text: f"{what}: {text}")
        assert of_names.keys() == grads.keys(), what
        for name, grad in of_names.items():
            difference, size = (grad - grads[name]).norm(), grads[name].norm()
            assert difference <= bound * size, (what, name, difference, size)


def unit_of_all(model, **options):
    return fully_shard(model, reshard_after_forward=True, **options)


def units(model, head, **options):
    """FSDP2 with a unit for each layer, and for the head or the norm and the head."""
    for layer in model.model.layers:
        fully_shard(layer, **options)
    fully_shard([model.model.norm, model.lm_head] if head == "norm and head" else model.lm_head, **options)
    return fully_shard(model, **options)


def fsdp1(model, heads=True, **options):
    modules = {*model.model.layers, *([model.lm_head] if heads else [])}
    options |= dict(auto_wrap_policy=CustomPolicy(lambda module: module in modules), device_id=torch.device("cpu"))
    return FullyShardedDataParallel(model, **options)


def ddp(model, **options):
    return torch.nn.parallel.DistributedDataParallel(model, **options)


# The batch is split: each rank has its own tokens, and the gradients are averaged.
OF_BATCHES = {
    "FSDP2": ("llama", unit_of_all),
    "FSDP2, tied": ("tied llama", unit_of_all),
    "FSDP2, a softcap": ("gemma2", unit_of_all),
    "FSDP2, the head is a unit": ("llama", functools.partial(units, head="head")),
    "FSDP2, norm and head are a unit": (
        "llama",
        functools.partial(units, head="norm and head", reshard_after_forward=False),
    ),
    "FSDP1": ("tied llama", functools.partial(fsdp1, heads=False, use_orig_params=True)),
    "FSDP1, the head is a unit": ("llama", functools.partial(fsdp1, use_orig_params=True)),
    "DDP": ("llama", functools.partial(ddp, static_graph=True)),
    "DDP, unused parameters": ("llama", functools.partial(ddp, find_unused_parameters=True)),
}


def of_batches(rank, plain):
    for what, (name, split) in OF_BATCHES.items():
        want = plain[name]
        model = split(patch(model_of(name)))
        expect(outcomes(model, inputs_of(rank)), want[rank][0], mean(want), what=what)
    # After the model was split, and without the patch again.
    model = patch(units(model_of("llama"), "head"))
    want = plain["llama"]
    expect(outcomes(model, inputs_of(rank)), want[rank][0], mean(want), what="patch() after fully_shard()")
    assert isinstance(unpatch(model), torch.distributed.fsdp.FSDPModule)
    expect(outcomes(model, inputs_of(rank)), want[rank][0], mean(want), what="unpatch()")
    model = unpatch(unit_of_all(patch(model_of("llama"))))
    expect(outcomes(model, inputs_of(rank)), want[rank][0], mean(want), what="unpatch() after fully_shard()")
    assert model(**inputs_of(rank)).logits.requires_grad


class WithLoss(torch.nn.Module):
    """A training loop of one's own: the loss is computed in the forward of a unit that has the head."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        hidden = self.model.model(input_ids).last_hidden_state
        loss = linear_cross_entropy(hidden, self.model.lm_head.weight, labels, shift=True)
        return transformers.utils.ModelOutput(loss=loss)


def of_tensors(rank, plain):
    """linear_cross_entropy() on the weight of a sharded head."""
    want = plain["llama"]
    model = unit_of_all(WithLoss(model_of("llama")))
    grads = {f"model.{name}": grad for name, grad in mean(want).items()}
    expect(outcomes(model, inputs_of(rank)), want[rank][0], grads, what="linear_cross_entropy()")


def of_flat_parameters(rank):
    """FSDP1 with use_orig_params=False, and bfloat16: compared with the same without patch()."""
    for what, split, bound in (
        ("FSDP1 with flat parameters", functools.partial(fsdp1, use_orig_params=False), 2e-5),
        # 2^-8 is the rounding of each logit, which only the plain head makes.
        ("bfloat16", functools.partial(units, head="head", mp_policy=MixedPrecisionPolicy(torch.bfloat16)), 2e-2),
    ):
        want = outcomes(split(model_of("llama")), inputs_of(rank), steps=1)[0]
        expect(outcomes(split(patch(model_of("llama"))), inputs_of(rank)), *want, bound=bound, what=what)


def accumulated(rank, plain):
    """Two micro-batches, the first one in no_sync(), each divided by the labels of the step per rank."""
    want = plain["accumulated"]
    model = ddp(patch(model_of("llama")))
    items = torch.tensor(want["items"] / RANKS)
    with model.no_sync():
        model(**inputs_of(rank), num_items_in_batch=items).loss.backward()
    model(**inputs_of(1 - rank), num_items_in_batch=items).loss.backward()
    expect([(want["loss"], gradients(model))], want["loss"], want["gradients"], what="no_sync()")


def of_rows(rank, plain):
    """Each rank computes the loss of its part of every sequence, as with sequence and context parallelism:
    labels are shifted before they are cut, and the sum is divided by the labels of all ranks."""
    inputs = inputs_of(0)
    shifted = torch.nn.functional.pad(inputs["labels"], (0, 1), value=-100)[:, 1:]
    part = slice(0, 11) if rank == 0 else slice(11, 16)
    model = ddp(patch(model_of("llama")))
    items = (shifted != -100).sum() / RANKS
    loss = model(
        input_ids=inputs["input_ids"],
        labels=shifted[:, part],
        shift_labels=shifted[:, part].contiguous(),
        logits_to_keep=torch.arange(16)[part],
        num_items_in_batch=items,
    ).loss
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    expect([(total / RANKS, gradients(model))], *plain["llama"][0], what="rows")


def tensor_parallel(model, **head):
    return parallelize_module(model, init_device_mesh("cpu", (RANKS,)), {"lm_head": ColwiseParallel(**head)})


def sequence_parallel(model):
    mesh = init_device_mesh("cpu", (RANKS,))
    cut = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1), use_local_output=True)
    for plan in ({"model.norm": cut}, {"model.norm": SequenceParallel(use_local_output=True)}):
        parallelize_module(model, mesh, plan)
    return tensor_parallel(model, input_layouts=Shard(1), output_layouts=Replicate())


def in_two_axes(model):
    mesh = init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"lm_head": ColwiseParallel()})
    return fully_shard(model, mesh=mesh["data"])


def by_transformers(model):
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    style, mesh = ALL_PARALLEL_STYLES["colwise_gather_output"], init_device_mesh("cpu", (RANKS,))
    style.shard_param(model.lm_head, "weight", mesh)
    style.install_forward(model.lm_head, mesh)
    return model


# The vocabulary is split: the ranks have the same tokens. 97 entries are 49 and 48.
OF_VOCABULARIES = {
    "tensor parallel": ("llama", functools.partial(tensor_parallel, output_layouts=Replicate())),
    "tensor parallel, logits split": ("granite", functools.partial(tensor_parallel, use_local_output=False)),
    "sequence parallel": ("llama", sequence_parallel),
    "tensor parallel in FSDP2": ("llama", in_two_axes),
    "tensor parallel of transformers": ("llama", by_transformers),
}


def of_vocabularies(plain):
    for what, (name, split) in OF_VOCABULARIES.items():
        for order in (lambda m: split(patch(m)), lambda m: patch(split(m))):  # noqa: B023
            expect(outcomes(order(model_of(name)), inputs_of(0), steps=1), *plain[name][0], what=what)


def error_of(call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error)
    raise AssertionError("nothing was raised")


def refused(rank):
    inputs = inputs_of(rank)
    row = parallelize_module(
        model_of("llama"), init_device_mesh("cpu", (RANKS,)), {"lm_head": RowwiseParallel(input_layouts=Replicate())}
    )
    assert "the head's input is a DTensor with placements (Shard(dim=2),)" in error_of(lambda: patch(row)(**inputs))
    both = in_two_axes(model_of("llama"))
    fully_shard(both.lm_head, mesh=init_device_mesh("cpu", (1, RANKS), mesh_dim_names=("data", "tensor"))["data"])
    assert "the head is tensor parallel and an FSDP unit of its own" in error_of(lambda: patch(both))
    lora = peft.LoraConfig(r=2, target_modules=["lm_head"])
    adapted = peft.get_peft_model(patch(model_of("llama")), lora)
    fully_shard(adapted.get_base_model().lm_head.base_layer)
    assert "make the whole head one FSDP unit" in error_of(lambda: fully_shard(adapted)(**inputs))
    for split in (unit_of_all, functools.partial(units, head="head")):
        model = split(patch(model_of("llama"))).eval()
        with torch.no_grad():
            logits = model(**inputs).logits
        for read in (lambda: logits.argmax(-1), lambda: logits + 1):  # noqa: B023
            assert "whole only while the model's forward runs: patch(model, return" in error_of(read)
    model = units(patch(model_of("llama"), return_logits=True), "head").eval()
    want = model_of("llama").eval()(**inputs).logits
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, want, atol=1e-4, rtol=1e-4)


def of_a_loss_function(rank, plain):
    """compute_loss_func() computes the loss after the model's call. A sharded head is then not whole."""
    for split, of_labels, fused in (
        (lambda model: units(model, "head"), inputs_of(rank), False),
        (unit_of_all, inputs_of(rank), False),
        (tensor_parallel, inputs_of(0), True),
    ):
        model = split(patch(model_of("llama")))
        function = compute_loss_func(model)
        labels = of_labels.pop("labels")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            output = model(**of_labels)
        assert isinstance(output.logits, LogitsOnRead) == fused
        assert any("shards the head, which is whole only during this call" in str(w.message) for w in told) != fused
        loss = function(output, labels)
        loss.backward()
        want = plain["llama"]
        of_all = want[0][1] if fused else mean(want)
        expect([(loss.detach(), gradients(model))], want[0 if fused else rank][0], of_all, what="compute_loss_func()")


def of_trls_head(rank):
    """TRL's own head and the one that replaces it, in the forward of models split as accelerate splits them."""
    if not hasattr(of_trl, "add_fused_lm_head"):
        return
    for split in (functools.partial(units, head="norm and head"), ddp):
        results = []
        for fused in (False, True):
            model = model_of("llama")
            of_trl.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
            if fused:
                TrlHead(None, {"model": model}).patch()
            model = split(model)
            not_called = mock.patch.object(of_trl, "_ChunkedLogProbFunction", None)
            with not_called if fused else contextlib.nullcontext():
                output = model(**inputs_of(rank), fused_lm_head=True)
            (output.loss + output.entropy.mean()).backward()
            results.append((output.loss.detach(), gradients(model)))
        expect(results[1:], *results[0], what=f"TRL's head, {split}")


def of_lazy_logits(rank, plain):
    """A loss outside the model's call reads logits of a sharded or tensor parallel head: they are computed, with one
    warning."""
    inputs = inputs_of(rank)
    for split in (functools.partial(units, head="head"), unit_of_all):
        model = model_of("llama")
        read_lazily(model)
        model = split(model)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                model.zero_grad()
                logits = model(input_ids=inputs["input_ids"]).logits
                labels = inputs["labels"][:, 1:].flatten()
                loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels)
                loss.backward()
        told = [str(w.message) for w in told if "logitless" in str(w.message)]
        assert len(told) == 1 and told[0].startswith("logitless: FSDP shards the head,")
        want = plain["llama"]
        expect([(loss.detach(), gradients(model))], want[rank][0], mean(want), what="LazyLogits")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read_lazily(by_transformers(model_of("llama")))
    assert [str(w.message).startswith("logitless: the head is tensor parallel:") for w in told] == [True]


def plain_results():
    plain = {}
    for name in ("llama", "tied llama", "gemma2", "granite"):
        model = model_of(name)
        plain[name] = [outcomes(model, inputs_of(rank), steps=1)[0] for rank in range(RANKS)]
    labels = [int((inputs_of(rank)["labels"][:, 1:] != -100).sum()) for rank in range(RANKS)]
    items = 2 * sum(labels)
    grads = {
        name: 2 * sum(n * plain["llama"][rank][1][name] for rank, n in enumerate(labels)) / items
        for name in plain["llama"][0][1]
    }
    plain["accumulated"] = dict(items=items, loss=torch.tensor(0.0), gradients=grads)
    return plain


def run_rank(rank, folder, plain):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    of_batches(rank, plain)
    of_tensors(rank, plain)
    of_flat_parameters(rank)
    accumulated(rank, plain)
    of_rows(rank, plain)
    of_vocabularies(plain)
    of_a_loss_function(rank, plain)
    of_trls_head(rank)
    of_lazy_logits(rank, plain)
    refused(rank)
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    plain = plain_results()
    with tempfile.TemporaryDirectory() as folder:
        # fork: the ranks share what was imported. With one thread PyTorch has started none.
        mp.start_processes(run_rank, (folder, plain), nprocs=RANKS, start_method="fork")
    print("ranks have the gradients of plain models")


if __name__ == "__main__":
    sys.exit(main())
