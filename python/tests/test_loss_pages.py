# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The Python blocks of docs/losses*.md run, and their reference code agrees with the library."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.glob("losses*.md"))


def test_there_are_pages():
    assert len(PAGES) == 4 or not DOCS.exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
