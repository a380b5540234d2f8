# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Draws calls from the library's own lists of arguments, so a new option or tensor is drawn as soon as it is
in a list.

A call is drawn in a plain form: float64 arrays of numbers that every floating-point type represents exactly,
int64 ids, one entry per token or sequence. The tests of a surface pass it in all forms of that surface, and
call_reference.py computes the expected results. LOGITLESS_EXAMPLES=10000 draws that many calls, with a new
seed each time, instead of the same few hundred.
"""

import dataclasses
import functools
import os
import re

import hypothesis.strategies
import numpy as np
from hypothesis import HealthCheck, Phase, settings

from logitless import _core
from logitless.packed import PackedWeight


@functools.cache
def _sampled_from(values, _types):  # types, because 1 == True == 1.0
    return hypothesis.strategies.sampled_from(values)


class st:
    """The strategies used here. Each is made once, because Hypothesis examines every new one at length."""

    integers = functools.cache(hypothesis.strategies.integers)
    booleans = functools.cache(hypothesis.strategies.booleans)
    just = functools.lru_cache(None, typed=True)(hypothesis.strategies.just)
    lists, data, composite = hypothesis.strategies.lists, hypothesis.strategies.data, hypothesis.strategies.composite

    @staticmethod
    def sampled_from(values):
        return _sampled_from(tuple(values), tuple(map(type, values)))


MANY = int(os.environ.get("LOGITLESS_EXAMPLES") or 0)


def profile(examples):
    """Hypothesis settings for a test that draws this many calls. Calls are not timed, so no deadline applies."""
    return settings(
        max_examples=MANY or examples,
        derandomize=not MANY,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )


@dataclasses.dataclass
class Model:
    """Hidden states and a head. For a packed weight, `weight` holds its unpacked numbers."""

    hidden: np.ndarray  # [N, H]
    weight: np.ndarray  # [V, H], with further rows if vocab_ids selects some
    bias: np.ndarray | None = None
    vocab_ids: np.ndarray | None = None
    softcap: float = 0.0
    a: np.ndarray | None = None
    b: np.ndarray | None = None
    scale: float = 1.0
    packed: PackedWeight | None = None
    finished: bool = False  # its logits are passed instead of hidden states and head

    def rows(self, of_entries):
        return of_entries if self.vocab_ids is None else of_entries[self.vocab_ids]

    @property
    def whole(self):
        """The matrix of the call, including the LoRA."""
        weight = self.weight if self.a is None else self.weight + self.scale * self.b @ self.a
        return self.rows(weight)


@dataclasses.dataclass
class Call:
    task: str
    function: str
    lead: tuple  # [B, T], or [N] for a single sequence or with offsets
    offsets: np.ndarray | None
    student: Model
    other: Model | None  # a teacher or a reference
    arrays: dict
    options: dict
    dtype: str  # of hidden states; determines the rounding errors
    head_dtype: str

    @property
    def prefix(self):
        return "teacher_" if self.task == "distillation_loss" else "ref_"

    def plain(self):
        """The arguments except models. Targets have the leading axes, everything else is flat."""
        tensors = lists_of(self.task)[1]
        narrow = [name for name in self.arrays if tensors[name]["type"] == "float32 array" and name != "probabilities"]
        out = {**self.arrays, **self.options, **{name: self.arrays[name].astype(np.float32) for name in narrow}}
        for name in ("targets", "chosen_ids"):
            if name in out:
                out[name] = out[name].reshape(self.lead)
        return out


def eighths(random, *shape, low=-8, high=9):
    return random.integers(low, high, shape) / 8


@functools.cache
def lists_of(task):
    """(options, arrays) of a task: {argument name: field}."""
    options, arrays = {}, {}
    for part in (task, f"{task}.tensors"):
        for name, field in _core.fields(part).items():
            (arrays if field["type"].endswith("array") else options)[name] = field
    for name, field in _core.fields("backward").items():
        options["backward" if name == "mode" else name] = field
    return options, arrays


_NUMBERS = {
    "above 0 and up to 1": [0.5, 1.0, 0.25],
    "above 0": [0.5, 2.0, 1.25],
    "at least 0 and below 1": [0.25, 0.5, 0.75],
    "from 0 to 1": [0.25, 1.0, 0.0],
    "at least 0": [0.25, 1.5, 0.0],
    "finite": [0.25, -0.5, 1.5],
}
_OUT_OF_RANGE = [float("nan"), -3.0]


def values_of(name, field):
    """A strategy for an option's values, including a few invalid ones."""
    if "choices" in field:
        one = st.sampled_from([choice for choice in field["choices"] if choice != field["default"]])
    elif field["type"] == "bool":
        one = st.just(not field["default"]) if not field.get("list") else st.booleans()
    elif field["type"] == "int":
        one = st.sampled_from([2, 0, 1, 5, -1] if "at least" not in field["range"] else [1, 2, 3, 0, -1])
    else:
        inside = next(values for text, values in _NUMBERS.items() if text in field["range"] or text == "finite")
        one = st.sampled_from(inside * 8 + _OUT_OF_RANGE)
    return st.lists(one, min_size=1, max_size=2, unique=True) if field.get("list") else one


# Tensors without which a call is refused.
def needed(task, options):
    yield from {"policy_loss": ("chosen_ids", "advantages"), "id_logps": ("ids",)}.get(task, ())
    if task in ("cross_entropy", "preference_loss", "kto_loss", "token_stats"):
        yield "targets"
    if task == "set_distillation_loss":
        yield from ("ids", "teacher_logps")
    if options.get("mean_over") == "token_weights":
        yield "token_weights"
    if task == "policy_loss":
        if options.get("beta"):
            yield "ref_logps"
        of_sampler = options.get("sampler_correction", "none") != "none" or options.get("teacher_against") == "sampling"
        if of_sampler or options.get("m2_threshold") or options.get("sampler_penalty"):
            yield "sampling_logps"
        if options.get("teacher_weight"):
            yield "teacher_logps"
        if options.get("loss_type") == "topr" or options.get("positive_nll_weight"):
            yield "scores"
    if task == "kto_loss":
        yield "labels"
        if options.get("loss_type") == "a2po":
            yield "reward_targets"


# Options that are drawn more often, because they select code paths or give other options an effect.
_OFTEN = ("loss_type", "reduction", "mean_over", "shift")
_WITHOUT_REFERENCE = {"sft", "orpo", "simpo", "cpo"}


class _Arrays:
    """Draws the tensors of a task by kind and shape."""

    def __init__(self, draw, random, sizes, task, options, columns):
        self.columns = columns  # a strategy for the size of sets
        self.draw, self.random, self.sizes, self.task, self.options = draw, random, sizes, task, options
        self.sets = {}

    def make(self, name, field):
        shape, kind = field["shape"], field["type"].removesuffix(" array")
        if shape.startswith("[N, K]"):
            return self.set_of(name)
        if shape == "as ids":
            size = self.sets["ids"].shape
        elif shape == "[B] or [N]":
            size = (self.sizes["N" if self.draw(st.booleans()) else "B"],)
        else:
            letters = re.match(r"(?:as kl|\[([A-Z](?:, [A-Z])*)\])", shape)
            size = (3,) if letters is None or not letters[1] else tuple(self.sizes[c] for c in letters[1].split(", "))
        if name.endswith("counts"):
            sets, low = ("ids", 0) if name == "id_counts" else ("kept_ids", 1)  # kept_ids include the chosen id
            return self.random.integers(low, self.sets[sets].shape[1] + 1, size)
        if kind == "ids":
            ids = self.random.integers(0, self.sizes["V"], size)
            ignored = name == "targets" and self.random.random(size) < 0.3
            return np.where(ignored, self.options.get("ignore_index", -100), ids)
        if kind == "flags":
            return self.random.integers(0, 2, size) > 0
        return self.numbers(name, field, size)

    def numbers(self, name, field, size):
        if name in ("ref_logps", "kl_logps", "kl_ref_logps") and self.task != "policy_loss":
            return eighths(self.random, *size, low=-60, high=-20)
        if "logps" in name:
            return eighths(self.random, *size, low=-24, high=-6)
        if "above 0" in field["range"]:
            return self.random.integers(2, 9, size) / 4
        if "at least 0" in field["range"] or "weights" in name or name == "probabilities":
            return eighths(self.random, *size, low=0)
        return eighths(self.random, *size)

    def set_of(self, name):
        """Sets [N, K]. Only id_logps and soft_cross_entropy get a repeated id."""
        cols = self.draw(self.columns)
        rows = [self.random.permutation(self.sizes["V"])[:cols] for _ in range(self.sizes["N"])]
        out = np.array(rows, np.int64).reshape(-1, cols)
        if self.task in ("id_logps", "soft_cross_entropy") and self.draw(st.booleans()):
            out[:, -1] = out[:, 0]
        self.sets[name] = out
        return out


PACKINGS = ["int8", "int8 of groups", "nf4", "q8_0"]
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334]
NF4 += [-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
NF4 += [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def packed_weight(random, rows, columns, packing):
    """A packed weight and its unpacked numbers. Scales are powers of 2, so that products are exact in
    float32."""
    groups = 2 if packing == "int8 of groups" else 1
    scales = 2.0 ** random.integers(-3, 1, (rows, groups))
    data = random.integers(-9, 10, (rows, columns)).astype(np.int8)
    numbers = data * scales.repeat(columns // groups, 1)
    if packing == "q8_0":
        halves = scales.astype(np.float16).view(np.uint8)
        return PackedWeight(np.concatenate([halves, data.view(np.uint8)], 1), "q8_0"), numbers
    if packing == "nf4":
        codes = random.integers(0, 16, (rows, columns))
        data = (16 * codes[:, ::2] + codes[:, 1::2]).astype(np.uint8)
        numbers = np.array(NF4, np.float32).astype(np.float64)[codes] * scales
    return PackedWeight(data, packing.split()[0], scales.astype(np.float32)), numbers


def models(draw, size, random, tokens, entries, taken, prefix, dtype):
    """Draws hidden states and a head with this many vocabulary entries, in a form that the function accepts."""
    packing = draw(st.sampled_from([None] * (2 * len(PACKINGS)) + PACKINGS)) if dtype != "float64" else None
    columns = 2 * draw(size(1, 4, 2)) if packing else draw(size(1, 9, 4))
    columns = 32 if packing == "q8_0" else columns
    chosen = f"{prefix}vocab_ids" in taken and draw(st.booleans())
    rows = entries + (draw(size(0, 3, 2)) if chosen else 0)
    model = Model(eighths(random, tokens, columns), eighths(random, rows, columns))
    if f"{prefix}logits" in taken and prefix != "ref_" and draw(st.integers(0, 5)) == 5:
        model.weight, model.finished = model.weight[:entries], True
        return model
    if chosen:
        model.vocab_ids = random.permutation(rows)[:entries]
        model.vocab_ids[-1] = model.vocab_ids[draw(st.sampled_from([-1, 0]))]  # the first entry again, or no repetition
    if draw(st.booleans()):
        model.bias = eighths(random, rows)
    model.softcap = draw(st.sampled_from([0.0, 3.0]))
    if packing:
        model.packed, model.weight = packed_weight(random, rows, columns, packing)
    if draw(st.integers(0, 2)) == 2:
        rank = draw(size(1, 3, 2))
        model.a, model.b = eighths(random, rank, columns), eighths(random, rows, rank)
        model.scale = draw(st.sampled_from([1.0, 0.5]))
    return model


@st.composite
def calls(draw, functions, dtypes, few_shapes=False):
    """A call of one of the functions, {name: (task, argument names)}. few_shapes is for functions that are
    compiled for each shape."""

    def size(low, high, fixed):
        return st.just(fixed) if few_shapes else st.integers(low, high)

    function = draw(st.sampled_from(sorted(functions)))
    task, taken = functions[function]
    random = np.random.default_rng(draw(st.integers(0, 999)))
    layout = draw(st.sampled_from(["batch", "flat", "packed"]))
    if layout == "packed" and "offsets" not in taken:
        layout = "flat"
    pairs = task == "preference_loss"
    sequences = draw(st.integers(1, 2)) * 2 if pairs else draw(size(1, 3, 2))
    time = draw(size(1, 4, 3))
    offsets, lead = None, (sequences, time)
    if layout == "packed":
        offsets = np.concatenate([[0], np.cumsum(random.integers(0, time + 1, sequences))])
        offsets[-1] = max(offsets[-1], 1)
        lead = (int(offsets[-1]),)
    elif layout == "flat" and not pairs:
        lead, sequences = (sequences * time,), 1
    tokens, entries = int(np.prod(lead)), draw(size(2, 12, 7))
    sizes = {"N": tokens, "B": sequences, "V": entries}
    dtype = draw(st.sampled_from(dtypes))
    head_dtype = dtype if dtype == "float64" else draw(st.sampled_from([d for d in dtypes if d != "float64"]))

    declared, tensors = lists_of(task)
    names = sorted(name for name in declared if name in taken)
    options = {}
    often = [name for name in _OFTEN if name in names and draw(st.integers(0, 2)) == 2]
    if task in ("soft_cross_entropy", "id_logps"):
        often = [name for name in often if name != "shift"]  # which is refused
    for name in often + draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
        options[name] = draw(values_of(name, declared[name]))
        for choice in declared.get("loss_type", {}).get("choices", ()):
            if name.startswith(f"{choice}_") and draw(st.booleans()):
                options["loss_type"] = [choice] if declared["loss_type"].get("list") else choice
    if options.get("reduction", "mean") != "mean" and draw(st.integers(0, 3)) > 0:
        options.pop("mean_over", None)  # which is refused

    # Options of draws are refused without draws. Most calls must be accepted, so counts are valid here.
    if any(name.startswith("draw_") for name in options):
        options["draws"] = options.get("draws") or 2
    if options.get("draw_top_p", 1) != 1:
        options["draw_top_k"] = options.get("draw_top_k") or 3
    options |= {name: 7 for name in ("draws", "draw_top_k") if options.get(name) == -1}

    arrays, made = {}, _Arrays(draw, random, sizes, task, options, size(1, min(3, entries), 2))
    asked = set(needed(task, options)) & taken
    spare = sorted(name for name in tensors if name in taken and name not in asked and not name.endswith("offsets"))
    if task == "soft_cross_entropy":
        asked |= {"probabilities"} if draw(st.booleans()) else {"ids", "weights"}
        spare = [name for name in spare if name not in ("ids", "weights", "probabilities")]
    if spare:
        asked |= set(draw(st.lists(st.sampled_from(spare), max_size=3, unique=True)))
    relative = pairs and set(options.get("loss_type", ["sigmoid"])) <= _WITHOUT_REFERENCE
    if (pairs and not relative) or task == "kto_loss":
        asked.add("ref_logps")
    if task == "kto_loss" and options.get("loss_type", "kto") == "kto":
        asked |= {"kl_logps", "kl_ref_logps"} if asked & {"kl_logps", "kl_ref_logps"} else set()
    if not ({"ids", "kept_ids"} & asked):
        asked -= {"id_counts", "kept_counts"}
    for begin, name in (("id_", "ids"), ("kept_", "kept_ids")):
        if name not in asked:
            asked.discard(f"{begin}counts")
    if offsets is not None:  # offsets require hidden states
        taken = taken - {"logits"}
    student = models(draw, size, random, tokens, entries, taken, "", dtype)
    other = None
    if task == "distillation_loss":
        other = models(draw, size, random, tokens, entries, taken, "teacher_", dtype)
        if student.finished:  # then the teacher must be given by logits, too
            other = Model(other.hidden, other.whole, finished=True)
    elif "ref_logps" in asked and "ref_hidden" in taken and draw(st.booleans()):
        asked.discard("ref_logps")
        other = models(draw, size, random, tokens, entries, taken, "ref_", dtype)
    for name in [name for name in tensors if name in asked]:  # in this order: some shapes need the sets
        arrays[name] = made.make(name, tensors[name])
    if "kept_ids" in arrays:
        arrays["chosen_ids"] = arrays["kept_ids"][:, 0].copy()
    return Call(task, function, lead, offsets, student, other, arrays, options, dtype, head_dtype)
