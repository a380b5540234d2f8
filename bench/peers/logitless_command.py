# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless through its command: `compare` measures repeated calls of a plan on the tensors of a file."""

import json
import subprocess

from job import GRPO_BETA, GRPO_EPSILON, Job, Measured

PLANS = {
    "dense": ["kernel.plan=dense"],
    "one_pass": ["kernel.plan=one_pass"],
    "two_pass": ["kernel.plan=two_pass"],
}


def arguments(job: Job) -> list[str]:
    """The command line of a job."""
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
    return line + (["-o", job.results] if job.results else [])


def measured(report: dict) -> Measured:
    """What the report of `compare` says of the fused path, which is the contender; the first call is apart. Its
    gradients were in memory before the calls, so the peaks are above them already."""
    fused, details = report["fused"], report["details"]
    return Measured(loss=fused["loss"], first_s=details["fused_times_s"][0], times_s=details["fused_times_s"][1:],
                    extra_peaks_bytes=details["fused_extra_peaks_bytes"][1:], plan=fused["plan"],
                    workspace_bytes=fused["workspace_bytes"])


def run(job: Job) -> Measured:
    process = subprocess.run(arguments(job), capture_output=True, text=True, check=False)
    # 1 says that dense and fused lie apart: the reference will tell which one errs.
    if process.returncode not in (0, 1):
        raise RuntimeError(process.stderr.strip().splitlines()[-1])
    return measured(json.loads(process.stdout))
