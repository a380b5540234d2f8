# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The expected results of a drawn call: the same task on finished float64 logits, through the lowest surface
and the plain kernels. NumPy computes the products of the head, its LoRA and softcap, and all their
gradients.

A tolerance is six times the change of the results when the logits change by their rounding errors, plus the
rounding of sums.
"""

import numpy as np

import logitless
from logitless import _core

UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_context = logitless.Context(threads=1, simd_target="plain")


def round_to(x, dtype):
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float64)
    if dtype == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits += 0x7FFF + ((bits >> 16) & 1)
        return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)
    return x


class Reference:
    """The expected columns and gradients of a call. `upstream` is a float for a loss that is one number, [N]
    for one loss per token, a dict of columns for statistics, and an array of the ids' shape for id_logps.
    `lora_unit` is the unit roundoff of a LoRA's states."""

    def __init__(self, call, upstream=1.0, lora_unit=0.0):
        self.call, self.upstream, self.lora_unit = call, upstream, lora_unit
        self.unit = UNITS["float64" if call.dtype == "float64" else "float32"]
        self.runs = []
        self.entries = None  # [N, K] flags of the entries that id_logps returns if sets have offsets
        self.start = 0.0  # the value to which gradients are added
        self.states = False  # whether the LoRA's states are an argument

    def logits(self, model, rounding, pattern):
        """Capped logits, and their derivatives with respect to raw logits. A pattern other than 0 perturbs
        them by their error bounds."""
        random = np.random.default_rng(pattern)
        raw = model.hidden @ model.whole.T
        size = np.abs(model.hidden) @ np.abs(model.whole).T
        error = (model.hidden.shape[1] + 8) * self.unit * (size + 1)
        if model.a is not None:
            states = np.abs(model.hidden) @ np.abs(model.a).T
            error += (self.lora_unit + 8 * self.unit) * model.scale * states @ np.abs(model.rows(model.b)).T
        if model.bias is not None and not model.finished:
            raw = raw + model.rows(model.bias)
        signs = random.choice([-1.0, 1.0], raw.shape) if pattern else 0.0
        raw = round_to(raw + signs * error, rounding)
        if not model.softcap:
            return raw, np.ones_like(raw)
        t = np.tanh(raw / model.softcap)
        return model.softcap * t + signs * 16 * self.unit, 1 - t * t

    def arguments(self, pattern):
        call = self.call
        given = {name: value for name, value in call.plain().items() if name not in _core.fields("backward")}
        given.pop("backward", None)
        rounding = given.pop("round_logits_to", None)
        other_rounding = given.pop("teacher_round_logits_to", None) if call.task == "distillation_loss" else rounding
        capped, slope = self.logits(call.student, rounding, pattern)
        lead = call.lead if call.offsets is not None or len(call.lead) == 2 else (1, *call.lead)
        for name in ("targets", "chosen_ids"):
            if name in given:
                given[name] = given[name].reshape(lead)
        given["logits"] = np.ascontiguousarray(capped.reshape(*lead, -1))
        if call.offsets is not None:  # offsets require hidden states
            given.update(offsets=call.offsets, hidden=given.pop("logits"), weight=np.eye(capped.shape[1]))
        if call.other is not None:
            other = self.logits(call.other, other_rounding, pattern + 1000 if pattern else 0)[0].reshape(*lead, -1)
            if call.prefix == "teacher_":
                given["teacher_logits"] = other
            else:
                given.update(ref_hidden=other, ref_weight=np.eye(other.shape[-1]))
        return given, slope

    def run(self, pattern):
        """({name: column}, {name: (gradient, magnitude, rounding)}). The magnitude is the same sum of absolute
        values, and the rounding a bound that is not relative to it."""
        given, slope = self.arguments(pattern)
        output = "d_hidden" if "hidden" in given else "d_logits"
        d_logits = np.zeros_like(given[output.removeprefix("d_")])
        rows = slope.shape
        if self.call.task in ("token_stats", "id_logps"):
            result = getattr(logitless, self.call.task)(**given, context=_context)
            columns = dict(vars(result))
            if self.upstream is not None and not isinstance(self.upstream, float):
                self._backward({**given, output: d_logits})
            columns = {n: v for n, v in columns.items() if isinstance(v, np.ndarray)}
            if self.entries is not None:
                columns["logps"] = columns["logps"][self.entries]
        else:
            result = getattr(logitless, self.call.task)(**given, **{output: d_logits}, context=_context)
            columns = {n: v for n, v in vars(result).items() if isinstance(v, (float, np.ndarray))}
            columns.update({f"metrics.{n}": v for n, v in result.metrics.items()})
            of_rows = np.broadcast_to(np.ravel(self.upstream), rows[:1])
            d_logits *= of_rows.reshape(*d_logits.shape[:-1], 1)
        return columns, self.gradients(d_logits.reshape(rows), slope)

    def _backward(self, given):
        halves = _core.token_stats, _core.token_stats_backward
        if self.call.task == "id_logps":
            halves = _core.id_logps, _core.id_logps_backward
        if self.call.task == "token_stats":
            given.update(dict.fromkeys((n for n in self.upstream if n not in ("logp", "lse")), True))
        upstream = self.upstream
        if self.entries is not None:
            upstream = np.zeros(self.entries.shape)
            upstream[self.entries] = self.upstream
        without = {name: value for name, value in given.items() if not name.startswith("d_")}
        _, half = halves[0](_context, without)
        halves[1](_context, given, half, upstream)

    def gradients(self, d_capped, slope):
        model = self.call.student
        g, b = d_capped * slope, None if model.b is None else model.rows(model.b)
        x, w = model.hidden, model.rows(model.weight) if self.states else model.whole
        floor = self._rounding_of_divergence(d_capped) * slope
        out = {"d_logits": (d_capped, np.abs(d_capped), floor)}
        if model.finished:
            return out

        def add(name, make):
            parts = g, x, w, b, model.a
            sizes = [None if part is None else np.abs(part) for part in parts]
            if b is not None and not self.states:  # the terms of the whole matrix may cancel
                sizes[2] = np.abs(model.rows(model.weight)) + abs(model.scale) * sizes[3] @ sizes[4]
            out[name] = make(*parts), make(*sizes), make(floor, *sizes[1:])

        add("d_hidden", lambda g, x, w, b, a: g @ w)
        add("d_weight", lambda g, x, w, b, a: g.T @ x)
        add("d_bias", lambda g, x, w, b, a: g.sum(0))
        if b is not None:
            add("d_lora_a", lambda g, x, w, b, a: model.scale * b.T @ (g.T @ x))
            add("d_lora_states", lambda g, x, w, b, a: g @ b)
            add("d_lora_b", lambda g, x, w, b, a: model.scale * g.T @ (x @ a.T))
        return out

    def _rounding_of_divergence(self, d_capped):
        """A bound of the rounding of a divergence's gradients [N, V], which is not relative to their sizes: a
        slope is a difference of log-probabilities and their mean, which may cancel."""
        options = self.call.plain()
        if self.call.task != "distillation_loss":
            return np.zeros_like(d_capped)
        temperatures = np.ravel(options.get("temperatures", options.get("temperature", 1.0)))
        scale = options.get("divergence_weight", 1.0) * np.abs(options.get("loss_scale", 1.0))
        scale *= temperatures if options.get("temperature_squared") else 1 / temperatures
        scale = scale * np.max(options.get("token_weights", 1.0), initial=0) / min(1, options.get("num_items_in_batch", 1))
        scale = scale * np.max(np.abs(self.upstream), initial=0) if self.upstream is not None else scale
        return np.broadcast_to(np.reshape(64 * self.unit * scale, (-1, 1)), d_capped.shape)

    def whole_head(self, name, gradient):
        """The gradient for the whole head: with vocab_ids, 0 for entries outside the call."""
        ids, model = self.call.student.vocab_ids, self.call.student
        if ids is None or name not in ("d_weight", "d_bias", "d_lora_b"):
            return gradient
        out = np.zeros((model.weight.shape[0], *gradient.shape[1:]))
        np.add.at(out, ids, gradient)
        return out

    def fault(self, columns, gradients, *, whole=False, exact=True):
        """A description of the first difference from results {name: (array, unit)}; "" if there is none. A
        difference is checked again with more perturbations, because the function may jump nearby."""
        text = ""
        for count in (5, 41):
            while len(self.runs) < count:
                self.runs.append(self.run(len(self.runs)))
            text = self._column_fault(columns) or (self._gradient_fault(gradients, whole) if exact else "")
            if not text:
                break
        return text

    def _column_fault(self, got):
        call = self.call
        sums = 32 + (call.student.whole.shape[0] + int(np.prod(call.lead))) / 4
        for name, (value, unit) in got.items():
            if name not in self.runs[0][0]:
                return f"{name}: the reference has none"
            wants = [np.asarray(run[0][name], np.float64) for run in self.runs]
            value = np.asarray(value, np.float64)
            if value.size != wants[0].size:
                return f"{name} has shape {value.shape}, not {wants[0].shape}"
            value, want = value.ravel(), wants[0].ravel()
            with np.errstate(invalid="ignore"):
                moved = np.max([np.abs(other.ravel() - want) for other in wants], axis=0)
            settled = np.isfinite(moved) & np.isfinite(want)
            infinite = ~np.isfinite(want) & np.all([np.array_equal(w, wants[0], equal_nan=True) for w in wants])
            integral = np.issubdtype(np.asarray(self.runs[0][0][name]).dtype, np.integer)
            bound = 6 * moved + (sums * self.unit + unit) * (1 + np.abs(want))
            bound = np.where(integral, np.where(moved > 0, np.inf, 0), bound)
            wrong = settled & ~(np.abs(value - want) <= bound)
            wrong |= infinite & ~((value == want) | (np.isnan(value) & np.isnan(want)))
            if wrong.any():
                i = int(np.argmax(wrong))
                return f"{name}[{i}] is {value[i]}, not {want[i]} +- {bound[i]}"
        return ""

    def _gradient_fault(self, got, whole):
        call, tokens = self.call, int(np.prod(self.call.lead))
        sixteen = "bfloat16" in (call.dtype, call.head_dtype)  # gradients are operands of bfloat16 products
        sums = (tokens + call.student.whole.shape[0] + 8) * self.unit + (2.0**-8 if sixteen else 4 * self.unit)
        for name, (value, unit) in got.items():
            want, size, floor = self.runs[0][1][name]
            moved = np.max([np.abs(run[1][name][0] - want) for run in self.runs], axis=0)
            lora = 0 if call.student.a is None else self.lora_unit
            bound = 6 * moved + (sums + 2 * unit + 2 * lora) * size + (64 * self.unit + sums) * np.max(size, initial=0)
            bound += floor + 4 * self.start * (self.unit + unit)
            if unit == UNITS["float16"]:  # subnormal numbers; a LoRA's states have gradients of this type, too
                bound += 2.0**-24 * (1 if call.student.a is None else 1 + tokens)
            if whole:
                want, bound = self.whole_head(name, want), self.whole_head(name, bound)
            value = np.asarray(value, np.float64)
            if value.shape != want.shape and value.size != want.size:
                return f"{name} has shape {value.shape}, not {want.shape}"
            wrong = ~(np.abs(value.reshape(want.shape) - want) <= bound) & np.isfinite(want)
            if wrong.any():
                at = tuple(int(i[0]) for i in np.nonzero(wrong))
                return f"{name}{list(at)} is {value.reshape(want.shape)[at]}, not {want[at]} +- {bound[at]}"
        return ""
