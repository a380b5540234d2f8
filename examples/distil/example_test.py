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


class Refuses(Case):
    def refused_bytes(self, data, message):
        with open(self.file, "wb") as file:
            file.write(data)
        self.refused(message)

    def test_no_safetensors(self):
        self.refused("cannot be opened")
        self.refused_bytes(b"text", "is not a safetensors file: it has 4 bytes, fewer than the 8 of a length")
        self.refused_bytes(struct.pack("<Q", 100) + b"{}",
                           "is not a safetensors file: its header has 100 bytes, more than the 2 that it can have")
        for header in [b"{]", b"[]", b"\xff"]:
            self.refused_bytes(struct.pack("<Q", len(header)) + header,
                               "is not a safetensors file: its header is not a JSON object")
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
            self.refused_bytes(struct.pack("<Q", len(text)) + text, f"tensor hidden: {message}")

    def test_files_of_another_length(self):
        write(self.file, teacher())
        with open(self.file, "rb") as file:
            whole = file.read()
        self.refused_bytes(whole[:-1], "tensor ids: its data_offsets [20192,25000] do not lie in the 24999 bytes of "
                           "data of the file")
        self.refused_bytes(whole + b"x", "its last 1 bytes belong to no tensor")

    def test_tensors_that_do_not_fit(self):
        head, ids = [0.0] * VOCABULARY * HIDDEN, [0] * TOKENS
        cases = [
            ("hidden", None, "is not in the file"),
            ("lm_head", None, "is not in the file"),
            ("ids", None, "is not in the file"),
            ("logits", ("F32", [1], [0.0]), "is none of hidden, lm_head and ids"),
            ("lm_head", ("F64", [VOCABULARY, HIDDEN], head), "is F64, but must be F32"),
            ("ids", ("F32", [TOKENS + 1], [*ids, 0]), "is F32, but must be I32 or I64"),
            ("hidden", ("F32", [TOKENS * HIDDEN], [0.0] * TOKENS * HIDDEN),
             "has shape [4800], but must have 2 dimensions"),
            ("hidden", ("F32", [0, HIDDEN], []), "has shape [0,8]: it is empty"),
            ("hidden", ("F32", [1, HIDDEN], [0.0] * HIDDEN),
             "has 1 row: the student needs 2, one of them to validate"),
            ("lm_head", ("F32", [VOCABULARY, 7], [0.0] * VOCABULARY * 7), "has 7 columns, but hidden has 8"),
            ("ids", ("I64", [TOKENS], ids), "has 600 ids, but must have 601, one more than hidden has rows"),
            ("ids", ("I32", [TOKENS + 1], [*ids, -1]), "element 600 is -1, but lm_head has 31 rows"),
            ("ids", ("I64", [TOKENS + 1], [*ids, VOCABULARY]), "element 600 is 31, but lm_head has 31 rows"),
            ("lm_head", ("F32", [VOCABULARY, HIDDEN], [*head[:9], math.inf, *head[10:]]), "element (1, 1) is inf"),
        ]
        for name, tensor, message in cases:
            write(self.file, {key: one for key, one in {**teacher(), name: tensor}.items() if one})
            self.refused(f"tensor {name}: {message}")


if __name__ == "__main__":
    mode, Case.program = sys.argv[1:]
    case = {"learns": Learns, "refuses": Refuses}[mode]
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
