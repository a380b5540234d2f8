# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Runs the example `distil` on a tiny teacher, or on bad files. Needs only Python.

    example_test.py learns|refuses DISTIL
"""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

VOCABULARY, HIDDEN, TOKENS = 31, 8, 600
FORMATS = {"F32": "f", "I32": "i", "I64": "q", "F64": "d"}


def write(path, tensors, metadata=None):
    """Write {name: (dtype, shape, values)} as safetensors."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def teacher(ids_dtype="I64"):
    """Return a teacher that knows which ids follow an id, and a text drawn from it."""
    draw = random.Random(1)
    states = [[draw.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(VOCABULARY)]
    head = [[draw.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(VOCABULARY)]
    ids, hidden = [0], []
    for _ in range(TOKENS):
        hidden += states[ids[-1]]
        logits = [sum(a * b for a, b in zip(states[ids[-1]], row)) for row in head]
        ids += draw.choices(range(VOCABULARY), [math.exp(logit) for logit in logits])
    return {
        "hidden": ("F32", [TOKENS, HIDDEN], hidden),
        "lm_head": ("F32", [VOCABULARY, HIDDEN], sum(head, [])),
        "ids": (ids_dtype, [TOKENS + 1], ids),
    }


class Case(unittest.TestCase):
    program = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "teacher.safetensors")

    def distil(self, *arguments):
        command = [self.program, self.file, *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def learn(self, head):
        small = ["--steps", "50", "--batch-tokens", "64", "--embedding", "8", "--hidden", "16", "--lr", "0.02"]
        result = self.distil("--head", head, "--json", "-", *small)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return json.loads(result.stdout)

    def refused(self, message):
        result = self.distil("--steps", "1")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(result.stderr, f"distil: {self.file}: {message}\n")


class Learns(Case):
    def check_run(self, run, teacher_loss):
        self.assertEqual(len(run["losses"]), 50)
        curve = [point["loss"] for point in run["validation"]]
        self.assertEqual([point["step"] for point in run["validation"]], [0, 20, 40, 50])
        # The student starts near the uniform distribution, and ends closer to its teacher.
        self.assertLess(abs(curve[0] - math.log(VOCABULARY)), 0.5)
        self.assertLess(curve[-1], (math.log(VOCABULARY) + teacher_loss) / 2)
        self.assertLess(run["losses"][-1], run["losses"][0])
        self.assertGreater(run["median_seconds"], 0)

    def test_fused_and_dense_have_the_same_losses(self):
        write(self.file, teacher(), {"format": "pt"})
        figures = self.learn("both")
        for head in ["fused", "dense"]:
            self.check_run(figures[head], figures["teacher_loss"])
        self.assertTrue(figures["agrees"])
        differences = [abs(a - b) for a, b in zip(figures["fused"]["losses"], figures["dense"]["losses"])]
        self.assertEqual(max(differences), figures["max_loss_difference"])
        self.assertLess(max(differences), 1e-4)

    def test_hard_learns_from_the_text(self):
        write(self.file, teacher("I32"))
        figures = self.learn("hard")
        self.check_run(figures["hard"], figures["teacher_loss"])
        self.assertNotIn("agrees", figures)

    def test_says_the_verdict(self):
        write(self.file, teacher())
        result = self.distil("--head", "both", "--steps", "2", "--batch-tokens", "8")
        self.assertRegex(result.stdout, r"over 2 steps: \S+ \(tolerance 1e-04\): the curves agree\n$")


class Refuses(Case):
    def with_tensor(self, name, *tensor):
        write(self.file, {**teacher(), name: tensor})

    def test_no_file(self):
        self.refused("cannot be opened")

    def test_no_safetensors(self):
        with open(self.file, "wb") as file:
            file.write(b"text")
        self.refused("is not a safetensors file: it has 4 bytes, fewer than the 8 of a length")
        with open(self.file, "wb") as file:
            file.write(struct.pack("<Q", 100) + b"{}")
        self.refused("is not a safetensors file: its header has 100 bytes, more than the 2 that it can have")
        for header in [b"{]", b"[]", b"\xff"]:
            with open(self.file, "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header)
            self.refused("is not a safetensors file: its header is not a JSON object")

    def test_a_file_cut_short(self):
        write(self.file, teacher())
        with open(self.file, "r+b") as file:
            file.truncate(os.path.getsize(self.file) - 1)
        self.refused("tensor ids: its data_offsets [20192,25000] do not lie in the 24999 bytes of data of the file")

    def test_a_file_with_more(self):
        write(self.file, teacher())
        with open(self.file, "ab") as file:
            file.write(b"x")
        self.refused("its last 1 bytes belong to no tensor")
        self.with_tensor("logits", "F32", [1], [0.0])
        self.refused("tensor logits: is none of hidden, lm_head and ids")

    def test_a_tensor_that_is_missing(self):
        for name in ["hidden", "lm_head", "ids"]:
            write(self.file, {key: tensor for key, tensor in teacher().items() if key != name})
            self.refused(f"tensor {name}: is not in the file")

    def test_a_header_that_is_no_tensor(self):
        for entry, message in [
            ([], "its dtype is not a string"),
            ({"dtype": "F32", "shape": [-1, 8]}, "its shape is not a list of sizes"),
            ({"dtype": "F32", "shape": [1, 8], "data_offsets": [0]}, "its data_offsets are not two sizes"),
            (
                {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 0]},
                "its 0 bytes do not hold shape [4611686018427387904,8] of F32",
            ),
        ]:
            text = json.dumps({"hidden": entry}).encode()
            with open(self.file, "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text)
            self.refused(f"tensor hidden: {message}")

    def test_types(self):
        self.with_tensor("lm_head", "F64", [VOCABULARY, HIDDEN], [0.0] * VOCABULARY * HIDDEN)
        self.refused("tensor lm_head: is F64, but must be F32")
        self.with_tensor("ids", "F32", [TOKENS + 1], [0.0] * (TOKENS + 1))
        self.refused("tensor ids: is F32, but must be I32 or I64")

    def test_shapes(self):
        self.with_tensor("hidden", "F32", [TOKENS * HIDDEN], [0.0] * TOKENS * HIDDEN)
        self.refused("tensor hidden: has shape [4800], but must have 2 dimensions")
        self.with_tensor("hidden", "F32", [0, HIDDEN], [])
        self.refused("tensor hidden: has shape [0,8]: it is empty")
        self.with_tensor("hidden", "F32", [1, HIDDEN], [0.0] * HIDDEN)
        self.refused("tensor hidden: has 1 row: the student needs 2, one of them to validate")
        self.with_tensor("lm_head", "F32", [VOCABULARY, 7], [0.0] * VOCABULARY * 7)
        self.refused("tensor lm_head: has 7 columns, but hidden has 8")
        self.with_tensor("ids", "I64", [TOKENS], [0] * TOKENS)
        self.refused("tensor ids: has 600 ids, but must have 601, one more than hidden has rows")

    def test_values(self):
        for dtype in ["I32", "I64"]:
            for id_ in [-1, VOCABULARY]:
                self.with_tensor("ids", dtype, [TOKENS + 1], [0] * TOKENS + [id_])
                self.refused(f"tensor ids: element 600 is {id_}, but lm_head has 31 rows")
        self.with_tensor("lm_head", "F32", [VOCABULARY, HIDDEN], [0.0] * 9 + [math.inf] + [0.0] * 238)
        self.refused("tensor lm_head: element (1, 1) is inf")


if __name__ == "__main__":
    mode, Case.program = sys.argv[1:]
    case = {"learns": Learns, "refuses": Refuses}[mode]
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
