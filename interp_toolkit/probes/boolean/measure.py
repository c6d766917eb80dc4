"""One site measured: separability, the logistic probe, and the controls that make either mean much.

Data comes in two kinds. *Exhaustive*: one row per input of the truth table (or few rows at all),
where the question is what those points allow. *Sampled*: many rows, where the probe is judged on
rows it was not fitted on, against shuffled labels, and separability beside Cover's chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.probes.boolean.result import HeldOutFigures, LabelingNull
from interp_toolkit.probes.estimators.boolean import TABLES, truth_values
from interp_toolkit.probes.estimators.heldout import (
    GRID,
    HeldOutScores,
    cross_validate_targets,
)
from interp_toolkit.probes.estimators.logistic import fit_logistic_targets
from interp_toolkit.probes.estimators.separability import Separability, check_separability
from interp_toolkit.probes.estimators.splits import shuffled_labels

SAMPLED_FROM = 50  # different inputs from which there is enough to hold some out
MOST_LABELINGS = 100  # all relabellings are tried if there are at most so many, else that many
MOST_SPLITS = 5
ROUNDING = 1e-12  # a spread this small beside the activations is none
SHUFFLES_SEPARATED = 20
UNLIKELY = 0.05  # Cover's chance above which nothing more needs to be said against 'separable'
WEAK = 1e4  # C of the probe on exhaustive data, activations scaled to a largest norm of 1


@dataclass(frozen=True)
class Targets:
    """What is asked of a site: the function, and others of the same features as controls.

    Attributes:
        names: "XOR", then the controls' names.
        labels: one column each.
        nulls: shuffled labels of the function, one column a draw (none on exhaustive data).
        inputs: of each row, which rows are equal up to what the site sees.
        groups: of the rows, for splits: the data's, joined with equal inputs; None: all differ.
    """

    names: tuple[str, ...]
    labels: Bool[np.ndarray, "n target"]
    nulls: Bool[np.ndarray, "n draw"]
    inputs: Int[np.ndarray, " n"]
    groups: np.ndarray | None

    @property
    def function(self) -> Bool[np.ndarray, " n"]:
        """The function's labels."""
        return self.labels[:, 0]

    @property
    def sampled(self) -> bool:
        """Whether there are different inputs enough to hold some out."""
        return is_sampled(self.inputs, self.groups)


@dataclass(frozen=True)
class SiteMeasurement:
    """A site's numbers, before they become a `SiteVerdict`.

    Attributes:
        separability: of the function.
        accuracy: of each target's probe on the points; if sampled, held out, and balanced for the
            controls (whose classes may be of very different sizes).
        held_out: of the function, without its p-value (that needs all sites); None if exhaustive.
        null: balanced accuracy of each shuffled draw.
        direction, threshold: the probe: the hyperplane if there is one, else the logistic fit.
        labelings: relabellings of the same points; if sampled, only of what is separable although
            Cover's chance is small, else None.
    """

    separability: Separability
    accuracy: Mapping[str, float]
    held_out: HeldOutFigures | None
    null: Float[np.ndarray, " draw"]
    direction: Float[np.ndarray, " d"]
    threshold: float
    labelings: LabelingNull | None


def function_name(table: str) -> str:
    """XOR for 0110 and so on; the table itself if it has no name."""
    return next((name.upper() for name, bits in TABLES.items() if bits == table), table)


def controls(
    table: str, features: Bool[np.ndarray, "n k"], names: tuple[str, ...]
) -> dict[str, Bool[np.ndarray, " n"]]:
    """The features themselves, their AND and their OR: what else could be read at a site."""
    found = {name: features[:, i] for i, name in enumerate(names)}
    found |= {"AND": np.all(features, axis=1), "OR": np.any(features, axis=1)}
    return {
        name: column
        for name, column in found.items()
        if name != function_name(table) and column.any() and not column.all()
    }


def measure(
    X: Any,
    precision: str,
    targets: Targets,
    *,
    C: float | None,
    seed: int,
) -> SiteMeasurement:
    """The site with activations X [n d] (float64 array), computed in `precision`.

    `C` is the probe's inverse regularisation on sampled data; None: chosen by held-out log loss.
    """
    y = targets.function
    separability = check_separability(X[y], X[~y], precision=precision)
    judge = _sampled if targets.sampled else _exhaustive
    return judge(X, precision, targets, separability, C, seed)


def _exhaustive(
    X: Float[np.ndarray, "n d"],
    precision: str,
    targets: Targets,
    separability: Separability,
    C: float | None,
    seed: int,
) -> SiteMeasurement:
    size = separability.scale or 1.0
    fits = fit_logistic_targets(X / size, targets.labels, C=WEAK, max_iter=2_000)
    scores = X / size @ fits.coef.T + fits.intercept
    accuracy = ((scores > 0) == targets.labels).mean(axis=0)
    for i in range(len(targets.names)):  # a hyperplane is the better probe, where there is one
        side = targets.labels[:, i]
        found = (
            separability if i == 0 else check_separability(X[side], X[~side], precision=precision)
        )
        if found.status == "separable":
            accuracy[i] = 1.0
    direction, threshold = fits.coef[0] / size, -float(fits.intercept[0])
    if separability.hyperplane is not None:
        direction, threshold = separability.direction, separability.threshold
    return SiteMeasurement(
        separability=separability,
        accuracy=dict(zip(targets.names, accuracy.tolist(), strict=True)),
        held_out=None,
        null=np.empty(0),
        direction=direction,
        threshold=threshold,
        labelings=_labelings(X, targets, precision, seed),
    )


def _labelings(
    X: Float[np.ndarray, "n d"],
    targets: Targets,
    precision: str,
    seed: int,
) -> LabelingNull:
    """How many other labelings with as many positives are separable on the different inputs."""
    y = targets.function
    first = np.unique(np.column_stack([targets.inputs, y]), axis=0, return_index=True)[1]
    X, y = X[np.sort(first)], y[np.sort(first)]
    n, n_positive = len(y), int(y.sum())
    if comb(n, n_positive) <= MOST_LABELINGS:
        chosen = [np.array(rows) for rows in combinations(range(n), n_positive)]
    else:
        rng = np.random.default_rng(seed)
        chosen = [rng.permutation(n)[:n_positive] for _ in range(MOST_LABELINGS)]
    labelings = np.zeros((len(chosen), n), dtype=bool)
    for labeling, rows in zip(labelings, chosen, strict=True):
        labeling[rows] = True
    # Neither the function itself, nor its negation, which is as separable.
    others = labelings[(labelings != y).any(axis=1) & (labelings == y).any(axis=1)]
    return _count_separable(X, others, precision)


def _count_separable(
    X: Float[np.ndarray, "n d"],
    labelings: Bool[np.ndarray, "labeling n"],
    precision: str,
) -> LabelingNull:
    """How many of some labelings are separable, and how many they are."""
    found = [check_separability(X[y], X[~y], precision=precision) for y in labelings]
    return LabelingNull(
        separable=sum(one.status == "separable" for one in found),
        tried=len(found),
        contradictory=sum(one.contradictions > 0 for one in found),
    )


def _sampled(
    X: Float[np.ndarray, "n d"],
    precision: str,
    targets: Targets,
    separability: Separability,
    C: float | None,
    seed: int,
) -> SiteMeasurement:
    every = np.column_stack([targets.labels, targets.nulls])
    scored = _cross_validate(X, every, targets.groups, C, seed)
    size = _spread(X)
    known = np.isfinite(scored.C[0])  # else the function could not be held out
    whole = fit_logistic_targets(
        X / size, targets.labels[:, :1], C=float(scored.C[0]) if known else C or 1.0
    )
    n_named = len(targets.names)
    accuracy = scored.balanced_accuracy[:n_named].copy()
    accuracy[0] = scored.accuracy[0]
    null = scored.balanced_accuracy[n_named:]
    measured = null[~np.isnan(null)]
    held_out = HeldOutFigures(
        accuracy=float(scored.accuracy[0]),
        balanced_accuracy=float(scored.balanced_accuracy[0]),
        auroc=float(scored.auroc[0]),
        calibration_error=float(scored.calibration_error[0]),
        null_balanced_accuracy=float(measured.mean()) if len(measured) else float("nan"),
        reinitialised_balanced_accuracy=float("nan"),
        shuffles=len(measured),
        p_value=float("nan"),
    )
    return SiteMeasurement(
        separability=separability,
        accuracy=dict(zip(targets.names, accuracy.tolist(), strict=True)),
        held_out=held_out,
        null=null,
        direction=whole.coef[0] / size,
        threshold=-float(whole.intercept[0]),
        labelings=_shuffled(X, precision, targets, separability),
    )


def _shuffled(
    X: Float[np.ndarray, "n d"],
    precision: str,
    targets: Targets,
    found: Separability,
) -> LabelingNull | None:
    """How many shuffles of the labels are separable, where the function is and Cover says no more.

    Cover's chance is of labels that are as often true as false; rare ones separate far more easily.
    """
    draws = targets.nulls.T[:SHUFFLES_SEPARATED]
    draws = draws[draws.any(axis=1) & ~draws.all(axis=1)]
    if found.status != "separable" or found.chance > UNLIKELY or not len(draws):
        return None
    return _count_separable(X, draws, precision)


def _spread(X: Float[np.ndarray, "n d"]) -> float:
    """Root mean square deviation of a coordinate: the unit in which `C` is meant."""
    spread = float(np.sqrt(X.var(axis=0).mean()))
    size = float(np.sqrt((X**2).mean()))
    return spread if spread > ROUNDING * size else size or 1.0


def held_out_accuracy(
    X: Float[np.ndarray, "n d"], targets: Targets, *, C: float | None, seed: int
) -> float:
    """The function's held-out balanced accuracy alone, same folds and regularisation."""
    scored = _cross_validate(X, targets.labels[:, :1], targets.groups, C, seed)
    return float(scored.balanced_accuracy[0])


def _cross_validate(
    X: Float[np.ndarray, "n d"],
    labels: Bool[np.ndarray, "n target"],
    groups: np.ndarray | None,
    C: float | None,
    seed: int,
) -> HeldOutScores:
    return cross_validate_targets(
        X / _spread(X),
        labels,
        groups=groups,
        n_splits=_splits(groups),
        seed=seed,
        C=GRID if C is None else C,
        keep_scores=False,
    )


def _splits(groups: np.ndarray | None) -> int:
    """Folds: five, or one a group where there are fewer groups."""
    return MOST_SPLITS if groups is None else min(MOST_SPLITS, len(np.unique(groups)))


def is_sampled(inputs: Int[np.ndarray, " n"], groups: np.ndarray | None) -> bool:
    """Whether rows differ enough, and are of groups enough, to hold some out."""
    several = groups is None or len(np.unique(groups)) > 1
    return several and len(np.unique(inputs)) >= SAMPLED_FROM


def make_targets(
    table: str,
    features: Bool[np.ndarray, "n k"],
    names: tuple[str, ...],
    inputs: Int[np.ndarray, " n"],
    groups: np.ndarray | None,
    *,
    shuffles: int,
    seed: int,
) -> Targets:
    """The function, its controls and, on sampled data, its shuffled labels (see `Targets`)."""
    y = truth_values(table, features)
    others = controls(table, features, names)
    n = len(features)
    draws = np.empty((n, 0), dtype=bool)
    if is_sampled(inputs, groups):
        moved = shuffled_labels(features, n_draws=shuffles, seed=seed, groups=groups)
        drawn = [truth_values(table, draw) for draw in moved]
        draws = np.stack(drawn, axis=1) if drawn else draws
    return Targets(
        names=(function_name(table), *others),
        labels=np.column_stack([y, *others.values()]),
        nulls=draws,
        inputs=inputs,
        groups=groups,
    )
