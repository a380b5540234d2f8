# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What a header records about machine and libraries beyond what the command knows. It tells two files apart
even if their CPUs have the same name."""

import os
import pathlib
import re
from collections.abc import Iterable

# The CPU flags that decide how fast a GEMM is.
INSTRUCTIONS = ("sse4_2", "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
                "amx_int8", "amx_bf16", "amx_fp16", "asimd", "asimdhp", "bf16", "i8mm", "sve", "sve2", "svebf16", "sme")

# Environment variables that change a contender's speed, memory or kernels.
VARIABLES = re.compile(r"(OPENBLAS|GOTOBLAS|BLIS|MKL|OMP|GOMP|KMP|DNNL|ONEDNN|ATEN|LOGITLESS|XLA|JAX|MALLOC|TORCH"
                       r"|TORCHINDUCTOR)_\w+|LD_PRELOAD|NPROC|GLIBC_TUNABLES")
# Set by the runner, without an effect on any figure.
NEUTRAL = ("TORCHINDUCTOR_CACHE_DIR", "JAX_TRACEBACK_FILTERING")


def cpu_facts(cpuinfo: str) -> dict:
    """Extract CPU facts from the text of /proc/cpuinfo, on x86 and Arm."""
    fields = dict(reversed(re.findall(r"^([^\t:\n]+)\s*: *(.*)$", cpuinfo, re.M)))  # of the first CPU
    if "vendor_id" in fields:
        place = f"{fields['vendor_id']} family {fields.get('cpu family')} model {fields.get('model')} " \
                f"stepping {fields.get('stepping')}"
    elif "CPU part" in fields:
        place = f"implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    else:
        place = ""
    has = set((fields.get("flags") or fields.get("Features") or "").split())
    return {"cpu_id": place, "cpu_instructions": [name for name in INSTRUCTIONS if name in has]}


def torch_libraries(built_with: str) -> dict:
    """Extract PyTorch's GEMM libraries from the text of torch.__config__.show()."""
    found = {"torch_mkl": r"Math Kernel Library Version (\S+?)-Product", "torch_onednn": r"MKL-DNN v(\S+)",
             "torch_blas": r"BLAS_INFO=(\w+)", "torch_capability": r"CPU capability usage: (\S+)"}
    matches = {key: re.search(pattern, built_with) for key, pattern in found.items()}
    return {key: match[1] for key, match in matches.items() if match}


def variables_of(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(environment.items())
            if VARIABLES.fullmatch(name) and name not in NEUTRAL}


def cpu_list(text: str) -> list[int]:
    """Return the numbers of a list of the kernel, such as 0-3,8."""
    ranges = [one.split("-") for one in text.strip().split(",") if one]
    return [cpu for one in ranges for cpu in range(int(one[0]), int(one[-1]) + 1)]


def place_of(cpu: int, root: str = "/sys") -> tuple[int, int, int]:
    """Return a CPU's place among the hyper-threads of its core, its socket, and its core there. Where the system
    does not say, each CPU is a core of one socket."""
    folder = pathlib.Path(root, f"devices/system/cpu/cpu{cpu}/topology")
    try:
        siblings = cpu_list((folder / "thread_siblings_list").read_text())
        socket, core = (int((folder / name).read_text()) for name in ("physical_package_id", "core_id"))
        return siblings.index(cpu), socket, core
    except (OSError, ValueError):
        return 0, 0, cpu


def in_order_of_use(cpus: Iterable[int], root: str = "/sys") -> list[int]:
    """Return the CPUs in the order in which teams take them: one per core, socket by socket, then the other
    hyper-threads."""
    return sorted(cpus, key=lambda cpu: (*place_of(cpu, root)[:2], cpu))


def topology(cpus: Iterable[int], root: str = "/sys") -> dict[str, int]:
    places = [place_of(cpu, root) for cpu in cpus]
    nodes = len(list(pathlib.Path(root, "devices/system/node").glob("node[0-9]*")))
    return {"cpus": len(places), "physical_cores": len({place[1:] for place in places}),
            "sockets": len({socket for _, socket, _ in places}), "numa_nodes": max(1, nodes)}


def memory_bytes(field: str) -> int:
    """Return a field of /proc/meminfo: MemTotal or MemAvailable."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def facts(torch_built_with: str, environment: dict[str, str]) -> dict:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        of_cpu = cpu_facts(file.read())
    return {**of_cpu, **topology(os.sched_getaffinity(0)), "memory_bytes": memory_bytes("MemTotal"), "load_average": round(os.getloadavg()[0], 2),
            **torch_libraries(torch_built_with), "variables": variables_of(environment)}
