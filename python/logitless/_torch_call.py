# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shared by the functions of logitless.torch: contexts, the conversion of tensors for the library, and
autograd."""

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
    """Options for contexts, and a cache of the contexts created from them. Each set of options has its own
    object, so a context that one thread is creating cannot end up in calls with other options.

    `given` is a caller's context. Calls run in it, except for calls with a frozen head or a group: their
    contexts are created from its options and cached in it."""

    def __init__(self, options: dict[str, Any], given: Context | None = None) -> None:
        self.options = options
        self.given = given
        made = _contexts() if given is None else given._made
        self.contexts: dict[tuple[int, bool], Context] = made[0]  # by number of threads and `frozen`
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
        """The context for a call. With `frozen`, the forward half keeps expected rows, if the loss allows it:
        the gradient of hidden states then needs no product in the backward half."""
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
    """The merged options of the enclosing options() blocks. They override set_options()."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._made: tuple[Settings, Settings] | None = None

    def over(self, outside: Settings) -> Settings:
        made = self._made  # read once, because several threads may share a block
        if made is None or made[0] is not outside:
            made = self._made = outside, Settings(_merged(outside.options, self.options))
        return made[1]


_settings = Settings({})
_setting = threading.Lock()
_block: ContextVar[_Block | Settings | None] = ContextVar("logitless.torch.options", default=None)


def _merged(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`before`, updated with `given`. None removes an option, so that its default applies."""
    return {name: value for name, value in {**before, **given}.items() if value is not None}


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options; a TypeError if one is not an option of Context."""
    for name in options:
        if name not in Context.__init__.__kwdefaults__:
            raise TypeError(f"{name!r} is not an option of logitless.Context")
    return options


def set_options(**options: Any) -> None:
    """Sets options of the Context for all later calls, in all threads. Options that are not given keep their
    values. Without arguments, all options get their defaults. The number of threads follows
    torch.set_num_threads() unless it is set here.

    Use options() for a block of code, and context= of a function for one call.

    Args:
        **options: options of logitless.Context; None resets an option to its default.

    Returns:
        None.

    Raises:
        ValueError: an option is invalid.
        TypeError: an option is unknown or has the wrong type.

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
    """Sets options of the Context for calls inside a block, and restores them at its end. It takes the same
    options as set_options(), and can be used as a decorator. An option that is not given keeps its value from
    the enclosing block, or from set_options(). Like torch.no_grad(), it affects only its own thread or
    asyncio task.

    The backward of a call runs with the options of its forward, wherever backward() is called. There is one
    exception: if torch.compile has compiled a call with reduction="none", the backward runs with the options
    in force when backward() is called. A checkpoint repeats the forward with the options in force at that
    time, unless the block is inside the checkpointed function.

    Args:
        **options: options of logitless.Context.

    Returns:
        A context manager, which is also a decorator.

    Raises:
        ValueError: an option is invalid.
        TypeError: an option is unknown or has the wrong type.

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
    """The settings of a call made now: its context=, else options() over set_options()."""
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
    """Raises a TypeError if an argument is not a tensor, and a ValueError if it is not on the CPU."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
        if not tensor.is_cpu:  # eight times faster than device.type
            raise ValueError(f"{name} is on {tensor.device}: logitless computes on the CPU")


def without_gradient(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise ValueError(f"{name} requires a gradient, but gets none: detach it")


def values_of(tensor: Tensor) -> Tensor:
    """The detached tensor, with its actual values in memory (no negative bit)."""
    return tensor.detach().resolve_neg()


def one_gradient(upstream: Tensor) -> Tensor:
    """The upstream gradient; raises if it is a batch of several."""
    if torch._C._functorch.is_legacy_batchedtensor(upstream):
        raise RuntimeError(
            "logitless computes one gradient at a time: is_grads_batched=True and vectorize=True are not supported"
        )
    return upstream


def row_of(name: str, tensor: Tensor, *shapes: tuple[int, ...]) -> Tensor:
    """The values of a tensor as a flat contiguous tensor, as the library takes them. The tensor must have one
    of the shapes: another shape of the same size would put the values in a different order."""
    if tuple(tensor.shape) not in shapes:
        wanted = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise ValueError(f"expected {name} of shape {wanted}, got {tuple(tensor.shape)}")
    return values_of(tensor).flatten().contiguous()


def row_of_tokens(name: str, tensor: Tensor, lead: torch.Size) -> Tensor:
    """row_of() for a per-token tensor, which has the leading axes of hidden states or is flat."""
    return row_of(name, tensor, tuple(lead), (lead.numel(),))


def _has_rows(tensor: Tensor, axis: int) -> bool:
    """Tells whether the axis is contiguous and rows along it do not overlap. The rows of expanded tensors
    overlap."""
    cols = tensor.size(axis)
    return all(
        size <= 1 or (stride == 1 if a == axis else stride >= cols)
        for a, (size, stride) in enumerate(zip(tensor.shape, tensor.stride()))
    )


def rows_of(tensor: Tensor) -> Tensor:
    """The tensor as [N, C] or [B, T, C] with contiguous rows. Copies only if the strides require it."""
    if tensor.dim() > 3:
        tensor = tensor.flatten(0, -3)
    return tensor if tensor.is_contiguous() or _has_rows(tensor, tensor.dim() - 1) else tensor.contiguous()


def matrix_of(weight: Tensor) -> Tensor:
    if weight.is_contiguous() or _has_rows(weight, 1) or _has_rows(weight, 0):
        return weight
    return weight.contiguous()


def offsets_of(offsets: Tensor, input: Tensor) -> Tensor:
    """Checks the offsets of sequences in [N, H]; returns them as contiguous int64."""
    check_cpu(offsets=offsets)
    if offsets.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"offsets is {offsets.dtype}: it must be torch.int64 or torch.int32")
    if offsets.dim() != 1 or offsets.numel() == 0:
        raise ValueError(f"offsets has shape {tuple(offsets.shape)}: it must be [B + 1]")
    if input.dim() != 2:
        raise ValueError(f"offsets are given and input has shape {tuple(input.shape)}: it must be [N, H]")
    return offsets.long().contiguous()


def ids_of(ids: Tensor) -> Tensor:
    """Token ids [N] or [B, T], copied if they are expanded: the library takes no stride of 0."""
    return ids if 0 not in ids.stride() else ids.contiguous()


def memory_like(tensor: Tensor, rows: int | None = None) -> Tensor:
    """Memory for the gradient of the tensor, or of `rows` of its rows, in the tensor's memory order. The
    gradient of a float16 tensor is float32 until it is scaled, so that small values are not lost."""
    dtype = torch.float32 if tensor.dtype == torch.float16 else tensor.dtype
    if rows is None:
        return torch.empty_like(tensor, dtype=dtype)
    if tensor.dim() == 2 and tensor.shape[1] > 1 and tensor.stride(1) != 1:
        return torch.empty((tensor.shape[1], rows), dtype=dtype).t()
    return torch.empty((rows, *tensor.shape[1:]), dtype=dtype)


@contextlib.contextmanager
def not_finite_handed_on(upstream: Tensor, grads: list[Tensor | None]) -> Iterator[None]:
    """Sets all gradients to NaN if the upstream gradient is not finite, instead of raising the library's
    error: a gradient scaler detects NaN and skips the step."""
    try:
        yield
    except ValueError:
        if upstream.isfinite().all():
            raise
        for grad in grads:
            if grad is not None:
                grad.fill_(torch.nan)


# Names for messages: _core's argument names, and the names that these functions have for them. The arrays of
# a LoRA and of a packed weight are attributes of weight. PYTORCH_NAMES has the argument names of PyTorch's
# function.
_NAMES: dict[str, str] = {}
for _prefix in ("", "teacher_", "ref_"):
    _NAMES.update({f"{_prefix}lora_{part}": f"{_prefix}weight.{part}" for part in ("a", "b", "scale")})
    _NAMES.update({f"{_prefix}scales": f"{_prefix}weight.scales"})
PYTORCH_HEAD = ("input", "linear_weight", "linear_bias")
PYTORCH_NAMES = dict(zip(("hidden", "weight", "bias"), PYTORCH_HEAD)) | {"targets": "target", "class_weights": "weight"}
PYTORCH_NAMES |= {name: f"linear_{part}" for name, part in _NAMES.items() if part.startswith("weight")}


def with_names(error: Exception, names: dict[str, str] = _NAMES) -> str:
    """The message of an error of _core, with the names of the function's own arguments."""
    return re.sub(r"(?<![\w.])[a-z]\w+(?!\w)", lambda name: names.get(name[0], name[0]), str(error))


def as_pytorch_raises(error: Exception) -> Exception:
    """The error with the argument names of PyTorch's function; an IndexError, as there, for a target outside
    the vocabulary."""
    if isinstance(error, _core.InvalidInput):
        error = ValueError(with_names(error, PYTORCH_NAMES))
    return IndexError(f"Target out of bounds: {error}") if str(error).startswith("target[") else error


# torch.compiler.disable without importing the compiler, which takes a second.
_disable = getattr(torch, "_disable_dynamo", None) or torch.compiler.disable


def not_compiled(function: Any, *, pytorchs: bool = False) -> Any:
    """Decorator: torch.compile breaks its graph at a call, and the function runs eagerly. It also adds the
    argument context=, the Context that the call and its backward use. With `pytorchs`, errors use the
    argument names of PyTorch's function."""

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
        # After too many recompilations torch.compile runs this frame eagerly, and would then trace what it
        # calls.
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
    """The version of a tensor, or of the tensor whose memory a NumPy array shows; None for anything else."""
    while isinstance(value, np.ndarray):
        value = value.base
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


class Kept:
    """The arguments of a call, saved for its backward. Reading one makes the check that PyTorch makes of
    saved tensors: a tensor that was changed in place since then is a RuntimeError. dtype is dropped: only the
    forward uses it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments = dict(arguments)
        arguments.pop("dtype", None)
        self._versions = {name: _version_of(value) for name, value in arguments.items()}

    def get(self, name: str) -> Any:
        """One argument, or None if it was not given."""
        value = self._arguments.get(name)
        if _version_of(value) != self._versions.get(name):
            raise RuntimeError(
                f"{name} was changed in place between the loss and its backward, which reads it again"
            )
        return value

    def all(self) -> dict[str, Any]:
        return {name: self.get(name) for name in self._arguments}


class NoSecondDerivative(torch.autograd.Function):
    """The identity on a gradient, with the tensors it depends on as further inputs. Its backward raises."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, *inputs: Tensor | None) -> Tensor:  # type: ignore[override]
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "logitless computes no second derivatives: its gradients cannot be differentiated again"
        )


def handed_over(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """The gradients. With create_graph=True, differentiating them again raises an error."""
    if not torch.is_grad_enabled():
        return grads
    return [None if grad is None else NoSecondDerivative.apply(grad, *inputs) for grad in grads]


def type_of_loss(dtype: Any, otherwise: torch.dtype, name: str = "dtype") -> torch.dtype:
    """The requested dtype, or `otherwise` if it is None."""
    if dtype is None:
        return otherwise
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"{name} = {dtype} must be a floating-point torch.dtype, such as torch.float32")
    return dtype


def type_of_results(dtype: Any, hidden: Tensor) -> torch.dtype:
    """The type of a call's results: dtype, else float64 for float64 hidden states, else float32."""
    return type_of_loss(dtype, torch.float64 if hidden.dtype == torch.float64 else torch.float32)


def results_in(dtype: torch.dtype) -> dict[str, str]:
    """Arguments for _core, for results of this type. Without them it returns float64 for float64 hidden
    states, else float32."""
    return {"dtype": "float64"} if dtype == torch.float64 else {}


def type_of_logits(input: Tensor) -> torch.dtype:
    """The type of PyTorch's loss for these hidden states."""
    return torch.float32 if torch.is_autocast_enabled("cpu") else input.dtype


def loss_tensor(loss: float, dtype: torch.dtype) -> Tensor:
    return torch.scalar_tensor(loss, dtype=torch.float64).to(dtype)  # twice as fast as torch.tensor()


def batched(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states as [N, H] or [..., T, H], and targets as [N] or [B, T]. A single vector becomes one
    token."""
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
