# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Three gloo processes share a vocabulary, and are compared with one process that has all of it.
test_torch_ranks.py runs this program."""

import os
import sys
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from logitless._torch_versions import linear_cross_entropy as of_pytorch
from logitless.packed import PackedWeight
from logitless.torch import (
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    sample,
    set_options,
    token_logps,
    topk_logps,
)

RANKS, B, T, H, V = 3, 4, 6, 16, 403
CUT = [203, 0, 200]  # vocabulary entries per rank


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
    flat, chosen = y.flatten(), y.clamp(min=0)
    more = dict(weight=torch.linspace(0.5, 1.5, V), label_smoothing=0.1, z_loss=0.01, softcap=20.0)

    def per_token(x, w, b, g):
        each = linear_cross_entropy(x.view(-1, H), w, flat, linear_bias=b, reduction="none", group=g)
        columns = token_logps(x, w, y, bias=b, entropy=True, lse=True, square_sum=True, group=g)
        return sum((column.flatten() * torch.arange(1, B * T + 1)).sum() for column in (each, *columns))

    def policy(x, w, b, g):
        return policy_loss(x, w, chosen, torch.tensor([1.0, -1, 2, 0.5]), bias=b, entropy_bonus=0.1, group=g)

    return {
        "mean": lambda x, w, b, g: linear_cross_entropy(x.view(-1, H), w, flat, linear_bias=b, **more, group=g),
        "per token": per_token,
        "policy": policy,
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
        ids, logps = topk_logps(x, own(w, rank), 220, bias=own(b, rank), group=group)
        alone = topk_logps(x, w, 220, bias=b)
        torch.testing.assert_close(logps, alone[1], atol=1e-5, rtol=1e-5)
        assert dtype != torch.float64 or torch.equal(ids, alone[0])
        for more in ({}, {"top_k": 30, "top_p": 0.8}):
            ids, logps = sample(x, own(w, rank), 4, seed=7, bias=own(b, rank), group=group, **more)
            alone = sample(x, w, 4, seed=7, bias=b, **more)
            assert dtype != torch.float64 or torch.equal(ids, alone[0])
            torch.testing.assert_close(logps[ids == alone[0]], alone[1][ids == alone[0]], atol=1e-5, rtol=1e-5)
    return out


def dtensor_head():
    """A head that PyTorch shards evenly needs no group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    x, w, _, y = tensors()
    x, w, y = x.view(-1, H), w[:399], y.clamp(max=398).flatten()
    weight = distribute_tensor(w, mesh, [Shard(0)]).requires_grad_()
    loss = linear_cross_entropy(x, weight, y)
    loss.backward()
    plain = w.clone().requires_grad_()
    want = of_pytorch(x, plain, y)
    want.backward()
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(weight.grad.full_tensor(), plain.grad)
    error = error_of(lambda: linear_cross_entropy(x, distribute_tensor(w, mesh, [Replicate()]), y))
    assert "linear_weight is a DTensor with placements" in str(error), error


def error_of(call):
    try:
        call()
    except (ValueError, RuntimeError, IndexError) as error:
        return error
    raise AssertionError("nothing was raised")


def mistakes(rank, group):
    """A wrong target, other hidden states, and a different option on one rank end the call on all ranks."""
    x, w, _, y = tensors()
    part, flat, states = own(w, rank), y.flatten(), x.view(-1, H)
    wrong = flat.index_fill(0, torch.tensor(3), V if rank == 2 else 1)
    error = error_of(lambda: linear_cross_entropy(states, part, wrong, group=group))
    if rank == 2:
        assert isinstance(error, IndexError) and "target[3] = 403" in str(error), error
    else:
        assert str(error).startswith("rank 2 of ranks.vocab: targets[3] = 403"), error
    error = error_of(lambda: linear_cross_entropy(states + (rank == 2), part, flat, group=group))
    assert str(error).endswith("the values of rank 0 and rank 2 differ") and "hidden must be" in str(error), error
    sums, labels = torch.tensor([-18.0, -20, -19, -17]), torch.tensor([1, 0, 0, 1])
    for text, call in {
        "z_loss = {0|0.3}": lambda **v: linear_cross_entropy(states, part, flat, group=group, **v),
        "entropy_bonus = {0.1|0.2}": lambda **v: policy_loss(x, part, y.clamp(min=0), torch.ones(B), group=group, **v),
        "beta = {0.1|0.2}": lambda **v: preference_loss(x, part, y, ref_logps=sums, group=group, **v),
        "desirable_weight = {1|2}": lambda **v: kto_loss(x, part, y, labels, ref_logps=sums, group=group, **v),
        "temperature = {1|2}": lambda **v: token_logps(x, part, y, group=group, **v),
    }.items():
        name, values = text.rstrip("}").split(" = {")
        values = values.split("|")
        error = error_of(lambda: call(**{name: float(values[rank == 2])}))  # noqa: B023
        want = f"{name} must be the same on all ranks of ranks.vocab: "
        want += f"rank 0 has {values[0]} where rank 2 has {values[1]}"
        assert str(error).endswith(want), (str(error), want)


def two_threads(rank, group):
    """Two threads that use one group take turns. All calls are equal, so their order does not matter."""
    x, w, _, y = tensors()
    given, found = (x.view(-1, H), own(w, rank), y.flatten()), []
    want = linear_cross_entropy(*given, group=group)

    def calls():
        found.extend(linear_cross_entropy(*given, group=group) for _ in range(20))

    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40 and all(torch.equal(loss, want) for loss in found)


def packed_and_chosen(rank, group):
    """A packed head, and vocab_ids that select entries of each rank's slice."""
    x, w, b, y = tensors()
    scales = (w.abs().amax(1, keepdim=True) / 127).numpy()
    integers = (w / scales).round().to(torch.int8).numpy()
    y = y.flatten()

    def outcome(weight, bias, targets, **more):
        inputs = [x.view(-1, H).clone().requires_grad_(), weight, bias.clone().requires_grad_()]
        if isinstance(weight, torch.Tensor):
            inputs[1] = weight.clone().requires_grad_()
        loss = linear_cross_entropy(inputs[0], inputs[1], targets, linear_bias=inputs[2], **more)
        loss.backward()
        return [loss.detach(), *(t.grad for t in inputs if isinstance(t, torch.Tensor))]

    packed = PackedWeight(own(integers, rank), "int8", own(scales, rank))
    got = outcome(packed, own(b, rank), y, group=group)
    loss, d_hidden, d_bias = outcome(PackedWeight(integers, "int8", scales), b, y)
    torch.testing.assert_close(got, [loss, d_hidden, own(d_bias, rank)], atol=1e-5, rtol=1e-5)
    chosen = [torch.arange(r + 1, 90, 9) for r in range(RANKS)]
    whole = torch.cat([100 * r + ids for r, ids in enumerate(chosen)])
    mine = slice(100 * rank, 100 * rank + 90)
    got = outcome(w[mine], b[mine], y % len(whole), vocab_ids=chosen[rank], group=group)
    loss, d_hidden, d_weight, d_bias = outcome(w, b, y % len(whole), vocab_ids=whole)
    torch.testing.assert_close(got, [loss, d_hidden, d_weight[mine], d_bias[mine]], atol=1e-5, rtol=1e-5)


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    group = dist.group.WORLD
    out = results(rank, group)
    mistakes(rank, group)
    two_threads(rank, group)
    packed_and_chosen(rank, group)
    dtensor_head()
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
