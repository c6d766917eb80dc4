"""Batches of lists to sort, with their sorted order, against a plain Python generator.

The generator is the source's pseudocode, written simply, with the sorted lists beside it; shorter
lists are filled up. Both sides make batches of 1,024 lists, as a trainer takes them: two integer
tensors, of the lists and of the sorted lists. One thread, in rounds that take turns; the ratio
without the generator's last step, from lists to tensors, is given too. Three distributions: hard
lists of 10 out of 10 values, hard lists of 1 to 10, and 10 distinct out of 15.

That both draw the same hard lists is asked of the set of values that a list uses: its 1,023
probabilities are known exactly, as a sum over the supports that hold it, and the counts of both
sides are held against them, and against each other, by chi-square. A generator that draws p once
a list, and not again on every retry, is held against them too: it is another distribution.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats

from interp_toolkit.data.lists.draws import ListSource, support_probabilities
from interp_toolkit.files import replacing

BATCH, N_VALUES, LENGTH = 1024, 10, 10
CASES = {
    "hard, 10 of 10 values": ListSource("hard", 10, 10, 10),
    "hard, 1 to 10 of 10 values": ListSource("hard", 10, 1, 10),
    "distinct, 10 of 15 values": ListSource("distinct", 15, 10, 10),
}
SIDES = ("python", "ours")
DRAWN = 200_000  # lists of each side in a chi-square test


def plain_support(n_values, redraw):
    if random.random() < 2 / 3:
        p = random.random()
        while True:
            if redraw:
                p = random.random()
            support = [value for value in range(n_values) if random.random() < p]
            if support:
                return support
    x, y = random.randrange(n_values), random.randrange(n_values)
    return list(range(min(x, y), max(x, y) + 1))


def plain_list(source, redraw=True):
    length = random.randint(source.shortest, source.longest)
    if source.kind == "distinct":
        return random.sample(range(source.n_values), length)
    return random.choices(plain_support(source.n_values, redraw), k=length)


def plain_lists(source, n):
    lists = [plain_list(source) for _ in range(n)]
    ordered = [sorted(items) for items in lists]
    for rows in (lists, ordered):
        for items in rows:
            items += [source.n_values] * (source.longest - len(items))
    return lists, ordered


def plain_batch(source, n):
    lists, ordered = plain_lists(source, n)
    return torch.tensor(lists), torch.tensor(ordered)


def our_batch(source, n, generator):
    lists = source.draw(n, generator)
    return lists.values, lists.sorted()


def seconds_per_batch(make, batches):
    start = time.perf_counter()
    for _ in range(batches):
        make()
    return (time.perf_counter() - start) / batches


def timed(source, rounds, generator):
    makers = {
        "ours": (lambda: our_batch(source, BATCH, generator), 200),
        "python": (lambda: plain_batch(source, BATCH), 10),
        "python_lists_only": (lambda: plain_lists(source, BATCH), 10),
    }
    our_batch(source, BATCH, generator)
    seconds = {name: [] for name in makers}
    for _ in range(rounds):
        for name, (make, batches) in makers.items():
            seconds[name].append(seconds_per_batch(make, batches))
    return {
        "lists_per_second": {name: [BATCH / s for s in seconds[name]] for name in makers},
        "ratios": ratios(seconds["python"], seconds["ours"]),
        "ratios_to_lists_only": ratios(seconds["python_lists_only"], seconds["ours"]),
    }


def ratios(slow, fast):
    return [a / b for a, b in zip(slow, fast, strict=True)]


def exact_used():
    """The probability that a hard list uses exactly the values of the bits of entry + 1."""
    chance = np.concatenate([[0.0], support_probabilities(N_VALUES)])
    sets = np.arange(2**N_VALUES)
    size = ((sets[:, None] >> np.arange(N_VALUES)) & 1).sum(axis=1)
    within = chance / np.maximum(size, 1.0) ** LENGTH
    for value in range(N_VALUES):  # sums over all supersets
        without = sets[(sets >> value) & 1 == 0]
        within[without] += within[without | 1 << value]
    onto = [
        sum((-1) ** j * math.comb(k, j) * (k - j) ** LENGTH for j in range(k + 1))
        for k in range(N_VALUES + 1)
    ]
    return (within * np.array(onto, dtype=float)[size])[1:]


def used(values):
    bits = np.bitwise_or.reduce(1 << np.asarray(values), axis=1)
    return np.bincount(bits - 1, minlength=2**N_VALUES - 1)


def against_exact(counts, chances):
    found = stats.chisquare(counts, counts.sum() * chances)
    return {"chi_square": found.statistic, "degrees": len(counts) - 1, "p": found.pvalue}


def distributions(generator):
    source = CASES["hard, 10 of 10 values"]
    ours = used(source.draw(DRAWN, generator).values.numpy())
    python = used([plain_list(source) for _ in range(DRAWN)])
    misread = used([plain_list(source, redraw=False) for _ in range(DRAWN)])
    chances = exact_used()
    both = stats.chi2_contingency(np.stack([ours, python]))
    return {
        "ours, exact": against_exact(ours, chances),
        "python, exact": against_exact(python, chances),
        "ours, python": {"chi_square": both.statistic, "degrees": both.dof, "p": both.pvalue},
        "p drawn once a list, exact": against_exact(misread, chances),
    }


def run(options):
    torch.set_num_threads(1)
    random.seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    return {
        "benchmark": "sorting_batches",
        "batch": BATCH,
        "seed": options.seed,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "cases": {name: timed(source, options.rounds, generator) for name, source in CASES.items()},
        "drawn": DRAWN,
        "distributions": distributions(generator),
    }


def spread(values, digits):
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def show(figures):
    console = Console()
    table = Table(title="Millions of lists a second on one thread; medians (ranges) of rounds")
    for column in ("", "Python", "ours", "ratio", "ratio to Python lists"):
        table.add_column(column)
    for name, case in figures["cases"].items():
        rates = {side: [rate / 1e6 for rate in case["lists_per_second"][side]] for side in SIDES}
        table.add_row(
            name,
            *(spread(rates[side], 2) for side in SIDES),
            spread(case["ratios"], 0),
            spread(case["ratios_to_lists_only"], 0),
        )
    console.print(table)
    table = Table(title=f"Values used by {figures['drawn']:,} hard lists of 10 out of 10 values")
    for column in ("", "chi-square", "degrees of freedom", "p"):
        table.add_column(column)
    for name, test in figures["distributions"].items():
        table.add_row(name, f"{test['chi_square']:.0f}", str(test["degrees"]), f"{test['p']:.3g}")
    console.print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="times both sides take turns")
    parser.add_argument("--seed", type=int, default=0, help="of all draws")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    figures = run(options)
    show(figures)
    if options.json:
        with replacing(options.json) as path:
            path.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
