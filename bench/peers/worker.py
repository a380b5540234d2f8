# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The process of one contender: its argument is a Job, and the last line that it prints is the result."""

import contextlib
import dataclasses
import importlib
import json
import sys

from contenders import BY_NAME
from job import Job


def main() -> None:
    job = Job.from_json(sys.argv[1])
    # If memory runs out, the kernel should kill this process and not the one that reports it.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")
    measured = importlib.import_module(BY_NAME[job.contender].module).run(job)
    print(json.dumps(dataclasses.asdict(measured)))


if __name__ == "__main__":
    main()
