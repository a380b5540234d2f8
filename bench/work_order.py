# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Simulates a call's order of work for teams of any size. Prints the share of the team's time that is work, and
what limits it where it is below 0.85.

    python3 bench/work_order.py                                  # the README's heads, 1 to 64 threads
    python3 bench/work_order.py --heads 1536x151936 --dtypes bfloat16 --tokens 512 2048 --threads 8 16
    python3 bench/work_order.py --chains 8 --hidden-block 128    # another cut
    python3 bench/work_order.py --measure                        # this machine's products: work_order.json

Each product takes the seconds that it took on one thread of the machine that work_order.json names. That memory
or the clock slow a product down while other cores work, is not simulated. `tasks` is the order of
src/stream/tile_tasks.h. `barriers` computes a group of tiles, waits, adds the group to all sums, and waits
again, with the same number of tiles in memory. Constants and rules come from src/planning.
"""

import argparse
import dataclasses
import datetime
import heapq
import itertools
import json
import math
import pathlib
import random
import re
import subprocess
import sys
from collections import deque

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = pathlib.Path(__file__).with_suffix(".json")

ROW_TILE, VOCAB_TILE, WEIGHT_TILES, FORWARD_TASKS = 512, 1024, 2, 128  # tile_grid.{h,cc}
GRADIENT_ENTRIES = {"float32": 1024, "bfloat16": 640}  # Costs::gradient_tile_entries of onednn.cc
TILES_AHEAD, MOST_AHEAD, TILES_BEHIND = 2, 16, 3  # tile_tasks.h
BYTES_PER_LOGIT, LEAST_CHUNK = 4, 128  # planner.cc
ENOUGH = 0.85
# Measured products: widths by hidden size. bench/parts.cc multiplies 4 times per turn.
WIDTHS, PER_TURN = {576: (576, 288, 144, 96), 1536: (1536, 768, 384, 256, 128)}, 4


@dataclasses.dataclass(frozen=True)
class Rules:
    """Constants of src/planning that the options vary."""

    chains: int = 8  # Costs::gradient_chains: chains of d_hidden per chunk, and of d_weight
    hidden_block: int = 256  # kHiddenBlock
    sums: int = 1  # sums of d_hidden that share the vocabulary; src/sink has one
    workspace: int = 256 << 20


class Rates:
    """Seconds of one thread, from the table."""

    def __init__(self, table, hidden, dtype):
        self.rows = table["rows"]
        self.products = table["products"][str(hidden)][dtype]
        self.hidden = hidden

    def product(self, name, rows, entries, width):
        """Return the seconds of one product of a tile, at the rate of the measured product of the nearest width."""
        of_width = {int(key): seconds for key, seconds in self.products[name].items()}
        near = min(of_width, key=lambda measured: abs(math.log(measured / width)))
        return of_width[near] * width / near * rows * entries / (ROW_TILE * VOCAB_TILE)

    def kernel(self, name, rows, entries):
        return self.rows[name] * rows * entries / (ROW_TILE * VOCAB_TILE)


def round_up(number, step):
    return math.ceil(number / step) * step


def chunks_of(tokens, hidden, vocab, dtype, workspace):
    """Return the number of chunks of one pass. Raises ValueError if the workspace is too small."""
    room = 0.96 * workspace  # the rest is scratch
    if BYTES_PER_LOGIT * tokens * vocab <= room:
        return 1
    if dtype != "float32":
        room -= BYTES_PER_LOGIT * hidden * vocab  # several chunks have a whole sum of d_weight
    if room < BYTES_PER_LOGIT * LEAST_CHUNK * vocab:
        raise ValueError("the workspace is too small")
    return math.ceil(BYTES_PER_LOGIT * tokens * vocab / room)


class Cut:
    """How a call is cut, with the seconds of its products."""

    def __init__(self, tokens, hidden, vocab, dtype, plan, threads, rates, rules=Rules()):
        two_pass = plan == "two_pass"
        self.chunks = 1 if two_pass else chunks_of(tokens, hidden, vocab, dtype, rules.workspace)
        chunk = tokens / self.chunks
        self.row_blocks = math.ceil(chunk / ROW_TILE)
        rows = chunk / self.row_blocks
        entries = GRADIENT_ENTRIES[dtype] if two_pass else VOCAB_TILE
        self.vocab_tiles = math.ceil(vocab / entries)
        self.tiles = [(j, b) for j in range(self.vocab_tiles) for b in range(self.row_blocks)]
        self.slots = 2 * threads if two_pass else len(self.tiles)
        # With a single chunk, a 16-bit d_weight is summed in a few tiles, each written out when complete.
        self.apart = dtype != "float32" and self.chunks == 1
        self.places = min(WEIGHT_TILES, self.vocab_tiles) if self.apart else self.vocab_tiles
        self.sums = rules.sums

        def split(chains):
            most = max(1, hidden // rules.hidden_block)
            blocks = min(max(math.ceil(rules.chains / chains), 1), most)
            width = max(min(rules.hidden_block, hidden), min(hidden, round_up(math.ceil(hidden / blocks), 16)))
            return [min(width, hidden - begin) for begin in range(0, hidden, width)]

        def products(name, widths):
            return [rates.product(name, rows, entries, width) for width in widths]

        self.of_hidden = products("d_hidden", split(self.row_blocks * self.sums))
        self.of_weight = products("d_weight", split(self.places))
        logits = rates.product("logits", rows, entries, hidden)
        self.forward = logits + rates.kernel("fold", rows, entries)
        self.compute = rates.kernel("gradient", rows, entries) + (logits if two_pass else 0)
        # As long as a row kernel takes for as many numbers.
        self.write_out = rates.kernel("gradient", hidden, entries) if self.apart else 0
        self.forward_ranges = min(max(math.ceil(FORWARD_TASKS / self.row_blocks), 1), self.vocab_tiles)

    def forward_tasks(self):
        """Seconds of each task of the forward pass: a range of the vocabulary, for a block of rows."""
        bounds = [s * self.vocab_tiles // self.forward_ranges for s in range(self.forward_ranges + 1)]
        return [(end - begin) * self.forward for begin, end in zip(bounds, bounds[1:]) for _ in range(self.row_blocks)]

    def hidden_chains(self):
        return self.row_blocks * self.sums * len(self.of_hidden)

    def weight_chains(self):
        return self.places * len(self.of_weight)

    def longest_hidden(self):
        """Seconds of the longest chain of d_hidden in a chunk."""
        return math.ceil(self.vocab_tiles / self.sums) * max(self.of_hidden)

    def longest_weight(self):
        tiles = math.ceil(self.vocab_tiles / self.places)
        return tiles * (self.row_blocks * max(self.of_weight) + self.write_out)


class Team:
    def __init__(self, threads, jitter):
        self.threads = self.free = threads
        self.time = self.work = 0.0
        self.running, self.started = [], 0
        self.jitter, self.random = jitter, random.Random(1)

    def start(self, duration, item):
        duration *= self.random.lognormvariate(0, self.jitter)
        self.work += duration
        self.started += 1
        self.free -= 1
        heapq.heappush(self.running, (self.time + duration, self.started, item))

    def wait(self):
        self.time, _, item = heapq.heappop(self.running)
        self.free += 1
        return item

    def run_all(self, chains):
        """Run chains of tasks, each a list of seconds, and wait for all."""
        waiting = deque(chain for chain in chains if chain)
        while waiting or self.running:
            while self.free and waiting:
                first, *rest = waiting.popleft()
                self.start(first, rest)
            rest = self.wait()
            if rest:
                waiting.append(rest)

    def efficiency(self):
        return self.work / (self.threads * self.time)


class Task:
    def __init__(self, duration, after, ready):
        self.duration, self.then, self.is_done = duration, [], False
        waits_for = [task for task in after if task and not task.is_done]
        self.unmet = len(waits_for)
        for task in waits_for:
            task.then.append(self)
        if not waits_for:
            ready.append(self)


def with_tasks(cut, team):
    """The backward pass of a chunk in the order of tile_tasks.h."""
    ready, chains, slots, sums, read, tiles = deque(), {}, {}, {}, {}, []
    ahead = team.threads * min(max(TILES_AHEAD * cut.row_blocks, 1), MOST_AHEAD)
    leads = TILES_BEHIND * cut.row_blocks < ahead
    last_written = None

    def add(kind, place, durations, after):
        out = []
        for split, duration in enumerate(durations):
            task = Task(duration, [*after, chains.get((kind, place, split))], ready)
            chains[kind, place, split] = task
            out.append(task)
        return out

    def submit():
        nonlocal last_written
        while len(tiles) < len(cut.tiles):
            i = len(tiles)
            if i >= ahead and not all(task.is_done for task in tiles[i - ahead]):
                return
            (j, b), slot = cut.tiles[i], i % cut.slots
            tile = Task(cut.compute, [*slots.get(slot, []), read.get(j)], ready)
            sums[j, b] = add("hidden", (b, j % cut.sums), cut.of_hidden, [tile])
            follow = sums.get((j - TILES_BEHIND, b), []) if leads else []
            weight = add("weight", j % cut.places, cut.of_weight, [tile, *follow])
            tiles.append([tile, *sums[j, b], *weight])
            slots[slot] = tiles[-1]
            if cut.apart and b == cut.row_blocks - 1:
                last_written = Task(cut.write_out, [*weight, last_written], ready)
                for split in range(len(cut.of_weight)):
                    chains["weight", j % cut.places, split] = last_written

    submit()
    while ready or team.running:
        while team.free and ready:
            task = ready.popleft()
            team.start(task.duration, task)
        done = team.wait()
        done.is_done = True
        for task in done.then:
            task.unmet -= 1
            if task.unmet == 0:
                ready.append(task)
        submit()


def with_barriers(cut, team):
    group = min(cut.slots, max(4 * cut.row_blocks, 2 * team.threads))
    if cut.apart:
        group = min(group, cut.places * cut.row_blocks)
    for begin in range(0, len(cut.tiles), group):
        tiles = cut.tiles[begin : begin + group]
        team.run_all([[cut.compute]] * len(tiles))
        sums = []
        for axis, durations in ((1, cut.of_hidden), (0, cut.of_weight)):
            places = [tile[axis] for tile in tiles]
            sums += [[one] * places.count(place) for place in sorted(set(places)) for one in durations]
        team.run_all(sums)
        if cut.apart:
            team.run_all([[cut.write_out]] * len({j for j, _ in tiles}))


def simulate(cut, threads, order=with_tasks, jitter=0.05):
    """Return the team after a call, and the idle seconds of one thread in the forward and backward pass of a chunk.
    All chunks are alike."""
    team = Team(threads, jitter)
    team.run_all([task] for task in cut.forward_tasks())
    forward = team.time - team.work / threads
    order(cut, team)
    return team, forward, team.time - team.work / threads - forward


def why(cut, threads, forward, backward, time):
    """Return what limits a call."""
    if forward > backward:
        return f"forward: {len(cut.forward_tasks())} tasks, then a barrier"
    if threads > len(cut.tiles):
        return f"{len(cut.tiles)} tiles"
    spent = time - sum(cut.forward_tasks()) / threads - forward  # on the backward pass
    for seconds, chains, name in ((cut.longest_hidden(), cut.hidden_chains(), "d_hidden"),
                                  (cut.longest_weight(), cut.weight_chains(), "d_weight")):
        if seconds > 0.9 * spent:
            return f"{chains} chains of {name} ({cut.row_blocks} row blocks)"
    return f"order of tasks, {cut.slots} tiles in memory"


def least_of(text, product):
    """Return the least seconds of a product, over backends and turns: a call takes the fastest backend."""
    return min(map(float, re.findall(rf"^  {product}(?:, \w+)? +median +[\d.]+ s +\(([\d.]+) to", text, re.MULTILINE)))


def measure(parts):
    """Measure the products of a tile with bench/parts.cc, on one thread. Its CPU's time is counted, so that other
    processes matter less."""
    def run(*options):
        line = [str(parts), *map(str, options), "--threads", "1", "--cpu-time", "--repeat", "1"]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    products, text = {}, ""
    for (hidden, widths), dtype in itertools.product(WIDTHS.items(), GRADIENT_ENTRIES):
        found = products.setdefault(str(hidden), {}).setdefault(dtype, {"logits": {}, "d_hidden": {}, "d_weight": {}})
        for width in widths:
            print(f"H = {hidden}, {dtype}, {width} wide", file=sys.stderr, flush=True)
            text = run("products", "--hidden", hidden, "--dtype", dtype, "--width", width)
            for name, of_width in found.items():
                key = str(hidden if name == "logits" else width)
                seconds = round(least_of(text, name) / PER_TURN, 7)
                of_width[key] = min(seconds, of_width.get(key, seconds))
    of_rows = run("rows")
    return {"cpu": text.splitlines()[0], "measured": datetime.date.today().isoformat(), "products": products,
            "rows": {name: round(least_of(of_rows, name) * ROW_TILE / 256, 7) for name in ("fold", "gradient")}}


def numbers(text):
    return tuple(map(int, text.split("x")))


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 12, 16, 32, 64])
    add("--tokens", type=int, nargs="+", default=[2048, 4096])
    add("--heads", type=numbers, nargs="+", default=[(576, 49152), (1536, 151936)], metavar="HxV")
    add("--dtypes", choices=list(GRADIENT_ENTRIES), nargs="+", default=list(GRADIENT_ENTRIES), help="of inputs and outputs")
    add("--plans", choices=["one_pass", "two_pass"], nargs="+", default=["one_pass", "two_pass"])
    add("--jitter", type=float, default=0.05, help="relative spread of the time that a product takes")
    add("--barriers", action="store_true", help="also simulate groups of tiles with barriers")
    add("--workspace", type=int, default=256, metavar="MiB", help="logits of a chunk fit in it")
    for name, what in (("chains", "of d_hidden and of d_weight"), ("hidden_block", "narrowest product"),
                       ("sums", "of d_hidden, each over a part of the vocabulary")):
        default = getattr(Rules(), name)
        add("--" + name.replace("_", "-"), type=int, default=default, help=f"{what}; {default} in src/")
    add("--measure", action="store_true", help="measure the products, one or two minutes on one core, and write the table")
    add("--parts", type=pathlib.Path, default=ROOT / "build/release/bin/parts", metavar="FILE")
    return parser


def main():
    given = make_parser().parse_args()
    if given.measure:
        TABLE.write_text(json.dumps(measure(given.parts), indent=1) + "\n", encoding="utf-8")
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    print(f"products of {table['cpu']}, {table['measured']}")
    rules = Rules(given.chains, given.hidden_block, given.sums, given.workspace << 20)
    barriers = f"{'barriers':>9}" if given.barriers else ""
    print(f"{'H x V':<14}{'type':<10}{'plan':<10}{'tokens':>6}{'threads':>8}{'seconds':>9}{'tasks':>7}{barriers}  below {ENOUGH}")
    for hidden, vocab in given.heads:
        for dtype in given.dtypes:
            rates = Rates(table, hidden, dtype)
            for plan in given.plans:
                for tokens in given.tokens:
                    for threads in given.threads:
                        line = f"{f'{hidden} x {vocab}':<14}{dtype:<10}{plan:<10}{tokens:>6}{threads:>8}"
                        try:
                            cut = Cut(tokens, hidden, vocab, dtype, plan, threads, rates, rules)
                        except ValueError as error:
                            print(f"{line}  {error}")
                            break
                        team, forward, backward = simulate(cut, threads, jitter=given.jitter)
                        line += f"{cut.chunks * team.time:>9.3f}{team.efficiency():>7.2f}"
                        if given.barriers:
                            line += f"{simulate(cut, threads, with_barriers, given.jitter)[0].efficiency():>9.2f}"
                        if team.efficiency() < ENOUGH:
                            line += "  " + why(cut, threads, forward, backward, team.time)
                        print(line, flush=True)


if __name__ == "__main__":
    main()
