"""Test whether a direction reads a function of features.

A threshold on the component along the direction is fitted on some prompts and tested on the others.
The claim is about the accuracy on each class, so that a rare class has the same weight as the
other. Also reported: random directions with the activations' covariance (the fraction that reads
the function as well), other functions of the same features, and the same direction in
weight-shuffled models.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from interp_toolkit.auditing.direction.common import DirectionAudit, random_directions
from interp_toolkit.auditing.parts import Part, measured, share_of_random, untestable
from interp_toolkit.auditing.threshold import (
    best_threshold,
    right_by_class,
    stable_part,
    worst_class,
)
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.evidence import answer_by, answer_of
from interp_toolkit.formatting import percent, percent_ci
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.probes.estimators.truth_tables import truth_values
from interp_toolkit.stats import Share, clopper_pearson

RANDOM = 200  # random directions
NULLS = 3  # weight-shuffled models
TRAIN = 0.25  # fraction of prompts on which thresholds are fitted
MOST_FEATURES = 3  # up to which all other functions are tested


class ReadingAudit(DirectionAudit):
    """Audit of a claim that a direction reads a function."""

    least = 0.8
    asserted = ("there",)

    def parts(self) -> list[Part]:
        """The parts of the claim."""
        labels = self._labels()
        if labels.all() or not labels.any():
            text = f"{self.claim.function} has the same value on all prompts"
            return [untestable("there", text, "observed")]
        train, test = self._split(labels)
        if test is None:
            text = f"{int(labels.sum())} of {len(labels)} prompts are on: too few for a threshold"
            return [untestable("there", text, "observed")]
        right = right_by_class((self.clean @ self.unit).numpy(), labels, train, test)
        _, reachable = best_threshold(
            (self.clean @ self.unit).numpy()[test], np.asarray(labels[test])
        )
        there, least = self._there(right, reachable)
        special = self._random_readers(labels, train, test)
        stable = stable_part(least.astype(float), self.bound, None, self.context.rng(6), "observed")
        return [there, special, self._elsewhere(labels, train, test), stable]

    def _labels(self) -> Bool[np.ndarray, " row"]:
        """The function's value on each prompt."""
        data, names = self.context.data, self.claim.features
        assert data is not None
        if not names:
            raise InputError("a 'reads' claim needs features: give their names (--features a,b)")
        return function_of(np.stack([data.column(name) for name in names], 1), self.claim.table)

    def _split(self, labels: Bool[np.ndarray, " row"]) -> tuple[np.ndarray, np.ndarray | None]:
        """Prompts to fit thresholds on and prompts to test on, each with both classes.

        The latter are None if a class has fewer than 4 prompts.
        """
        everything = np.arange(len(labels))
        rng, train = self.context.rng(7), []
        for kind in (False, True):
            rows = rng.permutation(np.flatnonzero(labels == kind))
            if len(rows) < 4:
                return everything, None
            train += rows[: max(2, int(TRAIN * len(rows)))].tolist()
        return np.array(sorted(train)), np.setdiff1d(everything, train)

    def _there(
        self, right: tuple[np.ndarray, np.ndarray], reachable: float
    ) -> tuple[Part, np.ndarray]:
        """The accuracy on each class, and the correctness of each prompt of the worse class.

        A low accuracy may be due to the fitted threshold. So the claim is refuted only if no
        threshold reaches the bound even when fitted on the test prompts (`reachable`).
        """
        coverage = self.context.coverage(1, 2)
        shares = []
        for rows in right:
            hit, n = int(rows.sum()), len(rows)
            shares.append(Share(hit / n, *clopper_pearson(hit, n, coverage)))
        answers = [answer_of(s.low, s.high, self.bound) for s in shares]
        fewest = min(len(rows) for rows in right)
        most = clopper_pearson(reachable * fewest, fewest, coverage)[1]
        out_of_reach = answer_of(most, most, self.bound) == "refuted"
        answer = answer_by(set(answers) == {"confirmed"}, "refuted" in answers and out_of_reach)
        off, on = shares
        worse = min(shares, key=lambda s: s.mean)
        text = (
            f"a threshold on it classifies {percent_ci(on)} of the prompts on which "
            f"{self.claim.function} holds and {percent_ci(off)} of the others; claimed: at least "
            f"{percent(self.bound)} of each"
        )
        part = measured("there", answer, text, "observed", worse, self.bound, coverage, True)
        return part, right[shares.index(worse)]

    def _random_readers(
        self, labels: Bool[np.ndarray, " row"], train: np.ndarray, test: np.ndarray
    ) -> Part:
        """Random directions with the activations' covariance."""
        directions = random_directions(self.clean, RANDOM, self.context.rng(8))
        scores = (self.clean @ directions.T).numpy()
        good = sum(
            worst_class(right_by_class(scores[:, i], labels, train, test)) >= self.bound
            for i in range(scores.shape[1])
        )
        text = f"{good} of {RANDOM} random directions of these activations read the feature as well"
        return share_of_random(good, RANDOM, text, "observed", self.context.coverage(1))

    def _elsewhere(
        self, labels: Bool[np.ndarray, " row"], train: np.ndarray, test: np.ndarray
    ) -> Part:
        """Other functions of the same features, and weight-shuffled models, for comparison."""
        data, names = self.context.data, self.claim.features
        assert data is not None
        scores = (self.clean @ self.unit).numpy()
        text = ""
        if len(names) <= MOST_FEATURES:
            columns = np.stack([data.column(name) for name in names], 1)
            tables = [f"{n:0{2 ** len(names)}b}" for n in range(1, 2 ** (2 ** len(names)) - 1)]
            functions = np.unique([function_of(columns, table) for table in tables], axis=0)
            others = [f for f in functions if (f != labels).any() and (f == labels).any()]
            others = [f for f in others if f[train].any() and not f[train].all()]
            read = sum(
                worst_class(right_by_class(scores, f, train, test)) >= self.bound for f in others
            )
            text = f"of {len(others)} other functions of these features it reads {read}; "
        readable = []
        for seed in range(NULLS):
            try:
                with reinitialised(self.context.model, seed):
                    values = (self.site.read(self.context.prompts.tokens) @ self.unit).numpy()
            except InterventionError:
                continue
            if np.isfinite(values).all():
                readable.append(worst_class(right_by_class(values, labels, train, test)))
        good = sum(value >= self.bound for value in readable)
        text += f"in {good} of {len(readable)} weight-shuffled models it reads it too"
        answer = answer_by(False, good > 0)
        return Part("special", answer, text, "intervened")


def function_of(
    columns: Bool[np.ndarray, "row feature"], table: str | None
) -> Bool[np.ndarray, " row"]:
    """A truth table's value on each row, or the single feature.

    Raises InputError for a table of another length, or for several features without one.
    """
    n = columns.shape[1]
    if table is None:
        if n > 1:
            raise InputError(
                f"{n} features need a table of {2**n} digits, such as 0110 for two features"
            )
        return columns[:, 0].astype(bool)
    if len(table) != 2**n:
        raise InputError(f"the table {table} has {len(table)} entries; {n} features need {2**n}")
    return truth_values(table, columns)
