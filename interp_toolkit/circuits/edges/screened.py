"""Choosing a circuit where there are too many edges to cut them all: attribution, then exact cuts.

Steps:
1. Every edge gets an estimate of its effect on every row (`attribution`).
2. The circuit is the least number of the largest estimates that alone, all else cut, keeps TARGET
   of the behaviour on the rows of choosing: sizes are doubled, then halved between.
3. Edges are cut one by one, the largest estimates first, a block at a time, until a block has none
   that matters: certainly not 0, and at least SHARE of the behaviour. Then some drawn from all
   that were not cut are cut too: what screening missed, with a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from interp_toolkit.circuits.edges.cut import CutObjective
from interp_toolkit.circuits.edges.faithfulness import SHARE
from interp_toolkit.circuits.edges.measured import Measured, joined, measured
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.stats import COVERAGE, clopper_pearson

TARGET = 0.95  # of the behaviour, where edges are chosen
SMALLEST = 32  # edges of a circuit, to begin with
HALVINGS = 3  # between the size that is enough and the one before
MOST_CUT = 128  # edges cut by the size of their estimates
BLOCK = 32  # edges cut before asking whether to go on
SAMPLE = 32  # edges drawn from those that are not measured


@dataclass(frozen=True)
class Screening:
    """How attribution chose, and how far it is to be trusted here.

    Attributes:
        sizes: number of edges -> the share that they keep alone, where edges are chosen.
        target: the share that was wanted there; reached: whether it was.
        in_order: how many edges were cut one by one, by the size of their estimates.
        all_that_matter: whether they end with a block of none that matters; else they end for the
            price.
        rank_correlation: Spearman's, of the sizes of estimates and effects of these.
        sampled: how many of the others were drawn and cut.
        sample_matters: how many of those matter.
        missed_at_most: the share of others that matter, at most (Clopper and Pearson, one-sided).
    """

    sizes: Mapping[int, float]
    target: float
    reached: bool
    in_order: int
    all_that_matter: bool
    rank_correlation: float
    sampled: int
    sample_matters: int
    missed_at_most: float


def ranked(scores: Float[np.ndarray, "row edge"]) -> Int[np.ndarray, " edge"]:
    """Edges by the size of their mean estimate, the largest first."""
    order: np.ndarray = np.argsort(-np.abs(scores.mean(0)), kind="stable")
    return order


def sized(
    trial: CutObjective,
    order: Int[np.ndarray, " edge"],
    intact: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
    prune: Callable[[Sequence[Edge]], Sequence[Edge]],
    progress: Callable[[str], None],
) -> tuple[int, dict[int, float]]:
    """How many of the first edges are enough, and what each size that was tried keeps.

    `prune` takes out edges on no path before they are tried. Where no size up to half of all edges
    is enough, the best is taken.
    """
    whole = float((intact - all_cut).mean())
    shares: dict[int, float] = {}

    def enough(size: int) -> bool:
        progress(f"circuits of {size:,} edges")
        kept = prune([trial.edges[i] for i in order[:size]])
        shares[size] = float((trial.alone([kept])[:, 0] - all_cut).mean()) / whole
        return shares[size] >= TARGET

    size, most = SMALLEST, max(len(order) // 2, SMALLEST)
    while not enough(size):
        if size >= most:
            return max(shares, key=lambda s: shares[s]), shares
        size = min(2 * size, most)
    low = max((s for s in shares if s < size), default=1)
    for _ in range(HALVINGS):
        middle = round((low * size) ** 0.5)
        if middle in (low, size):
            break
        if enough(middle):
            size = middle
        else:
            low = middle
    return size, shares


def until_none_matters(
    trial: CutObjective,
    order: Int[np.ndarray, " edge"],
    intact: Float[np.ndarray, " row"],
    total: float,
    most: int,
    progress: Callable[[str], None],
) -> tuple[Measured, bool]:
    """Edges cut in this order, and whether they end with a block of none that could matter."""
    found = Measured(order[:0], np.empty((len(intact), 0)))
    while len(found.edges) < min(most, len(order)):
        block = order[len(found.edges) : min(len(found.edges) + BLOCK, most)]
        new = measured(trial, block, intact, progress)
        found = joined(found, new)
        if not matter(new, total).any():
            return found, True
    return found, len(found.edges) == len(order)


def screening(
    scores: Float[np.ndarray, "row edge"],
    sizes: Mapping[int, float],
    in_order: tuple[Measured, bool],
    sample: Measured,
    total: float,
) -> Screening:
    """What is told of the choice; see `Screening`."""
    found, ended = in_order
    n, n_matter = len(sample.edges), int(matter(sample, total).sum())
    estimates, effects = scores.mean(0)[found.edges], found.losses.mean(0)
    correlation = stats.spearmanr(np.abs(estimates), np.abs(effects)).statistic
    return Screening(
        sizes=dict(sorted(sizes.items())),
        target=TARGET,
        reached=max(sizes.values()) >= TARGET,
        in_order=len(found.edges),
        all_that_matter=ended,
        rank_correlation=float(correlation),
        sampled=n,
        sample_matters=n_matter,
        missed_at_most=clopper_pearson(n_matter, n, 2 * COVERAGE - 1)[1] if n else 0.0,
    )


def matter(found: Measured, total: float) -> Bool[np.ndarray, " chosen"]:
    """Which have an effect that certainly is not 0 and reaches SHARE of the behaviour."""
    low, high = found.intervals()
    large = np.abs(found.losses.mean(0)) >= SHARE * abs(total)
    found_to: Bool[np.ndarray, " chosen"] = large & ((low > 0) | (high < 0))
    return found_to
