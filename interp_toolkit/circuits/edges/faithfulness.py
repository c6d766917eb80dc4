"""Faithfulness: the fraction of the metric that a circuit keeps when all else is ablated at once.

The share `(circuit - all cut) / (intact - all cut)` of mean values over rows (Wang et al. 2023,
arXiv 2211.00593). It depends on what stands in for what is cut (Miller et al. 2024, arXiv
2407.08734). Its interval is Fieller's (1954) for a ratio of means of pairs, by Student's t: all
ratios r for which `mean(left - r whole)` is not certainly other than 0. Where what cutting
everything costs is not certain itself, every ratio is possible, and the interval is infinite: a
bootstrap of few rows would call its own luck certain.

Also here:
- edges cut one by one: what each row loses, with intervals and p-values of the means over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp_toolkit.circuits.edges.passes.cut import CutObjective
from interp_toolkit.circuits.edges.wiring import Edge
from interp_toolkit.stats import mean_interval, ratio_interval

#: the index of each chosen edge among the model's
Chosen = Int[np.ndarray, " chosen"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Edges that were cut one by one.

    Attributes:
        edges: which. losses: what each row loses.
    """

    edges: Chosen
    losses: Float[np.ndarray, "row chosen"]

    def at(self, rows: Int[np.ndarray, " drawn"]) -> Measured:
        """The same edges on some of the rows."""
        return Measured(self.edges, self.losses[rows])

    def intervals(self) -> Float[np.ndarray, "2 chosen"]:
        """Intervals of the mean losses, by Student's t over rows."""
        return np.stack(mean_interval(self.losses)[1:])


def measured(
    trial: CutObjective,
    chosen: Chosen,
    intact: Float[np.ndarray, " row"],
    progress: Callable[[str], None],
) -> Measured:
    """Ablate these edges one by one."""
    values = trial.values([[trial.edges[i]] for i in chosen.tolist()], progress)
    return Measured(chosen, intact[:, None] - values)


def joined(a: Measured, b: Measured) -> Measured:
    """Concatenate two sets of measured edges."""
    return Measured(
        np.concatenate([a.edges, b.edges]), np.concatenate([a.losses, b.losses], axis=1)
    )


SHARE = 0.01  # of what cutting every edge costs: the least effect of an edge that matters


@dataclass(frozen=True)
class Faithfulness:
    """The fraction of the metric that a circuit retains by itself.

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


def faithfulness(trial: CutObjective, edges: Collection[Edge]) -> Faithfulness:
    """The faithfulness of a circuit on a trial's rows.

    Args:
        trial: the rows, and what stands in for what is cut.
        edges: the circuit's edges.
    """
    circuit, all_cut = trial.alone([edges, ()]).T
    return share_of(trial.intact(), circuit, all_cut)


def share_of(
    intact: Float[np.ndarray, " row"],
    circuit: Float[np.ndarray, " row"],
    all_cut: Float[np.ndarray, " row"],
) -> Faithfulness:
    """Faithfulness from the values of rows in the whole model, in a circuit, and without edges."""
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
