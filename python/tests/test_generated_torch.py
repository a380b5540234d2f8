# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Calls of `logitless.torch` that are drawn from its signatures and the library's lists: values arrive through every
type and stride, and autograd's gradients are those of the call in every mode of autograd."""

import dataclasses
import inspect
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import logitless.torch as lt  # noqa: E402
from call_reference import UNITS, Reference  # noqa: E402
from drawn_calls import calls, lists_of, profile  # noqa: E402
from logitless import Context  # noqa: E402
from logitless._torch_call import PYTORCH_NAMES  # noqa: E402
from logitless.lora import LoraWeight  # noqa: E402
from logitless.packed import PackedWeight  # noqa: E402

TASKS = {"linear_cross_entropy": "cross_entropy", "token_logps": "token_stats", "topk_logps": "token_stats"}
OURS = {theirs: ours for ours, theirs in PYTORCH_NAMES.items()}
# Arguments that are drawn here, not from the lists.
OWN = {"dtype", "loss_dtype", "context", "entropy", "lse", "return_metrics", "return_stats", "k"}
UNDRAWN = {"group", "options"}  # ranks have tests of their own; PyTorch's options have no effect


def taken_by(name):
    """The library's names of a function's arguments."""
    names = inspect.signature(getattr(lt, name)).parameters
    return {OURS.get(one, one) if name == "linear_cross_entropy" else one for one in names}


FUNCTIONS = {
    name: (TASKS.get(name, name), taken_by(name))
    for name in lt.__all__
    if inspect.isfunction(getattr(lt, name)) and name not in ("options", "set_options", "topk_union")
}
# Statistics have other names for what these ask for, and the columns of the others are NumPy's alone.
FUNCTIONS = {name: (task, taken - OWN) for name, (task, taken) in FUNCTIONS.items()}
MODEL = {"hidden", "weight", "bias", "softcap", "vocab_ids", "logits"}


def test_every_argument_of_a_signature_is_drawn():
    for name, (task, taken) in FUNCTIONS.items():
        models = {prefix + one for prefix in ("", "teacher_", "ref_") for one in MODEL}
        drawn = set().union(*lists_of(task)) | models | UNDRAWN | {"offsets"}
        assert taken <= drawn, (name, taken - drawn)


def apart(tensor):
    return torch.stack([tensor, torch.zeros_like(tensor)], -1)[..., 0]


def turned(tensor):
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def gap(tensor):
    return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]


LAYOUTS = {"plain": lambda t: t, "apart": apart, "turned": turned, "row gap": gap}


class TorchCall:
    """A drawn call as arguments of a function of logitless.torch."""

    def __init__(self, call, draw):
        self.call, self.draw = call, draw
        self.name = call.function
        self.entries = None
        self.leaves = {}  # by the name of the gradient
        lead = call.lead
        of_sequences = call.task in ("policy_loss", "preference_loss", "kto_loss")  # which have two leading axes
        if len(lead) == 2 and lead[0] % 2 == 0 and not of_sequences:
            lead = draw(st.sampled_from([lead, (2, lead[0] // 2, lead[1])]))
        self.lead = lead
        self.arguments = {name: self.value_of(name, value) for name, value in call.plain().items()}
        self.add_model(call.student, "")
        if call.other is not None:
            self.add_model(call.other, call.prefix)
        if call.offsets is not None:
            kind = draw(st.sampled_from([torch.int64, torch.int32]))
            self.arguments["offsets"] = torch.from_numpy(call.offsets).to(kind)
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
        tensor = torch.from_numpy(np.ascontiguousarray(value))
        types = [tensor.dtype]  # targets are int64 alone
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
        """[..., K] ids become [E] with offsets, or stay."""
        plain, tensors = self.call.arrays, self.arguments
        for begin, sets in (("id_", "ids"), ("kept_", "kept_ids")):
            if sets not in plain or not self.draw(st.booleans()):
                continue
            tokens, columns = plain[sets].shape
            counts = plain.get(f"{begin}counts", np.full(tokens, columns))
            here = torch.from_numpy(np.arange(columns) < counts[:, None])
            for name in (sets, "weights", "teacher_logps"):
                if plain.get(name, np.empty(0)).shape == (tokens, columns):
                    tensors[name] = tensors[name].reshape(tokens, columns)[here]
            self.entries = here.numpy() if self.call.task == "id_logps" else None
            tensors.pop(f"{begin}counts", None)
            tensors[f"{begin}offsets"] = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))

    def leaf(self, gradient, array, dtype, layout=True):
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype))
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
            head_dtype = dtype  # as PyTorch's function demands
        if model.finished:
            logits = (model.hidden @ model.whole.T).reshape(*self.lead, -1)
            arguments[f"{prefix}logits"] = self.leaf(None, logits, dtype if dtype == "float64" else "float32")
            return
        arguments[f"{prefix}hidden"] = self.leaf(gradient("hidden"), model.hidden.reshape(*self.lead, -1), dtype)
        if model.packed:
            data, scales = (torch.from_numpy(x) for x in (model.packed.data, model.packed.scales))
            weight = PackedWeight(data, "int8", scales)
        else:
            weight = self.leaf(gradient("weight"), model.weight, head_dtype)
        if model.a is not None:
            a, b = (self.leaf(gradient(f"lora_{name}"), getattr(model, name), head_dtype) for name in ("a", "b"))
            weight = LoraWeight(weight, a, b, model.scale)
        arguments[f"{prefix}weight"] = weight
        if model.bias is not None:
            arguments[f"{prefix}bias"] = self.leaf(gradient("bias"), model.bias, head_dtype)
        if model.vocab_ids is not None:
            arguments[f"{prefix}vocab_ids"] = self.laid_out(torch.from_numpy(model.vocab_ids))
        if model.softcap:
            arguments[f"{prefix}softcap"] = model.softcap

    def tensors(self):
        """Every tensor of the call by name."""
        for name, value in self.arguments.items():
            parts = {"": value}
            if isinstance(value, LoraWeight):
                parts = {".a": value.a, ".b": value.b, ".weight": value.weight}
            yield from ((name + part, tensor) for part, tensor in parts.items() if isinstance(tensor, torch.Tensor))

    def __call__(self, **more):
        given = {**self.arguments, **more}
        if self.name == "linear_cross_entropy":
            given = {PYTORCH_NAMES.get(name, name): value for name, value in given.items()}
        return getattr(lt, self.name)(**given)


def own_arguments(call, draw):
    """The arguments that ask for more results, or of another type."""
    taken = set(inspect.signature(getattr(lt, call.function)).parameters)
    asked = sorted(taken & {"entropy", "lse", "return_metrics", "return_stats"})
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
    """(what may be differentiated, all columns by name) of a result."""
    def as_columns(parts):
        return {name: (part.detach().double(), unit_of(part)) for name, part in parts.items()}

    if call.function == "topk_logps":
        return {}, {"top_ids": (result[0], 0), **as_columns({"top_logps": result[1]})}
    if call.function == "token_logps":
        names = ["logp", *(name for name in ("entropy", "lse") if more.get(name))]
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


def upstream_of(call, parts, random):
    """A factor for each part, in eighths, and what the reference takes."""
    factors = {name: torch.from_numpy(np.asarray(random.integers(-8, 9, tuple(part.shape)) / 8)) for name, part in parts.items()}
    if call.task == "token_stats":
        return factors, {name: factor.numpy().ravel() for name, factor in factors.items()}
    if call.task == "id_logps":
        return factors, factors["logps"].numpy().ravel() if "logps" in factors else None
    loss = factors["loss"].numpy()
    return factors, loss.ravel() if loss.ndim else float(loss)


def reference_of(call, more):
    """The call whose columns are those that the function returns."""
    asked = {}
    if "k" in more:
        asked = {"top_k": more["k"]}
        targets = np.zeros(int(np.prod(call.lead)), np.int64)
        call = dataclasses.replace(call, arrays={**call.arrays, "targets": targets})
    if more.get("entropy"):
        asked["entropy"] = True
    if more.get("return_stats"):
        asked["want_accuracy"] = True
    return dataclasses.replace(call, options={**call.options, **asked})


def sum_of(parts, factors):
    return sum((part.double() * factors[name]).sum() for name, part in parts.items())


taken = {"yes": 0, "no": 0}
MODES = ["backward", "no_grad", "inference", "create_graph", "twice", "accumulated"]


@profile(1500)
@given(call=calls(FUNCTIONS, ["float32", "float64", "bfloat16", "float16"]), data=st.data())
def check_calls(call, data):
    torchs, more = TorchCall(call, data.draw), own_arguments(call, data.draw)
    mode = data.draw(st.sampled_from(MODES))
    before = {name: tensor.detach().clone() for name, tensor in torchs.tensors()}
    without_loss = call.task in ("token_stats", "id_logps")
    # The states of a LoRA have the type of its matrices.
    reference = Reference(reference_of(call, more), None if without_loss else 1.0, UNITS[call.head_dtype])
    reference.entries = torchs.entries
    plain_error = error = result = None
    try:
        reference.run(0)
    except (ValueError, TypeError) as one:
        plain_error = one
    grad_mode = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, torch.enable_grad)
    try:
        with grad_mode():
            result = torchs(**more)
    except (ValueError, TypeError, RuntimeError, IndexError) as one:
        error = one
    for name, tensor in torchs.tensors():
        assert torch.equal(tensor, before[name]) or tensor.isnan().any(), f"{name} was written"
    taken["no" if error else "yes"] += 1
    exact = call.options.get("backward", "exact") == "exact"
    if error is not None:
        names = {*inspect.signature(getattr(lt, call.function)).parameters, *torchs.arguments}
        named = [n for n in names if re.search(rf"(?<![\w.]){n}(?!\w)", str(error))]
        assert named, f"no argument is named: {error}"
        of_backward = re.search(r"\b(backward|noise|theta|tolerance|seed)\b", str(error))
        assert plain_error is not None or of_backward or not exact, f"refused, and the plain call is not: {error!r}"
        return
    assert plain_error is None, f"taken, and the plain call is refused: {plain_error}"

    parts, columns = columns_of(call, more, result)
    leaves, gradients = torchs.leaves, {}
    wanted = bool(leaves) and mode not in ("no_grad", "inference") and bool(parts)
    default = torch.float64 if call.dtype == "float64" else torch.float32
    if call.function == "linear_cross_entropy":
        default = torchs.arguments["hidden"].dtype
    assert {part.dtype for part in parts.values()} <= {more.get("dtype", more.get("loss_dtype", default))}
    assert wanted == any(part.requires_grad for part in parts.values())
    if wanted:
        factors, reference.upstream = upstream_of(call, parts, np.random.default_rng(5))
        total = sum_of(parts, factors)
        try:
            gradients = gradients_of(total, leaves, mode)
        except ValueError as refused:  # only then is it known whether the entropy has a gradient
            assert more.get("entropy") and not exact and "gradient of the entropy" in str(refused), refused
            return
        reference.runs, reference.start = [], float(mode == "accumulated")
    gradients = {name: (value.double(), unit_of(value)) for name, value in gradients.items()}
    fault = reference.fault(columns, gradients, whole=True, exact=exact)
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
    taken.update(yes=0, no=0)
    check_calls()
    assert taken["yes"] > taken["no"] / 2  # a test of refusals alone proves nothing
