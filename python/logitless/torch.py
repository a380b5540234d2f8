# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for PyTorch: the LM head and its loss in one call, with gradients and without the logits in
memory.

    from logitless.torch import linear_cross_entropy
    # instead of cross_entropy(lm_head(hidden), targets)
    loss = linear_cross_entropy(hidden, lm_head.weight, targets)
    loss.backward()

Tensors must be on the CPU: float32, bfloat16, float16 or float64. Threads follow torch.set_num_threads(). The
words floats, numbers and flags in help() of a function are defined by help(logitless.ArrayLike).
"""

from __future__ import annotations

from ._extras import check_extra

check_extra("torch")

import warnings
from typing import Any, Optional, Union

import torch
from torch import Tensor

from ._torch_versions import Module, check_options
from ._torch_versions import linear_cross_entropy as _pytorch_function

from ._torch_call import (
    PYTORCH_HEAD,
    PYTORCH_NAMES,
    as_pytorch_raises,
    batched,
    check_cpu,
    current_settings,
    not_compiled,
    offsets_of,
    options,
    set_options,
    type_of_logits,
    type_of_loss,
    values_of,
    with_names,
    without_gradient,
)
from ._torch_compiled import linear_cross_entropy_op
from ._torch_distillation import distillation_loss
from ._torch_head import checked_ids, entries_of, read_head
from ._torch_options import (
    CROSS_ENTROPY,
    DISTILLATION,
    ID_SET,
    KTO,
    POLICY,
    PREFERENCE,
    SET_DISTILLATION,
    SOFT_TARGETS,
    TOKEN,
    WITHOUT_TARGETS,
    Options,
    numbers_of,
)
from ._torch_loss import CrossEntropyStats, loss_of
from ._torch_ranks import local_parts
from ._torch_sequences import kto_loss, policy_loss, preference_loss
from ._torch_sets import class_probabilities, id_logps, set_distillation_loss, soft_cross_entropy
from ._torch_tokens import sample, token_logps, topk_logps, topk_union
from . import Context
from ._draws import DRAW_ARGUMENTS, SEED
from ._signatures import Array, Surface, arguments_of, describe
from .lora import HeadWeight, LoraWeight
from .packed import PackedWeight

__all__ = [
    "CrossEntropyStats",
    "LinearCrossEntropyLoss",
    "distillation_loss",
    "id_logps",
    "kto_loss",
    "linear_cross_entropy",
    "options",
    "policy_loss",
    "preference_loss",
    "sample",
    "set_distillation_loss",
    "set_options",
    "soft_cross_entropy",
    "token_logps",
    "topk_logps",
    "topk_union",
]


def _is_traced(*tensors: Any) -> bool:
    """Tells whether a dispatch mode or a tensor subclass intercepts operators. The call must then be an
    operator."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return True
    for t in tensors:
        if isinstance(t, Tensor) and type(t).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            return True
    return False


def linear_cross_entropy(
    input: Tensor,
    linear_weight: HeadWeight,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    num_items_in_batch: float | Tensor | None = None,
    temperatures: Tensor | None = None,
    token_weights: Tensor | None = None,
    loss_dtype: torch.dtype | None = None,
    vocab_ids: Tensor | None = None,
    offsets: Tensor | None = None,
    return_stats: bool = False,
    group: Any = None,
    context: Context | None = None,
    **beyond: Any,
) -> Any:
    """A drop-in for torch.nn.functional.linear_cross_entropy, exact and without the logits in memory.

    The arguments up to `options` have PyTorch's meaning and raise PyTorch's errors. `input` may have any
    leading axes; `target` has the same ones. `options` are PyTorch's LinearCrossEntropyOptions. They have no
    effect, because logits are not cut into chunks. Their acc_dtype may only name the type of the sums.

    The loss is computed in float64 and rounded to loss_dtype. Gradients do not depend on loss_dtype, but a
    float32 loss shows more digits than a bfloat16 one. num_items_in_batch is a number, such as the tokens in
    all micro-batches of a step, or a tensor, which torch.compile reads at run time.

    token_weights, one per token, multiply each token's loss and gradients. mean_over says what a mean divides
    by: "tokens" (the default, PyTorch's mean), "token_weights" (their sum), "sequences" or "sequence_means".

    With vocab_ids, targets and `weight` refer to positions in vocab_ids. The gradient of linear_weight keeps
    its full shape, with zeros for the other entries. shift stays within each sequence of offsets.

    With group, linear_weight and linear_bias hold this rank's vocabulary entries, and all other arguments are
    equal on all ranks. A head that is a DTensor, sharded by vocabulary entry, needs no group.

    torch.compile breaks the graph at a call with context.

    linear_weight may be a PackedWeight (logitless.packed), which is frozen: only input and linear_bias have
    gradients. It may be a LoraWeight (logitless.lora), whose tensors have gradients, too.

    Targets may be class probabilities, with input's leading axes and the classes as last axis. They are
    copied if label_smoothing or weight is given, or if they are not float32 (float64 for a float64 input).

    Differences from PyTorch: the mean over no tokens is 0 instead of NaN, and a negative class probability is
    an error. Weights of more than two axes, and class probabilities that require a gradient, are passed to
    PyTorch's own function, with a warning.
    """
    tensors = (input, linear_weight, target, linear_bias, weight)
    whole = isinstance(linear_weight, (PackedWeight, LoraWeight))  # not a plain matrix
    # Arguments that neither PyTorch's function nor the operator for torch.compile has.
    own: dict[str, Any] = {}
    if vocab_ids is not None or offsets is not None or return_stats or context is not None:
        own = {"vocab_ids": vocab_ids, "offsets": offsets, "return_stats": return_stats or None, "context": context}
        own = {name: value for name, value in own.items() if value is not None}
    plain = not own and not whole
    compiling = torch.compiler.is_compiling()
    overridden = torch.overrides.has_torch_function(tensors)
    if overridden or context is not None or (compiling and not plain):
        arguments = dict(
            linear_bias=linear_bias,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            options=options,
            num_items_in_batch=num_items_in_batch,
            temperatures=temperatures,
            token_weights=token_weights,
            loss_dtype=loss_dtype,
            vocab_ids=vocab_ids,
            offsets=offsets,
            return_stats=return_stats,
            group=group,
            context=context,
            **beyond,
        )
        if (compiling and not plain) or not overridden:
            return _not_an_operator(input, linear_weight, target, **arguments)
        return torch.overrides.handle_torch_function(
            linear_cross_entropy, tensors, input, linear_weight, target, **arguments
        )
    if not whole:
        input, linear_weight, linear_bias, group = local_parts(input, linear_weight, linear_bias, group, PYTORCH_HEAD)
    for name, value in (("input", input), ("linear_weight", linear_weight), ("target", target)):
        if not isinstance(value, Tensor) and not (whole and name == "linear_weight"):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
    for name, value in (("linear_bias", linear_bias), ("weight", weight)):
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
    if input.dim() < 1:
        raise RuntimeError(f"expected input with dimensionality at least 1, got {input.dim()}")
    axes = 2 if whole else linear_weight.dim()
    if axes < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {axes}")
    if not whole and input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    if vocab_ids is not None:
        vocab_ids = checked_ids("vocab_ids", vocab_ids)
    vocab = entries_of(linear_weight, vocab_ids)
    pytorchs = {"reduction": reduction, "label_smoothing": label_smoothing}
    if ignore_index is not None:
        pytorchs["ignore_index"] = ignore_index
    if options is not None:
        check_options(options, input.dtype)
    chosen = Options.of("linear_cross_entropy", CROSS_ENTROPY, {**pytorchs, **beyond})
    # Like PyTorch, recognises probabilities by their shape. Floats with one entry per token are ids of a
    # wrong type.
    lead = input.shape[:-1]
    probabilities = target.shape == (*lead, vocab) or (target.is_floating_point() and target.shape != lead)
    if group is not None and (axes > 2 or probabilities):
        raise ValueError("group is set: targets must be vocabulary entries, and linear_weight must have 2 axes")
    if probabilities and axes == 2 and _takes_probabilities(input, linear_weight, target, vocab):
        return _soft_path(
            input,
            linear_weight,
            target,
            linear_bias,
            weight,
            reduction,
            ignore_index,
            label_smoothing,
            {**{name: value for name, value in chosen.given if name not in pytorchs}, **own},
            {
                "num_items_in_batch": num_items_in_batch,
                "temperatures": temperatures,
                "token_weights": token_weights,
                "dtype": loss_dtype,
            },
            vocab,
        )
    if axes > 2 or probabilities:
        if whole or vocab_ids is not None:
            what = _not_plain(linear_weight, own)
            if axes > 2:
                raise ValueError(f"{what}: linear_weight has {axes} axes, and must have 2")
            raise ValueError(
                f"{what}: class probabilities, target of shape {tuple(target.shape)}, must have shape "
                f"{(*input.shape[:-1], vocab)}, floating-point numbers and no gradient"
            )
        beyond = {name: value for name, value in chosen.given if name not in pytorchs}
        given = None if compiling else current_settings().given
        beyond.update(own, num_items_in_batch=num_items_in_batch, temperatures=temperatures)
        beyond.update(token_weights=token_weights, context=given)
        return _pytorch_path(
            "target holds class probabilities" if probabilities else "linear_weight has more than 2 axes",
            beyond,
            input,
            linear_weight,
            target,
            linear_bias=linear_bias,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            options=options,
        )
    entries = vocab if vocab_ids is None else entries_of(linear_weight, None)
    if linear_bias is not None and tuple(linear_bias.shape) != (entries,):
        raise RuntimeError(f"expected linear_bias shape {(entries,)}, got {tuple(linear_bias.shape)}")
    if label_smoothing > 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if target.dtype == torch.uint8:
        target = target.long()
    if target.dtype != torch.int64:
        raise RuntimeError(f"expected target of dtype torch.int64, got {target.dtype}")
    if target.shape != input.shape[:-1]:
        raise ValueError(
            f"expected target of shape {tuple(input.shape[:-1])}, as input has, got {tuple(target.shape)}"
        )
    names: Any = {"names": PYTORCH_HEAD, "target": target}
    head = read_head(input, linear_weight, linear_bias, vocab_ids=vocab_ids, group=group, **names)
    check_cpu(weight=weight)
    if not whole:
        input, linear_weight, linear_bias = head.tensors  # type: ignore[assignment]
    if not whole and any(t is not None and t.dtype != input.dtype for t in (linear_weight, linear_bias)):
        raise RuntimeError(
            f"expected input, linear_weight and linear_bias of one dtype, got {input.dtype}, {linear_weight.dtype}"
            + ("" if linear_bias is None else f" and {linear_bias.dtype}")
        )
    if weight is not None:
        if group is None and tuple(weight.shape) != (vocab,):
            raise RuntimeError(f"expected weight of shape {(vocab,)}, got {tuple(weight.shape)}")
        weight = values_of(weight).float().contiguous()
    if isinstance(num_items_in_batch, Tensor):
        check_cpu(num_items_in_batch=num_items_in_batch)
        without_gradient(num_items_in_batch=num_items_in_batch)
    temperatures = numbers_of("temperatures", temperatures, target.shape)
    token_weights = numbers_of("token_weights", token_weights, target.shape)
    if offsets is not None:
        offsets = offsets_of(offsets, input)
    dtype = type_of_loss(loss_dtype, type_of_logits(input), "loss_dtype")
    shape = target.shape
    rows, ids = batched(head.input, target)
    if compiling or _is_traced(rows, linear_weight, linear_bias, ids, weight):
        if group is not None:
            raise ValueError("group is set: calls on several ranks are not traced or compiled")
        given = not compiling and current_settings().given is not None
        if given or not plain:
            what = _not_plain(linear_weight, {"context": None} if given else own)
            raise ValueError(f"{what}: such calls are not an operator, so fake tensors and tracers cannot run them")
        grad = torch.is_grad_enabled()
        needs = [grad and t is not None and t.requires_grad for t in (rows, linear_weight, linear_bias)]
        if num_items_in_batch is not None and not isinstance(num_items_in_batch, Tensor):
            num_items_in_batch = torch.tensor(num_items_in_batch, dtype=torch.float64)
        loss = linear_cross_entropy_op(
            rows,
            linear_weight,
            linear_bias,
            ids,
            weight,
            temperatures,
            token_weights,
            num_items_in_batch,
            needs=needs,
            dtype=dtype,
            **chosen.arguments(),
        )[0]
        return loss.view(shape) if reduction == "none" else loss
    arguments = {"targets": ids, **chosen.arguments()}
    if weight is not None:
        arguments["class_weights"] = weight
    if temperatures is not None:
        arguments["temperatures"] = temperatures
    if token_weights is not None:
        arguments["token_weights"] = token_weights
    if num_items_in_batch is not None:
        arguments["num_items_in_batch"] = float(num_items_in_batch)
    if offsets is not None:
        arguments["offsets"] = offsets
    if return_stats:
        arguments["want_accuracy"] = True
        type_of_stats = torch.float64 if torch.float64 in (loss_dtype, input.dtype) else torch.float32
    report: dict[str, Any] = {}
    try:
        loss = loss_of("cross_entropy", head.of(rows), reduction, arguments, dtype, shape, report)
    except ValueError as error:
        raise as_pytorch_raises(error) from None
    return (loss, CrossEntropyStats.of(report, shape, type_of_stats)) if return_stats else loss


def _not_plain(linear_weight: HeadWeight, own: dict[str, Any]) -> str:
    """The reason, for a message, why neither PyTorch's function nor the operator can make the call."""
    names = [f"{name} is given" for name in own]
    return names[0] if names else f"linear_weight is a {type(linear_weight).__name__}"


# For calls that the operator cannot make, torch.compile breaks its graph: the operator takes only matrices,
# no context, and returns only a loss. Calls with context= also go through here, eager or not: not_compiled()
# reads it.
_not_an_operator = not_compiled(linear_cross_entropy, pytorchs=True)


def _takes_probabilities(input: Tensor, linear_weight: HeadWeight, target: Tensor, vocab: int) -> bool:
    """Tells whether class probabilities can be fused. Otherwise PyTorch's function runs, or raises its
    error."""
    return (
        target.is_floating_point()
        and target.shape == (*input.shape[:-1], vocab)
        and not target.requires_grad
        and not _is_traced(input, linear_weight, target)
    )


def _soft_path(
    input: Tensor,
    linear_weight: HeadWeight,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: float,
    beyond: dict[str, Any],
    rest: dict[str, Any],
    classes: int,
) -> Tensor:
    """The loss for class probabilities. As in PyTorch, the mean is over tokens and ignores their weights."""
    unused = [name for name in beyond if name in ("z_loss", "shift", "dft", "offsets", "return_stats")]
    if unused:
        raise ValueError(f"{' and '.join(unused)} is not supported if target holds class probabilities")
    if ignore_index is not None and ignore_index >= 0:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(f"expected weight of shape {(classes,)}, got {tuple(weight.shape)}")
    check_cpu(target=target, weight=weight)
    rest["dtype"] = type_of_loss(rest["dtype"], type_of_logits(input), "loss_dtype")
    try:
        return soft_cross_entropy(
            input,
            linear_weight,
            class_probabilities(target, weight, label_smoothing, classes, input.dtype),
            bias=linear_bias,
            reduction=reduction,
            **{name: value for name, value in {**beyond, **rest}.items() if value is not None},
        )
    except ValueError as error:
        raise ValueError(with_names(error, PYTORCH_NAMES)) from None


def _pytorch_path(what: str, beyond: dict[str, Any], *tensors: Tensor, **arguments: Any) -> Tensor:
    given = [name for name, value in beyond.items() if value is not None]
    if given:
        raise ValueError(f"{' and '.join(given)} is not supported if {what}: PyTorch's own function runs then")
    warnings.warn(
        f"logitless.torch.linear_cross_entropy: {what}: PyTorch's own function runs, with all logits in memory",
        stacklevel=4,
    )
    return _pytorch_function(*tensors, **arguments)


class LinearCrossEntropyLoss(Module):
    """torch.nn.LinearCrossEntropyLoss, computed by linear_cross_entropy(). It also takes that function's
    further options. It is a subclass of PyTorch's module in versions of PyTorch that have it.

    Equivalent to:
        loss = linear_cross_entropy(input, self.linear.weight, target, linear_bias=self.linear.bias,
                                    weight=self.weight, reduction=self.reduction)

    Args:
        in_features: columns of hidden states.
        num_classes: vocabulary entries.
        **arguments: PyTorch's arguments, and options of linear_cross_entropy() except per-token tensors:
            softcap, z_loss, mean_over, num_items_in_batch, loss_dtype, return_stats, context, ...

    forward() takes input, target and, if wanted, token_weights.

    Raises:
        ValueError, RuntimeError: forward() raises what linear_cross_entropy() raises.
        TypeError: an argument is unknown.

    Example:
        >>> import torch, logitless.torch as lt
        >>> module = lt.LinearCrossEntropyLoss(4, 7, softcap=20.0)
        >>> module(torch.ones(6, 4), torch.arange(6)).shape
        torch.Size([])
    """

    def __init__(self, in_features: int, num_classes: int, **arguments: Any) -> None:
        pytorchs = {"reduction", "ignore_index", "label_smoothing"}
        ours = {*CROSS_ENTROPY, "num_items_in_batch", "loss_dtype", "return_stats", "context"} - pytorchs
        beyond = {name: arguments.pop(name) for name in list(arguments) if name in ours}
        super().__init__(in_features, num_classes, **arguments)
        self.beyond = beyond

    def forward(self, input: Tensor, target: Tensor, token_weights: Tensor | None = None) -> Any:
        classes = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return linear_cross_entropy(
            input,
            self.linear.weight.view(*classes, -1),
            target,
            linear_bias=None if bias is None else bias.view(classes),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
            token_weights=token_weights,
            **self.beyond,
        )

    def extra_repr(self) -> str:
        beyond = [f" {name}={value}" for name, value in self.beyond.items()]
        return ",".join([super().extra_repr(), *beyond])


# Arguments that the NumPy functions do not have, or that have a different type there.
_ARGUMENTS = {
    name: (name, type, None, meaning)
    for name, type, meaning in (
        ("context", Optional[Context], "how the call and its backward run; overrides options()"),
        ("dtype", Optional[torch.dtype], "of the results; by default float64 if hidden is, else float32"),
        ("loss_dtype", Optional[torch.dtype], "of the loss; by default input's type"),
        ("group", Any, "a torch.distributed group whose ranks share the vocabulary (docs/parallel.md)"),
        (
            "num_items_in_batch",
            Union[float, Tensor, None],
            "divides the sum of a mean instead of the number of tokens",
        ),
        ("options", Any, "PyTorch's LinearCrossEntropyOptions, which have no effect"),
        ("vocab_ids", Array("int64", "[K]"), "the entries of the head that the call is over; all by default"),
        ("temperatures", Array("numbers", "[N]"), "one per token, instead of temperature"),
        ("class_weights", Array("numbers", "[V]"), "class weights, as in PyTorch"),
        ("probabilities", Array("numbers", "[N, V]"), "instead of ids and weights; copied unless they are float32"),
        ("seed", Optional[int], "for sampled gradients; by default each call draws one from PyTorch's generator"),
        ("k", int, "the number of ids, from 1 to 256"),
    )
}
_ARGUMENTS |= {
    name: (name, bool, False, meaning)
    for name, meaning in (
        ("return_metrics", "returns the loss and a dict of metrics to log"),
        ("return_stats", "returns the loss and its CrossEntropyStats"),
        ("entropy", "also returns entropies, in nats"),
        ("lse", "also returns the log-sum-exp of the logits"),
        ("square_sum", "also returns the sum of squared probabilities"),
    )
}


def _shape(shape: str) -> str:
    """The shape with "..." for the leading axes of hidden states, instead of [N] or [B, T]."""
    shape = shape.replace("[N, H] or [B, T, H]", "[..., H]").replace("[N, V] or [B, T, V]", "[..., V]")
    return shape.replace("[N] or [B, T]", "[...]").replace("[N]", "[...]").replace("[N, ", "[..., ")


_SURFACE = Surface("torch", Tensor, Union[Tensor, PackedWeight, LoraWeight], _ARGUMENTS, _shape, "int64 or int32")
_TARGET = ("targets", Array("int64", "[...], or floats [..., V]"), None, "token ids, or class probabilities")
for _function, _task, _fields in (
    (linear_cross_entropy, "cross_entropy", CROSS_ENTROPY),
    (token_logps, "token_stats", TOKEN),
    (topk_logps, "token_stats", WITHOUT_TARGETS),
    (sample, "token_stats", WITHOUT_TARGETS),
    (id_logps, "id_logps", ID_SET),
    (soft_cross_entropy, "soft_cross_entropy", SOFT_TARGETS),
    (set_distillation_loss, "set_distillation_loss", SET_DISTILLATION),
    (distillation_loss, "distillation_loss", DISTILLATION),
    (policy_loss, "policy_loss", POLICY),
    (preference_loss, "preference_loss", PREFERENCE),
    (kto_loss, "kto_loss", KTO),
):
    _rows = arguments_of(_task, gradients=True)
    _name, _type, *_rest = _rows["round_logits_to"]
    _rows[_name] = (_name, Union[_type, torch.dtype], *_rest)
    _names = {}
    if _function is linear_cross_entropy:
        _rows["targets"], _names = _TARGET, PYTORCH_NAMES
    if _function is sample:
        _rows, _names = {**_rows, **DRAW_ARGUMENTS}, SEED
    describe(_function, _SURFACE, _rows, Any, _fields, _names)
