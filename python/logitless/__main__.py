# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""python -m logitless info: what runs on this machine."""

import argparse
import json
import sys

import logitless


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m logitless", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="prints library, CPU, instruction set and BLAS")
    info.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    outcome, reason = logitless.use_best_blas_kernels()
    environment = logitless.environment()
    environment["blas_kernels"] = f"{outcome}: {reason}"
    if options.json:
        print(json.dumps(environment, indent=2))
        return 0
    for name, value in environment.items():
        print(f"{name:18} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
