# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The pictures and code of pages: SVG for strict readers, the scripts that draw it, the code for trackers.

    pages_test.py CLASS    tests that draw are skipped if matplotlib is missing
"""

import importlib.util
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock
from xml.parsers import expat

ROOT = pathlib.Path(__file__).resolve().parents[2]


def faults(text):
    """Return the errors that a strict reader finds in an SVG."""
    found, ids = [], set()

    def element(name, attributes):
        if name.endswith("metadata"):
            found.append("metadata")
        if attributes.get("id") in ids:
            found.append(f"id {attributes['id']} stands twice")
        ids.update({attributes["id"]} if "id" in attributes else ())

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartDoctypeDeclHandler = lambda *_: found.append("a DOCTYPE")
    parser.StartElementHandler = element
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        found.append(str(error))
    return found


class Strict(unittest.TestCase):
    def test_every_picture_of_the_pages_is_plain_xml(self):
        pictures = list((ROOT / "docs").rglob("*.svg"))
        self.assertGreaterEqual(len(pictures), 2)
        for picture in pictures:
            self.assertEqual(faults(picture.read_bytes()), [], picture)

    def test_the_check_sees_what_is_wrong(self):
        self.assertEqual(faults(b"<svg><a id='1'/><a id='2'/></svg>"), [])
        self.assertEqual(faults(b"<svg><a id='1'/><a id='1'/></svg>"), ["id 1 stands twice"])
        self.assertEqual(faults(b"<!DOCTYPE svg><svg><metadata/></svg>"), ["a DOCTYPE", "metadata"])
        for text in (b"<svg a='1' a='2'/>", b"<svg x:a='1'/>", b"<svg>&nbsp;</svg>", b"<svg>"):
            self.assertEqual(len(faults(text)), 1, text)


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Drawing(unittest.TestCase):
    def test_scripts_draw_plain_xml(self):
        names = ("torch_dense", "torch_compile", "logitless_torch", "two_pass")
        lines = [{"version": "1", "iters": 2, "environment": {"cpu": "C", "threads": 2, "torch": "2"}}]
        for tokens in (512, 1024):
            ran = [{"name": name, "status": "ok", "median_s": tokens, "extra_peak_bytes": tokens} for name in names]
            lines.append({"at": {"model.name": "m"}, "contenders": ran,
                          "shape": {"tokens": tokens, "hidden": 8, "vocab": 9, "dtype": "float32"}})
        run = {"head": "plain", "losses": [2, 1], "seconds": [1, 1], "peak_mib": 3}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "run.json").write_text(json.dumps(run))
            (folder / "file.jsonl").write_text("\n".join(map(json.dumps, lines)))
            for script in (["examples/python/curves.py", "run.json", "run.json"],
                           ["bench/readme_picture.py", "--draw", "--file", "file.jsonl"]):
                subprocess.run([sys.executable, "-B", ROOT / script[0], *script[1:], "-o", "picture.svg"], check=True,
                               cwd=folder, capture_output=True)
                self.assertEqual(faults((folder / "picture.svg").read_bytes()), [])


class Trackers(unittest.TestCase):
    def test_the_code_of_the_page_sends_every_figure(self):
        page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
        code = re.search(r"### Trackers\n.*?```python\n(.*?)```", page, re.S)[1]
        sent = []

        class SummaryWriter:
            def __init__(self, folder):
                self.add_scalar = lambda *point: sent.append(point)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                sent.append("closed")

        module = types.ModuleType("torch.utils.tensorboard")
        module.SummaryWriter = SummaryWriter
        lines = ['{"step":1,"name":"loss","value":9.03}\n', '{"step":2,"name":"dense/loss","value":null}\n']
        with mock.patch.dict(sys.modules, {module.__name__: module}), mock.patch("sys.stdin", lines):
            exec(code, {})
        self.assertEqual(sent[0], ("loss", 9.03, 1))
        self.assertEqual((sent[1][0], math.isnan(sent[1][1]), sent[1][2]), ("dense/loss", True, 2))
        self.assertEqual(sent[2:], ["closed"])


if __name__ == "__main__":
    unittest.main()
