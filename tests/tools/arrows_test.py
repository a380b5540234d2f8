# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""scripts/ci/arrows on small repositories: accepted ones, and the message for each kind of error."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "ci" / "arrows"

SOURCES = {
    "include/logitless/plan.h": "",
    "src/core/checks.h": '#include "logitless/plan.h"\n',
    "src/engine/run.h": "",
    "src/engine/run.cc": '#include "engine/run.h"\n#include <logitless/plan.h>\n\n#include "core/checks.h"\n',
    "bench/main.cc": '#include "run.h"  // of this folder\n#include "hwy/highway.h"\n',
    "bench/run.h": "",
}
ARROWS = ["include", "src/core -> include", "src/engine -> include, src/core", "bench"]


class Arrows(unittest.TestCase):
    def expect(self, messages, sources=None, arrows=None):
        """Run the script on SOURCES and `sources`, with `arrows` on the page."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {**SOURCES, **(sources or {})}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            (root / "docs").mkdir()
            block = "\n".join(["# Page", "```arrows", *(ARROWS if arrows is None else arrows), "```", "src/core -> bench"])
            (root / "docs/architecture.md").write_text(block)
            run = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        self.assertEqual(run.stderr, "")
        self.assertEqual(run.returncode, 1 if messages else 0, run.stdout)
        if messages:
            self.assertEqual(run.stdout.splitlines(), messages)

    def test_what_is_stated_and_used_is_right(self):
        self.expect([])

    def test_each_error_has_its_message(self):
        self.expect(
            ["bench/main.cc:2: includes engine/run.h, but docs/architecture.md has no arrow bench -> src/engine: "
             "remove the include, or add the arrow"],
            sources={"bench/main.cc": '#include "run.h"\n  #  include "engine/run.h"\n#include "engine/run.h"\n'})
        self.expect(["docs/architecture.md:6: bench -> include: no #include uses this arrow: remove it"],
                    arrows=[*ARROWS[:3], "bench -> include"])
        back = {"src/core/checks.cc": '#include "engine/run.h"\n'}
        points_back = ("docs/architecture.md:5: src/core -> src/engine: this arrow points back, because src/engine comes "
                       "later: add the reason after a colon")
        no_reason = "docs/architecture.md:5: nothing follows the colon: write the reason, or remove the colon"
        for arrow, messages in (("src/core -> src/engine", [points_back]),
                                ("src/core -> src/engine:", [no_reason, points_back]),
                                ("src/core -> src/engine: it is a test", [])):
            self.expect(messages, sources=back, arrows=[*ARROWS[:2], arrow, *ARROWS[2:]])


if __name__ == "__main__":
    unittest.main()
