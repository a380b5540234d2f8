# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless through its command: `compare` measures repeated calls of a plan, and of its dense head, on a
file's tensors. If results are not checked, `bench` measures the plan alone, on tensors that it draws."""

import json
import subprocess

from job import GRPO_BETA, GRPO_EPSILON, Job, Measured

PLANS = {
    "dense": [],  # `compare` always measures dense as well
    "one_pass": ["kernel.plan=one_pass"],
    "two_pass": ["kernel.plan=two_pass"],
}


def arguments(job: Job) -> list[str]:
    """Return the command line of a job."""
    settings = [f"task={job.task}", f"threads={job.threads}", f"batch_size={job.shape.sequences}"]
    settings += PLANS[job.contender]
    files = {"hidden": "hidden", "lm-head": "lm_head", "targets": "targets"}
    if job.task == "policy_loss":
        options = {"loss_type": "grpo", "beta": GRPO_BETA, "epsilon_low": GRPO_EPSILON, "epsilon_high": GRPO_EPSILON}
        settings += [f"{job.task}.{option}={value}" for option, value in options.items()]
        files |= {"advantages": "advantages", "old-logps": "old_logps", "ref-logps": "ref_logps"}
    if not job.gradients:
        settings += ["gradients.d_hidden=false", "gradients.d_weight=false"]
    line = [job.command, "compare", "--repeat", str(job.calls + 1), "--json", "-"]
    for option, tensor in files.items():
        line += [f"--{option}", f"{job.inputs}:{tensor}"]
    for setting in settings:
        line += ["--set", setting]
    return line + (["--dense-output" if job.contender == "dense" else "-o", job.results] if job.results else [])


def measured(report: dict, path: str) -> Measured:
    """Extract the figures of a path ("fused" or "dense") from a report of `compare`. The first call is
    separate. The gradients were allocated before the calls, so peaks already exclude them."""
    of_path, details = report[path], report["details"]
    times_s = details[f"{path}_times_s"]
    return Measured(loss=of_path["loss"], first_s=times_s[0], times_s=times_s[1:],
                    extra_peaks_bytes=details[f"{path}_extra_peaks_bytes"][1:], plan=of_path["plan"],
                    workspace_bytes=of_path["workspace_bytes"])


def bench_arguments(job: Job) -> list[str]:
    shape = job.shape
    settings = [f"model.hidden_size={shape.hidden}", f"model.vocab_size={shape.vocab}", f"model.dtype={shape.dtype}",
                "model.layout=vocab_hidden", f"batch_size={shape.sequences}",
                f"seq_len={shape.tokens // shape.sequences}", f"threads={job.threads}", f"task={job.task}"]
    if not job.gradients:
        settings += ["gradients.d_hidden=false", "gradients.d_weight=false"]
    if job.workspace:
        settings += [f"kernel.workspace={job.workspace}"]
    line = [job.command, "bench", "--contenders", job.contender, "--warmup", "1", "--iters", str(job.calls), "--quiet"]
    for setting in settings:
        line += ["--set", setting]
    return line + ["-o", "-"]


def of_bench(point: dict) -> Measured:
    """Extract the figures of the one contender of a point. Raises RuntimeError with the reason if it failed."""
    found = point["contenders"][0]
    if found["status"] != "ok":
        raise RuntimeError(found["message"])
    return Measured(loss=found["loss"], first_s=found["first_s"], times_s=found["times_s"],
                    extra_peaks_bytes=[found["extra_peak_bytes"]], plan=found["plan"],
                    workspace_bytes=found["workspace_bytes"], peak_method=found.get("extra_peak_method", ""),
                    gemm_rate_flops=point.get("gemm_rate_flops"))


def run(job: Job) -> Measured:
    process = subprocess.run(arguments(job) if job.checked else bench_arguments(job), capture_output=True, text=True,
                             check=False)
    if not job.checked:
        # 3: the contender failed, and its line says why.
        if process.returncode not in (0, 3):
            raise RuntimeError(process.stderr.strip().splitlines()[-1])
        return of_bench(json.loads(process.stdout.splitlines()[-1]))
    # 1: dense and fused disagree. The reference will show which one is wrong.
    if process.returncode not in (0, 1):
        raise RuntimeError(process.stderr.strip().splitlines()[-1])
    return measured(json.loads(process.stdout), "dense" if job.contender == "dense" else "fused")
