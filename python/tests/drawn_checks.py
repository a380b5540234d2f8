# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of drawn calls: checks of refusals, sets with offsets, and upstream gradients."""

import dataclasses
import inspect
import re

import numpy as np

from drawn_calls import lists_of, st

REFUSALS = (ValueError, TypeError, RuntimeError, IndexError)
TASKS = {"linear_cross_entropy": "cross_entropy", "token_logps": "token_stats", "topk_logps": "token_stats"}
MODEL = {"hidden", "weight", "bias", "softcap", "vocab_ids", "logits"}


def refusal_of(function):
    """(result, None), or (None, the error)."""
    try:
        return function(), None
    except REFUSALS as error:
        return None, error


def named_in(text, names):
    return [name for name in names if re.search(rf"(?<![\w.]){name}(?!\w)", text)]


def is_exact(call):
    return call.options.get("backward", "exact") == "exact"


class Outcomes:
    """Counts accepted and refused calls."""

    def __init__(self):
        self.taken = self.refused = 0

    def add(self, call, error, plain_error, names, unusual=()):
        """Counts a call, and returns whether it was accepted. The message of a refusal must name an argument.
        If the plain call is accepted, that must be an argument in an unusual form, or an option of
        gradients."""
        self.taken += error is None
        self.refused += error is not None
        if error is None:
            assert plain_error is None, f"taken, and the plain call is refused: {plain_error}"
            return True
        assert named_in(str(error), names), f"no argument is named: {error!r}"
        of_call = named_in(str(error), {*unusual, "backward", "noise", "theta", "tolerance", "seed"}) or not is_exact(call)
        assert plain_error is not None or of_call, f"refused, and the plain call is not: {error!r}"
        return False

    def run(self, check):
        """Runs a test of drawn calls. More than half must be accepted, because refusals alone prove nothing."""
        self.taken = self.refused = 0
        check()
        assert self.taken > self.refused


def check_arguments_are_drawn(functions, also=()):
    """Checks that every argument in the signatures, {name: (task, arguments)}, is drawn by calls() or is in
    `also`."""
    for name, (task, taken) in functions.items():
        models = {prefix + one for prefix in ("", "teacher_", "ref_") for one in MODEL}
        drawn = set().union(*lists_of(task)) | models | {"offsets", *also}
        assert taken <= drawn, (name, taken - drawn)


def leading_axes(call, draw):
    """The leading axes of the call; with an even number of sequences, sometimes split into two axes."""
    lead = call.lead
    if len(lead) == 2 and lead[0] % 2 == 0 and call.task not in ("policy_loss", "preference_loss", "kto_loss"):
        return draw(st.sampled_from([lead, (2, lead[0] // 2, lead[1])]))
    return lead


def sets_with_offsets(call, draw):
    """For each kind of sets that is passed as [E] with offsets: (prefix, [N, K] flags of the entries in use,
    tensor names)."""
    for begin, sets in (("id_", "ids"), ("kept_", "kept_ids")):
        if sets not in call.arrays or not draw(st.booleans()):
            continue
        tokens, columns = call.arrays[sets].shape
        counts = call.arrays.get(f"{begin}counts", np.full(tokens, columns))
        names = [n for n in (sets, "weights", "teacher_logps") if call.arrays.get(n, np.empty(0)).shape == (tokens, columns)]
        yield begin, np.arange(columns) < counts[:, None], names


def offsets_of(taken):
    return np.concatenate([[0], np.cumsum(taken.sum(1))])


def with_columns(call, k=None, **asked):
    """The call extended by the results that a function returns in addition, or by targets for one without
    targets."""
    arrays = call.arrays
    if k is not None:
        arrays = {**arrays, "targets": np.zeros(int(np.prod(call.lead)), np.int64)}
        asked["top_k"] = k
    return dataclasses.replace(call, arrays=arrays, options={**call.options, **asked})


def upstream_of(call, shapes):
    """Upstream gradients, in eighths: {name: factors} for {name: shape}, and the same for Reference."""
    random = np.random.default_rng(5)
    factors = {name: np.asarray(random.integers(-8, 9, tuple(shape)) / 8) for name, shape in shapes.items()}
    if call.task == "token_stats":
        return factors, {name: factor.ravel() for name, factor in factors.items()}
    (factor,) = factors.values()
    return factors, factor.ravel() if factor.ndim or call.task == "id_logps" else float(factor)


def arguments_of(function):
    return set(inspect.signature(function).parameters)
