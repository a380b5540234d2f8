# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""docs/benchmarks.md is what bench/peers/page makes of bench/results, marks what is missing, and a line that is wrong
is refused with its file and number. Needs Python alone."""

import copy
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "peers"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import machine
import page
import recorded
import results
from job import Measured
from pages_test import faults


def ran(name, median, mebibytes, d_hidden=1e-6, **more):
    return {"name": name, "status": "ok", "loss": 2.5, "median_s": median, "least_s": median - 0.25,
            "most_s": median + 0.5, "extra_peak_bytes": mebibytes * 2**20, "loss_error": 1e-8,
            "d_hidden_rel_l2": d_hidden, "d_weight_rel_l2": 2e-7} | more


def point(*contenders, tokens=512, dtype="float32", outputs="gradients", task="cross_entropy", **more):
    at = {"model.name": "smollm2-135m", "model.dtype": dtype, "seq_len": str(tokens), "task": task, "outputs": outputs}
    shape = {"tokens": tokens, "hidden": 576, "vocab": 49152, "dtype": dtype, "layout": "vocab_hidden"}
    return {"type": "point", "at": at, "task": task, "level": "fused", "shape": shape,
            "reference": {"loss": 2.5, "rows": 512, "entries": 8192}, "input_bytes": 2**27, "gradient_bytes": 2**27,
            "gemm_rate_flops": 2.2e11, "gemm_rates_flops": [2.1e11, 2.2e11, 2.3e11], "contenders": list(contenders),
            **more}


def header(cpu="Example <CPU> | 9000", **environment):
    return {"type": "header", "schema": 1, "version": "0.3.0", "started": "2026-11-21T15:00:00Z", "inputs": "random",
            "command": "bench/peers/run --tokens 512",
            "environment": {"cpu": cpu, "cores": 2, "threads": 2, "torch": "2.13.0",
                            "variables": {"OPENBLAS_CORETYPE": "Haswell"}, **environment}}


FULL = [header(), point(ran("torch_dense", 4.0, 2048), ran("one_pass", 3.0, 256), ran("torch_compile", 2.0, 768),
                        {"name": "tokamax", "status": "error", "message": "No module | named <tokamax>"})]


def lines(objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def made(self, **files):
        """The page and the pictures of files, whose names have _ where - is meant."""
        for stem, objects in files.items():
            (self.folder / (stem.replace("_", "-") + ".jsonl")).write_text(lines(objects), encoding="utf-8")
        return page.make_page({path.stem: recorded.read_file(path) for path in sorted(self.folder.glob("*.jsonl"))},
                              "benchmarks")

    def refusal(self, text):
        path = self.folder / "cpu.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with self.assertRaises(recorded.Broken) as caught:
            recorded.read_file(path)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception).removeprefix(str(self.folder) + "/")

    def refusal_of(self, change):
        """Of FULL after a change to its header and its point."""
        objects = copy.deepcopy(FULL)
        change(*objects)
        return self.refusal(lines(objects))


class Committed(unittest.TestCase):
    def test_the_page_is_what_the_command_makes_of_the_files(self):
        files = sorted((ROOT / "bench" / "results").glob("*.jsonl"))
        text, pictures = page.make_page({path.stem: recorded.read_file(path) for path in files}, "benchmarks")
        told = "bench/peers/page was not run after its last change, or the last change of bench/results"
        self.assertEqual((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), text, told)
        folder = ROOT / "docs" / "benchmarks"
        drawn = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
                 for path in folder.rglob("*.svg")}
        self.assertEqual(sorted(drawn), sorted(pictures), told)
        for place, picture in pictures.items():
            self.assertEqual(drawn[place], picture, f"{place}: {told}")


class Page(Folder):
    def test_no_machine_is_a_page_that_says_so(self):
        text, pictures = self.made()
        self.assertIn("No machine has been measured yet", text)
        self.assertEqual(pictures, {})

    def test_a_table_has_every_figure(self):
        text, _ = self.made(cpu=FULL)
        self.assertIn("### smollm2-135m, 512 tokens, float32, cross_entropy, gradients\n", text)
        self.assertIn("| torch_compile | 2.000 | 1.750 to 2.500 | 1.00 | 768.0 | 1.0e-08 | 1.0e-06 | 2.0e-07 |", text)
        self.assertIn("| **one_pass** | 3.000 | 2.750 to 3.500 | 1.50 | 256.0 | 1.0e-08 | 1.0e-06 | 2.0e-07 |", text)
        self.assertLess(text.index("| torch_compile |"), text.index("| **one_pass** |"))
        self.assertIn("**one_pass** time 1.50, memory 0.33 (of torch_compile) |", text)
        self.assertIn("GEMM rate: 220 GFLOP/s (210 to 230).", text)
        self.assertIn("OPENBLAS_CORETYPE=Haswell", text)
        self.assertIn("\n    bench/peers/run --tokens 512\n", text)

    def test_what_is_missing_is_marked(self):
        text, pictures = self.made(cpu=FULL)
        self.assertIn("| tokamax | left out: No module \\| named \\<tokamax\\> |", text)
        (picture,) = pictures.values()
        self.assertEqual(picture.count("left out"), 3)
        self.assertIn("Not measured: dense, two_pass, logitless_torch", text)
        self.assertNotIn("liger_grpo", text)  # which does not know the task
        self.assertIn("CPU type: not recorded", text)
        self.assertIn("memory: not recorded", text)

    def test_a_loss_alone_has_no_gradients_to_be_wrong(self):
        loss = ran("torch_dense", 1.0, 8)
        for key in ("d_hidden_rel_l2", "d_weight_rel_l2"):
            del loss[key]
        text, pictures = self.made(cpu=[header(), point(loss, outputs="loss", gradient_bytes=0)])
        self.assertIn("| error of loss |\n", text)
        (picture,) = pictures.values()
        self.assertIn("float64: × loss<", picture)
        self.assertIn("no fused contender that ran and agrees", text)

    def test_a_wrong_result_is_no_peer(self):
        wrong, broken = ran("torch_compile", 1.0, 8, d_hidden=0.9), ran("jax_dense", 2.0, 8, d_hidden=None)
        text, pictures = self.made(cpu=[header(), point(wrong, broken, ran("torch_dense", 4.0, 8),
                                                        ran("one_pass", 2.0, 8))])
        (picture,) = pictures.values()
        self.assertEqual((picture.count(">disagrees<"), picture.count(">not finite<")), (2, 1))
        self.assertIn("9.0e-01, disagrees", text)
        self.assertIn("not finite, disagrees", text)
        self.assertIn("| **one_pass** | 2.000 | 1.750 to 2.500 | 0.50 |", text)

    def test_machines_stand_side_by_side(self):
        other = [header("Other"), point(ran("torch_dense", 2.0, 0), ran("two_pass", 1.0, 8)),
                 point(ran("two_pass", 1.0, 8), tokens=2048)]
        text, pictures = self.made(cpu_b=FULL, cpu_a=other)
        self.assertIn("| point | [cpu-a](#cpu-a) | [cpu-b](#cpu-b) |", text)
        self.assertIn("512 tokens, float32, cross_entropy, gradients | **two_pass** time 0.50, memory no ratio "
                      "(of torch_dense) | **one_pass**", text)
        self.assertIn("2,048 tokens, float32, cross_entropy, gradients | no peer that ran and agrees | not measured |",
                      text)
        self.assertLess(text.index("\n## cpu-a\n"), text.index("\n## cpu-b\n"))
        self.assertEqual(len(pictures), 3)

    def test_the_overview_has_the_fastest_and_the_smallest_without_logits(self):
        wrong = ran("logitless_torch", 0.5, 1, d_hidden=0.9)
        text, _ = self.made(cpu=[header(), point(ran("torch_dense", 4.0, 200), ran("two_pass", 3.0, 10), wrong,
                                                 ran("one_pass", 2.0, 100), ran("logitless_jax", 2.5, 50),
                                                 ran("dense", 1.0, 5))])
        self.assertIn("| **one_pass** time 0.50, memory 0.5; **two_pass** time 0.75, memory 0.05 (of torch_dense) |",
                      text)
        text, _ = self.made(cpu=[header(), point(ran("torch_dense", 4.0, 200), ran("dense", 1.0, 5))])
        self.assertIn("| no fused contender that ran and agrees |", text)

    def test_a_file_may_hold_several_runs(self):
        again = header(torch="2.14.0") | {"command": "bench/peers/run --tokens 1024"}
        text, _ = self.made(cpu=[*FULL, again, point(ran("torch_dense", 2.0, 8), tokens=1024)])
        self.assertEqual(text.count("**Libraries:**"), 2)
        self.assertEqual(text.count("\n## cpu\n"), 1)
        self.assertLess(text.index("torch 2.13.0"), text.index("torch 2.14.0"))

    def test_teachers_of_two_sizes_are_two_points(self):
        points = [point(ran("liger_jsd", 1.0, 8), task="jsd") for _ in range(2)]
        for one, size in zip(points, (1024, 4096)):
            one["shape"]["teacher_hidden"] = size
        text, pictures = self.made(cpu=[header(), *points])
        self.assertIn("### smollm2-135m, 512 tokens, float32, jsd from H = 4,096, gradients\n", text)
        self.assertEqual(len(pictures), 2)

    def test_the_order_of_lines_does_not_matter_to_a_section(self):
        small, large = point(ran("one_pass", 1.0, 8)), point(ran("one_pass", 2.0, 8), tokens=4096)
        self.assertEqual(self.made(cpu=[header(), small, large]), self.made(cpu=[header(), large, small]))

    def test_lines_end_where_those_of_other_pages_do(self):
        text, _ = self.made(a_name_of_as_many_as_30_marks_=[header("word " * 40), *FULL[1:]])
        wide = [one for one in text.splitlines() if len(one) > 110 and not one.startswith(("|", "    "))]
        self.assertEqual(wide, [])

    def test_a_picture_is_plain_xml_and_its_top_is_the_peak(self):
        _, pictures = self.made(cpu=FULL)
        (picture,) = pictures.values()
        self.assertEqual(faults(picture.encode()), [])
        self.assertIn("the top is torch_dense", picture)
        self.assertEqual(picture.count(">2,048<"), 2)  # at the axis and above its column

    def test_any_figures_can_be_drawn(self):
        failed = {"name": "dense", "status": "error", "message": ""}
        for contenders in ([], [failed], [ran("dense", 1.0, 0, d_hidden=0)], [ran("dense", 1.0, 1, loss_error=None)],
                           [ran("dense", 1e9, 10**10, d_hidden=1e17), ran("one_pass", 0.3, 1, d_hidden=1e-300)]):
            text, pictures = self.made(cpu=[header(), point(*contenders)])
            (picture,) = pictures.values()
            self.assertEqual(faults(picture.encode()), [])
            self.assertNotIn("nan", picture)


class Refused(Folder):
    def test_what_is_no_file_of_the_runner(self):
        whole = lines(FULL)
        self.assertEqual(self.refusal(""), "cpu.jsonl:1: the file is empty")
        self.assertIn("cpu.jsonl:1: is not JSON: ", self.refusal("hello\n"))
        self.assertIn("cpu.jsonl:3: is not JSON: ", self.refusal(whole + "\n"))
        self.assertIn("cpu.jsonl:3: is not JSON: ", self.refusal(whole.encode() + b"\xff\xfe\n"))
        self.assertIn("cpu.jsonl:3: is not JSON: NaN", self.refusal(whole + '{"type": NaN}\n'))
        self.assertIn("cpu.jsonl:3: is not JSON: ", self.refusal(whole + "[" * 100000 + "\n"))
        self.assertIn("cpu.jsonl:3: the line does not end", self.refusal(whole + '{"type": "poi'))
        self.assertEqual(self.refusal("[1]\n"), "cpu.jsonl:1: the line is not an object")
        self.assertEqual(self.refusal(lines(FULL[1:])),
                         'cpu.jsonl:1: type must be "header" on the first line, not "point"')
        self.assertIn("cpu.jsonl:1: the run of 2026-11-21T15:00:00Z has no point", self.refusal(lines(FULL[:1])))
        self.assertEqual(self.refusal(whole + lines(FULL[1:])), "cpu.jsonl:3: this point stands in line 2 already")
        self.assertIn('cpu.jsonl:3: environment.cpu must be that of the first line: a file has one machine, not '
                      '"Other"', self.refusal(whole + lines([header("Other")])))

    def test_fields_of_a_header(self):
        for key in ("schema", "version", "started", "inputs", "environment"):
            for value in (None, 7, []):
                start = f"cpu.jsonl:1: {key} must be "
                self.assertTrue(self.refusal_of(lambda head, _, key=key, value=value: head.update({key: value}))
                                .startswith(start), key)

    def test_fields_of_a_point(self):
        for key in ("at", "shape", "reference", "gradient_bytes", "contenders"):
            self.assertEqual(self.refusal_of(lambda _, one, key=key: one.pop(key)).split(", not ")[1], "left out")
        for key in ("tokens", "hidden", "vocab"):
            for value in (0, -1, 1.5, True, "8", 10**30):
                self.assertIn(f"cpu.jsonl:2: shape.{key} must be an integer of at least 1, not {json.dumps(value)[:9]}",
                              self.refusal_of(lambda _, one, key=key, value=value: one["shape"].update({key: value})))
        self.assertIn("at.model.name must be a name of letters",
                      self.refusal_of(lambda _, one: one["at"].update({"model.name": "../x"})))
        self.assertIn("at.model.dtype must be float32 or bfloat16",
                      self.refusal_of(lambda _, one: one["at"].update({"model.dtype": "int8"})))
        self.assertIn("gemm_rates_flops must be a list",
                      self.refusal_of(lambda _, one: one.update(gemm_rates_flops=[0])))

    def test_fields_of_a_contender(self):
        def changed(key, value):
            return self.refusal_of(lambda _, one: one["contenders"][1].update({key: value}))

        for key in ("median_s", "least_s", "most_s"):
            for value in (0, -1, "1", None, True, 1e300, math.inf):
                self.assertIn("cpu.jsonl:2: ", changed(key, value))
        self.assertEqual(changed("most_s", 2.9),
                         "cpu.jsonl:2: contenders[1].median_s must be between least_s and most_s, not 3.0")
        self.assertEqual(changed("name", "torch_dense"), "cpu.jsonl:2: torch_dense stands twice among the contenders")
        self.assertIn('not "nobody"', changed("name", "nobody"))
        self.assertIn('contenders[1].status must be "ok" or "error", not "fine"', changed("status", "fine"))
        self.assertIn("contenders[1].loss_error must be a number of at least 0, or null", changed("loss_error", -1))
        self.assertIn("contenders[1].extra_peak_bytes must be an integer", changed("extra_peak_bytes", 1.5))

    def test_a_name_that_is_no_heading(self):
        path = self.folder / "My CPU.jsonl"
        path.write_text(lines(FULL), encoding="utf-8")
        with self.assertRaisesRegex(recorded.Broken, "My CPU.jsonl:1: a file is named after its CPU type"):
            recorded.read_file(path)


class Command(Folder):
    def run_page(self, results):
        line = [ROOT / "bench" / "peers" / "page", "--results", results, "-o", self.folder / "benchmarks.md"]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    def files(self):
        return {path.relative_to(self.folder): path.read_bytes() for path in self.folder.rglob("*.*") if path.is_file()}

    def test_the_same_files_give_the_same_bytes_and_old_pictures_go(self):
        recorded_lines = self.folder / "results"
        recorded_lines.mkdir()
        (recorded_lines / "cpu.jsonl").write_text(lines(FULL), encoding="utf-8")
        stale = self.folder / "benchmarks" / "cpu" / "stale.svg"
        stale.parent.mkdir(parents=True)
        stale.touch()
        self.assertEqual(self.run_page(recorded_lines).returncode, 0)
        first = self.files()
        self.assertFalse(stale.exists())
        self.assertEqual(len(first), 3)
        self.assertEqual(self.run_page(recorded_lines).returncode, 0)
        self.assertEqual(self.files(), first)

        (recorded_lines / "cpu.jsonl").write_text(lines(FULL) + "{}\n", encoding="utf-8")
        broken = self.files()
        refused = self.run_page(recorded_lines)
        self.assertEqual(refused.returncode, 2)
        self.assertEqual(refused.stderr, f'bench/peers/page: {recorded_lines}/cpu.jsonl:3: type must be "header" or '
                                         '"point", not left out\n')
        self.assertEqual(self.files(), broken)


class Writer(unittest.TestCase):
    def test_a_cpu_is_told_by_more_than_its_name(self):
        one = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Xeon\nstepping\t: 2\n" \
              "flags\t\t: fpu avx2 avx512f amx_bf16\n\n"
        facts = machine.cpu_facts(one + one.replace("207", "208"))
        self.assertEqual(facts, {"cpu_id": "GenuineIntel family 6 model 207 stepping 2",
                                 "cpu_instructions": ["avx2", "avx512f", "amx_bf16"]})
        arm = "Features\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
        self.assertEqual(machine.cpu_facts(arm), {"cpu_id": "implementer 0x41 part 0xd40",
                                                  "cpu_instructions": ["asimd", "sve"]})
        self.assertEqual(machine.cpu_facts(""), {"cpu_id": "", "cpu_instructions": []})

    def test_the_gemms_of_pytorch(self):
        shown = "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 2 for\n" \
                "  - Intel(R) MKL-DNN v3.12.0 (Git Hash 8)\n  - CPU capability usage: AVX512\n" \
                "  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release"
        self.assertEqual(machine.torch_libraries(shown), {"torch_mkl": "2024.2", "torch_onednn": "3.12.0",
                                                          "torch_blas": "mkl", "torch_capability": "AVX512"})
        self.assertEqual(machine.torch_libraries(""), {})

    def test_flags_of_the_environment_and_no_others(self):
        found = machine.variables_of({"OPENBLAS_CORETYPE": "Haswell", "HOME": "/root", "OMP_NUM_THREADS": "2",
                                      "NPROC": "2", "TORCHINDUCTOR_CACHE_DIR": "x", "MY_OMP_TOKEN": "x"})
        self.assertEqual(list(found), ["NPROC", "OMP_NUM_THREADS", "OPENBLAS_CORETYPE"])

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
