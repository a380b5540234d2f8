# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Messages of logitless.torch for groups that it cannot use, in a single process. test_torch_ranks.py tests
groups of several ranks."""

import pytest
from torch_cases import torch

import torch.distributed as dist  # noqa: E402

from logitless.packed import PackedWeight  # noqa: E402
from logitless.torch import (  # noqa: E402
    distillation_loss,
    id_logps,
    kto_loss,
    linear_cross_entropy,
    policy_loss,
    preference_loss,
    set_distillation_loss,
    soft_cross_entropy,
    token_logps,
    topk_logps,
)

HIDDEN, WEIGHT, TARGET = torch.randn(2, 3, 4), torch.randn(5, 4), torch.tensor([[0, 1, 2], [2, 3, 4]])
CALLS = {
    "linear_cross_entropy": lambda w, g: linear_cross_entropy(HIDDEN, w, TARGET, group=g),
    "token_logps": lambda w, g: token_logps(HIDDEN, w, TARGET, group=g),
    "topk_logps": lambda w, g: topk_logps(HIDDEN, w, 2, group=g),
    "id_logps": lambda w, g: id_logps(HIDDEN, w, TARGET[..., None], group=g),
    "soft_cross_entropy": lambda w, g: soft_cross_entropy(HIDDEN, w, torch.full((2, 3, 5), 0.2), group=g),
    "set_distillation_loss": lambda w, g: set_distillation_loss(
        HIDDEN, w, TARGET[..., None], -torch.ones(2, 3, 1), group=g
    ),
    "distillation_loss": lambda w, g: distillation_loss(HIDDEN, w, HIDDEN, w, group=g),
    "policy_loss": lambda w, g: policy_loss(HIDDEN, w, TARGET, torch.ones(2), group=g),
    "preference_loss": lambda w, g: preference_loss(HIDDEN, w, TARGET, ref_logps=-torch.ones(2), group=g),
    "kto_loss": lambda w, g: kto_loss(HIDDEN, w, TARGET, torch.tensor([1, 0]), ref_logps=-torch.ones(2), group=g),
}
PACKED = PackedWeight(torch.ones(5, 4, dtype=torch.int8), "int8", torch.ones(5, 1))
HEADS = {"matrix": WEIGHT, "packed": PACKED}


def refused(error, message, group):
    for name, call in CALLS.items():
        for head in HEADS.values():
            with pytest.raises(error, match=message):
                call(head, group)
                pytest.fail(f"{name} took {group}")


@pytest.fixture
def world(tmp_path):
    def init(backend):
        dist.init_process_group(backend, init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
        return dist.group.WORLD

    yield init
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_process_outside_of_the_group(world):
    refused(ValueError, "^group is NON_GROUP_MEMBER: this process is not in", dist.GroupMember.NON_GROUP_MEMBER)
    world("gloo")
    refused(ValueError, "^group is NON_GROUP_MEMBER: this process is not in", dist.GroupMember.NON_GROUP_MEMBER)


@pytest.mark.parametrize("group", ["gloo", 7, object(), dist.group], ids=lambda g: type(g).__name__)
def test_what_is_no_group(group):
    refused(TypeError, f"^group must be a process group of torch.distributed, not {type(group).__name__}$", group)


def test_groups_of_one_process(world):
    group = world("gloo")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    refused(TypeError, r"not DeviceMesh: for a mesh of one axis, give mesh.get_group\(\)$", mesh)
    part, unseen = dist.new_group([0]), dist.new_group([0])
    for call in CALLS.values():
        alone = call(WEIGHT, None)
        for given in (group, mesh.get_group(), part):
            torch.testing.assert_close(call(WEIGHT, given), alone, rtol=0, atol=0)
    dist.destroy_process_group(part)
    dist.destroy_process_group(unseen)
    for destroyed in (part, unseen):
        refused(ValueError, "^group is not registered with torch.distributed: it was destroyed$", destroyed)
    dist.destroy_process_group()
    refused(ValueError, "^group is not registered with torch.distributed: it was destroyed$", group)


def test_a_group_that_exchanges_no_tensors_on_the_cpu(world):
    refused(ValueError, "^group has the backends cuda:gloo, none of them for CPU tensors", world("cuda:gloo"))
