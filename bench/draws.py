# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures sample() and the same draws from computed logits, and tests its draws against the softmax.

    python bench/draws.py                                # 256 rows, H = 1,024, V = 151,936, float32
    python bench/draws.py --chi-square 1000000 --vocab 4096 151936 --temperatures 0.5 1 2

The calls take turns in one process. Prints median times and the peak memory above what was resident before the
call. With --chi-square nothing is timed: it draws this many ids from one row's distribution and prints Pearson's
statistic. Ids that expect fewer than 5 draws are counted in groups. A correct sampler gives p < 0.001 once in a
thousand seeds.
"""

import argparse

import torch
import torch.nn.functional as F
from turns import take_turns

import logitless
from logitless.torch import sample, token_logps

MOST = 256  # draws per row of one call


def from_logits(hidden, weight, draws):
    return torch.multinomial(F.linear(hidden, weight).float().softmax(-1), draws, replacement=True)


def measure(options):
    dtype = getattr(torch, options.dtype)
    for vocab in options.vocab:
        hidden = torch.randn(options.tokens, options.hidden).to(dtype)
        weight = (torch.randn(vocab, options.hidden) * 3 / options.hidden**0.5).to(dtype)
        targets = torch.randint(vocab, (options.tokens,))
        calls = {
            "sample()": lambda: sample(hidden, weight, options.draws),
            "sample(), top-k 50, top-p 0.9": lambda: sample(hidden, weight, options.draws, top_k=50, top_p=0.9),
            "token_logps()": lambda: token_logps(hidden, weight, targets),
            "linear, softmax, multinomial": lambda: from_logits(hidden, weight, options.draws),
        }
        print(
            f"[{vocab}, {options.hidden}], {options.tokens} rows of {options.dtype}, {options.draws} draws each, "
            f"{logitless.environment()['cpu']}"
        )
        with torch.no_grad():
            for name, (seconds, mib) in take_turns(calls, options.rounds).items():
                print(f"{name:30} {seconds:8.3f} s {mib:9.1f} MiB")


def groups_of(expected):
    """The group of each id: every id that expects 5 draws or more is one, and rarer ids share groups of 5 to 15."""
    order = expected.argsort()
    sums = expected[order].cumsum(0)
    rare = int((expected < 5).sum())
    groups = torch.arange(len(order))
    shared = (sums[:rare] / 10).long()
    if rare and sums[rare - 1] - 10 * shared[-1] < 5:  # the last group is small: it joins the one before
        shared = shared.clamp(max=max(int(shared[-1]) - 1, 0))
    groups[order[:rare]] = shared
    groups[order[rare:]] = torch.arange(len(order) - rare) + (int(shared[-1]) + 1 if rare else 0)
    return groups


def chi_square(vocab, temperature, draws):
    """Pearson's statistic of the drawn ids, its degrees of freedom and its p value."""
    hidden, weight = torch.randn(16), torch.randn(vocab, 16)
    rows = -(-draws // MOST)
    ids, _ = sample(hidden.expand(rows, -1), weight, MOST, temperature=temperature)
    counts = torch.bincount(ids.flatten(), minlength=vocab).double()
    expected = torch.softmax(weight.double() @ hidden.double() / temperature, 0) * ids.numel()
    groups = groups_of(expected)
    counts, expected = (torch.bincount(groups, weights=t) for t in (counts, expected))
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = torch.tensor(len(expected) - 1.0, dtype=torch.float64)
    return statistic.item(), int(freedom), torch.special.gammaincc(freedom / 2, statistic / 2).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="+", default=[151936])
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--draws", type=int, default=1, help="per row")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chi-square", type=int, metavar="DRAWS", help="test this many draws; takes minutes for 10^6")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0], help="of --chi-square")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    if not options.chi_square:
        return measure(options)
    for vocab in options.vocab:
        for temperature in options.temperatures:
            statistic, freedom, p = chi_square(vocab, temperature, options.chi_square)
            print(f"V = {vocab}, T = {temperature:g}: chi-square {statistic:.1f} of {freedom}, p = {p:.4f}", flush=True)


if __name__ == "__main__":
    main()
