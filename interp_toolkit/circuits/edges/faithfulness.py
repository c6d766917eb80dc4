"""How much of a behaviour a circuit has alone: everything else is cut, all at once.

The share `(circuit - all cut) / (intact - all cut)` of mean values over rows (Wang et al. 2023,
arXiv 2211.00593). It depends on what stands in for what is cut (Miller et al. 2024, arXiv
2407.08734). Its interval is Fieller's (1954) for a ratio of means of pairs, by Student's t: all
ratios r for which `mean(left - r whole)` is not certainly other than 0. Where what cutting
everything costs is not certain itself, every ratio is possible, and the interval is infinite: a
bootstrap of few rows would call its own luck certain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.edges.passes.cut import CutObjective
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.stats import ratio_interval

SHARE = 0.01  # of what cutting every edge costs: the least effect of an edge that matters


@dataclass(frozen=True)
class Faithfulness:
    """How much of the behaviour the circuit has alone.

    Attributes:
        intact: mean value of the whole model.
        circuit: with every edge but the circuit's cut.
        all_cut: with every edge cut.
        share: `(circuit - all_cut) / (intact - all_cut)`.
        low, high: its interval over rows; infinite where `intact - all_cut` is not certain.
        n_rows: rows.
    """

    intact: float
    circuit: float
    all_cut: float
    share: float
    low: float
    high: float
    n_rows: int


def faithfulness(trial: CutObjective, kept: Collection[Edge]) -> Faithfulness:
    """Of a circuit, on a trial's rows.

    Args:
        trial: the rows, and what stands in for what is cut.
        kept: the circuit's edges.
    """
    circuit, all_cut = trial.alone([kept, ()]).T
    return share_of(trial.intact(), circuit, all_cut)


def share_of(
    intact: Float[np.ndarray, " row"],
    circuit: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
) -> Faithfulness:
    """From the values of the same rows in the whole model, in a circuit, and with all edges cut."""
    left, whole = circuit - all_cut, intact - all_cut
    with np.errstate(invalid="ignore", divide="ignore"):
        share = left.mean() / whole.mean()
    low, high = ratio_interval(left, whole)
    return Faithfulness(
        intact=float(intact.mean()),
        circuit=float(circuit.mean()),
        all_cut=float(all_cut.mean()),
        share=float(share),
        low=low,
        high=high,
        n_rows=len(intact),
    )
