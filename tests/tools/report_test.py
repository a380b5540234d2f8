# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""bench/report: a page has every contender and every point of its files, docs/benchmarks.md and
docs/benchmarks/ match the output for bench/results, and a wrong line is refused with its file and number.

    report_test.py CLASS ...    Command is skipped if matplotlib or markdown-it-py is missing
"""

import html
import importlib.util
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = ROOT / "tests" / "data" / "tokens.jsonl"

sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "bench" / "peers"), str(ROOT / "bench" / "report"), str(pathlib.Path(__file__).parent)]

import contenders
import logitless_command
import page
import results
import runs
from job import Job, Measured, Shape
from pages_test import faults

LIBRARIES = all(map(importlib.util.find_spec, ("matplotlib", "markdown_it")))


def ran(name, median, mebibytes, d_hidden=1e-6, **more):
    """Return a result in the form of bench/peers."""
    return {"name": name, "status": "ok", "loss": 2.5, "first_s": 2 * median, "median_s": median, "spread_s": 0.125,
            "times_s": [median, median + 0.5, median - 0.25], "extra_peak_bytes": mebibytes * 2**20,
            "extra_peak_spread_bytes": 0, "workspace_bytes": 0, "plan": "", "loss_error": 1e-8,
            "d_hidden_rel_l2": d_hidden, "d_weight_rel_l2": 2e-7} | more


def failed(name, message):
    return {"name": name, "status": "error", "message": message}


def point(*contenders, tokens=512, dtype="float32", outputs="gradients", task="cross_entropy", **more):
    """Return a point of bench/peers."""
    at = {"model.name": "smollm2-135m", "model.dtype": dtype, "seq_len": str(tokens), "task": task, "outputs": outputs}
    shape = {"tokens": tokens, "hidden": 576, "vocab": 49152, "dtype": dtype, "layout": "vocab_hidden"}
    return {"type": "point", "at": at, "task": task, "level": "fused", "shape": shape,
            "reference": {"loss": 2.5, "rows": 512, "entries": 8192}, "input_bytes": 2**27, "gradient_bytes": 2**27,
            "gemm_rate_flops": 2.2e11, "gemm_rates_flops": [2.1e11, 2.2e11, 2.3e11], "contenders": list(contenders),
            **more}


def header(*points, cpu="Example <CPU> | 9000", command="bench/peers/run --tokens 512", **environment):
    """Return a header that sweeps the keys of the points; without a command, a header of `logitless bench`."""
    keys = list(points[0]["at"]) if points else []
    sweep = [{"key": key, "values": list(dict.fromkeys(one["at"][key] for one in points))} for key in keys]
    names = list(dict.fromkeys(one["name"] for each in points for one in each["contenders"]))
    return {"type": "header", "schema": 1, "version": "0.3.0", "started": "2026-11-21T15:00:00Z",
            "settings": ["model.hidden_size=64"], "sweep": sweep, "iters": 3, "warmup": 1, "inputs": "random",
            "contenders": names, **({"command": command} if command else {}),
            "environment": {"cpu": cpu, "cores": 2, "threads": 2, "torch": "2.13.0",
                            "variables": {"OPENBLAS_CORETYPE": "Haswell"}, **environment}}


def run(*points, **more):
    return [header(*points, **more), *points]


FULL = run(point(ran("torch_dense", 4.0, 2048), ran("one_pass", 3.0, 256), ran("torch_compile", 2.0, 768),
                 failed("tokamax", "No module | named <tokamax>")))


def lines(objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def made(self, **files):
        """Return the page and the pictures of files; _ in their names means -."""
        read = []
        for name, objects in sorted(files.items()):
            path = self.folder / (name + ".jsonl")
            path.write_text(lines(objects), encoding="utf-8")
            read.append(runs.read_file(path, name.replace("_", "-")))
        return page.make_page(read, "page")

    def refusal(self, text):
        path = self.folder / "cpu.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with self.assertRaises(runs.Broken) as caught:
            runs.read_file(path, "cpu")
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception).removeprefix(str(self.folder) + "/")


class Committed(unittest.TestCase):
    def test_the_pages_have_what_the_command_makes_of_the_files(self):
        docs = ROOT / "docs"
        files = [runs.read_file(path, path.stem) for path in sorted((ROOT / "bench" / "results").glob("*.jsonl"))]
        parts, pictures = page.make_docs(files)
        told = "bench/report was not run after its last change, or the last change of bench/results"
        for name, part in parts.items():
            text = (docs / name).read_text(encoding="utf-8")
            self.assertEqual(text, page.with_part(text, "", part), f"{name}: {told}")
        generated = [path for path in docs.rglob("*.md") if page.BEGIN in path.read_text(encoding="utf-8")]
        self.assertEqual(sorted(path.relative_to(docs).as_posix() for path in generated), sorted(parts), told)
        folder = docs / "benchmarks"
        present = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.svg"))
        self.assertEqual(present, sorted(pictures), told)
        # The bytes depend on the version of matplotlib; the text in a picture does not.
        for place, picture in pictures.items():
            drawn = (folder / place).read_text(encoding="utf-8")
            words = {words.removeprefix("» ").split("  ")[0] for words in re.findall(">([^<]*)</text>", drawn)}
            for one in picture.point.results:
                self.assertLessEqual({one.name, *([] if one.failure else [page.seconds(one.median_s)])}, words,
                                     f"{place}: {told}")

    def test_what_a_page_says_besides_stays(self):
        made = page.with_part("", "a-cpu", "old\n")
        self.assertTrue(made.startswith("# a-cpu\n"))
        self.assertEqual(page.with_part(made + "\nBy hand.\n", "a-cpu", "new\n"),
                         made.replace("old", "new") + "\nBy hand.\n")


class OfPeers(Folder):
    """What the committed files do not have."""

    def test_what_is_missing_or_wrong_is_marked(self):
        wrong, broken = ran("torch_compile", 1.0, 8, d_hidden=0.9), ran("jax_dense", 2.0, 8, d_hidden=None)
        once = ran("torch_dense", 4.0, 8, times_s=[4.0])
        text, _ = self.made(cpu=run(point(wrong, broken, once, ran("one_pass", 2.0, 8),
                                          failed("tokamax", "No module | named <tokamax>"))))
        self.assertIn("9.0e-01, disagrees", text)
        self.assertIn("not finite, disagrees", text)
        self.assertIn("| torch_dense | 4.000 | 1 | – | 1.00 |", text)
        self.assertIn("| **one_pass** | 2.000 | 3 | 1.750 to 2.500 | 0.50 |", text)
        self.assertIn("| tokamax | left out: No module \\| named \\<tokamax\\> |", text)
        self.assertIn("Not measured: dense, two_pass, logitless_torch", text)
        self.assertIn("none: no peer ran and agrees", self.made(cpu=run(point(ran("two_pass", 1.0, 8))))[0])

    def test_a_loss_alone_has_no_gradients_to_be_wrong(self):
        loss = ran("torch_dense", 1.0, 8)
        for key in ("d_hidden_rel_l2", "d_weight_rel_l2"):
            del loss[key]
        text, _ = self.made(cpu=run(point(loss, outputs="loss", gradient_bytes=0)))
        self.assertIn("| error of loss |\n", text)

    def test_teachers_of_two_sizes_are_two_points_in_any_order(self):
        small, large = (point(ran("liger_jsd", 1.0, 8), task="jsd") for _ in range(2))
        small["shape"]["teacher_hidden"], large["shape"]["teacher_hidden"] = 1024, 4096
        head = header(small, large)
        text, pictures = self.made(cpu=[head, small, large])
        self.assertIn("### smollm2-135m, 512 tokens, float32, jsd from H = 4,096, gradients\n", text)
        self.assertEqual(len(pictures), 2)
        self.assertEqual(self.made(cpu=[head, large, small]), (text, pictures))


class OfBench(Folder):
    def test_every_contender_of_every_point_has_its_figures(self):
        text, pictures = page.make_page([runs.read_file(TOKENS, "tokens")], "page")
        for line in (
                "| H = 1,536, V = 151,936, 1,024 tokens, float32, cross_entropy | [tokens](#tokens) | 1 | dense | 1 | "
                "1.00, 0.34 | 1.25, 0.022 | 0.34, 0.01 |",
                "    logitless bench --set model.hidden_size=1536 --set model.vocab_size=151936 --sweep "
                "seq_len=256,1024,4096 --contenders dense,one_pass,two_pass,forward --warmup 1 --iters 5 --inputs random  "
                "# 2026-11-21",
                "| **two_pass** | 5.000 | 1 | – | 1.25 | 13.2 | 0.0222 | 13.2 | 7.500 | 0.97 | 12.25 | two_pass |",
                "| **one_pass** | 16.200 | 1 | – | none | 257.0 | none | 257.0 | 24.300 | 0.94 | 12.25 | one_pass |",
                '| **dense** | left out: cannot allocate the logits \\<\\[4096, 151936\\]\\> \\& "more" |' +
                "  |" * 10):
            self.assertIn(f"\n{line}\n", text)
        self.assertEqual([isinstance(one, page.Curves) for one in pictures.values()], [True, False, False, False])
        for path in pictures:
            self.assertIn(f"](page/{path})", text)

    def test_a_run_that_was_interrupted_says_so(self):
        path = self.folder / "torn.jsonl"
        path.write_text("".join(TOKENS.read_text(encoding="utf-8").splitlines(keepends=True)[:3]) + '{"type": "poi',
                        encoding="utf-8")
        text, _ = page.make_page([runs.read_file(path, "torn")], "page")
        self.assertIn("Line 4 has no end and was left out", text)
        self.assertIn("The run is not complete: 1 of its points were not measured.", text)


NASTY = "</script><img src=x>[a](javascript:b) | `c` $d$ *e* &lt; # \u0001\ud800\n\x1b[2J"


@unittest.skipUnless(LIBRARIES, "matplotlib or markdown-it-py is not installed")
class Command(Folder):
    def call(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "bench" / "report", *arguments], capture_output=True, text=True,
                              check=False, cwd=self.folder)

    def files(self):
        return {path.relative_to(self.folder): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def test_html_is_one_file_that_loads_nothing_and_has_no_markup_of_the_data(self):
        one = point(ran("torch_dense", 1.0, 1), ran(NASTY, 1.0, 1), failed("auto", NASTY), task=NASTY)
        (self.folder / "A b.jsonl").write_text(lines(run(one, cpu=NASTY, command=NASTY, simd_target=NASTY)))
        made = self.call(TOKENS, "A b.jsonl", "-o", "page.html")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual(len(self.files()), 2)
        text = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertTrue(text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n"))
        self.assertIn("default-src 'none'; img-src data:", text)
        self.assertNotRegex(text, r'href="(?!#)|src="(?!data:image)|<em>')
        self.assertIn('<a href="#tokens">', text)
        self.assertIn('<h2 id="tokens">', text)
        self.assertIn("<td style=\"text-align:right\">16.200</td>", text)
        self.assertIn(html.escape('left out: cannot allocate the logits <[4096, 151936]> & "more"'), text)
        self.assertIn(html.escape("</script><img src=x>[a](javascript:b) | `c` $d$ *e* &lt; #"), text)
        for tag in re.findall(r"<[a-z]+", text):
            self.assertIn(tag, "<html <meta <title <style <h <p <a <table <thead <tr <th <tbody <td <strong <code <pre "
                          "<img <head <body".split())

    def test_the_same_files_give_the_same_bytes_and_old_pictures_go(self):
        data = self.folder / "cpu.jsonl"
        data.write_text(lines(FULL), encoding="utf-8")
        stale, foreign = self.folder / "page" / "cpu" / "stale.svg", self.folder / "page" / "mine.svg"
        stale.parent.mkdir(parents=True)
        stale.touch()
        foreign.touch()
        self.assertEqual(self.call(data, "-o", "page.md").returncode, 0)
        first = self.files()
        self.assertFalse(stale.exists())
        self.assertEqual(len(first), 4)
        (drawing,) = [text for path, text in first.items() if path.match("cpu/*.svg")]
        self.assertEqual(faults(drawing), [])
        for words in ("Time of one call, s (÷ torch_compile)", "one_pass", "3.000  (1.50)", "256.0  (0.33)", "left out"):
            self.assertIn(f">{words}<", drawing.decode())
        self.assertEqual(self.call(data, "-o", "page.md").returncode, 0)
        self.assertEqual(self.files(), first)

        data.write_text(lines(FULL) + "{}\n", encoding="utf-8")
        broken = self.files()
        refused = self.call(data, "-o", "page.md")
        self.assertEqual(refused.returncode, 2)
        self.assertEqual(refused.stderr, f'bench/report: {data}:3: type must be "header" or "point", not left out\n')
        self.assertEqual(self.files(), broken)

    def test_bad_calls_write_nothing(self):
        for arguments, message in ((["none.jsonl", "-o", "p.html"], "No such file"),
                                   ([".", "-o", "p.html"], "directory"), ([TOKENS], "-o must name a page"),
                                   ([TOKENS, "-o", "p.pdf"], "-o must name a page"),
                                   ([TOKENS, "-o", "no/p.html"], "No such file")):
            made = self.call(*arguments)
            self.assertEqual(made.returncode, 2, arguments)
            self.assertIn(message, made.stderr)
            self.assertEqual(self.files(), {})


class Refused(Folder):
    def test_what_is_no_file_of_the_runner(self):
        whole = lines(FULL)
        self.assertEqual(self.refusal(""), "cpu.jsonl:1: the file is empty")
        self.assertIn("cpu.jsonl:1: is not JSON: ", self.refusal("hello\n"))
        self.assertIn("cpu.jsonl:3: is not JSON: ", self.refusal(whole + "\n"))
        self.assertIn("cpu.jsonl:3: is not JSON: ", self.refusal(whole.encode() + b"\xff\xfe\n"))
        self.assertIn("cpu.jsonl:3: is not JSON: NaN", self.refusal(whole + '{"type": NaN}\n'))
        self.assertIn("cpu.jsonl:3: is not JSON: ", self.refusal(whole + "[" * 100000 + "\n"))
        self.assertEqual(self.refusal('{"type": "hea'), "cpu.jsonl:1: the line does not end")
        self.assertEqual(self.refusal("[1]\n"), "cpu.jsonl:1: the line is not an object")
        self.assertEqual(self.refusal(lines(FULL[1:])),
                         'cpu.jsonl:1: type must be "header" on the first line, not "point"')
        self.assertIn("cpu.jsonl:1: the run of 2026-11-21T15:00:00Z has no point", self.refusal(lines(FULL[:1])))
        self.assertEqual(self.refusal(whole + lines(FULL[1:])), "cpu.jsonl:3: line 2 holds this point already")
        self.assertIn('cpu.jsonl:3: environment.cpu must be that of the first line: a file has one machine, not '
                      '"Other"', self.refusal(whole + lines([header(cpu="Other")])))


class Writer(unittest.TestCase):
    """The parts of bench/peers that need only Python."""

    def test_what_is_not_finite_is_null(self):
        turns = results.Turns("a", [Measured(math.nan, 1.0, [1.0], [0])],
                              {"loss_error": math.nan, "d_hidden_rel_l2": 0.5})
        written = json.loads(json.dumps(turns.to_json(), allow_nan=False))
        self.assertEqual((written["loss"], written["loss_error"]), (None, None))
        complaints = results.disagreements(written, "bfloat16")
        self.assertEqual([one.split()[0] for one in complaints], ["loss_error", "d_hidden_rel_l2"])
        self.assertEqual(results.disagreements({"loss_error": 1e-6}, "float32"), [])

    def test_a_failure_says_why(self):
        failure = results.Turns("b", failure="out of memory")
        self.assertEqual(failure.to_json(), failed("b", "out of memory"))
        self.assertEqual(results.table([failure]).splitlines()[1], "b  left out: out of memory")

    def test_the_first_call_of_the_command_is_one_more(self):
        shape = Shape(tokens=1024, hidden=8, vocab=4096, dtype="bfloat16", sequences=2)
        job = Job("one_pass", "cross_entropy", shape, "in.safetensors", True, 2, 3, "logitless", None)
        self.assertEqual(logitless_command.arguments(job)[:4], ["logitless", "compare", "--repeat", "3"])
        report = {"fused": {"loss": 2.5, "plan": "one_pass", "workspace_bytes": 7},
                  "details": {"fused_times_s": [9, 1, 2], "fused_extra_peaks_bytes": [90, 10, 20]}}
        self.assertEqual(logitless_command.measured(report, "fused"), Measured(2.5, 9, [1, 2], [10, 20], "one_pass", 7))
        dense, chunked = contenders.BY_NAME["torch_dense"], contenders.BY_NAME["trl_chunked"]
        logits = 1024 * 4096 * 4
        self.assertGreater(dense.memory_needed(shape, True), 3 * logits)
        self.assertLess(chunked.memory_needed(shape, True), logits)


if __name__ == "__main__":
    unittest.main()
