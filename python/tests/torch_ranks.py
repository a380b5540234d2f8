# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Four gloo processes share a vocabulary, and are compared with one process that has all of it.
test_torch_ranks.py runs this program."""

import os
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from logitless.packed import PackedWeight
from logitless.torch import (
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_options,
    token_logps,
    topk_logps,
)

RANKS, B, T, H, V = 4, 4, 6, 16, 403
CUT = [110, 0, 93, 200]  # vocabulary entries per rank


def tensors(dtype=torch.float32):
    torch.manual_seed(0)
    x, w, b = torch.randn(B, T, H), torch.randn(V, H) / 4, torch.randn(V)
    y = torch.randint(0, V, (B, T))
    y[:, 0] = -100
    return x.to(dtype), w.to(dtype), b.to(dtype), y


def own(tensor, rank):
    return tensor[sum(CUT[:rank]) : sum(CUT[: rank + 1])] if rank is not None else tensor


def losses(y):
    """{name: function of (hidden states, weight, bias, group)}."""
    classes = torch.linspace(0.5, 1.5, V)
    flat, chosen = y.flatten(), y.clamp(min=0)
    return {
        "mean": lambda x, w, b, g: linear_cross_entropy(
            x.view(-1, H),
            w,
            flat,
            linear_bias=b,
            weight=classes,
            label_smoothing=0.1,
            z_loss=0.01,
            softcap=20.0,
            group=g,
        ),
        "none": lambda x, w, b, g: (
            linear_cross_entropy(x.view(-1, H), w, flat, linear_bias=b, reduction="none", group=g)
            * torch.arange(B * T)
        ).sum(),
        "logps": lambda x, w, b, g: sum(
            (column * torch.arange(1, B * T + 1).view(B, T)).sum()
            for column in token_logps(x, w, y, bias=b, entropy=True, group=g)
        ),
        "policy": lambda x, w, b, g: policy_loss(
            x,
            w,
            chosen,
            torch.tensor([1.0, -1, 2, 0.5]),
            bias=b,
            loss_type="grpo",
            entropy_bonus=0.1,
            group=g,
        ),
    }


def results(rank, group):
    out = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x, w, b, y = tensors(dtype)
        for name, function in losses(y).items():
            inputs = [t.clone().requires_grad_() for t in (x, own(w, rank), own(b, rank))]
            loss = function(*inputs, group)
            loss.backward()
            out[f"{name} {dtype}"] = [loss.detach(), *(t.grad for t in inputs)]
        # k is larger than some ranks' slices, one of which is empty.
        ids, logps = topk_logps(x, own(w, rank), 120, bias=own(b, rank), group=group)
        assert ids.shape == logps.shape == (B, T, 120)
        alone = topk_logps(x, w, 120, bias=b)
        torch.testing.assert_close(logps, alone[1], atol=1e-5, rtol=1e-5)
        if dtype == torch.float64:
            assert torch.equal(ids, alone[0])
    return out


def dtensor_head(rank):
    """A head that PyTorch shards evenly needs no group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    x, w, _, y = tensors()
    weight = distribute_tensor(w[:400], mesh, [Shard(0)]).requires_grad_()
    y = y.clamp(max=399).flatten()
    loss = linear_cross_entropy(x.view(-1, H), weight, y)
    loss.backward()
    plain = w[:400].clone().requires_grad_()
    want = torch.nn.functional.linear_cross_entropy(x.view(-1, H), plain, y)
    want.backward()
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(weight.grad.full_tensor(), plain.grad)
    try:
        linear_cross_entropy(x.view(-1, H), distribute_tensor(w[:400], mesh, [Replicate()]), y)
    except ValueError as error:
        assert "linear_weight is a DTensor with placements" in str(error), error
    else:
        raise AssertionError("a replicated head was taken")


def mistake(rank, group):
    """A wrong target on one rank ends the call on all ranks."""
    x, w, _, y = tensors()
    y = y.flatten()
    if rank == 2:
        y[3] = V
    try:
        linear_cross_entropy(x.view(-1, H), own(w, rank), y, group=group)
    except IndexError as error:
        assert rank == 2 and "target[3] = 403" in str(error)
    except RuntimeError as error:
        assert rank != 2 and str(error).startswith("rank 2 of ranks.vocab: targets[3] = 403"), error
    else:
        raise AssertionError("nothing was raised")


def another_option(rank, group):
    """A different option on one rank, for each loss, and different hidden states end the call on all ranks."""
    x, w, _, y = tensors()
    sums, labels = torch.tensor([-18.0, -20, -19, -17]), torch.tensor([1, 0, 0, 1])
    advantages = torch.tensor([1.0, -1, 2, 0.5])
    calls = {
        "reduction = {mean|sum}": lambda v: linear_cross_entropy(
            x.view(-1, H), own(w, rank), y.flatten(), reduction=v, group=group
        ),
        "z_loss = {0|0.3}": lambda v: linear_cross_entropy(
            x.view(-1, H), own(w, rank), y.flatten(), z_loss=float(v), group=group
        ),
        "loss_type = {grpo|bnpo}": lambda v: policy_loss(
            x, own(w, rank), y.clamp(min=0), advantages, loss_type=v, group=group
        ),
        "beta = {0.1|0.2}": lambda v: preference_loss(
            x, own(w, rank), y, beta=float(v), ref_logps=sums, group=group
        ),
        "desirable_weight = {1|2}": lambda v: kto_loss(
            x, own(w, rank), y, labels, desirable_weight=float(v), ref_logps=sums, group=group
        ),
        "temperature = {1|2}": lambda v: token_logps(x, own(w, rank), y, temperature=float(v), group=group),
    }
    for text, call in calls.items():
        name, values = text.rstrip("}").split(" = {")
        values = values.split("|")
        try:
            call(values[rank == 2])
        except RuntimeError as error:
            want = f"{name} must be the same on all ranks of ranks.vocab: "
            want += f"rank 0 has {values[0]} where rank 2 has {values[1]}"
            assert str(error).endswith(want), (str(error), want)
        else:
            raise AssertionError(f"nothing was raised for {text}")
    try:
        linear_cross_entropy(x.view(-1, H) + (rank == 2), own(w, rank), y.flatten(), group=group)
    except RuntimeError as error:
        assert str(error).endswith("the values of rank 0 and rank 2 differ") and "hidden must be" in str(error), error
    else:
        raise AssertionError("hidden states differ, and nothing was raised")


def two_threads(rank, group):
    """Two threads that use one group take turns. All calls are equal, so their order does not matter."""
    x, w, _, y = tensors()
    want = linear_cross_entropy(x.view(-1, H), own(w, rank), y.flatten(), group=group)
    found = []

    def calls():
        for _ in range(20):
            found.append(linear_cross_entropy(x.view(-1, H), own(w, rank), y.flatten(), group=group))

    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40 and all(torch.equal(loss, want) for loss in found)


def nothing_on_a_rank(rank, group):
    """A rank without vocabulary entries, and hidden states with one column, so that strides are arbitrary."""
    x, w, _, y = tensors()
    x, w = x[..., :1].contiguous(), w[:, :1]
    part = own(w, rank).clone().requires_grad_()
    loss = linear_cross_entropy(x.view(-1, 1), part, y.flatten(), group=group)
    loss.backward()
    want = torch.nn.functional.cross_entropy(x.view(-1, 1) @ w.T, y.flatten())
    torch.testing.assert_close(loss, want)
    assert part.grad.shape == part.shape


def packed_and_chosen(rank, group):
    """A packed head, and vocab_ids that select entries of each rank's slice."""
    x, w, b, y = tensors()
    scales = (w.abs().amax(1, keepdim=True) / 127).numpy()
    integers = (w / scales).round().to(torch.int8).numpy()
    packed = PackedWeight(own(integers, rank), "int8", own(scales, rank))
    y = y.flatten()

    def outcome(weight, bias, targets, **more):
        inputs = [x.view(-1, H).clone().requires_grad_(), weight, bias.clone().requires_grad_()]
        if isinstance(weight, torch.Tensor):
            inputs[1] = weight.clone().requires_grad_()
        loss = linear_cross_entropy(inputs[0], inputs[1], targets, linear_bias=inputs[2], **more)
        loss.backward()
        return [loss.detach(), *(t.grad for t in inputs if isinstance(t, torch.Tensor))]

    got = outcome(packed, own(b, rank), y, group=group)
    want = outcome(PackedWeight(integers, "int8", scales), b, y)
    for one, other in zip(got, [want[0], want[1], own(want[2], rank)]):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    part = [w[100 * r : 100 * r + 90] for r in range(RANKS)]
    chosen = [torch.arange(r + 1, 90, 9) for r in range(RANKS)]
    whole = torch.cat([100 * r + ids for r, ids in enumerate(chosen)])
    got = outcome(part[rank], b[100 * rank : 100 * rank + 90], y % len(whole), vocab_ids=chosen[rank], group=group)
    want = outcome(w, b, y % len(whole), vocab_ids=whole)
    mine = slice(100 * rank, 100 * rank + 90)
    for one, other in zip(got, [want[0], want[1], want[2][mine], want[3][mine]]):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    group = dist.group.WORLD
    out = results(rank, group)
    mistake(rank, group)
    another_option(rank, group)
    two_threads(rank, group)
    nothing_on_a_rank(rank, group)
    packed_and_chosen(rank, group)
    dtensor_head(rank)
    torch.save(out, os.path.join(folder, f"{rank}.pt"))
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (folder,), nprocs=RANKS)
        ranks = [torch.load(os.path.join(folder, f"{rank}.pt")) for rank in range(RANKS)]
    set_options(slices=CUT)
    for name, (loss, d_input, d_weight, d_bias) in results(None, None).items():
        for out in ranks:
            assert torch.equal(out[name][0], loss) and torch.equal(out[name][1], d_input), name
        for k, whole in ((2, d_weight), (3, d_bias)):
            assert torch.equal(torch.cat([out[name][k] for out in ranks]), whole), name
    print("ranks have the bits of one process")


if __name__ == "__main__":
    sys.exit(main())
