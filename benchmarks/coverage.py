"""How often the printed 95 % intervals of means over prompts contain the mean of all prompts.

Prompts are drawn from populations whose mean is exact: effects that vary smoothly (normal; skewed,
as of ablations that cost some prompts more), and effects of which 2, 5 or 10 % differ strongly.
What is assumed of prompts that were not drawn was set on other sizes (see `tests/test_stats.py`).
Each quantity gets its interval from the function that prints it:

- roles: direct effects in logits, and contrasts of attention (at most 1);
- collapse: rise of the mean cosine of a row's positions (within -2 and 2);
- edges and nodes of a circuit: drop of a logit difference;
- faithfulness: share of the metric, of which a circuit loses the effects;
- heads on repeated tokens: loss of a row, itself a mean over many positions; accuracy: of a prompt;
- patching: fraction of the difference between clean and corrupted prompts.

Composition prints no interval: it is computed from weights, without prompts.

Run: python benchmarks/coverage.py [--repeats 1000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from interp_toolkit.circuits.collapse import rise_of
from interp_toolkit.circuits.edges.checks import Measured, share_of
from interp_toolkit.circuits.metrics.metrics import LogitDifference
from interp_toolkit.circuits.roles.kinds import of_fractions, of_logits
from interp_toolkit.stats import COVERAGE, clopper_pearson, mean_of_shares, ratio_estimate

SIZES = (8, 16, 32, 64)
SHARES = (0.02, 0.05, 0.1)
Draw = Callable[[np.random.Generator, int], np.ndarray]
#: population -> rows of effects around 1, and their mean
POPULATIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(1, 0.7, n), 1.0),
    "skewed": (lambda rng, n: rng.gamma(2, 0.5, n), 1.0),
}
for share in SHARES:
    for rare in (-5.0, 7.0):
        POPULATIONS[f"{share:.0%} at {rare:g}"] = (
            lambda rng, n, share=share, rare=rare: np.where(
                rng.random(n) < share, rare, rng.normal(1, 0.1, n)
            ),
            1 - share + share * rare,
        )


def of_edges(values: np.ndarray) -> tuple[float, float]:
    """An edge's interval in a circuit's table."""
    low, high = Measured(np.arange(1), values[:, None]).intervals(LogitDifference.unseen)[:, 0]
    return float(low), float(high)


def of_rise(values: np.ndarray) -> tuple[float, float]:
    """The interval of collapse, of rises a tenth as large."""
    rise = rise_of(np.zeros(len(values)), values / 10)
    return 10 * rise.low, 10 * rise.high


def of_attention(values: np.ndarray) -> tuple[float, float]:
    """The interval of a contrast of attention, an eighth as large."""
    _, low, high = of_fractions(values / 8)
    return 8 * low, 8 * high


def of_share(values: np.ndarray) -> tuple[float, float]:
    """The interval of what a circuit keeps that loses these effects of 10."""
    share = share_of(np.full(len(values), 10.0), 10 - values, np.zeros(len(values)))
    return 10 * (1 - share.high), 10 * (1 - share.low)


def of_repeats(values: np.ndarray) -> tuple[float, float]:
    """What a knockout costs on repeated tokens, of a metric of 10, times 10."""
    share = ratio_estimate(values, np.full(len(values), 10.0))
    return 10 * share.low, 10 * share.high


def of_patches(values: np.ndarray) -> tuple[float, float]:
    """What a patch restores of a logit difference of 10, times 10."""
    share = ratio_estimate(values, np.full(len(values), 10.0), unseen=LogitDifference.unseen)
    return 10 * share.low, 10 * share.high


def of_answers(values: np.ndarray) -> tuple[float, float]:
    """What a knockout costs of an accuracy, of answers that it turns wrong or right."""
    e = mean_of_shares(values / 10, COVERAGE)
    return 10 * e.low, 10 * e.high


INTERVALS: dict[str, Callable[[np.ndarray], tuple[float, float]]] = {
    "roles, direct effect": lambda values: of_logits(values)[1:],
    "roles, attention": of_attention,
    "collapse, rise": of_rise,
    "circuit, edges and nodes": of_edges,
    "circuit, faithfulness": of_share,
    "heads, loss on repeated tokens": of_repeats,
    "heads, accuracy": of_answers,
    "patching, fraction": of_patches,
}


def coverage(name: str, population: str, n: int, repeats: int) -> dict[str, Any]:
    """The share of draws whose interval contains the mean, with its exact interval."""
    draw, truth = POPULATIONS[population]
    rng = np.random.default_rng([sum(map(ord, population)), n])
    hits = 0
    for _ in range(repeats):
        low, high = INTERVALS[name](draw(rng, n))
        hits += low - 1e-9 <= truth <= high + 1e-9
    ends = clopper_pearson(hits, repeats)
    return {
        "quantity": name, "prompts": population, "n": n, "repeats": repeats,
        "covers": hits / repeats, "low": ends[0], "high": ends[1],
    }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The least and most coverage of each quantity, of smooth effects and where some differ."""
    said = []
    for name in INTERVALS:
        covers: dict[bool, list[float]] = {False: [], True: []}
        for row in rows:
            if row["quantity"] == name:
                covers["%" in row["prompts"]].append(row["covers"])
        smooth, rare = covers[False], covers[True]
        said.append(
            {"quantity": name, "least": min(smooth), "most": max(smooth), "rare": min(rare)}
        )
    return said


def main() -> None:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cells = [(name, p, n) for name in INTERVALS for p in POPULATIONS for n in SIZES]
    rows = [coverage(*cell, options.repeats) for cell in track(cells, "draws")]
    table = Table("quantity", "prompts", *map(str, SIZES))
    for name in INTERVALS:
        for population in POPULATIONS:
            some = [r for r in rows if (r["quantity"], r["prompts"]) == (name, population)]
            table.add_row(name, population, *(f"{r['covers']:.1%}" for r in some))
    Console().print(table)
    if options.json:
        kept = {"summary": summary(rows), "coverage": rows}
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
