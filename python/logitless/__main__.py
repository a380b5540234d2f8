# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Runs the command `logitless`, which is installed with the package, as `python -m logitless`."""

import os
import pathlib
import sys


def main() -> None:
    command = pathlib.Path(__file__).parent / "bin" / "logitless"
    os.execv(command, ["logitless", *sys.argv[1:]])


if __name__ == "__main__":
    main()
