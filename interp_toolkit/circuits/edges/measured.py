"""Edges cut one by one: what each row loses, with intervals and p-values of the means over rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from interp_toolkit.circuits.edges.passes.cut import CutObjective
from interp_toolkit.stats import COVERAGE

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
        """Of the mean losses, by Student's t over rows."""
        n = len(self.losses)
        half = stats.t.ppf((1 + COVERAGE) / 2, n - 1) * self.losses.std(0, ddof=1) / np.sqrt(n)
        return np.stack([self.losses.mean(0) - half, self.losses.mean(0) + half])


def measured(
    trial: CutObjective,
    chosen: Chosen,
    intact: Float[np.ndarray, " row"],
    progress: Callable[[str], None],
) -> Measured:
    """These edges, cut one by one."""
    values = trial.values([[trial.edges[i]] for i in chosen.tolist()], progress)
    return Measured(chosen, intact[:, None] - values)


def joined(a: Measured, b: Measured) -> Measured:
    """Both."""
    return Measured(
        np.concatenate([a.edges, b.edges]), np.concatenate([a.losses, b.losses], axis=1)
    )


def p_values(differences: Float[np.ndarray, "row look"]) -> Float[np.ndarray, " look"]:
    """Two-sided, of a mean of 0, by Student's t over rows; 1 where nothing differs at all."""
    n = len(differences)
    mean, deviation = differences.mean(0), differences.std(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(mean == 0, 0.0, mean / (deviation / np.sqrt(n)))
    p: Float[np.ndarray, " look"] = 2 * stats.t.sf(np.abs(t), n - 1)
    return p
