"""How much of a behaviour a circuit has alone: everything else is cut, all at once.

The share `(circuit - all cut) / (intact - all cut)` of mean values over rows (Wang et al. 2023,
arXiv 2211.00593), with a bootstrap interval over rows. It depends on what stands in for what is
cut (Miller et al. 2024, arXiv 2407.08734); here the mean over other rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from interp_toolkit.circuits.edges.cut import CutObjective
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.stats import COVERAGE

RESAMPLES = 2_000


@dataclass(frozen=True)
class Faithfulness:
    """How much of the behaviour the circuit has alone.

    Attributes:
        intact: mean value of the whole model.
        circuit: with every edge but the circuit's cut.
        all_cut: with every edge cut.
        share: `(circuit - all_cut) / (intact - all_cut)`.
        low, high: its interval over rows, by bootstrap.
        n_rows: rows.
    """

    intact: float
    circuit: float
    all_cut: float
    share: float
    low: float
    high: float
    n_rows: int


def faithfulness(trial: CutObjective, kept: Collection[Edge], seed: int) -> Faithfulness:
    """Of a circuit, on a trial's rows.

    Args:
        trial: the rows, and what stands in for what is cut.
        kept: the circuit's edges.
        seed: of the bootstrap.
    """
    everything = trial.edges
    inside = set(kept)
    rest = [edge for edge in everything if edge not in inside]
    intact, circuit, all_cut = trial.values([(), rest, everything]).T
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(intact), size=(RESAMPLES, len(intact)))
    left, whole = circuit - all_cut, intact - all_cut
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = left[drawn].mean(1) / whole[drawn].mean(1)
        share = left.mean() / whole.mean()
    low, high = np.quantile(shares, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return Faithfulness(
        intact=float(intact.mean()),
        circuit=float(circuit.mean()),
        all_cut=float(all_cut.mean()),
        share=float(share),
        low=float(low),
        high=float(high),
        n_rows=len(intact),
    )
