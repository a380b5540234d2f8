# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Writes policy.json, preference.json and distillation.json into this folder: see README.md."""

import importlib.metadata
import os
import pathlib

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch

import common
import distillation_golden
import policy_golden
import preference_golden


def main():
    torch.set_default_dtype(torch.float64)  # torch.where(condition, 1.0, 1.05) has the default type
    torch.set_num_threads(1)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "trl", "liger-kernel")}
    folder = pathlib.Path(__file__).parent
    batch = policy_golden.make_batch()
    common.write(folder / "policy.json", versions, policy_golden.batch_to_json(batch), policy_golden.make_cases(batch))
    pairs = preference_golden.make_batch()
    common.write(folder / "preference.json", versions, preference_golden.batch_to_json(pairs),
                 preference_golden.make_cases(pairs))  # fmt: skip
    students = distillation_golden.make_batch()
    common.write(folder / "distillation.json", versions, distillation_golden.batch_to_json(students),
                 distillation_golden.make_cases(students))  # fmt: skip


if __name__ == "__main__":
    main()
