# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Simulates the order of work of a backward pass for teams of any size. Prints the share of the team's time
that is work, assuming that products take the same time per multiply-add and that memory does not limit them.

    python3 bench/work_order.py --threads 2 8 16 --tokens 512 2048 --d-weight bfloat16

Two orders are compared. `tasks` is the order of src/stream/tile_tasks.h. `barriers` computes a group of
tiles, waits, adds the group to all sums, and waits again, with the same number of tiles in memory. Constants
and rules come from src/planning.
"""

import argparse
import heapq
import math
import random
from collections import deque

ROW_TILE, VOCAB_TILE, HIDDEN_BLOCK, CHAINS, WEIGHT_TILES = 512, 1024, 256, 4, 2  # tile_grid.{h,cc}
TILES_AHEAD, MOST_AHEAD, TILES_BEHIND = 2, 16, 3  # tile_tasks.h


class Cut:
    """How the pass is cut. The unit of time is the product of one tile with the head or with the states."""

    def __init__(self, tokens, hidden, vocab, two_pass, apart, threads):
        self.row_blocks, self.vocab_tiles = math.ceil(tokens / ROW_TILE), math.ceil(vocab / VOCAB_TILE)
        self.tiles = [(j, b) for j in range(self.vocab_tiles) for b in range(self.row_blocks)]
        self.slots = max(1, 2 * threads) if two_pass else len(self.tiles)
        self.apart = apart  # d_weight is summed in a few tiles; each is written out when complete
        self.places = min(WEIGHT_TILES, self.vocab_tiles) if apart else self.vocab_tiles
        most = max(1, hidden // HIDDEN_BLOCK)
        self.of_hidden = min(math.ceil(CHAINS / self.row_blocks), most)
        self.of_weight = min(math.ceil(CHAINS / self.places), most)
        self.compute = 1.06 if two_pass else 0.06  # of a tile's gradient; two pass recomputes its logits
        self.write_out = 0.03


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
    ready, chains, slots, sums, read, tiles = deque(), {}, {}, {}, {}, []
    ahead = team.threads * min(max(TILES_AHEAD * cut.row_blocks, 1), MOST_AHEAD)
    leads = TILES_BEHIND * cut.row_blocks < ahead
    last_written = None

    def add(kind, place, splits, after):
        out = []
        for split in range(splits):
            task = Task(1 / splits, [*after, chains.get((kind, place, split))], ready)
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
            sums[j, b] = add("hidden", b, cut.of_hidden, [tile])
            follow = sums.get((j - TILES_BEHIND, b), []) if leads else []
            weight = add("weight", j % cut.places, cut.of_weight, [tile, *follow])
            tiles.append([tile, *sums[j, b], *weight])
            slots[slot] = tiles[-1]
            if cut.apart and b == cut.row_blocks - 1:
                last_written = Task(cut.write_out, [*weight, last_written], ready)
                for split in range(cut.of_weight):
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
    return team.efficiency()


def with_barriers(cut, team):
    def run(chains):
        waiting = deque(chains)
        while waiting or team.running:
            while team.free and waiting:
                first, *rest = waiting.popleft()
                team.start(first, rest)
            rest = team.wait()
            if rest:
                waiting.append(rest)

    group = min(cut.slots, max(4 * cut.row_blocks, 2 * team.threads))
    if cut.apart:
        group = min(group, cut.places * cut.row_blocks)
    for begin in range(0, len(cut.tiles), group):
        tiles = cut.tiles[begin : begin + group]
        run([[cut.compute]] * len(tiles))
        sums = []
        for axis, splits in ((1, cut.of_hidden), (0, cut.of_weight)):
            places = [tile[axis] for tile in tiles]
            sums += [[1 / splits] * places.count(place) for place in sorted(set(places)) for _ in range(splits)]
        run(sums)
        if cut.apart:
            run([[cut.write_out]] * len({j for j, _ in tiles}))
    return team.efficiency()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--d-weight", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--jitter", type=float, default=0.05, help="relative spread of the time that a product takes")
    given = parser.parse_args()
    print(f"{'plan':<9}{'tokens':>7}{'threads':>8}{'tasks':>7}{'barriers':>9}")
    for plan in ("one_pass", "two_pass"):
        for tokens in given.tokens:
            for threads in given.threads:
                apart = given.d_weight == "bfloat16"
                cut = Cut(tokens, given.hidden, given.vocab, plan == "two_pass", apart, threads)
                both = [order(cut, Team(threads, given.jitter)) for order in (with_tasks, with_barriers)]
                print(f"{plan:<9}{tokens:>7}{threads:>8}{both[0]:>7.2f}{both[1]:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
