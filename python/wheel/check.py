# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Tests the installed package outside of the sources, in an environment of its own.

    check.py numpy     with NumPy alone: a loss, the libraries in the process, the message for a missing extra
    check.py readme    with PyTorch: README.md's code, against the lines that it replaces
"""

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def check_loss() -> None:
    import numpy as np

    import logitless

    n, h, v = 5, 16, 300
    rng = np.random.default_rng(0)
    hidden, weight = rng.standard_normal((n, h), np.float32), rng.standard_normal((v, h), np.float32)
    targets = rng.integers(0, v, n)
    logits = (hidden @ weight.T).astype(np.float64)
    expected = (np.log(np.exp(logits).sum(1)) - logits[np.arange(n), targets]).mean()
    assert abs(logitless.cross_entropy(hidden, weight, targets).loss - expected) < 1e-5 * expected
    print("The wheel agrees with NumPy.")


def check_libraries() -> None:
    names = ("openblas", "hwy", "dnnl", "gomp", "gfortran")
    paths = {line.split()[-1] for line in open("/proc/self/maps") if any(f"lib{name}" in line for name in names)}
    assert paths and not [path for path in paths if "site-packages" not in path], paths
    print("It uses its own libraries:", *sorted(path.rsplit("/", 1)[1] for path in paths))


def check_metadata() -> None:
    """Every bundled library is in the list of components, and every licence text is where METADATA says."""
    package = importlib.metadata.distribution("logitless")
    files = {str(path): path for path in package.files or []}
    info = next(name.partition("/")[0] for name in files if name.endswith("dist-info/METADATA"))
    for license in package.metadata.get_all("License-File"):
        assert files[f"{info}/licenses/{license}"].locate().stat().st_size > 0, license
    components = json.loads(files[f"{info}/sboms/logitless.cdx.json"].read_text())["components"]
    listed = {item["value"] for part in components for item in part["properties"] if item["name"] == "logitless:file"}
    libraries = {name for name in files if name.startswith("logitless.libs/")}
    assert listed == libraries and libraries, listed ^ libraries
    assert "Typing :: Typed" in package.metadata.get_all("Classifier") and "logitless/py.typed" in files
    print(f"It lists its {len(components)} components and their licences.")


def check_missing_extras() -> None:
    extras = ("torch", "jax", "transformers", "trl", "lm_eval")
    provided = importlib.metadata.metadata("logitless").get_all("Provides-Extra")
    assert {"all", *(extra.replace("_", "-") for extra in extras)} <= set(provided), provided
    for extra in extras:
        result = subprocess.run([sys.executable, "-c", f"import logitless.{extra}"], capture_output=True, text=True)
        assert result.returncode == 1 and f'pip install "logitless[{extra}]"' in result.stderr, result.stderr
    print("Without PyTorch and JAX, their modules name the missing extra.")


def check_import_time() -> None:
    """Prints the time; a test of it would fail on a busy machine."""
    command = [sys.executable, "-X", "importtime", "-c", "import logitless"]
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stderr for _ in range(5)]
    times = [int(re.search(r"\| +(\d+) \| logitless$", output, re.MULTILINE)[1]) / 1e3 for output in outputs]
    numpys = [int(re.search(r"\| +(\d+) \| +numpy$", output, re.MULTILINE)[1]) / 1e3 for output in outputs]
    print(f"import logitless: {min(times):.0f} ms, of which NumPy takes {min(numpys):.0f} ms")


def check_readme() -> None:
    import torch
    from torch.nn import functional as F

    code = re.search(r"^\*\*PyTorch\*\*.*?^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1]
    before = re.search(r"^# was: (.*)$", code, re.MULTILINE)[1]
    torch.manual_seed(0)
    names = {"F": F, "lm_head": torch.nn.Linear(64, 1000, bias=False), "hidden": torch.randn(2, 33, 64, requires_grad=True)}
    names["targets"] = torch.randint(1000, (2, 33))
    tensors = [names["hidden"], names["lm_head"].weight]
    exec(before, names)
    loss, gradients = names["loss"].detach(), torch.autograd.grad(names["loss"], tensors)
    exec(compile(code, README, "exec"), names)
    torch.testing.assert_close(names["loss"].detach(), loss)
    torch.testing.assert_close([tensor.grad for tensor in tensors], list(gradients))
    print(f"README.md's code gives PyTorch's loss and gradients: {names['loss']:.6f}, {loss:.6f}")


CHECKS = {
    "numpy": (check_loss, check_libraries, check_metadata, check_missing_extras, check_import_time),
    "readme": (check_readme,),
}
for check in CHECKS[sys.argv[1]]:
    check()
