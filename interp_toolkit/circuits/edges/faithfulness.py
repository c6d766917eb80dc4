"""How much of a behaviour a circuit has alone: everything else is cut, all at once.

The share `(circuit - all cut) / (intact - all cut)` of mean values over rows (Wang et al. 2023,
arXiv 2211.00593), with a bootstrap interval over rows. It depends on what stands in for what is
cut (Miller et al. 2024, arXiv 2407.08734).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.edges.cut import CutObjective
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.stats import COVERAGE

RESAMPLES = 2_000
SHARE = 0.01  # of what cutting every edge costs: the least effect of an edge that matters


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
    circuit, all_cut = trial.alone([kept, ()]).T
    return share_of(trial.intact(), circuit, all_cut, seed)


def share_of(
    intact: Float[np.ndarray, " row"],
    circuit: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
    seed: int,
) -> Faithfulness:
    """From the values of the same rows in the whole model, in a circuit, and with all edges cut."""
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
