# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures and draws the README's picture: extra memory and time of the head by number of tokens, for eager PyTorch,
torch.compile and logitless. Run it with nothing else on the machine, after bench/peers/setup and the target
logitless_cli. It takes about half an hour on two cores.

    build/peers/venv/bin/python bench/readme_picture.py           # measures, then draws
    build/peers/venv/bin/python bench/readme_picture.py --draw    # draws bench/readme_picture.jsonl again
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILE = ROOT / "bench" / "readme_picture.jsonl"
PICTURE = ROOT / "docs" / "images" / "memory_and_time.svg"
TOKENS = ["512", "1024", "2048", "4096", "8192"]
# Each contender of bench/peers with its name and style in the picture.
LINES = {
    "torch_dense": ("PyTorch, eager", {"color": "#9a9a9a", "marker": "s", "linestyle": ":"}),
    "torch_compile": ("torch.compile", {"color": "#5a5a5a", "marker": "^", "linestyle": "--"}),
    "logitless_torch": ("logitless", {"color": "#1f5fa8", "marker": "o"}),
    "two_pass": ("logitless, two pass", {"color": "#c0562f", "marker": "D"}),
}


def measure(file, model, dtype):
    command = [ROOT / "bench" / "peers" / "run", "--models", model, "--dtypes", dtype, "--tokens", *TOKENS,
               "--outputs", "gradients", "--contenders", *LINES, "-o", file]
    subprocess.run(command, check=True)


def read(file):
    """The header, and {contender: [(tokens, seconds, MiB)]}; a contender that failed at a point has a gap there."""
    header, *points = map(json.loads, pathlib.Path(file).read_text(encoding="utf-8").splitlines())
    lines = {}
    for point in points:
        for one in point["contenders"]:
            if one["status"] == "ok":
                figures = (point["shape"]["tokens"], one["median_s"], one["extra_peak_bytes"] / 2**20)
                lines.setdefault(one["name"], []).append(figures)
    return header, points[0], lines


def draw(file, picture):
    import matplotlib
    from matplotlib.backends import backend_svg
    from matplotlib.figure import Figure

    # Strict readers refuse a DOCTYPE; letters stay text, and the same file gives the same bytes.
    backend_svg.svgProlog = '<?xml version="1.0" encoding="utf-8"?>\n'
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "logitless", "font.sans-serif": ["DejaVu Sans"],
                                "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    header, point, lines = read(file)
    facts = header["environment"]
    figure = Figure((9, 3.6), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for name, (label, style) in LINES.items():
        tokens, seconds, sizes = zip(*lines[name])
        time.plot(tokens, seconds, label=label, markersize=4, **style)
        memory.plot(tokens, sizes, markersize=4, **style)
    time.set_title("Time of one call, s", loc="left")
    memory.set_title("Extra peak memory, MiB", loc="left")
    for axes in (time, memory):
        axes.set(xlabel="tokens", xlim=0, ylim=0)
        axes.set_xticks(tokens[1:])
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y", color="0.9")
    time.legend(frameon=False)
    figure.suptitle(f"Loss and both gradients of {point['at']['model.name']}'s head (H = {point['shape']['hidden']:,}, V = "
                    f"{point['shape']['vocab']:,}), {point['shape']['dtype']}. {facts['cpu']}, {facts['threads']} threads, "
                    f"logitless {header['version']}, PyTorch {facts['torch']}, medians of {header['iters']} calls",
                    fontsize=7)
    figure.savefig(picture, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw the file")
    parser.add_argument("--model", default="smollm2-135m", help="of bench/peers/run; smollm2-135m by default")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--file", type=pathlib.Path, default=FILE)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=PICTURE)
    options = parser.parse_args()
    if not options.draw:
        measure(options.file, options.model, options.dtype)
    draw(options.file, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
