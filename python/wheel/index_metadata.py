# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Metadata that depends on the project's address: links, and the text of README.md.

A package index shows README.md far from the repository, so that its relative links and pictures lead nowhere.
With `repository-code` in CITATION.cff they become absolute links to this version; without it, links become plain
text and pictures are left out. scikit-build-core calls dynamic_metadata() and dynamic_wheel().
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|mailto:|#)([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def address() -> str:
    """The repository's address, without a slash at its end, or "" if CITATION.cff does not name it."""
    line = re.search(r"^repository-code: *(.*)$", (_ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if line is None:
        return ""
    value = line[1].strip().strip("\"'")
    if not re.fullmatch(r"https://[^\s/]+/\S+", value):
        raise ValueError(f"CITATION.cff: repository-code = {value!r} must be an address such as https://example.org/logitless")
    return value.rstrip("/")


def urls(repository: str, version: str) -> dict[str, str]:
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/README.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def readme(text: str, repository: str, version: str) -> str:
    """README.md for a package index."""

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if not repository:
            return "" if picture else label
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"

    # Code is copied: it may hold brackets that look like links.
    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    if settings:
        raise ValueError(f"index_metadata has no settings: {', '.join(settings)}")
    version = project["version"]
    text = readme((_ROOT / "README.md").read_text(encoding="utf-8"), address(), version)
    return {
        "readme": {"content-type": "text/markdown", "text": text},
        "urls": urls(address(), version),
        "license-files": ["LICENSE"],
    }


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """The fields that may differ between sdist and wheel: a wheel that bundles libraries has their licences."""
    return {"license-files": True}
