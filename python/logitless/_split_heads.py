# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Heads of models that trainers split over ranks: FSDP, DeepSpeed's ZeRO stage 3, tensor parallelism."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

# Packages whose hooks gather a layer's weight before its forward and free it afterwards.
_GATHERING = ("torch.distributed.fsdp", "torch.distributed._composable", "deepspeed")
# The Python package whose hooks change the layouts of a layer's input and output.
_LAYOUTS = "torch.distributed.tensor"

def is_sharded(model: Any) -> bool:
    """Tells whether FSDP or ZeRO stage 3 shards the module. Its weights are then only whole during its call, or during
    the call of the FSDP unit that it belongs to."""
    return getattr(model, "_is_fsdp_managed_module", False) or hasattr(model, "ds_id")


def is_split(model: Any) -> bool:
    """Tells whether some parameter of the model is split over ranks, also by tensor parallelism or by
    deepspeed.zero.Init()."""
    return is_sharded(model) or any(hasattr(p, "placements") or hasattr(p, "ds_id") for p in model.parameters())


def has_base(module: Any, name: str) -> bool:
    return any(base.__name__ == name for base in type(module).__mro__)


def class_before_fsdp(base: type) -> type:
    """The class that a module had before fully_shard() derived one from it and FSDPModule."""
    for i, of in enumerate(base.__mro__):
        if of.__name__ == "FSDPModule":
            return base.__mro__[i + 1]
    return base


def inside_fsdp1(module: Any) -> Any:
    """The module inside FSDP1's wrapper, or the module itself."""
    return module._fsdp_wrapped_module if has_base(module, "FullyShardedDataParallel") else module


def _is_from(hook: Any, *modules: str) -> bool:
    return (getattr(hook, "__module__", None) or "").startswith(modules)


def is_known_hook(hook: Any) -> bool:
    """Tells whether a hook of the head keeps the loss right: it gathers the weight, or changes layouts."""
    return _is_from(hook, *_GATHERING, _LAYOUTS)


def is_gathered_in_its_call(head: Any) -> bool:
    """Tells whether the head's weight is only whole while the head's own call runs, because the head is an
    FSDP unit of its own, or because of ZeRO stage 3."""
    hooks = (*head._forward_pre_hooks.values(), *head._forward_hooks.values())
    return inside_fsdp1(head) is not head or any(_is_from(hook, *_GATHERING) for hook in hooks)


def _layout_of_transformers(head: Any) -> Any:
    """The tensor parallel style with which transformers replaced the head's forward; None without one."""
    forward = vars(head).get("forward")
    if getattr(forward, "__module__", "") != "transformers.distributed.tensor_parallel":
        return None
    return inspect.getclosurevars(forward).nonlocals.get("self")


def check_layouts(head: Any) -> None:
    """Raises for a replaced forward, except if transformers' tensor parallelism replaced it for replicated
    hidden states, and for a head that is both an FSDP unit and tensor parallel."""
    if "forward" in head.__dict__:  # PyTorch 2.6 cannot compile vars()
        style = _layout_of_transformers(head)
        if style is None:
            raise ValueError(
                "the head's forward was replaced (accelerate's hooks do that, and TRL's cast_lm_head_to_fp32)"
            )
        layout = getattr(style, "input_layouts", None)
        if type(layout).__name__ != "Replicate":
            raise ValueError(
                f"the head is tensor parallel with input_layouts = {layout}, in the style {type(style).__name__}: in "
                "tp_plan give lm_head colwise_gather_output, or leave it out"
            )
    if is_gathered_in_its_call(head) and any(_is_from(hook, _LAYOUTS) for hook in head._forward_pre_hooks.values()):
        raise ValueError(
            "the head is tensor parallel and an FSDP unit of its own: leave it in the unit of the whole model"
        )


def replicated_input(head: Any, hidden: Any) -> Tensor:
    """The hidden states of all tokens, as the hooks of a tensor parallel head gather them."""
    for hook in head._forward_pre_hooks.values():
        if _is_from(hook, _LAYOUTS):
            result = hook(head, (hidden,))
            hidden = result[0] if isinstance(result, tuple) else result
    if not hasattr(hidden, "placements"):
        return hidden
    placements = hidden.placements
    if any(type(placement).__name__ != "Replicate" for placement in placements):
        raise ValueError(f"the head's input is a DTensor with placements {tuple(placements)}: it must be replicated")
    return hidden.to_local(grad_placements=placements)


def whole(tensor: Any) -> Any:
    """A DTensor's values on every rank. In the backward each rank takes its part of the gradient."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class SplitHead(RuntimeError):
    """Raised if a head's weight is not whole at this time."""

    def __init__(self) -> None:
        super().__init__(
            "the head's weight is sharded (FSDP, ZeRO stage 3), and whole only while the model's forward runs: "
            "patch(model, return_logits=True) returns logits that can be read"
        )


def _is_gathered(tensor: Tensor) -> bool:
    tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor's
    status = getattr(tensor, "ds_status", None)
    if status is not None and status.name != "AVAILABLE":
        return False
    return tensor.numel() == 0 or tensor.untyped_storage().nbytes() > 0


def check_gathered(*tensors: Any) -> None:
    """Raises a SplitHead if a tensor's memory was freed, or holds a part of the tensor."""
    if torch.compiler.is_compiling():
        return
    if not all(_is_gathered(tensor) for tensor in tensors if isinstance(tensor, Tensor)):
        raise SplitHead


def check_lora_gathered(*tensors: Any) -> None:
    """Raises unless the tensors of a LoRA on the head are whole in the head's call."""
    if torch.compiler.is_compiling():
        return
    if any(isinstance(t, Tensor) and (hasattr(t, "placements") or not _is_gathered(t)) for t in tensors):
        raise ValueError(
            "the head has a LoRA, and the layers inside it are split over ranks one by one (FSDP units, tensor "
            "parallelism): make the whole head one FSDP unit, or leave lm_head out of target_modules"
        )
