# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shared by the golden values: token statistics from logits, stand-ins for the objects that TRL needs, and
JSON."""

import collections
import json
import math

import torch

IGNORE_INDEX = -100


class Accelerator:
    """One process: gathering returns its argument."""

    num_processes = 1
    device = torch.device("cpu")
    sync_gradients = True

    def gather(self, x):
        return x

    gather_for_metrics = gather

    def reduce(self, x, reduction="sum"):
        return x

    def pad_across_processes(self, x, dim=0, pad_index=0):
        return x


class Training:
    training = True


class Options(dict):
    """A dictionary whose entries are also attributes."""

    __getattr__ = dict.__getitem__


def new_metrics():
    return {"train": collections.defaultdict(list)}


def token_statistics(logits, ids, mask, temperature=1.0):
    """Return (logp, entropy), [B, T], of logits / temperature; 0 where the mask is false, whatever the inputs
    are."""
    logits = torch.where(mask[..., None], logits, 0.0) / temperature
    log_p = torch.log_softmax(logits, -1)
    logp = log_p.gather(-1, torch.where(mask, ids, 0)[..., None])[..., 0]
    entropy = -(log_p.exp() * log_p).sum(-1)
    return torch.where(mask, logp, 0.0), torch.where(mask, entropy, 0.0)


def expect_equal(what, a, b, tolerance=1e-9):
    a, b = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
    distance = (a - b).norm() / b.norm().clamp(min=1e-3)
    assert distance <= tolerance, f"{what}: {a.tolist()} is not {b.tolist()}"


def short(x, digits=10):
    """Convert to a number for JSON: few digits, integers without a point, NaN as null."""
    if isinstance(x, (bool, int, str)) or x is None:
        return x
    if math.isnan(x):
        return None
    x = float(f"{x:.{digits}g}")
    return int(x) if x == int(x) and abs(x) < 1e15 else x


def numbers(x, digits=10):
    """Convert a tensor or list to nested lists of short numbers."""
    if torch.is_tensor(x):
        x = x.detach().tolist()
    if isinstance(x, (list, tuple)):
        return [numbers(e, digits) for e in x]
    return short(x, digits)


def gradient(x):
    """Convert to fixed point, to keep the files small: integers times a unit, with a relative L2 error below
    3e-7. A row of zeros is empty."""
    root_mean_square = x[x != 0].square().mean().sqrt().item()
    decimals = 6 - math.floor(math.log10(root_mean_square))
    values = (x.detach() * 10.0**decimals).round().long()
    assert (values.double() / 10.0**decimals - x).norm() <= 3e-7 * x.norm()
    values = [[row if any(row) else [] for row in rows] for rows in values.tolist()]
    return {"unit": float(f"1e-{decimals}"), "values": values}


def write(path, versions, inputs, cases):
    def dump(x):
        return json.dumps(x, separators=(",", ":"), allow_nan=False)

    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names), "a name twice"
    with open(path, "w") as out:
        out.write('{"versions":' + dump(versions) + ',\n"inputs":{\n')
        out.write(",\n".join(f"{dump(k)}:{dump(v)}" for k, v in inputs.items()))
        out.write('},\n"cases":[\n' + ",\n".join(dump(case) for case in cases) + "\n]}\n")
    print(f"{path}: {len(cases)} cases")
