# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What the calls of logitless.torch share: the context, tensors as the library takes them, and the step from one call
with its gradients to autograd."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import Context, _core


def _contexts() -> tuple[dict[tuple[int, bool], Context], weakref.WeakKeyDictionary[Any, dict[int, Context]]]:
    return {}, weakref.WeakKeyDictionary()


class Settings:
    """Options of contexts, and the contexts that were made from them. Other options are another object, so a thread
    that is still making a context cannot leave it to calls with other options.

    `given` is a caller's context: calls run in it, except those of a frozen head and of groups. The contexts of these
    are made from its options, and it keeps them."""

    def __init__(self, options: dict[str, Any], given: Context | None = None) -> None:
        self.options = options
        self.given = given
        made = _contexts() if given is None else given._made
        self.contexts: dict[tuple[int, bool], Context] = made[0]  # by threads, and whether the head is frozen
        self.of_groups: weakref.WeakKeyDictionary[Any, dict[int, Context]] = made[1]

    @staticmethod
    def of(context: Any) -> Settings:
        """The settings of a call with context=."""
        if not isinstance(context, Context):
            raise TypeError(f"context must be a logitless.Context, not {type(context).__name__}")
        if context._made is None:
            context._made = _contexts()
        return Settings(context._options, context)

    def context(self, frozen: bool = False) -> Context:
        """The context of calls. With `frozen`, the forward half of a call leaves what makes the gradient of hidden
        states without a product, where the loss allows it."""
        if self.given is not None and not (frozen and self.options["plan"] == "auto"):
            return self.given
        key = (torch.get_num_threads(), frozen)
        context = self.contexts.get(key)
        if context is None:
            given = {"threads": key[0], **self.options}
            if frozen and given.get("plan", "auto") == "auto":
                given["plan"] = "expected_row"
            context = self.contexts.setdefault(key, Context(**given))
        return context


class _Block:
    """What the options() blocks around a call set, over the options of set_options()."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._made: tuple[Settings, Settings] | None = None

    def over(self, outside: Settings) -> Settings:
        made = self._made  # read once: coroutines of several threads may share a block
        if made is None or made[0] is not outside:
            made = self._made = outside, Settings(_merged(outside.options, self.options))
        return made[1]


_settings = Settings({})
_setting = threading.Lock()
_block: ContextVar[_Block | Settings | None] = ContextVar("logitless.torch.options", default=None)


def _merged(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The options, with the given ones in their place; None is an option's default."""
    return {name: value for name, value in {**before, **given}.items() if value is not None}


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a block or of set_options(), where each is one of a context."""
    for name in options:
        if name not in Context.__init__.__kwdefaults__:
            raise TypeError(f"{name!r} is not an option of logitless.Context")
    return options


def set_options(**options: Any) -> None:
    """Sets options of the Context that calls from here on use, in all threads. Options that are not given stay as they
    are, and set_options() without arguments sets all of them back to their defaults. Threads follow
    torch.set_num_threads() unless they are set.

    options() sets them for a block, and context= of a function for one call.

    Args:
        **options: those of logitless.Context; None sets one back to its default.

    Returns:
        None.

    Raises:
        ValueError: an option is refused.
        TypeError: an option is unknown, or of another type.

    Example:
        >>> import logitless.torch as lt
        >>> lt.set_options(plan="two_pass", workspace_bytes=64 << 20)
        >>> lt.set_options()
    """
    global _settings
    with _setting:
        merged = _merged(_settings.options, _checked(options)) if options else {}
        Context(**merged)  # raises if a value is wrong
        _settings = Settings(merged)


@contextlib.contextmanager
def options(**options: Any) -> Iterator[None]:
    """Sets options of the Context that calls inside the block use, and restores them at its end. It takes the same options as set_options(), and can be used as a decorator. An option that is not given keeps its
    value from the enclosing block, or from set_options(). Like torch.no_grad(), it affects its own thread or asyncio
    task only.

    The backward of a call runs with the options of its forward, wherever backward() is called. There is one exception:
    if torch.compile has compiled a call with reduction="none", the backward runs with the options in force when
    backward() is called. A checkpoint repeats the forward with the options in force at that time, unless the block is
    inside the checkpointed function.

    Args:
        **options: those of logitless.Context.

    Returns:
        A context manager, which is a decorator as well.

    Raises:
        ValueError: an option is refused.
        TypeError: an option is unknown, or of another type.

    Example:
        >>> import torch, logitless.torch as lt
        >>> hidden, weight = torch.ones(6, 4, requires_grad=True), torch.ones(7, 4)
        >>> with lt.options(plan="two_pass", workspace_bytes=64 << 20):
        ...     loss = lt.linear_cross_entropy(hidden, weight, torch.arange(6))
        >>> loss.backward()  # with the options of its forward
    """
    outer = _block.get()
    around = outer.options if outer is not None else {}
    block = _Block({**around, **_checked(options)})
    block.over(_settings).context()  # raises if a value is wrong
    token = _block.set(block)
    try:
        yield
    finally:
        _block.reset(token)


def current_settings() -> Settings:
    """What holds for a call from here: its context=, or options() over set_options()."""
    block = _block.get()
    if block is None:
        return _settings
    return block if isinstance(block, Settings) else block.over(_settings)


def current_context() -> Context:
    return current_settings().context()


def check_transforms() -> None:
    if torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "logitless.torch does not run inside torch.func's transforms (grad, vmap, jacrev, ...): use "
            "loss.backward() or torch.autograd.grad()"
        )


def check_cpu(**tensors: Tensor | None) -> None:
    """Raises a TypeError for what is no tensor, and a ValueError for one that is not on the CPU."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
        if not tensor.is_cpu:  # device.type takes eight times as long
            raise ValueError(f"{name} is on {tensor.device}: logitless computes on the CPU")


def without_gradient(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise ValueError(f"{name} requires a gradient, and none flows to it: detach it")


def values_of(tensor: Tensor) -> Tensor:
    """The tensor without its history, and with the values in memory that it stands for."""
    return tensor.detach().resolve_neg()


def one_gradient(upstream: Tensor) -> Tensor:
    """The upstream gradient; raises where it stands for several."""
    if torch._C._functorch.is_legacy_batchedtensor(upstream):
        raise RuntimeError(
            "logitless computes one gradient at a time: is_grads_batched=True and vectorize=True are not supported"
        )
    return upstream


def row_of(name: str, tensor: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    """The values of a tensor in one row, as the library takes them. It has one of the shapes: another one of the same
    size would stand in another order."""
    if tuple(tensor.shape) not in shapes:
        wanted = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise ValueError(f"expected {name} of shape {wanted}, got {tuple(tensor.shape)}")
    return values_of(tensor).flatten().contiguous()


def row_of_tokens(name: str, tensor: Tensor, lead: torch.Size) -> Tensor:
    """row_of() of a per-token tensor: of the leading axes of hidden states, or flat."""
    return row_of(name, tensor, tuple(lead), (lead.numel(),))


def _has_rows(tensor: Tensor, axis: int) -> bool:
    """Tells whether elements along the axis follow one another in rows of which no two overlap, as those of expanded
    tensors do."""
    cols = tensor.size(axis)
    return all(
        size <= 1 or (stride == 1 if a == axis else stride >= cols)
        for a, (size, stride) in enumerate(zip(tensor.shape, tensor.stride()))
    )


def rows_of(tensor: Tensor) -> Tensor:
    """The tensor as [N, C] or [B, T, C] whose rows follow their elements; a copy only where strides allow nothing else."""
    if tensor.dim() > 3:
        tensor = tensor.flatten(0, -3)
    return tensor if tensor.is_contiguous() or _has_rows(tensor, tensor.dim() - 1) else tensor.contiguous()


def matrix_of(weight: Tensor) -> Tensor:
    if weight.is_contiguous() or _has_rows(weight, 1) or _has_rows(weight, 0):
        return weight
    return weight.contiguous()


def offsets_of(offsets: Tensor, input: Tensor) -> Tensor:
    """Where sequences of [N, H] begin, as the library takes them."""
    check_cpu(offsets=offsets)
    if offsets.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"offsets is {offsets.dtype}: it must be torch.int64 or torch.int32")
    if offsets.dim() != 1 or offsets.numel() == 0:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}: it must be [B + 1]")
    if input.dim() != 2:
        raise ValueError(f"offsets are given and input has shape {tuple(input.shape)}: it must be [N, H]")
    return offsets.long().contiguous()


def ids_of(ids: Tensor) -> Tensor:
    """Token ids [N] or [B, T] that the library can step through: a copy of expanded ones."""
    return ids if 0 not in ids.stride() else ids.contiguous()


def memory_like(tensor: Tensor, rows: int | None = None) -> Tensor:
    """Memory for a gradient, in the order in which the tensor stands, or for that of so many of its rows. What float16
    would lose before it is scaled stays in float32."""
    dtype = torch.float32 if tensor.dtype == torch.float16 else tensor.dtype
    if rows is None:
        return torch.empty_like(tensor, dtype=dtype)
    if tensor.dim() == 2 and tensor.shape[1] > 1 and tensor.stride(1) != 1:
        return torch.empty((tensor.shape[1], rows), dtype=dtype).t()
    return torch.empty((rows, *tensor.shape[1:]), dtype=dtype)


@contextlib.contextmanager
def not_finite_handed_on(upstream: Tensor, grads: list[Tensor | None]) -> Iterator[None]:
    """Makes gradients NaN where the library refuses an upstream gradient that is not finite: who scales losses looks
    for that, and skips the step."""
    try:
        yield
    except ValueError:
        if upstream.isfinite().all():
            raise
        for grad in grads:
            if grad is not None:
                grad.fill_(torch.nan)


# What these functions call arguments of the module: a LoRA's and a packed weight's parts are its attributes. And what
# PyTorch's function calls them.
_NAMES: dict[str, str] = {}
for _prefix in ("", "teacher_", "ref_"):
    _NAMES.update({f"{_prefix}lora_{part}": f"{_prefix}weight.{part}" for part in ("a", "b", "scale")})
    _NAMES.update({f"{_prefix}scales": f"{_prefix}weight.scales"})
PYTORCH_HEAD = ("input", "linear_weight", "linear_bias")
PYTORCH_NAMES = dict(zip(("hidden", "weight", "bias"), PYTORCH_HEAD)) | {"targets": "target", "class_weights": "weight"}
PYTORCH_NAMES |= {name: f"linear_{part}" for name, part in _NAMES.items() if part.startswith("weight")}


def with_names(error: Exception, names: dict[str, str] = _NAMES) -> str:
    """What the module has refused, with the names that a function has for its arguments."""
    return re.sub(r"(?<![\w.])[a-z]\w+(?!\w)", lambda name: names.get(name[0], name[0]), str(error))


def as_pytorch_raises(error: Exception) -> Exception:
    """The error, with the names of PyTorch's function, or its own where a target is outside of the vocabulary."""
    if isinstance(error, _core.InvalidInput):
        error = ValueError(with_names(error, PYTORCH_NAMES))
    return IndexError(f"Target out of bounds: {error}") if str(error).startswith("target[") else error


# torch.compiler.disable without its import of the compiler, which takes a second.
_disable = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable


def not_compiled(function: Any, *, pytorchs: bool = False) -> Any:
    """Makes a function one that torch.compile breaks its graph at, once, and that runs as it does without it. Beyond
    its own arguments it takes context=, a Context that its calls use, backward included. Its errors have PyTorch's names
    for arguments if `pytorchs` says so."""

    def run(*args: Any, context: Context | None = None, **kwargs: Any) -> Any:
        token = None if context is None else _block.set(Settings.of(context))
        try:
            return function(*args, **kwargs)
        except _core.InvalidInput as error:
            raise as_pytorch_raises(error) if pytorchs else ValueError(with_names(error)) from None
        finally:
            if token is not None:
                _block.reset(token)

    disabled = _disable(run)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        # After many compilations of this frame torch.compile runs it as it stands, and would trace what it calls.
        compiles = torch.compiler.is_compiling() or "torch._dynamo" in sys.modules
        return (disabled if compiles else run)(*args, **kwargs)

    return _with_context_in_signature(called)


def _with_context_in_signature(called: Any) -> Any:
    signature = inspect.signature(called)
    *before, last = signature.parameters.values()
    if last.kind is last.VAR_KEYWORD and "context" not in signature.parameters:
        own = inspect.Parameter("context", last.KEYWORD_ONLY, default=None, annotation="Context | None")
        called.__signature__ = signature.replace(parameters=[*before, own, last])
    return called


def _version_of(value: Any) -> int | None:
    """The version of a tensor, or of the one whose memory an array of NumPy shows; nothing else has one."""
    while isinstance(value, np.ndarray):
        value = value.base
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


class Kept:
    """The arguments of a call, kept for its backward, which can read them only with the check that PyTorch makes of
    saved tensors: one that was changed in place since is a RuntimeError. The type of results is the forward's alone."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments = dict(arguments)
        arguments.pop("dtype", None)
        self._versions = {name: _version_of(value) for name, value in arguments.items()}

    def get(self, name: str) -> Any:
        """One argument, or None where it was not given."""
        value = self._arguments.get(name)
        if _version_of(value) != self._versions.get(name):
            raise RuntimeError(
                f"{name} was changed in place between the loss and its backward, which reads it again"
            )
        return value

    def all(self) -> dict[str, Any]:
        return {name: self.get(name) for name in self._arguments}


class NoSecondDerivative(torch.autograd.Function):
    """Stands between a gradient and the tensors that it depends on."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *inputs: Tensor | None) -> Tensor:  # type: ignore[override]
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "logitless computes no second derivatives: its gradients cannot be differentiated again"
        )


def handed_over(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """The gradients; under create_graph=True such that whoever differentiates them is told."""
    if not torch.is_grad_enabled():
        return grads
    return [None if grad is None else NoSecondDerivative.apply(grad, *inputs) for grad in grads]


def type_of_loss(dtype: Any, otherwise: torch.dtype, name: str = "dtype") -> torch.dtype:
    """The type that a caller has asked for under this name, or the other one."""
    if dtype is None:
        return otherwise
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"{name} = {dtype} must be a floating-point torch.dtype, such as torch.float32")
    return dtype


def type_of_results(dtype: Any, hidden: Tensor) -> torch.dtype:
    """The type of what a call returns: the one that its dtype= asks for, or float32, or float64 for float64 hidden
    states."""
    return type_of_loss(dtype, torch.float64 if hidden.dtype == torch.float64 else torch.float32)


def results_in(dtype: torch.dtype) -> dict[str, str]:
    """The arguments of a call of _core whose results become this type: by default they are float32, or float64 for
    float64 hidden states."""
    return {"dtype": "float64"} if dtype == torch.float64 else {}


def type_of_logits(input: Tensor) -> torch.dtype:
    """The type that PyTorch's loss of these hidden states has."""
    return torch.float32 if torch.is_autocast_enabled("cpu") else input.dtype


def loss_tensor(loss: float, dtype: torch.dtype) -> Tensor:
    return torch.scalar_tensor(loss, dtype=torch.float64).to(dtype)  # half of what torch.tensor() takes


def batched(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """A vector is a batch of one token, and of several leading axes all but the last count sequences."""
    if target.dim() == 0:
        return input.unsqueeze(0), target.reshape(1)
    return input, ids_of(target.flatten(0, -2) if target.dim() > 2 else target)


def cast_for_autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    if not torch.is_autocast_enabled("cpu"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cpu")
    return [
        t.to(dtype) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t
        for t in tensors
    ]
