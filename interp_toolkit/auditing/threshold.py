"""A threshold on one number a row: set on some rows, judged on others, class by class.

What is claimed of a threshold is claimed of each class, so it is set for the worse of the two.

Also here:
- does an effect hold on rows drawn anew, and in every group of rows?

The rows are drawn again with repeats, DRAWS times (bootstrap), and the share of draws in which the
mean reaches the bound is counted. Where rows belong to groups (templates, documents), the mean of
each group is asked too: an effect of one template alone is not stable. What falls short of that is
undecided: draws of these rows know nothing of others. It is not part of what a claim's answer rests
on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.auditing.parts import Answer, Deed, Part


class Threshold(NamedTuple):
    """Rows with `sign * score > at` are called on."""

    at: float
    sign: int


def best_threshold(
    scores: Float[np.ndarray, " row"], on: Bool[np.ndarray, " row"]
) -> tuple[Threshold, float]:
    """The threshold, halfway between two scores, under which the worse class fares best.

    Of several as good, the one in the widest gap. Scores that tie are never told apart.

    Returns:
        The threshold, and the share of the worse class that it tells right.

    Examples:
        >>> best_threshold(np.array([0.0, 1.0, 4.0, 5.0]), np.array([True, True, False, False]))
        (Threshold(at=-2.5, sign=-1), 1.0)
    """
    best, threshold = (-np.inf, -np.inf), Threshold(0.0, 1)
    for sign in (1, -1):
        values, which = np.unique(sign * scores, return_inverse=True)
        cuts = (values[1:] + values[:-1]) / 2
        if not len(cuts):
            continue
        above_on = on.sum() - np.cumsum(np.bincount(which, on))[:-1]
        above_off = (~on).sum() - np.cumsum(np.bincount(which, ~on))[:-1]
        right_on, right_off = above_on / max(on.sum(), 1), 1 - above_off / max((~on).sum(), 1)
        worse = np.minimum(right_on, right_off)
        gaps = values[1:] - values[:-1]
        index = int(np.lexsort((gaps, worse))[-1])
        if (worse[index], gaps[index]) > best:
            best = (worse[index], gaps[index])
            threshold = Threshold(float(cuts[index]), sign)
    return threshold, max(float(best[0]), 0.0)


def right_by_class(
    scores: Float[np.ndarray, " row"],
    labels: Bool[np.ndarray, " row"],
    train: Int[np.ndarray, " train"],
    test: Int[np.ndarray, " test"],
) -> tuple[Bool[np.ndarray, " off"], Bool[np.ndarray, " on"]]:
    """Whether each test row is told right by the train rows' threshold: those off, those on."""
    cut, _ = best_threshold(scores[train], labels[train])
    called = cut.sign * scores[test] > cut.at
    right = called == labels[test]
    return right[~labels[test]], right[labels[test]]


def worst_class(right: tuple[Bool[np.ndarray, " off"], Bool[np.ndarray, " on"]]) -> float:
    """The smaller of both classes' shares told right; 0 where a class has no row."""
    return min(float(rows.mean()) if len(rows) else 0.0 for rows in right)


DRAWS = 500
STABLE = 0.95  # of the draws
FEWEST_OF_GROUP = 4  # rows, for a group to be asked


def stable_part(
    effect: Float[np.ndarray, " row"],
    bound: float,
    groups: Any | None,
    rng: np.random.Generator,
    deed: Deed = "intervened",
    *,
    percent: bool = True,
) -> Part:
    """Stability of an effect of at least `bound`, a number a row.

    Args:
        effect: of each row.
        bound: what is claimed of the mean.
        groups: of each row, or None.
        rng: of the draws.
        deed: what was done to measure the effect.
        percent: whether the effect is a share.
    """
    n = len(effect)
    means = effect[rng.integers(n, size=(DRAWS, n))].mean(1)
    share = float((means >= bound).mean())
    least = f"{bound:.0%}" if percent else f"{bound:g}"
    text = f"in {share:.0%} of {DRAWS} draws of the rows the effect is at least {least}"
    answer: Answer = "confirmed" if share >= STABLE else "undecided"
    if groups is not None:
        below, asked = [], 0
        for name in np.unique(groups):
            rows = effect[groups == name]
            if len(rows) >= FEWEST_OF_GROUP:
                asked += 1
                below += [f"{name} ({rows.mean():.0%})"] if rows.mean() < bound else []
        if asked > 1:
            text += f"; {asked - len(below)} of {asked} groups reach it"
            text += f", not {', '.join(below[:4])}" if below else ""
            answer = "undecided" if below and answer == "confirmed" else answer
    return Part("stable", answer, text, deed, value=share, bound=STABLE)
