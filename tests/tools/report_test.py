# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""bench/report: a page has every contender and every point of its files, docs/benchmarks.md and
docs/benchmarks/ match the output for bench/results, and a wrong line is refused with its file and number.

    report_test.py CLASS ...    Drawn and Command are skipped if matplotlib or markdown-it-py is missing
"""

import html
import importlib.util
import itertools
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

import page
import results
import runs
from job import Measured
from pages_test import faults

LIBRARIES = all(map(importlib.util.find_spec, ("matplotlib", "markdown_it")))


def ran(name, median, mebibytes, d_hidden=1e-6, **more):
    """Return a result in the form of bench/peers."""
    return {"name": name, "status": "ok", "loss": 2.5, "first_s": 2 * median, "median_s": median, "spread_s": 0.125,
            "times_s": [median, median + 0.5, median - 0.25], "extra_peak_bytes": mebibytes * 2**20,
            "extra_peak_spread_bytes": 0, "workspace_bytes": 0, "plan": "", "loss_error": 1e-8,
            "d_hidden_rel_l2": d_hidden, "d_weight_rel_l2": 2e-7} | more


def timed(name, median, mebibytes, **more):
    """Return a result in the form of `logitless bench`."""
    own = {"workspace_bytes": mebibytes * 2**19, "plan": name.split(":")[0], "gemm_efficiency": 0.875}
    one = ran(name, median, mebibytes, **own)
    return {key: value for key, value in one.items() if key not in results.ERRORS} | more


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


def place(at, *contenders):
    """Return a point of `logitless bench`."""
    shape = {"tokens": int(at.get("seq_len", 128)), "hidden": 64, "vocab": 1000,
             "dtype": at.get("model.dtype", "float32"), "layout": "hidden_vocab"}
    return {"type": "point", "at": at, "task": "cross_entropy", "level": "fused", "shape": shape,
            "gemm_rate_flops": 1.25e11, "contenders": list(contenders)}


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
    def test_a_table_has_every_figure(self):
        text, _ = self.made(cpu=FULL)
        self.assertIn("### smollm2-135m, 512 tokens, float32, cross_entropy, gradients\n", text)
        self.assertIn("| torch_compile | 2.000 | 3 | 1.750 to 2.500 | 1.00 | 768.0 | 1.0e-08 | 1.0e-06 | 2.0e-07 |", text)
        self.assertIn("| **one_pass** | 3.000 | 3 | 2.750 to 3.500 | 1.50 | 256.0 | 1.0e-08 | 1.0e-06 | 2.0e-07 |", text)
        self.assertLess(text.index("| torch_compile | 2"), text.index("| **one_pass** | 3"))
        self.assertIn("| [cpu](#cpu) | 3 | torch_compile | 1.50, 0.33 |", text)
        self.assertIn("GEMM rate: 220 GFLOP/s (210 to 230).", text)
        self.assertIn("OPENBLAS_CORETYPE=Haswell", text)
        self.assertIn("\n    bench/peers/run --tokens 512  # 2026-11-21\n", text)

    def test_what_is_missing_is_marked(self):
        text, _ = self.made(cpu=FULL)
        self.assertIn("| tokamax | left out: No module \\| named \\<tokamax\\> |", text)
        self.assertIn("Not measured: dense, two_pass, logitless_torch", text)
        self.assertNotIn("liger_grpo", text)  # it does not support the task

    def test_a_loss_alone_has_no_gradients_to_be_wrong(self):
        loss = ran("torch_dense", 1.0, 8)
        for key in ("d_hidden_rel_l2", "d_weight_rel_l2"):
            del loss[key]
        text, _ = self.made(cpu=run(point(loss, outputs="loss", gradient_bytes=0)))
        self.assertIn("| error of loss |\n", text)
        self.assertIn("| [cpu](#cpu) | 3 | torch_dense, the only peer |\n", text)

    def test_a_wrong_result_is_no_peer(self):
        wrong, broken = ran("torch_compile", 1.0, 8, d_hidden=0.9), ran("jax_dense", 2.0, 8, d_hidden=None)
        text, _ = self.made(cpu=run(point(wrong, broken, ran("torch_dense", 4.0, 8), ran("one_pass", 2.0, 8))))
        self.assertIn("9.0e-01, disagrees", text)
        self.assertIn("not finite, disagrees", text)
        self.assertIn("| **one_pass** | 2.000 | 3 | 1.750 to 2.500 | 0.50 |", text)

    def test_machines_stand_side_by_side(self):
        other = run(point(ran("torch_dense", 2.0, 0), ran("two_pass", 1.0, 8)),
                    point(ran("two_pass", 1.0, 8), tokens=2048), cpu="Other")
        text, pictures = self.made(cpu_b=FULL, cpu_a=other)
        self.assertIn("| point | file | n | reference | **one_pass** | **two_pass** |", text)
        self.assertIn("512 tokens, float32, cross_entropy, gradients | [cpu-a](#cpu-a) | 3 | torch_dense, the only peer | "
                      "– | 0.50, no ratio |\n|  | [cpu-b](#cpu-b) | 3 | torch_compile | 1.50, 0.33 | – |", text)
        self.assertIn("2,048 tokens, float32, cross_entropy, gradients | [cpu-a](#cpu-a) | 3 | "
                      "none: no peer ran and agrees | – | – |", text)
        self.assertLess(text.index("\n## cpu-a\n"), text.index("\n## cpu-b\n"))
        self.assertEqual(len(pictures), 4)  # and the curves over seq_len

    def test_the_overview_has_every_contender_that_agrees(self):
        wrong = ran("logitless_torch", 0.5, 1, d_hidden=0.9)
        text, _ = self.made(cpu=run(point(ran("torch_dense", 4.0, 200), ran("two_pass", 3.0, 10), wrong,
                                          ran("one_pass", 2.0, 100), ran("dense", 1.0, 5))))
        self.assertIn("| **dense** | **one_pass** | **two_pass** | **logitless_torch** |", text)
        self.assertIn("| torch_dense, the only peer | 0.25, 0.025 | 0.50, 0.5 | 0.75, 0.05 | – |", text)

    def test_a_peer_that_nobody_would_use_is_no_reference(self):
        text, pictures = self.made(cpu=run(point(ran("torch_compile", 80.0, 200), ran("one_pass", 2.0, 100))))
        self.assertIn("| none: torch\\_compile takes 40 times as long as logitless | – |".replace("\\_", "_"), text)
        self.assertIn("| torch_compile | 80.000 | 3 | 79.750 to 80.500 | none |", text)
        self.assertEqual([picture.reference for picture in pictures.values()], [None])

    def test_the_docs_begin_with_how_far_each_contender_is(self):
        path = self.folder / "cpu.jsonl"
        path.write_text(lines(run(point(ran("torch_dense", 4.0, 200), ran("one_pass", 2.0, 100)),
                                  point(ran("torch_dense", 4.0, 200), ran("one_pass", 3.0, 20), tokens=64))))
        parts, _ = page.make_docs([runs.read_file(path, "cpu")])
        self.assertEqual(sorted(parts), ["benchmarks.md", "benchmarks/cpu.md"])
        self.assertIn("| **one_pass** | 2 | 0.50 to 0.75 | 0.1 to 0.5 |\n", parts["benchmarks.md"])
        self.assertIn("| [cpu](benchmarks/cpu.md) | 3 | torch_dense, the only peer | 0.50, 0.5 |", parts["benchmarks.md"])
        self.assertIn("](cpu/smollm2-135m-64-float32-cross_entropy-gradients.svg)", parts["benchmarks/cpu.md"])

    def test_one_call_has_no_range(self):
        text, _ = self.made(cpu=run(point(ran("torch_dense", 4.0, 200, times_s=[4.0]))))
        self.assertIn("| torch_dense | 4.000 | 1 | – | 1.00 |", text)

    def test_a_file_may_hold_several_runs(self):
        again = point(ran("torch_dense", 2.0, 8), tokens=1024)
        text, _ = self.made(cpu=[*FULL, *run(again, torch="2.14.0", command="bench/peers/run --tokens 1024")])
        self.assertEqual(text.count("**Libraries:**"), 2)
        self.assertEqual(text.count("\n## cpu\n"), 1)
        self.assertLess(text.index("torch 2.13.0"), text.index("torch 2.14.0"))

    def test_runs_that_are_alike_state_their_machine_once(self):
        again = point(ran("torch_dense", 2.0, 8), tokens=128)
        text, _ = self.made(cpu=[*FULL, *run(again, command="bench/peers/run --tokens 128", load_average=0.5)])
        self.assertEqual(text.count("**Libraries:**"), 1)
        self.assertIn("load average before a run: 0.5.", text)
        commands = [f"    bench/peers/run --tokens {tokens}  # 2026-11-21\n" for tokens in (512, 128)]
        self.assertIn("\n" + "".join(commands), text)
        self.assertLess(text.index("\n### smollm2-135m, 128"), text.index("\n### smollm2-135m, 512"))

    def test_teachers_of_two_sizes_are_two_points(self):
        points = [point(ran("liger_jsd", 1.0, 8), task="jsd") for _ in range(2)]
        for one, size in zip(points, (1024, 4096)):
            one["shape"]["teacher_hidden"] = size
        text, pictures = self.made(cpu=run(*points))
        self.assertIn("### smollm2-135m, 512 tokens, float32, jsd from H = 4,096, gradients\n", text)
        self.assertEqual(len(pictures), 2)

    def test_the_order_of_lines_does_not_matter(self):
        small, large = point(ran("one_pass", 1.0, 8)), point(ran("one_pass", 2.0, 8), tokens=4096)
        head = header(small, large)
        self.assertEqual(self.made(cpu=[head, small, large]), self.made(cpu=[head, large, small]))


SWEEP = run(*(place({"seq_len": str(tokens), "model.dtype": dtype},
                    timed("dense", tokens / 64, tokens), timed("auto", tokens / 60, 2),
                    timed("one_pass:threads=1", tokens / 30, 4), failed("two_pass", f"out of memory at {tokens}"))
              for dtype in ("float32", "bfloat16") for tokens in (128, 256, 512)), command=None)


class OfBench(Folder):
    def test_every_contender_of_every_point_has_its_figures(self):
        text, pictures = self.made(sweep=SWEEP)
        sections = text.split("\n### ")[1:]
        self.assertEqual(len(sections), 6)
        for section, (tokens, dtype) in zip(sections, itertools.product((128, 256, 512), ("float32", "bfloat16"))):
            title = f"H = 64, V = 1,000, {tokens} tokens, {dtype}, cross_entropy"
            self.assertEqual(section.split("\n")[0], title)
            time, logits = tokens / 64, 4 * tokens * 1000 / 2**20
            self.assertIn(f"| **dense** | {time:.3f} | 3 | {time - 0.25:.3f} to {time + 0.5:.3f} | 1.00 | {tokens}.0 | 1 | "
                          f"{tokens / 2:.1f} | {2 * time:.3f} | 0.88 | 2.5 | dense |", section)
            self.assertIn(f"| 1.07 | 2.0 | {2 / tokens:.3g} | 1.0 |", section)
            self.assertIn("| **one_pass:threads=1** |", section)
            self.assertIn(f"| **two_pass** | left out: out of memory at {tokens} |", section)
            self.assertIn(f"Level fused, hidden_vocab. All logits in float32 would be {logits:.1f} MiB. GEMM rate: 125",
                          " ".join(section.split()))
        self.assertIn("| [sweep](#sweep) | 3 | dense | 1 | – | 1.07, 0.0039 | 2.13, 0.0078 |", text)
        self.assertEqual(sum(isinstance(one, page.Curves) for one in pictures.values()), 2)  # over seq_len
        self.assertEqual(len(pictures), 8)
        for path in pictures:
            self.assertIn(f"](page/{path})", text)

    def test_the_command_measures_the_same_again(self):
        text, _ = self.made(sweep=SWEEP)
        self.assertIn("\n    logitless bench --set model.hidden_size=64 --sweep seq_len=128,256,512 --sweep "
                      "model.dtype=float32,bfloat16 --contenders dense,auto,one_pass:threads=1,two_pass --warmup 1 "
                      "--iters 3 --inputs random  # 2026-11-21\n", text)

    def test_without_dense_there_is_no_ratio(self):
        text, _ = self.made(cpu=run(place({}, failed("dense", "no memory"), timed("auto", 1e-5, 2, times_s=[1e-5]))))
        self.assertIn("| **auto** | 0.0000100 | 1 | – | none | 2.0 | none | 1.0 |", text)
        self.assertIn("| none: `dense` did not run |", text)

    def test_a_run_that_was_interrupted_says_so(self):
        path = self.folder / "torn.jsonl"
        path.write_text(lines(SWEEP[:3]) + '{"type": "poi', encoding="utf-8")
        text, _ = page.make_page([runs.read_file(path, "torn")], "page")
        self.assertIn("Line 4 has no end and was left out", text)
        self.assertIn("The run is not complete: 4 of its points were not measured.", text)
        whole = [SWEEP[0] | {"sweep": header(*SWEEP[1:3])["sweep"]}, *SWEEP[1:3], *run(*SWEEP[3:], command=None)]
        self.assertNotIn("not complete", self.made(whole=whole)[0])


NASTY = "</script><img src=x>[a](javascript:b) | `c` $d$ *e* &lt; # \u0001\ud800\n\x1b[2J"


@unittest.skipUnless(LIBRARIES, "matplotlib or markdown-it-py is not installed")
class Drawn(Folder):
    def drawn(self, *points, **more):
        import chart

        _, pictures = self.made(cpu=run(*points, **more))
        drawings = [chart.svg(picture).decode() for picture in pictures.values()]
        for drawing in drawings:
            self.assertEqual(faults(drawing.encode()), [])
        return drawings if len(drawings) > 1 else drawings[0]

    def test_a_point_has_names_figures_and_ratios(self):
        drawing = self.drawn(*FULL[1:])
        for words in ("Time of one call, s (× torch_compile)", "Extra peak memory, MiB (× torch_compile)", "one_pass",
                      "3.000  (1.50×)", "256.0  (0.33×)", "Error against float64"):
            self.assertIn(f">{words}<", drawing)
        self.assertEqual(drawing.count(">left out<"), 2)


@unittest.skipUnless(LIBRARIES, "matplotlib or markdown-it-py is not installed")
class Command(Folder):
    def call(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "bench" / "report", *arguments], capture_output=True, text=True,
                              check=False, cwd=self.folder)

    def files(self):
        return {path.relative_to(self.folder): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def test_html_is_one_file_that_loads_nothing(self):
        made = self.call(TOKENS, "-o", "page.html")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual(list(self.files()), [pathlib.Path("page.html")])
        text = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertTrue(text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n"))
        self.assertIn("default-src 'none'; img-src data:", text)
        self.assertEqual(set(re.findall(r'(?:src|href)="([^"]{10})', text)), {"data:image"})
        self.assertEqual(text.count("<img "), 4)
        self.assertIn('<a href="#tokens">', text)
        self.assertIn('<h2 id="tokens">', text)
        self.assertIn("<td style=\"text-align:right\">16.200</td>", text)
        self.assertIn(html.escape('left out: cannot allocate the logits <[4096, 151936]> & "more"'), text)

    def test_nothing_of_a_file_is_markup(self):
        one = place({"model.name": NASTY}, timed("dense", 1.0, 1), timed(NASTY, 1.0, 1), failed("auto", NASTY))
        (self.folder / "A b.jsonl").write_text(lines(run(one, cpu=NASTY, command=None, simd_target=NASTY)))
        self.assertEqual(self.call("A b.jsonl", "-o", "page.html").stderr, "")
        text = (self.folder / "page.html").read_text(encoding="utf-8")
        for tag in re.findall(r"<[a-z]+", text):
            self.assertIn(tag, "<html <meta <title <style <h <p <a <table <thead <tr <th <tbody <td <strong <code <pre "
                          "<img <head <body <em".split())
        self.assertNotRegex(text, r'href="(?!#)')
        self.assertNotIn("<em>", text)
        self.assertIn(html.escape("</script><img src=x>[a](javascript:b) | `c` $d$ *e* &lt; #"), text)

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
    def test_what_is_not_finite_is_null(self):
        turns = results.Turns("a", [Measured(math.nan, 1.0, [1.0], [0])],
                              {"loss_error": math.nan, "d_hidden_rel_l2": 0.5})
        written = json.loads(json.dumps(turns.to_json(), allow_nan=False))
        self.assertEqual((written["loss"], written["loss_error"]), (None, None))
        complaints = results.disagreements(written, "bfloat16")
        self.assertEqual([one.split()[0] for one in complaints], ["loss_error", "d_hidden_rel_l2"])
        self.assertEqual(results.disagreements({"loss_error": 1e-6}, "float32"), [])

    @unittest.skipUnless(importlib.util.find_spec("torch") and importlib.util.find_spec("safetensors"),
                         "the runner needs torch and safetensors")
    def test_a_header_says_which_command_measures_again(self):
        import main

        def said(*arguments):
            options = main.parse(list(arguments))
            return main.command_line(options)

        self.assertEqual(said(), "bench/peers/run")
        self.assertEqual(said("-o", "x.jsonl", "--command", "/somewhere/logitless"), "bench/peers/run")
        self.assertEqual(said("--tokens", "512", "--rounds", "4", "--dtypes", "bfloat16", "float32"),
                         "bench/peers/run --tokens 512 --dtypes bfloat16 float32 --rounds 4")


if __name__ == "__main__":
    unittest.main()
