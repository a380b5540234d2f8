# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The output head of a transformers model: its checks, and the class that returns hidden states instead of
logits."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

import torch
from torch import Tensor

from ._absent_logits import AbsentLogits
from ._lazy_divergence import LazyLogits  # with all its rules
from ._split_heads import (
    check_layouts,
    class_before_fsdp,
    inside_fsdp1,
    is_gathered_in_its_call,
    is_known_hook,
    is_sharded,
    replicated_input,
)
from ._torch_call import check_cpu
from ._torch_quantised import is_quantised_layer, packed_of
from .lora import HeadWeight, check_peft, from_peft, has_trained_rows, is_lora, rows_from_peft
from .packed import PackedWeight

_calls = threading.local()  # .head: the head of this thread's fused call, which returns AbsentLogits
_SHARDED = "sharded()"  # added to a head's _logitless_read when it has warned


class HandsOn:
    """First base of the class of a patched model's head. In a fused call the head returns AbsentLogits, and
    runs none of its hooks.

    A head that is gathered in its call is called again for the loss, with a function `logitless` of hidden
    states, weight and bias. The hooks then gather the weight for this function, and again for its backward.
    """

    _unpatched: type
    _logitless_packed: PackedWeight | None = None  # the argument of patch(head=)
    _logitless_read: set[str] | None = None  # what losses have read of its LazyLogits, if it returns them

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(_calls, "head", None) is not self or "logitless" in kwargs:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        hidden = replicated_input(self, args[0] if args else kwargs["input"])
        if is_gathered_in_its_call(self):
            return AbsentLogits.of(hidden, self)
        return AbsentLogits.of(hidden, self, *_weight_and_bias(self))

    def forward(self, input: Tensor, *args: Any, logitless: Any = None, **kwargs: Any) -> Any:
        if logitless is None:
            read = self._logitless_read
            if read is not None and not (torch.compiler.is_compiling() or _generates(input)):
                if not (is_sharded(self) or is_gathered_in_its_call(self)):
                    return LazyLogits.of(AbsentLogits.of(input, self, *_weight_and_bias(self)), read)
                if torch.is_grad_enabled() and _SHARDED not in read:
                    read.add(_SHARDED)
                    warnings.warn(
                        "logitless: FSDP shards the head, which is whole only during the model's call: the logits are "
                        "computed, and the loss is not fused",
                        stacklevel=2,
                    )
            return super().forward(input, *args, **kwargs)  # type: ignore[misc]
        if inside_fsdp1(self) is not self:
            return super().forward(input, logitless=logitless)  # type: ignore[misc]
        return logitless(input, *_weight_and_bias(self))

    def _get_name(self) -> str:
        return self._unpatched.__name__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (_new_of, (self._unpatched,), *super().__reduce_ex__(protocol)[2:])


def _generates(hidden: Tensor) -> bool:
    """Tells whether generate() calls the head: it has one position per sequence, and reads all its logits."""
    return not torch.is_grad_enabled() and hidden.shape[-2:-1].numel() == 1


class _Head(HandsOn, torch.nn.Linear):
    _unpatched = torch.nn.Linear


@functools.lru_cache(maxsize=None)
def _class_of(base: type) -> type:
    """The class of a patched model's head, derived from its own class."""
    if base is torch.nn.Linear:
        return _Head
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (HandsOn, base), {**names, "_unpatched": base})


def _new_of(base: type) -> Any:
    """A patched model's head without its state, for unpickling and copying."""
    cls = _class_of(base)
    return cls.__new__(cls)


def unpatch_class(module: Any) -> None:
    """Restores the class of a patched module. A class that fully_shard() derived from the patched one stays:
    without the patch's settings it runs as before."""
    if "_unpatched" in vars(type(module)):
        module.__class__ = module._unpatched


def unpatch_heads(model: Any) -> None:
    """Restores the classes of a model's heads."""
    for module in model.modules():
        if isinstance(module, HandsOn):
            vars(module).pop("_logitless_packed", None)
            vars(module).pop("_logitless_read", None)
            unpatch_class(module)


def read_lazily(model: Any) -> None:
    """Makes the model's head return LazyLogits, also in calls that are not fused."""
    head = fused_head(model)
    if "forward" in vars(head):  # from transformers' tensor parallelism, which calls Linear's
        warnings.warn(
            "logitless: the head is tensor parallel: the logits are computed, and the loss is not fused",
            stacklevel=4,
        )
    if head._logitless_read is None:
        head._logitless_read = set()


def reads_lazily(model: Any) -> bool:
    """Tells whether the model's head returns LazyLogits."""
    return any(isinstance(module, HandsOn) and module._logitless_read is not None for module in model.modules())


def unread_lazily(model: Any) -> None:
    """Undoes read_lazily()."""
    if getattr(model, "_logitless", None) is None:  # not patched by logitless.transformers, too
        return unpatch_heads(model)
    for module in model.modules():
        vars(module).pop("_logitless_read", None)


def without_logits(head: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Returns function(*args, **kwargs), during which the head returns AbsentLogits."""
    before = getattr(_calls, "head", None)
    _calls.head = head
    try:
        return function(*args, **kwargs)
    finally:
        _calls.head = before


def _given_to(head: Any) -> PackedWeight | None:
    """The argument of patch(head=) for this head, or for the layer that PEFT has wrapped since."""
    given = getattr(head, "_logitless_packed", None)
    return getattr(head.get_base_layer(), "_logitless_packed", None) if given is None and is_lora(head) else given


def _weight_and_bias(head: Any) -> tuple[HeadWeight, Tensor | None]:
    """The current weight and bias of a head."""
    if has_trained_rows(head):
        return rows_from_peft(head)
    given = _given_to(head)
    weight = from_peft(head, given) if is_lora(head) else given or packed_of(head.weight) or head.weight
    return weight, getattr(head, "bias", None)


def _class_without_patch(module: Any) -> type:
    return class_before_fsdp(module._unpatched if isinstance(module, HandsOn) else type(module))


def _head_of(model: Any) -> Any:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        raise ValueError(f"{type(model).__name__} has no output head")
    if type(head).__name__ == "ModulesToSaveWrapper":  # PEFT's copy of the whole head, which trains
        adapters = [] if head.disable_adapters else head.active_adapters
        head = head.modules_to_save[adapters[0]] if adapters else head.original_module
    if torch.nn.utils.parametrize.is_parametrized(head):
        raise ValueError("the head is parametrised (torch.nn.utils.parametrize): remove_parametrizations() first")
    return head


def _check_layer(layer: Any, given: PackedWeight | None, instead: str = "") -> None:
    """Raises unless the layer is just a plain or quantised matrix with an optional bias, in memory. If a
    packed weight is given, the layer may be any module."""
    base = _class_without_patch(layer)
    kind = f"{base.__module__}.{base.__name__}"
    if base is not torch.nn.Linear:
        if hasattr(layer, "active_adapters"):
            names = getattr(layer, "adapter_layer_names", ())  # includes inactive adapters
            adapters = sorted({name for of in names for name in getattr(layer, of, ())}) or layer.active_adapters
            raise ValueError(
                f"the head carries the adapter {', '.join(map(repr, adapters))} ({kind}): merge it, or "
                "leave lm_head out of target_modules (modules_to_save may have it)"
            )
        if given is None and not is_quantised_layer(layer):
            raise ValueError(f"the head is a {kind}, not a torch.nn.Linear: leave it unquantised{instead}")
    weight = getattr(layer, "weight", None)
    if given is not None:
        return _check_given(layer, weight, given)
    check_cpu(lm_head=weight)
    if packed_of(weight) is None and not (base is torch.nn.Linear and weight.is_floating_point()):
        raise ValueError(f"the head's weight is {weight.dtype}, in a {kind}")


def _check_given(layer: Any, weight: Any, given: PackedWeight) -> None:
    if not isinstance(given, PackedWeight):
        raise TypeError(f"head is a {type(given).__name__}: it must be a logitless.packed.PackedWeight")
    entries = getattr(layer, "out_features", given.shape[0])
    if given.shape[0] != entries:
        raise ValueError(f"head has {given.shape[0]} vocabulary entries, but the model's has {entries}")
    if isinstance(weight, Tensor) and weight.requires_grad:
        raise ValueError(
            "the head's weight requires a gradient, but a packed head gets none: call requires_grad_(False) on it first"
        )


def _check_lora(model: Any, head: Any, given: PackedWeight | None) -> None:
    inside = head.get_base_layer()
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    # PEFT's ensure_weight_tying gives the embeddings the same LoRA.
    of_both = set(head.lora_A) <= set(getattr(embedding, "lora_embedding_A", ()))
    if embedding is not None and getattr(embedding, "weight", None) is inside.weight and not of_both:
        raise ValueError(
            "the head has a LoRA and shares its weight with the input embeddings: merging it would change them. Untie "
            "them (tie_word_embeddings=False), leave lm_head out of target_modules, or give PEFT "
            "ensure_weight_tying=True"
        )
    _check_layer(inside, given)
    check_peft(head)


def _check_rows(head: Any, given: PackedWeight | None) -> None:
    if given is not None:
        raise ValueError("head is packed, and PEFT trains rows of the head (trainable_token_indices)")
    inside = getattr(head, "token_adapter", head).base_layer
    _check_layer(inside, None)
    if packed_of(inside.weight) is not None:
        raise ValueError(
            "the head is quantised, and PEFT trains rows of it (trainable_token_indices): leave it unquantised"
        )


def whole_head(model: Any) -> Any:
    """The model's output head; a ValueError if it has an adapter."""
    head = _head_of(model)
    if has_trained_rows(head):
        raise ValueError(
            "PEFT trains rows of the head (trainable_token_indices, of a model whose head is tied to its embeddings), "
            "which TRL's own head cannot run: use logitless.transformers.patch(model) in another trainer"
        )
    _check_layer(head, None)
    return head


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _check_hooks(head: Any) -> None:
    hooks = [hook for name in _HOOKS for hook in (getattr(head, name, None) or {}).values()]
    if any("adapter_names" in getattr(getattr(hook, "func", hook), "__name__", "") for hook in hooks):
        raise ValueError(
            "adapter_names gives rows of one batch different adapters, which a fused head does not support: call the "
            "model once for each adapter"
        )
    if not all(map(is_known_hook, hooks)):
        raise ValueError("the head has hooks, which would not see its logits: remove them")


def fused_head(model: Any, given: PackedWeight | None = None) -> Any:
    """The model's output head, checked and made able to return AbsentLogits: FSDP1's wrapper if it has one.
    `given`, if not None, is its weight."""
    outer = _head_of(model)
    head = inside_fsdp1(outer)
    packed = _given_to(head) if given is None else given
    if is_lora(head):
        _check_lora(model, head, packed)
    elif has_trained_rows(head):
        _check_rows(head, packed)
    else:
        _check_layer(head, packed, ", give patch(model, head=...) what it holds, or unpatch(model)")
    _check_hooks(head)
    check_layouts(head)
    for module in (head, outer):
        if not isinstance(module, HandsOn):
            module.__class__ = _class_of(type(module))
    if given is not None:
        head._logitless_packed = given
    return outer
