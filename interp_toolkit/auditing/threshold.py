"""A threshold on one number a row: set on some rows, judged on others, class by class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Threshold(NamedTuple):
    """Rows with `sign * score > at` are called on."""

    at: float
    sign: int


def best_threshold(scores: Float[np.ndarray, " row"], on: Bool[np.ndarray, " row"]) -> Threshold:
    """The threshold, halfway between two scores, with the largest mean of both classes' shares.

    Of several as good, the one in the widest gap. Scores that tie are never told apart.

    Examples:
        >>> best_threshold(np.array([0.0, 1.0, 4.0, 5.0]), np.array([True, True, False, False]))
        Threshold(at=-2.5, sign=-1)
    """
    best, found = (-np.inf, -np.inf), Threshold(0.0, 1)
    for sign in (1, -1):
        values, which = np.unique(sign * scores, return_inverse=True)
        cuts = (values[1:] + values[:-1]) / 2
        if not len(cuts):
            continue
        above_on = on.sum() - np.cumsum(np.bincount(which, on))[:-1]
        above_off = (~on).sum() - np.cumsum(np.bincount(which, ~on))[:-1]
        balanced = above_on / max(on.sum(), 1) + 1 - above_off / max((~on).sum(), 1)
        gaps = values[1:] - values[:-1]
        place = int(np.lexsort((gaps, balanced))[-1])
        if (balanced[place], gaps[place]) > best:
            best = (balanced[place], gaps[place])
            found = Threshold(float(cuts[place]), sign)
    return found


def right_by_class(
    scores: Float[np.ndarray, " row"],
    labels: Bool[np.ndarray, " row"],
    train: Int[np.ndarray, " train"],
    test: Int[np.ndarray, " test"],
) -> tuple[Bool[np.ndarray, " off"], Bool[np.ndarray, " on"]]:
    """Whether each test row is told right by the train rows' threshold: those off, those on."""
    cut = best_threshold(scores[train], labels[train])
    called = cut.sign * scores[test] > cut.at
    right = called == labels[test]
    return right[~labels[test]], right[labels[test]]


def worst_class(right: tuple[Bool[np.ndarray, " off"], Bool[np.ndarray, " on"]]) -> float:
    """The smaller of both classes' shares told right; 0 where a class has no row."""
    return min(float(rows.mean()) if len(rows) else 0.0 for rows in right)
