# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of `logitless.torch` drawn from its signatures and the library's lists. Values arrive through every
type and stride, and gradients match the reference in every mode of autograd."""

import inspect

import numpy as np
import pytest
from hypothesis import given

torch = pytest.importorskip("torch")

import logitless.torch as lt  # noqa: E402
from call_reference import UNITS, Reference  # noqa: E402
from drawn_calls import MANY, calls, lists_of, profile, st  # noqa: E402
from drawn_checks import (  # noqa: E402
    TASKS,
    Outcomes,
    arguments_of,
    check_arguments_are_drawn,
    is_exact,
    leading_axes,
    named_in,
    offsets_of,
    refusal_of,
    sets_with_offsets,
    upstream_of,
    with_columns,
)
from logitless import Context  # noqa: E402
from logitless._torch_call import PYTORCH_NAMES  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

OURS = {theirs: ours for ours, theirs in PYTORCH_NAMES.items()}
# Arguments that are drawn here instead of from the lists.
OWN = {"dtype", "loss_dtype", "context", "entropy", "lse", "square_sum", "return_metrics", "return_stats", "k"}
UNDRAWN = {"group", "options"}  # ranks have their own tests; PyTorch's options have no effect


def taken_by(name):
    """The library's names for a function's arguments."""
    names = arguments_of(getattr(lt, name))
    return {OURS.get(one, one) if name == "linear_cross_entropy" else one for one in names}


FUNCTIONS = {
    name: (TASKS.get(name, name), taken_by(name))
    for name in lt.__all__
    if inspect.isfunction(getattr(lt, name)) and name not in ("options", "set_options", "topk_union", "sample")
}
# In the lists these are requests for statistics under other names, or do not exist.
FUNCTIONS = {name: (task, taken - OWN) for name, (task, taken) in FUNCTIONS.items()}


def test_every_argument_of_a_signature_is_drawn():
    check_arguments_are_drawn(FUNCTIONS, UNDRAWN)


def apart(tensor):
    return torch.stack([tensor, torch.zeros_like(tensor)], -1)[..., 0]


def turned(tensor):
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def gap(tensor):
    return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]


def expanded(tensor):
    """If all rows are equal, an expanded tensor with one row in memory."""
    rows = tensor.shape[0] if tensor.dim() else 0
    return tensor[:1].expand(tensor.shape) if rows and torch.equal(tensor, tensor[:1].expand(tensor.shape)) else tensor


LAYOUTS = {"plain": lambda t: t, "apart": apart, "turned": turned, "row gap": gap, "expanded": expanded}


class TorchCall:
    """A drawn call as arguments of a logitless.torch function."""

    def __init__(self, call, draw):
        self.call, self.draw = call, draw
        self.name = call.function
        self.entries = None
        self.leaves = {}  # {name of the gradient: tensor}
        self.lead = leading_axes(call, draw)
        self.arguments = {name: self.value_of(name, value) for name, value in call.plain().items()}
        self.add_model(call.student, "")
        if call.other is not None:
            self.add_model(call.other, call.prefix)
        if call.offsets is not None:
            kind = draw(st.sampled_from([torch.int64, torch.int32]))
            self.arguments["offsets"] = torch.from_numpy(call.offsets.copy()).to(kind)
        if "num_items_in_batch" in self.arguments and draw(st.booleans()):
            self.arguments["num_items_in_batch"] = torch.tensor(self.arguments["num_items_in_batch"])
        if "round_logits_to" in self.arguments and draw(st.booleans()):
            self.arguments["round_logits_to"] = getattr(torch, self.arguments["round_logits_to"])
        self.as_rows_of_sets()

    def laid_out(self, tensor):
        return LAYOUTS[self.draw(st.sampled_from(sorted(LAYOUTS, key=lambda f: f != "plain")))](tensor)

    def value_of(self, name, value):
        if not isinstance(value, np.ndarray):
            return value
        tokens, shape = int(np.prod(self.lead)), lists_of(self.call.task)[1][name]["shape"]
        tensor = torch.from_numpy(np.array(value, order="C"))
        types = [tensor.dtype]  # targets must be int64
        if tensor.dtype == torch.int64 and name not in ("targets", "chosen_ids"):
            types = [torch.int64, torch.int32]
        elif tensor.dtype == torch.bool:
            types = [torch.bool, torch.uint8, torch.float32, torch.int64]
        elif tensor.is_floating_point():
            types = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
        tensor = tensor.to(self.draw(st.sampled_from(types)))
        if name in ("targets", "chosen_ids"):
            tensor = tensor.reshape(self.lead)
        elif value.ndim == 2:
            tensor = tensor.reshape(*self.lead, -1)
        elif "[N]" in shape and value.size == tokens and self.draw(st.booleans()):
            tensor = tensor.reshape(self.lead)
        return self.laid_out(tensor)

    def as_rows_of_sets(self):
        """Sometimes converts ids [..., K] to [E] with offsets."""
        tensors = self.arguments
        for begin, taken, names in sets_with_offsets(self.call, self.draw):
            here = torch.from_numpy(taken)
            for name in names:
                tensors[name] = tensors[name].reshape(here.shape)[here]
            self.entries = taken if self.call.task == "id_logps" else None
            tensors.pop(f"{begin}counts", None)
            tensors[f"{begin}offsets"] = torch.from_numpy(offsets_of(taken))

    def leaf(self, gradient, array, dtype, layout=True):
        tensor = torch.from_numpy(np.array(array, order="C")).to(getattr(torch, dtype))
        tensor = self.laid_out(tensor) if layout else tensor
        if gradient is not None and self.draw(st.booleans()):
            self.leaves[gradient] = tensor.requires_grad_() if tensor.is_leaf else tensor.detach().requires_grad_()
            return self.leaves[gradient]
        return tensor

    def add_model(self, model, prefix):
        call, arguments = self.call, self.arguments
        gradient = (lambda name: None) if prefix else (lambda name: f"d_{name}")
        dtype, head_dtype = call.dtype, call.head_dtype
        if self.name == "linear_cross_entropy" and not model.packed and model.a is None:
            head_dtype = dtype  # PyTorch's function requires it
        if model.finished:
            logits = (model.hidden @ model.whole.T).reshape(*self.lead, -1)
            arguments[f"{prefix}logits"] = self.leaf(None, logits, dtype if dtype == "float64" else "float32")
            return
        arguments[f"{prefix}hidden"] = self.leaf(gradient("hidden"), model.hidden.reshape(*self.lead, -1), dtype)
        if model.packed:
            parts = (None if x is None else torch.from_numpy(x.copy()) for x in (model.packed.data, model.packed.scales))
            weight = PackedWeight(next(parts), model.packed.packing, next(parts))
        else:
            weight = self.leaf(gradient("weight"), model.weight, head_dtype)
        if model.a is not None:
            a, b = (self.leaf(gradient(f"lora_{name}"), getattr(model, name), head_dtype) for name in ("a", "b"))
            weight = LoraWeight(weight, a, b, model.scale)
        arguments[f"{prefix}weight"] = weight
        if model.bias is not None:
            arguments[f"{prefix}bias"] = self.leaf(gradient("bias"), model.bias, head_dtype)
        if model.vocab_ids is not None:
            arguments[f"{prefix}vocab_ids"] = self.laid_out(torch.from_numpy(model.vocab_ids.copy()))
        if model.softcap:
            arguments[f"{prefix}softcap"] = model.softcap

    def tensors(self):
        """(name, tensor) of every tensor of the call."""
        for name, value in self.arguments.items():
            parts = {"": value}
            if isinstance(value, LoraWeight):
                parts = {".a": value.a, ".b": value.b, ".weight": value.weight}
                value = value.weight
            if isinstance(value, PackedWeight):
                parts |= {".data": value.data, ".scales": value.scales}
            yield from ((name + part, tensor) for part, tensor in parts.items() if isinstance(tensor, torch.Tensor))

    def __call__(self, **more):
        given = {**self.arguments, **more}
        if self.name == "linear_cross_entropy":
            given = {PYTORCH_NAMES.get(name, name): value for name, value in given.items()}
        return getattr(lt, self.name)(**given)


def own_arguments(call, draw):
    """Arguments that request further results, or results of another type."""
    taken = arguments_of(getattr(lt, call.function))
    asked = sorted(taken & {"entropy", "lse", "square_sum", "return_metrics", "return_stats"})
    more = {name: True for name in asked if draw(st.booleans())}
    dtype = draw(st.sampled_from([None, torch.float32, torch.float64]))
    if dtype is not None:
        more["dtype" if "dtype" in taken else "loss_dtype"] = dtype
    if "k" in taken:
        more["k"] = draw(st.integers(1, 4))
    if draw(st.booleans()):
        tile, plan = draw(st.sampled_from([0, 3])), draw(st.sampled_from(["auto", "two_pass"]))
        more["context"] = Context(threads=1, plan=plan, row_tile=tile)
    return more


def unit_of(tensor):
    return UNITS[str(tensor.dtype).removeprefix("torch.")]


def columns_of(call, more, result):
    """({name: differentiable result}, {name: column}) of a call's results."""
    def as_columns(parts):
        return {name: (part.detach().double(), unit_of(part)) for name, part in parts.items()}

    if call.function == "topk_logps":
        return {}, {"top_ids": (result[0], 0), **as_columns({"top_logps": result[1]})}
    if call.function == "token_logps":
        names = ["logp", *(name for name in ("entropy", "lse", "square_sum") if more.get(name))]
        parts = dict(zip(names, result if isinstance(result, tuple) else (result,)))
        return parts, as_columns(parts)
    if call.function == "id_logps":
        return {"logps": result}, as_columns({"logps": result})
    loss, beside = result if isinstance(result, tuple) else (result, {})
    columns = as_columns({"per_token_loss" if call.options.get("reduction") == "none" else "loss": loss})
    if more.get("return_stats"):
        columns |= as_columns({"per_token_logps": beside.logps, "per_token_lse": beside.lse})
        columns["per_token_argmax"] = beside.predicted_ids, 0
        beside = {name: getattr(beside, name) for name in ("tokens", "accuracy", "mean_nll", "perplexity", "z_loss")}
    columns |= {f"metrics.{name}": (value, 0) for name, value in beside.items()}
    return {"loss": loss}, columns


def sum_of(parts, factors):
    return sum((part.double() * torch.from_numpy(factors[name])).sum() for name, part in parts.items())


def changed_in_place(tensors, draw):
    """Changes the values of one of the tensors in place. Ids stay valid ids."""
    tensor = draw(st.sampled_from(tensors))
    with torch.no_grad():
        if tensor.dtype == torch.bool:
            tensor.logical_not_()
        elif tensor.is_floating_point():
            tensor.mul_(0.5)
        else:
            tensor.floor_divide_(2)


outcomes = Outcomes()
told = []  # functions whose backward reported an in-place change
MODES = ["backward", "no_grad", "inference", "create_graph", "twice", "accumulated", "autocast", "changed"]


@profile(1500)
@given(call=calls(FUNCTIONS, ["float32", "float64", "bfloat16", "float16"]), data=st.data())
def check_calls(call, data):
    if data.draw(st.integers(0, 7)) == 7:  # equal rows, so that they may be expanded
        call.student.hidden[:] = call.student.hidden[:1]
        call.student.weight[:] = call.student.weight[:1] if call.student.packed is None else call.student.weight
    mode = data.draw(st.sampled_from(MODES))
    torchs, more = TorchCall(call, data.draw), own_arguments(call, data.draw)
    mode = "backward" if mode == "autocast" and call.dtype == "float64" else mode
    before = {name: tensor.detach().clone() for name, tensor in torchs.tensors()}
    without_loss = call.task in ("token_stats", "id_logps")
    of_call = with_columns(call, more.get("k"), **{name: True for name in ("entropy", "square_sum") if more.get(name)})
    of_call.options |= {"want_accuracy": True} if more.get("return_stats") else {}
    if mode == "autocast":  # rounding errors are bfloat16's
        of_call.dtype = of_call.head_dtype = "bfloat16"
    # The states of a LoRA have the type of its matrices.
    reference = Reference(of_call, None if without_loss else 1.0, UNITS[of_call.head_dtype])
    reference.entries = torchs.entries
    _, plain_error = refusal_of(lambda: reference.run(0))
    grad_mode = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, torch.enable_grad)
    with grad_mode(), torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
        result, error = refusal_of(lambda: torchs(**more))
    for name, tensor in torchs.tensors():
        assert torch.equal(tensor, before[name]) or tensor.isnan().any(), f"{name} was written"
    names = {*arguments_of(getattr(lt, call.function)), *torchs.arguments}
    if not outcomes.add(call, error, plain_error, names):
        return

    parts, columns = columns_of(call, more, result)
    leaves, gradients = torchs.leaves, {}
    wanted = bool(leaves) and mode not in ("no_grad", "inference") and bool(parts)
    default = torch.float64 if call.dtype == "float64" else torch.float32
    if call.function == "linear_cross_entropy" and mode != "autocast":
        default = torchs.arguments["hidden"].dtype
    assert {part.dtype for part in parts.values()} <= {more.get("dtype", more.get("loss_dtype", default))}
    assert wanted == any(part.requires_grad for part in parts.values())
    if wanted:
        factors, reference.upstream = upstream_of(call, {name: part.shape for name, part in parts.items()})
        total = sum_of(parts, factors)
        if mode == "changed":
            refusal_of(lambda: changed_in_place([tensor for _, tensor in torchs.tensors()], data.draw))
        gradients, refused = refusal_of(lambda: gradients_of(total, leaves, mode))
        if refused is not None and mode == "changed" and named_in(str(refused), ["in place", "inplace operation"]):
            told.append(call.function)
            return
        if refused is not None:  # only the backward knows whether these have a gradient
            told_of = [name for name in ("entropy", "square_sum") if more.get(name) and name in str(refused)]
            assert told_of and not is_exact(call), refused
            return
        reference.runs, reference.start = [], float(mode == "accumulated")
    unit = UNITS["bfloat16"] if mode == "autocast" else 0
    gradients = {name: (value.double(), max(unit, unit_of(value))) for name, value in gradients.items()}
    fault = reference.fault(columns, gradients, whole=True, exact=is_exact(call))
    assert fault == "", fault


def gradients_of(total, leaves, mode):
    if mode == "create_graph":
        made = torch.autograd.grad(total, list(leaves.values()), create_graph=True)
        again = [gradient for gradient in made if gradient.requires_grad]
        if again:
            with pytest.raises(RuntimeError, match="no second derivatives"):
                torch.autograd.grad(sum(gradient.sum() for gradient in again), list(leaves.values()))
        return dict(zip(leaves, (gradient.detach() for gradient in made)))
    if mode == "twice":
        first = torch.autograd.grad(total, list(leaves.values()), retain_graph=True)
        second = torch.autograd.grad(total, list(leaves.values()))
        for one, other in zip(first, second):
            assert torch.allclose(one, other, 1e-5, 1e-6)
        return dict(zip(leaves, second))
    for leaf in leaves.values():
        leaf.grad = torch.ones_like(leaf, dtype=leaf.dtype) if mode == "accumulated" else None
    total.backward()
    return {name: leaf.grad - float(mode == "accumulated") for name, leaf in leaves.items()}


def test_calls_and_their_gradients_are_those_of_the_plain_call():
    told.clear()
    outcomes.run(check_calls)
    assert len(set(told)) > (0 if MANY else 3)


# Mistaken values for a tensor argument.
MISTAKES = {
    "list": lambda t: t.tolist(),
    "ndarray": lambda t: t.detach().double().numpy(),
    "transposed": lambda t: t.transpose(0, -1),
    "one axis more": lambda t: t[None],
    "a row less": lambda t: t[:-1],
}


@profile(300)
@given(call=calls(FUNCTIONS, ["float32"]), data=st.data())
def test_a_mistaken_tensor_is_refused_by_its_name(call, data):
    torchs, more = TorchCall(call, data.draw), {"k": 2} if call.function == "topk_logps" else {}
    plain, error = refusal_of(lambda: torchs(**more))
    tensors = [name for name, value in torchs.arguments.items() if isinstance(value, torch.Tensor)]
    name = data.draw(st.sampled_from(sorted(set(tensors) - {"num_items_in_batch"})))
    how = data.draw(st.sampled_from(sorted(MISTAKES)))
    tensor = torchs.arguments[name]
    if error is not None or not tensor.dim():
        return
    if how == "transposed" and tensor.dim() > 1 and tensor.shape[0] == tensor.shape[-1]:
        return  # another valid call
    sequences = call.lead[0] if len(call.lead) == 2 else 1 if call.offsets is None else len(call.offsets) - 1
    if how == "a row less" and len(tensor) == sequences + 1:
        return  # one entry per sequence instead of one per token
    got, error = refusal_of(lambda: torchs(**more, **{name: MISTAKES[how](tensor)}))
    said = PYTORCH_NAMES.get(name, name) if call.function == "linear_cross_entropy" else name
    if how in ("list", "ndarray"):
        must_be = f"{said} is {how}: it must be a tensor of" if "vocab" in name else f"{said} must be a torch.Tensor, not {how}"
        assert isinstance(error, TypeError) and str(error).startswith(must_be), error
    elif error is not None:
        assert named_in(str(error), arguments_of(getattr(lt, call.function))), error
    elif not name.endswith(("weight", "vocab_ids")) and (call.function, name) != ("topk_logps", "hidden"):
        # For the other arguments another size is another valid call. Flat ids and masks go with any leading axes.
        pairs = zip(*((x if isinstance(x, tuple) else (x,) for x in (got, plain))))
        assert all(torch.equal(one.flatten(), other.flatten()) for one, other in pairs), f"{name}, {how}, was taken"
