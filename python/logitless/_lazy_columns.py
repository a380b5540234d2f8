# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Statistics of absent logits, computed once per row for all operators of a loss that read them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._absent_logits import AbsentLogits
from ._torch_head import read_head
from ._torch_sets import id_logps
from ._torch_tokens import token_columns, topk_logps


def arguments_of(absent: AbsentLogits, rows: Tensor) -> dict[str, Any]:
    """Arguments for a function of logitless.torch, with the states of these rows [N] of the flattened tokens,
    and with gradients."""
    hidden, weight, bias = absent._masked_operands(absent._hidden, absent._weight, absent._bias)
    hidden = hidden.reshape(-1, hidden.shape[-1])
    whole = rows.numel() == hidden.shape[0] and bool((rows == torch.arange(rows.numel())).all())
    return {
        "hidden": hidden if whole else hidden[rows],
        "weight": weight,
        "bias": bias,
        "softcap": absent._softcap,
        "temperature": 1.0 / absent.factor,
    }


def dense_rows(absent: AbsentLogits, rows: Tensor) -> Tensor:
    """Computes the logits of these rows [...] of the flattened tokens: [..., V]."""
    states = absent._hidden.reshape(-1, absent._hidden.shape[-1])
    return absent._with(states[rows]).materialise()


class _Store:
    """The named columns of some rows. A row is computed when it is first read, with its target of then."""

    def __init__(self, absent: AbsentLogits, names: frozenset[str]) -> None:
        self._absent = absent
        self.names = names
        self._place = torch.full((absent.shape[:-1].numel(),), -1)  # of each row in the columns, or -1
        self._parts: dict[str, list[Tensor]] = {name: [] for name in ("targets", "logp", *names)}

    def holds(self, name: str, rows: Tensor) -> Tensor:
        """Tells for each row whether this column of it is computed."""
        return (self._place[rows] >= 0) & (name in self._parts)

    def add(self, rows: Tensor, targets: Tensor) -> None:
        """Computes the rows that the store does not hold."""
        ids = torch.zeros_like(self._place)
        ids[rows] = targets
        wanted = torch.zeros_like(self._place, dtype=torch.bool)
        wanted[rows] = True
        new = (wanted & (self._place < 0)).nonzero().squeeze(1)
        if new.numel() == 0 and self._parts["logp"]:
            return
        arguments = arguments_of(self._absent, new)
        options = {"temperature": arguments.pop("temperature"), "dtype": "float64"}
        head = read_head(**arguments)
        columns = token_columns(head, ids[new], tuple(self.names), options=options, expects_rows=True)
        begin = sum(part.numel() for part in self._parts["targets"])
        self._place[new] = torch.arange(begin, begin + new.numel())
        self._parts["targets"].append(ids[new])
        for name, column in columns.items():
            self._parts[name].append(column)

    def __getitem__(self, key: tuple[str, Tensor]) -> Tensor:
        name, rows = key
        return torch.cat(self._parts[name])[self._place[rows]]


class LazyColumns:
    """The statistics of one call of a head.

    `read` are the columns and operators by which losses have read logits of this head so far, in earlier steps
    too: from the second step on, one call computes all columns of a row.
    """

    def __init__(self, absent: AbsentLogits, read: set[str]) -> None:
        self.absent = absent
        self._read = read
        self._has_history = torch.is_grad_enabled()  # as for logits computed now
        self._stores = {attached: _Store(absent, self._names()) for attached in (True, False)}

    def _names(self) -> frozenset[str]:
        return frozenset({"lse", *(name for name in self._read if not name.endswith("()"))})

    def of(self, absent: AbsentLogits) -> LazyColumns:
        """The statistics of the same logits after an operation."""
        columns = LazyColumns(absent, self._read)
        columns._has_history = self._has_history
        return columns

    def is_new_reader(self, operator: str) -> bool:
        """Tells whether this operator computes the logits of this head for the first time."""
        name = f"{operator}()"
        is_new = name not in self._read
        self._read.add(name)
        return is_new

    def can_attach(self) -> bool:
        return self._has_history and torch.is_grad_enabled()

    def read(self, name: str, rows: Tensor, attached: bool, targets: Tensor | None = None) -> Tensor:
        """A column of token_stats(), float64 or int64, in the shape of rows. Only logp needs targets, which
        are valid ids."""
        flat = rows.reshape(-1)
        ids = torch.zeros_like(flat) if targets is None else targets.reshape(-1)
        if name != "logp":
            self._read.add(name)
        if attached:
            return self._of_store(True, name, flat, ids).view(rows.shape)
        # Rows with a history are not computed a second time.
        held = self._stores[True].holds(name, flat)
        with torch.no_grad():
            if held.all():
                return self._of_store(True, name, flat, ids).view(rows.shape)
            column = self._of_store(False, name, flat[~held], ids[~held])
            if held.any():
                both = column.new_empty(flat.shape)
                both[held], both[~held] = self._of_store(True, name, flat[held], ids[held]), column
                column = both
        return column.view(rows.shape)

    def _of_store(self, attached: bool, name: str, rows: Tensor, ids: Tensor) -> Tensor:
        if name != "logp" and name not in self._stores[attached].names:
            self._stores[attached] = _Store(self.absent, self._names())
        store = self._stores[attached]
        store.add(rows, ids)
        column = store[name, rows]
        return self._at_targets(column, store["targets", rows], rows, ids) if name == "logp" else column

    def _at_targets(self, logp: Tensor, known: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Log-probabilities of ids. `logp` has the log-probabilities of `known` ids."""
        other = known != ids
        if not other.any():
            return logp
        return logp.masked_scatter(other, self.id_logps(rows[other], ids[other].unsqueeze(-1)).squeeze(-1))

    def id_logps(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Log-probabilities, float64, of K ids per row, [..., K]."""
        flat = rows.reshape(-1)
        arguments = arguments_of(self.absent, flat)
        return id_logps(**arguments, ids=ids.reshape(flat.numel(), -1), dtype=torch.float64).view(ids.shape)

    def top(self, rows: Tensor, k: int) -> Tensor:
        """The ids of the k largest logits of each row, [..., k]."""
        ids, _ = topk_logps(**arguments_of(self.absent, rows.reshape(-1)), k=k)
        return ids.view(*rows.shape, k)
