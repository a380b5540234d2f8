# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads whose vocabulary entries are split over the ranks of a torch.distributed group."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import Context
from ._torch_call import Settings, current_settings

# PyTorch 2.13 deprecates all_gather_into_tensor for all_gather_single.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def check_group(group: Any) -> None:
    """Raises unless this process is in the group and the group can exchange CPU tensors."""
    if group is None:
        return
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            "group is NON_GROUP_MEMBER: this process is not in the group, and only processes that are make the call"
        )
    if not isinstance(group, dist.ProcessGroup):
        mesh = ": for a mesh of one axis, give mesh.get_group()" if hasattr(group, "get_group") else ""
        raise TypeError(f"group must be a process group of torch.distributed, not {type(group).__name__}{mesh}")
    try:
        backends = dist.get_backend_config(group)
    except (KeyError, TypeError, ValueError):
        raise ValueError("group is not registered with torch.distributed: it was destroyed") from None
    if "cpu:" not in backends:
        raise ValueError(
            f"group has the backends {backends}, none of them for CPU tensors: use gloo or cpu:gloo,cuda:nccl"
        )


class GroupCommunicator:
    """A communicator for logitless.Context that uses a process group, such as gloo's."""

    def __init__(self, group: Any) -> None:
        self._group = weakref.ref(group)  # weak: the group's contexts are dropped with the group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def all_gather(self, mine: Any, all: Any) -> None:
        _all_gather(torch.from_numpy(all), torch.from_numpy(mine), group=self._group())

    def all_to_all(self, mine: Any, theirs: Any) -> None:
        dist.all_to_all_single(torch.from_numpy(theirs), torch.from_numpy(mine), group=self._group())


_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_lock_of_tables = threading.Lock()


def context_of(group: Any, settings: Settings) -> Context:
    """The context in which a group's calls run."""
    if settings.given is not None and settings.options["vocab_ranks"] is not None:
        raise ValueError("context has vocab_ranks, and group is given: give one of them")
    threads = torch.get_num_threads()
    with _lock_of_tables:
        contexts = settings.of_groups.setdefault(group, {})
        if threads not in contexts:
            given = {"threads": threads, **settings.options, "vocab_ranks": GroupCommunicator(group)}
            contexts[threads] = Context(**given)
        return contexts[threads]


def lock_of(group: Any) -> threading.Lock:
    """The lock that a group's calls hold: if two threads use a group at once, the process ends."""
    with _lock_of_tables:
        return _locks.setdefault(group, threading.Lock())


class Runner(NamedTuple):
    """Runs both halves of one call with the settings of the forward."""

    settings: Settings
    group: Any

    def __call__(self, function: Any, *arguments: Any, frozen: bool = False) -> Any:
        """Calls a function of _core in the context of the group, or in the process's own context without a
        group."""
        if self.group is None:
            return function(self.settings.context(frozen), *arguments)
        with lock_of(self.group):
            return function(context_of(self.group, self.settings), *arguments)


def runner_of(group: Any) -> Runner:
    """The runner for a call that begins now."""
    return Runner(current_settings(), group)


# Types that are certainly not a DTensor.
_PLAIN = (Tensor, torch.nn.Parameter, type(None))


def local_parts(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, group: Any, names: tuple[str, str, str]
) -> tuple[Tensor, Tensor, Tensor | None, Any]:
    """This rank's tensors and their group. If the head is a DTensor, sharded by vocabulary entry over a mesh
    of one axis, these are its local parts and the mesh's group."""
    if type(hidden) in _PLAIN and type(weight) in _PLAIN and type(bias) in _PLAIN:
        return hidden, weight, bias, group  # fast path: a call of one token takes 50 µs
    if not any(hasattr(t, "placements") for t in (hidden, weight, bias)):
        return hidden, weight, bias, group
    from torch.distributed.tensor import DTensor, Replicate, Shard

    def local(name: str, tensor: Any, placement: Any) -> Any:
        if not isinstance(tensor, DTensor):
            return tensor
        if tensor.device_mesh.ndim != 1 or tuple(tensor.placements) != (placement,):
            raise ValueError(
                f"{name} is a DTensor with placements {tuple(tensor.placements)} on a mesh of "
                f"{tensor.device_mesh.ndim} axes: it must be {placement} on a mesh of one axis"
            )
        part = tensor.to_local(grad_placements=(placement,))
        return part.wait() if hasattr(part, "wait") else part

    if not isinstance(weight, DTensor):
        raise ValueError(f"{names[0]} or {names[2]} is a DTensor but {names[1]} is not")
    of_mesh = weight.device_mesh.get_group()
    if group is not None and group != of_mesh:
        raise ValueError(f"group is not the one that {names[1]}, a DTensor, is sharded over")
    return (
        local(names[0], hidden, Replicate()),
        local(names[1], weight, Shard(0)),
        local(names[2], bias, Shard(0)),
        of_mesh,
    )
