"""Thresholds on a score per prompt, and the stability of an effect over prompts.

A threshold is fitted on some prompts and tested on others. A claim about a threshold is a claim
about each class, so the threshold is the one with the highest accuracy on the worse class.

An effect of at least `bound` is *stable* if its mean reaches the bound in at least STABLE of the
DRAWS bootstrap samples of the prompts. If prompts belong to several groups (templates, documents),
its mean must also reach the bound in every group of at least FEWEST_OF_GROUP. Otherwise stability
is undecided, never refuted, since a bootstrap of these prompts says nothing about others. A claim's
answer does not depend on its stability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from interp_toolkit.auditing.parts import Method, Part
from interp_toolkit.evidence import Answer, all_answers, answer_by
from interp_toolkit.formatting import percent


class Threshold(NamedTuple):
    """A decision rule: prompts with `sign * score > at` are classified as on."""

    at: float
    sign: int


def best_threshold(
    scores: Float[np.ndarray, " row"], on: Bool[np.ndarray, " row"]
) -> tuple[Threshold, float]:
    """The threshold, halfway between two scores, with the best accuracy on the worse class.

    Of several equally good thresholds, the one in the widest gap is returned. Tied scores are never
    separated.

    Returns:
        The threshold, and its accuracy on the worse class.

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
    """Whether the training prompts' threshold is right on each test prompt, by label: off, on."""
    cut, _ = best_threshold(scores[train], labels[train])
    called = cut.sign * scores[test] > cut.at
    right = called == labels[test]
    return right[~labels[test]], right[labels[test]]


def worst_class(right: tuple[Bool[np.ndarray, " off"], Bool[np.ndarray, " on"]]) -> float:
    """The accuracy on the worse class; 0 if a class has no prompt."""
    return min(float(rows.mean()) if len(rows) else 0.0 for rows in right)


DRAWS = 500
STABLE = 0.95  # fraction of the bootstrap samples
FEWEST_OF_GROUP = 4  # prompts, for a group to be tested


def stable_part(
    effect: Float[np.ndarray, " row"],
    bound: float,
    groups: Any | None,
    rng: np.random.Generator,
    method: Method = "intervened",
    *,
    is_fraction: bool = True,
) -> Part:
    """Stability of an effect of at least `bound`, from one number per prompt.

    Args:
        effect: the effect on each prompt.
        bound: the claimed lower bound of the mean.
        groups: each prompt's group, or None.
        rng: generator of the bootstrap samples.
        method: how the effect was measured.
        is_fraction: whether the effect is a fraction.
    """
    n = len(effect)
    means = effect[rng.integers(n, size=(DRAWS, n))].mean(1)
    share = float((means >= bound).mean())
    least = percent(bound) if is_fraction else f"{bound:g}"
    text = (
        f"in {percent(share)} of {DRAWS} bootstraps of the prompts the effect is at least {least}"
    )
    answer = answer_by(share >= STABLE)
    means_of = {name: float(effect[rows].mean()) for name, rows in large_groups(groups)}
    answer, text = judge_groups(answer, text, means_of, lambda mean: mean >= bound)
    return Part("stable", answer, text, method, value=share, bound=STABLE)


def large_groups(groups: Any | None) -> list[tuple[Any, Bool[np.ndarray, " row"]]]:
    """Each group of at least FEWEST_OF_GROUP prompts, with its rows."""
    of_name = [] if groups is None else [(name, groups == name) for name in np.unique(groups)]
    return [(name, rows) for name, rows in of_name if rows.sum() >= FEWEST_OF_GROUP]


def judge_groups(
    answer: Answer, text: str, means: Mapping[Any, float], reaches: Callable[[float], bool]
) -> tuple[Answer, str]:
    """The answer and its text, with the groups; undecided if a group does not reach the bound."""
    below = [f"{name} ({percent(mean)})" for name, mean in means.items() if not reaches(mean)]
    if len(means) < 2:
        return answer, text
    text += f"; in {len(means) - len(below)} of {len(means)} groups"
    text += f", not in {', '.join(below[:4])}" if below else ""
    return all_answers([answer, answer_by(not below)]), text
