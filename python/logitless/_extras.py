# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Names the extra whose packages a module needs."""

from __future__ import annotations

import importlib.util
import sys

# The packages that logitless.<extra> imports, by extra of pyproject.toml.
PACKAGES = {
    "torch": ("torch",),
    "jax": ("jax",),
    "transformers": ("torch", "transformers"),
    "trl": ("torch", "transformers", "trl"),
    "lm_eval": ("torch", "transformers", "accelerate", "lm_eval"),
}


def _is_missing(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is None
    return importlib.util.find_spec(package) is None


def check_extra(extra: str) -> None:
    """Raises a ModuleNotFoundError that names the extra if a package that logitless.<extra> imports is missing."""
    missing = [package for package in PACKAGES[extra] if _is_missing(package)]
    if missing:
        raise ModuleNotFoundError(
            f"logitless.{extra} needs {' and '.join(missing)}, not installed here: "
            f'pip install "logitless[{extra}]"', name=missing[0]
        )
