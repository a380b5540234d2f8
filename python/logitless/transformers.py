# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for Hugging Face transformers: a causal LM computes its loss fused, without logits in memory.

    from logitless.transformers import patch, unpatch
    patch(model)                            # any causal LM with an output head
    model(input_ids, labels=labels).loss    # the same loss and gradients, without the logits

In a call with labels, the head returns a placeholder instead of logits. It records what the model does to
logits before the loss (a scale, a softcap, a slice), and the loss applies it tile by tile. Without labels
(generate(), scoring) the model runs as before.
"""

from __future__ import annotations

from ._extras import check_extra

check_extra("transformers")

import contextlib
import dataclasses
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, Trainer
from transformers.loss.loss_utils import ForCausalLMLoss

from ._absent_logits import AbsentLogits, UnfollowedLogits
from ._logits_on_read import LogitsOnRead
from ._model_head import fused_head, unpatch_class, unpatch_heads, without_logits
from ._split_heads import has_base, is_sharded, is_split
from ._torch_options import BACKWARD, Options
from .packed import PackedWeight

__all__ = ["argmax", "compute_loss_func", "patch", "unpatch"]

@dataclasses.dataclass
class _Installed:
    """The settings of a patched model, and the warnings that it has given."""

    return_logits: bool
    backward: dict[str, Any] = dataclasses.field(default_factory=dict)  # sampled or certified gradients
    without_labels: bool = False  # calls without labels are fused, too: compute_loss_func() gets the labels
    told: list[str] = dataclasses.field(default_factory=list)

    def tell(self, message: str) -> None:
        if message not in self.told:
            self.told.append(message)
            warnings.warn(message, stacklevel=4)


_TRAINS_WITHOUT_LABELS = (
    "logitless: the patched model trains in a call without labels, which computes its logits: a loss of these logits is "
    "not fused. Trainer removes the labels from the call if it has a label_smoothing_factor or a compute_loss_func: "
    "give it compute_loss_func=logitless.transformers.compute_loss_func(model, label_smoothing=...)"
)
_SHARDED_WITHOUT_LABELS = (
    "logitless: the patched model trains in a call without labels, which computes its logits: FSDP or ZeRO stage 3 "
    "shards the head, which is whole only during this call. For a fused loss pass labels in the call: without a "
    "label_smoothing_factor and a compute_loss_func, Trainer does"
)
_TRL_TAKES_OVER = (
    "logitless: a trainer of TRL calls its own head, in chunks, instead of the patched model's: patch() has no effect "
    "there, use logitless.trl.patch(trainer) to fuse its loss"
)


def _is_of_trl(forward: Any) -> bool:
    function = getattr(forward, "__func__", forward)
    return getattr(function, "__globals__", {}).get("__name__", "").split(".")[0] == "trl"


class _Patched:
    """First base of a patched model's class. patch() only changes the class and stores no closures over the
    model, so a copy of a patched model, also by pickle or in another process, is patched and independent.
    """

    _unpatched: type
    _logitless: _Installed | None = None  # None in a model from type(patched).from_pretrained()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (_new_of, (self._unpatched,), *super().__reduce_ex__(protocol)[2:])

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward" and self._logitless is not None and _is_of_trl(value):
            self._logitless.tell(_TRL_TAKES_OVER)
        super().__setattr__(name, value)

    @property
    def loss_function(self) -> Any:
        function = super().loss_function  # type: ignore[misc]
        return function if self._logitless is None else functools.partial(_loss, function, self._logitless.backward)

    @loss_function.setter
    def loss_function(self, value: Any) -> None:
        if self._logitless is not None:
            raise ValueError(
                "the model is patched, for the loss of a causal LM: unpatch(model) before you set another"
            )
        self._loss_function = value


@functools.lru_cache(maxsize=None)
def _class_of(base: type) -> type:
    """The patched class of a class of models. It has the same name, which Trainer and save_pretrained()
    read."""
    signature = inspect.signature(base.forward)  # type: ignore[attr-defined]
    # -1 for self.
    place = list(signature.parameters).index("labels") - 1 if "labels" in signature.parameters else None

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _forward(self, base.forward, place, args, kwargs)  # type: ignore[attr-defined]

    # generate() and Trainer inspect the arguments. Not functools.wraps: accelerate follows __wrapped__ to
    # undo its own wrapping, and would skip this function.
    forward.__signature__ = signature  # type: ignore[attr-defined]
    forward.__doc__ = base.forward.__doc__  # type: ignore[attr-defined]
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (_Patched, base), {**names, "forward": forward, "_unpatched": base})


def _new_of(base: type) -> Any:
    """An object of the patched class without its state, for unpickling and copying."""
    cls = _class_of(base)
    return cls.__new__(cls)


def _forward(
    model: Any, forward: Any, place: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    installed = getattr(model, "_logitless", None)
    labels = args[place] if place is not None and len(args) > place else kwargs.get("labels")
    sharded = labels is None and is_sharded(model)
    if installed is None or (labels is None and (sharded or not installed.without_labels)):
        if installed is not None and model.training and torch.is_grad_enabled():
            if not torch.compiler.is_compiling():
                installed.tell(_SHARDED_WITHOUT_LABELS if sharded else _TRAINS_WITHOUT_LABELS)
        return forward(model, *args, **kwargs)
    output = without_logits(fused_head(model), forward, model, *args, **kwargs)
    compute = installed.return_logits and labels is not None
    if isinstance(output, tuple):
        return tuple(_handed_out(x, model, compute, labels) for x in output)
    output.logits = _handed_out(output.logits, model, compute, labels)
    return output


def absent_logits(model: Any, function: Callable[[], Any]) -> AbsentLogits:
    """The logits that function() returns by calling the model, as AbsentLogits.

    Raises a ValueError for a head that patch() refuses, and for a model that computes logits without its head
    or changes them in an unsupported way.
    """
    name = type(causal_lm(model)).__name__
    head = fused_head(causal_lm(model))
    try:
        logits = without_logits(head, function)
        logits = logits.absent if isinstance(logits, LogitsOnRead) else logits
        if isinstance(logits, AbsentLogits):
            logits.check()
            return logits
    except UnfollowedLogits as error:
        raise ValueError(f"{name} does more to its logits than logitless supports: they are {error.what}") from None
    raise ValueError(f"{name} computes its logits without a call of its head, {head._get_name()}")


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Runs code with the model in eval() mode and without gradients. Afterwards each module is in its own mode."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


class _NoLogits(Exception):
    """Raised if the model failed to run, or returned no logits."""


def _try(model: Any) -> None:
    """Calls a patched model with two tokens. A ValueError says how it changes its logits, if that is not
    supported. The test is skipped for a model that needs more than token ids."""

    def call() -> Any:
        ids = torch.zeros((1, 2), dtype=torch.int64, device="cpu")
        try:
            logits = model.forward(input_ids=ids, labels=torch.full_like(ids, -100)).logits
        except UnfollowedLogits:
            raise
        except Exception as error:
            raise _NoLogits from error
        if logits is None:
            raise _NoLogits
        return logits

    with evaluating(model), contextlib.suppress(_NoLogits):
        absent_logits(model, call)


def _handed_out(logits: Any, model: Any, compute: bool, labels: Tensor | None) -> Any:
    """The logits that the caller of the model gets."""
    if not isinstance(logits, AbsentLogits):
        return logits
    if compute:
        return logits.materialise()
    if torch.compiler.is_compiling():  # it cannot trace LogitsOnRead
        return logits.handed_out() if model.training else logits.materialise()
    waiting = LogitsOnRead(logits, may_be_read=labels is None or not model.training)
    for_a_loss = labels is None and model.training and torch.is_grad_enabled()
    return waiting.waiting_for_a_loss() if for_a_loss else waiting


def _loss(
    function: Any,
    backward: dict[str, Any],
    logits: Any,
    labels: Tensor | None,
    vocab_size: int | None = None,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """The loss function of a patched model. For computed logits it calls the original `function`."""
    if not isinstance(logits, AbsentLogits):
        return function(logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs)
    if vocab_size is not None and vocab_size != logits.shape[-1]:
        logits.refuse(f"of {logits.shape[-1]} vocabulary entries, where the loss has vocab_size = {vocab_size}")
    given, shift = (labels, True) if shift_labels is None else (shift_labels, False)
    if given is None:
        raise ValueError("neither labels nor shift_labels are given")
    tokens = logits.shape[:-1]
    if given.shape != tokens and given.numel() == tokens.numel():
        # transformers shifts labels of any shape along their own last axis, and flattens them.
        given = torch.nn.functional.pad(given, (0, 1), value=ignore_index)[..., 1:] if shift else given
        given, shift = given.reshape(tokens), False
    return logits.loss(given, ignore_index, shift, num_items_in_batch, **backward)


_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")


def causal_lm(model: Any, name: str = "model") -> Any:
    """The causal LM inside the wrappers of PEFT, torch.compile, DistributedDataParallel, FSDP1 and
    DeepSpeed."""
    given = model
    while True:
        if not isinstance(model, torch.nn.Module):
            break
        if hasattr(model, "get_base_model"):
            model = model.get_base_model()
        elif "_orig_mod" in getattr(model, "_modules", {}):
            model = model._orig_mod
        elif any(has_base(model, name) for name in _WRAPPERS):
            model = model.module
        elif isinstance(model, PreTrainedModel):
            return model
        else:
            break
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    raise TypeError(
        f"{name} must be a model of transformers, as from AutoModelForCausalLM.from_pretrained(), or one wrapped by "
        f"PEFT, torch.compile, DistributedDataParallel, FSDP or DeepSpeed, not {what}"
    )


def _checked_loss(model: Any) -> None:
    name = type(model).__name__
    if "_loss_function" in vars(model):
        raise ValueError(f"{name}.loss_function was set to another function: logitless only computes a causal LM's loss")
    # Multimodal models have the loss type "ForConditionalGeneration", which is the same function.
    loss_type = getattr(model, "loss_type", None)
    of_causal_lm = getattr(model, "loss_function", None) is ForCausalLMLoss
    forwards = [inspect.unwrap(c.forward) for c in type(model).__mro__ if "forward" in vars(c)]
    calls_it = any("loss_function" in getattr(f, "__code__", forwards).co_names for f in forwards)
    if not of_causal_lm or not calls_it:
        raise ValueError(
            f"the loss of {name} ({loss_type or 'its own, in forward()'}) is not that of a causal LM, which "
            "self.loss_function computes"
        )


def patch(model: Any, *, return_logits: bool = False, head: PackedWeight | None = None, **backward: Any) -> Any:
    """Makes model(..., labels=...) compute its loss fused. Returns the model.

    The model is called once with two tokens, to record what it does to its logits before the loss. Scales,
    casts, softcaps, and slices and masks of vocabulary entries are supported; a ValueError names any other
    operation.

    A call with labels computes no logits. In eval() mode they are computed if something reads them; while the
    model trains, reading them is a RuntimeError. With return_logits=True every call with labels computes and
    returns them, which costs their memory. A copy of a patched model (deepcopy, pickle, torch.save, another
    process) is patched, too.

    backward="sampled" with noise=0.01 (or theta, and seed) and backward="certified" with tolerance=1e-3
    compute the head's gradients from a part of the vocabulary, as in linear_cross_entropy(). The loss is
    exact.

    FSDP, ZeRO stage 3 or tensor parallelism may split the model before or after patch(). A model that is
    split already is not called.

    A head quantised by bitsandbytes or torchao is read once, as by logitless.packed, and is frozen. For a
    head of any other class, head= gives the packed weight. With all of these, a PEFT LoRA on the head trains,
    including its dropout. Rows of the head that PEFT trains (trainable_token_indices of a tied model) are
    fused, too. Calls without labels run the head's own code.

    Any other head (other adapters, other quantisation, hooks, parametrisations) is a ValueError, here and in
    later calls. So is a model with another loss than a causal LM's.

    Args:
        model: a causal LM of transformers, or PEFT's wrapper of one.
        return_logits: every call with labels computes and returns its logits.
        head: the packed weight of the head, if the head's class is not supported.
        **backward: backward, noise, theta, tolerance and seed, as in linear_cross_entropy().

    Returns:
        The model.

    Raises:
        ValueError: the model, its head or an option is not supported; the model is unchanged.
        TypeError: an option is unknown.

    Example:
        >>> import torch, transformers
        >>> import logitless.transformers as lt
        >>> sizes = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=11)
        >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        >>> ids = torch.arange(8).view(2, 4)
        >>> lt.patch(model)(ids, labels=ids).loss.dtype
        torch.float32
    """
    Options.of("patch", BACKWARD, backward)
    base = causal_lm(model)
    if getattr(base, "_logitless", None) is not None:
        raise ValueError("the model is patched already")
    if "forward" in vars(base):
        of_trl = _is_of_trl(base.forward)
        by = "a trainer of TRL" if of_trl else "something, such as accelerate's prepare()"
        instead = ", or logitless.trl.patch(trainer) instead" if of_trl else ""
        raise ValueError(
            f"the model's forward was replaced by {by}, and patch() would have no effect: call patch() before "
            f"that{instead}"
        )
    if not isinstance(base, _Patched):
        _checked_loss(base)
    fused_head(base, head)
    if not isinstance(base, _Patched):
        base.__class__ = _class_of(type(base))
    base._logitless = _Installed(False, backward)
    try:
        if not is_split(base):
            _try(base)
    except ValueError:
        unpatch(base)
        raise
    base._logitless.return_logits = return_logits
    return model


def unpatch(model: Any) -> Any:
    """Undoes patch().

    Args:
        model: a patched model, or PEFT's wrapper of one.

    Returns:
        The model.

    Raises:
        ValueError: the model is not patched.

    Example:
        >>> import torch, transformers
        >>> import logitless.transformers as lt
        >>> sizes = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=11)
        >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        >>> lt.unpatch(lt.patch(model)) is model
        True
    """
    base = causal_lm(model)
    if getattr(base, "_logitless", None) is None:
        raise ValueError("the model is not patched")
    del base._logitless
    unpatch_class(base)
    unpatch_heads(base)
    return model


def compute_loss_func(
    model: Any, *, label_smoothing: float = 0.0, ignore_index: int = -100
) -> Callable[..., Tensor]:
    """A fused function for Trainer(compute_loss_func=...) and a patched model. label_smoothing replaces
    TrainingArguments(label_smoothing_factor=...).

    The loss equals Trainer's own, and so does its mean over the micro-batches of a step: over all their
    labels, or, if the model takes no num_items_in_batch (accepts_loss_kwargs = False), the mean of their
    means. Labels are always shifted. (With label_smoothing_factor, Trainer does not shift the labels of
    models that are not in its mapping of causal LMs, such as multimodal ones.)

    After this call, the model's calls without labels return logits that are only computed when something
    reads them.

    Args:
        model: a patched model.
        label_smoothing: ε, from 0 to 1.
        ignore_index: labels of this value are ignored.

    Returns:
        A function (outputs, labels, num_items_in_batch=None) that returns the loss.

    Raises:
        ValueError: the model is not patched, or is an encoder-decoder model, or label_smoothing is invalid.

    Example:
        >>> import torch, transformers
        >>> import logitless.transformers as lt
        >>> sizes = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=11)
        >>> model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        >>> function = lt.compute_loss_func(lt.patch(model), label_smoothing=0.1)
        >>> ids = torch.arange(8).view(2, 4)
        >>> function(model(ids), ids).shape
        torch.Size([])
    """
    base = causal_lm(model)
    installed = getattr(base, "_logitless", None)
    if installed is None:
        raise ValueError("the model is not patched: patch(model) before compute_loss_func(model)")
    if getattr(base.config, "is_encoder_decoder", False):
        raise ValueError(
            f"{type(base).__name__} is an encoder-decoder model, whose labels are not shifted: call it with labels, "
            "which is fused"
        )
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing = {label_smoothing} must be between 0 and 1")
    installed.without_labels = True
    return functools.partial(
        loss_of_output, label_smoothing=label_smoothing, ignore_index=ignore_index, backward=installed.backward
    )


def _divisor_of_means(trainer: Any, items: Any) -> int | None:
    """The divisor of a micro-batch's mean if the Trainer averages the means of a step's micro-batches; None
    if it divides the sum of their losses by `items`.

    A Trainer with a compute_loss_func passes `items` for every model, and nothing else that tells the two
    cases apart.
    """
    if not isinstance(trainer, Trainer) or (trainer.model_accepts_loss_kwargs and items is not None):
        return None
    divisor = 1
    if trainer.model.training and getattr(trainer, "loss_is_scaled_for_ga", None) is None:
        divisor = trainer.current_gradient_accumulation_steps
    if items is not None and trainer.args.average_tokens_across_devices:  # it multiplies the result by this
        divisor *= trainer.accelerator.num_processes // getattr(trainer, "get_tp_size", lambda: 1)()
    return divisor


def loss_of_output(
    output: Any,
    labels: Tensor,
    num_items_in_batch: Any = None,
    *,
    label_smoothing: float,
    ignore_index: int,
    backward: dict[str, Any],
) -> Tensor:
    """The loss function that compute_loss_func() returns as a partial."""
    if labels is None:
        raise ValueError("the batch has no labels")
    divisor = _divisor_of_means(sys._getframe(1).f_locals.get("self"), num_items_in_batch)
    items = num_items_in_batch if divisor is None else None
    logits = output["logits"] if isinstance(output, dict) else output[0]
    absent = logits.absent if isinstance(logits, LogitsOnRead) else logits
    if isinstance(absent, AbsentLogits):
        loss = absent.loss(labels, ignore_index, True, items, label_smoothing, **backward)
        loss = logits.reached_from(loss) if isinstance(logits, LogitsOnRead) else loss
    else:
        # The logits were computed: by a compiled model in eval() mode, or by a model that was unpatched.
        loss = torch.nn.functional.cross_entropy(
            logits[..., :-1, :].flatten(0, -2).float(),
            labels[..., 1:].flatten(),
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="mean" if items is None else "sum",
        )
        loss = loss if items is None else loss / items
    return loss if divisor is None else loss / divisor


def argmax(logits: Any, labels: Any = None) -> Tensor:
    """The most likely vocabulary entry of each token, for Trainer(preprocess_logits_for_metrics=argmax). A
    patched model computes no logits for it.

    Args:
        logits: the logits that a model returns, or a tuple that begins with them.
        labels: ignored.

    Returns:
        int64, with the leading axes of logits.

    Raises:
        RuntimeError: the logits cannot be read.

    Example:
        >>> import torch
        >>> from logitless.transformers import argmax
        >>> argmax(torch.tensor([[0.0, 2.0, 1.0]]))
        tensor([1])
    """
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)
