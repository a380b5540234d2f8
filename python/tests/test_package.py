# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The package's metadata, extras, and the page that a package index shows. scripts/wheel tests the wheel."""

import pathlib
import re
import subprocess
import sys

import pytest

import logitless
from logitless._extras import PACKAGES

ROOT = pathlib.Path(__file__).resolve().parents[2]

ABSENT = """
import importlib, sys
import logitless
for extra, packages in {packages!r}.items():
    for package in packages:
        sys.modules[package] = None  # as if it were not installed
        try:
            importlib.import_module("logitless." + extra)
        except ImportError as error:
            print(extra, package, error.name, error)
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
"""


@pytest.fixture
def index_metadata(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "python" / "wheel")
    return pytest.importorskip("index_metadata")


def test_a_module_without_its_packages_names_the_extra():
    script = ABSENT.format(packages=PACKAGES)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert len(lines) == sum(map(len, PACKAGES.values())), result.stdout
    for line in lines:
        extra, package, name, message = line.split(" ", 3)
        # Other packages of the extra may be missing here, too.
        assert name in PACKAGES[extra] and package in message
        assert message.startswith(f"logitless.{extra} needs ")
        assert message.endswith(f'pip install "logitless[{extra}]"')


def test_extras_bring_the_packages_of_their_modules():
    tomllib = pytest.importorskip("tomllib")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, packages in PACKAGES.items():
        assert set(packages) <= {re.match(r"\w+", requirement)[0] for requirement in extras[extra]}
    every = set(extras) - {"all", "test"}
    assert extras["all"] == [f"logitless[{','.join(extra for extra in extras if extra in every)}]"]


def test_the_module_imports_only_numpy():
    loaded = "import sys, numpy; before = set(sys.modules); import logitless; print(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    foreign = {name.partition(".")[0] for name in result.stdout.split()} - set(sys.stdlib_module_names)
    assert foreign <= {"logitless", "org"}, foreign  # `org`: copy's look for Jython


def test_the_citation_has_this_version():
    version = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert version == logitless.__version__


def test_the_index_shows_no_relative_link(index_metadata):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = r"\]\((?!https?://|#)"
    assert len(re.findall(relative, text)) > 20 and "![" in text
    there = index_metadata.readme(text, "https://example.org/logitless", "1.2.3")
    assert not re.findall(relative, there)
    assert "[faq.md]" not in there and "](https://example.org/logitless/blob/v1.2.3/docs/faq.md#" in there
    assert "](https://example.org/logitless/raw/v1.2.3/docs/images/memory_and_time.svg)" in there
    nowhere = index_metadata.readme(text, "", "1.2.3")
    assert not re.findall(relative, nowhere) and "![" not in nowhere
    code = re.findall(r"^```.*?^```$", text, flags=re.DOTALL | re.MULTILINE)
    for shown in (there, nowhere):
        assert re.findall(r"^```.*?^```$", shown, flags=re.DOTALL | re.MULTILINE) == code


@pytest.mark.parametrize("line, address", [
    ("", ""),
    ("# repository-code: https://example.org/a", ""),
    ("repository-code: https://example.org/a/", "https://example.org/a"),
    ('repository-code: "https://example.org/a/b"', "https://example.org/a/b"),
    ("repository-code: example.org", None),
    ("repository-code:", None),
])
def test_the_address_is_in_the_citation(index_metadata, monkeypatch, tmp_path, line, address):
    (tmp_path / "CITATION.cff").write_text(f"version: 1.2.3\n{line}\n", encoding="utf-8")
    monkeypatch.setattr(index_metadata, "_ROOT", tmp_path)
    if address is None:
        with pytest.raises(ValueError, match="repository-code = '.*' must be an address"):
            index_metadata.address()
        return
    assert index_metadata.address() == address
    urls = index_metadata.urls(address, "1.2.3")
    assert urls.get("Repository", "") == address and bool(urls) == bool(address)
