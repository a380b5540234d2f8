# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Messages of logitless.torch for groups that it cannot use, in a single process. test_torch_ranks.py tests
groups of several ranks."""

import pytest
from torch_cases import torch

import torch.distributed as dist  # noqa: E402

from logitless.packed import PackedWeight  # noqa: E402
from test_torch_settings import B, H, T, V, callers  # noqa: E402

HIDDEN, WEIGHT = torch.randn(B, T, H), torch.randn(V, H)
PACKED = PackedWeight(torch.ones(V, H, dtype=torch.int8), "int8", torch.ones(V, 1))
WITHOUT_GROUPS = {"module", "class probabilities", "id_logps of sets none"}
CALLS = {name: call for name, call in callers().items() if name not in WITHOUT_GROUPS}


def refused(error, message, group):
    for name, call in CALLS.items():
        for head in (WEIGHT, PACKED):
            with pytest.raises(error, match=message):
                call(HIDDEN, head, group=group)
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
        torch.manual_seed(0)
        alone = call(HIDDEN, WEIGHT)
        for given in (group, mesh.get_group(), part):
            torch.manual_seed(0)
            torch.testing.assert_close(call(HIDDEN, WEIGHT, group=given), alone, rtol=0, atol=0)
    dist.destroy_process_group(part)
    dist.destroy_process_group(unseen)
    for destroyed in (part, unseen):
        refused(ValueError, "^group is not registered with torch.distributed: it was destroyed$", destroyed)
    dist.destroy_process_group()
    refused(ValueError, "^group is not registered with torch.distributed: it was destroyed$", group)


def test_a_group_that_exchanges_no_tensors_on_the_cpu(world):
    refused(ValueError, "^group has the backends cuda:gloo, none of them for CPU tensors", world("cuda:gloo"))
