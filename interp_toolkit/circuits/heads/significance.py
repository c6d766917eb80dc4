"""Does a head have an attention pattern? P-values from matched controls, and a rule.

Scores are compared as *excess*: (score - uniform) / (1 - uniform), where uniform is what uniform
attention over the visible keys would give to the same keys, so that 0 means no preference and 1
means all attention. Each family of controls (see `controls`) answers one way in which a head could
score without having the pattern:

- shifted and relabelled controls: the target's excess x against the controls' c1 ... cC of the same
  head. Where some control reaches x, the p-value is its rank, (1 + number reaching it) / (1 + C).
  Beyond them the tail of a t distribution goes on: t = (x - mean c) / (s sqrt(1 + 1/C)) with
  C - 1 degrees of freedom. s^2 is the larger of the head's own variance over controls and the
  model's mean of it over heads, so that a head whose controls happen to be alike (all its attention
  is elsewhere) gains nothing by it, and it is raised where the target's mean over tokens varies
  more among random heads than a control's does (`Family.spread`).
  Rows too short for FEWEST_CONTROLS shifts go without them where the other two families are there.
- displaced controls and other queries: the difference to the control, row by row; a t test of its
  mean over rows.

A family in which the controls have EXPLAINED of the target's excess explains the attention, however
significant the rest of it is: p = 1. A family that cannot be compared gives no p-value (NaN), and
then the head has none. The p-value of a head is the *largest* over the families: every explanation
must fail (Berger 1982, intersection-union). Then, over all heads and detectors of the model:

- p_adjusted, Holm (1979): the chance that any head is wrongly detected *in a model* stays below
  LEVEL, whatever the heads' dependence. `detected` rests on it.
- q_value, Benjamini & Hochberg (1995): the false discovery rate, for reading long tables.

THE RULE, for attention alone: a head has a pattern when p_adjusted <= LEVEL and its excess, and
that excess less the controls', are at least its detector's threshold, a convention: 0.3 for
patterns by token and 0.4 for patterns by position. Random heads do have preferences, small ones,
and enough data would make any of them significant; the threshold says how much attention makes a
head of that kind. The tail beyond the controls is a model, not a theorem;
`benchmarks/head_calibration.py` checks the error on random models of many shapes. So far out that
no check reaches, at SMALLEST_P, it is clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from interp_toolkit.circuits.heads.controls import Family, MatchedControls
from interp_toolkit.circuits.heads.detectors import Detector
from interp_toolkit.circuits.heads.patterns import PatternSums
from interp_toolkit.formatting import Brief
from interp_toolkit.stats import LEVEL, benjamini_hochberg, holm

SMALLEST_P = 1e-9
FEWEST_CONTROLS = 4
FEWEST_ROWS = 2  # with target and control, for a comparison row by row
EXPLAINED = 0.5  # of the target's excess: a family whose controls have it explains the attention
COVERED = 0.2  # of the attention to the targets: a family that compares less says nothing of it
SMALLEST_SPREAD = 1e-4  # of excesses among controls: below, differences are rounding


@dataclass(frozen=True, eq=False)
class DetectorScores(Brief):
    """One detector's scores on every head; NaN where the data has no target for it.

    Attributes:
        detector: its name.
        score: mean attention that a query pays to its targets.
        uniform: what uniform attention would pay.
        null_mean: what the closest controls pay, or uniform attention where that is more.
        excess: (score - uniform) / (1 - uniform).
        over_null: excess less the controls', of the family where that is smallest.
        p_value: the largest over the families of controls.
        weakest: the family it comes from.
        by_row: the score in each row of the prompts.
        floor: the detector's.
    """

    detector: str
    score: Float[np.ndarray, "layer head"]
    uniform: Float[np.ndarray, "layer head"]
    null_mean: Float[np.ndarray, "layer head"]
    excess: Float[np.ndarray, "layer head"]
    over_null: Float[np.ndarray, "layer head"]
    p_value: Float[np.ndarray, "layer head"]
    weakest: tuple[tuple[str, ...], ...]
    by_row: Float[np.ndarray, "layer row head"]
    floor: float


def detected(
    p_adjusted: Float[np.ndarray, "layer head"], scores: DetectorScores
) -> Bool[np.ndarray, "layer head"]:
    """The rule (see the module)."""
    with np.errstate(invalid="ignore"):
        is_detected: np.ndarray = (p_adjusted <= LEVEL) & (scores.over_null >= scores.floor)
    return is_detected


def corrected(
    p_values: Float[np.ndarray, " test"],
) -> tuple[Float[np.ndarray, " test"], Float[np.ndarray, " test"]]:
    """Holm's adjusted p-values and Benjamini and Hochberg's q-values, over one model."""
    return holm(p_values), benjamini_hochberg(p_values)


def score_families(
    detectors: Sequence[Detector],
    controls: MatchedControls,
    sums: PatternSums,
    uniform: Float[np.ndarray, "layer row set"],
) -> list[DetectorScores]:
    """Every detector's scores.

    Args:
        detectors: those whose controls these are.
        controls: the places and their controls.
        sums: what the pass saw there.
        uniform: what uniform attention would have given, by layer (windows differ).
    """
    return [
        _scores(d, [f for f in controls.families if f.detector == d.name], controls, sums, uniform)
        for d in detectors
    ]


def _scores(
    detector: Detector,
    families: list[Family],
    controls: MatchedControls,
    sums: PatternSums,
    uniform: Float[np.ndarray, "layer row set"],
) -> DetectorScores:
    target = families[0].target
    queries = controls.n_queries.sum(0)  # set
    with np.errstate(invalid="ignore", divide="ignore"):
        score = sums.sums.sum(1) / queries  # layer head set
        flat = uniform.sum(1)[:, None] / queries
        excess = (score - flat) / (1 - flat)
        by_row = sums.sums[..., target] / controls.n_queries[:, None, target]
    over_null, p_values = excess[..., target].copy(), np.zeros(score.shape[:2])
    weakest = np.full(score.shape[:2], "", dtype=object)
    for family in families:
        usable = [c for c in family.controls if queries[c] > 0]
        if family.kind == "shifted" and len(usable) < FEWEST_CONTROLS and _others_can(families):
            continue  # a short context: relabelled tokens and other rows say what there is to say
        own, others = excess[..., target], np.full(score.shape[:2], np.nan)
        if family.compared is not None:
            p, own, others = _paired(family, controls, sums, uniform)
        elif queries[target] and len(usable) >= FEWEST_CONTROLS:
            p = tail_p_values(own, excess[..., usable], family.spread)
            others = excess[..., usable].mean(-1)
        else:
            p = np.full(score.shape[:2], np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            p = np.where(others >= EXPLAINED * own, np.where(np.isnan(p), p, 1.0), p)
            left = np.where(own > 0, 1 - others / own, 0.0)
        over_null = np.fmin(over_null, excess[..., target] * np.where(np.isnan(p), np.nan, left))
        larger = np.isnan(p) | (p > p_values)
        weakest[larger & ~np.isnan(p_values)] = family.kind
        # NaN stays: a family that cannot be compared
        p_values = np.maximum(p_values, np.maximum(p, SMALLEST_P))
    return DetectorScores(
        detector=detector.name,
        score=score[..., target],
        uniform=np.broadcast_to(flat[..., target], score.shape[:2]).copy(),
        null_mean=score[..., target] - over_null * (1 - flat[..., target]),
        excess=excess[..., target],
        over_null=over_null,
        p_value=p_values,
        weakest=tuple(tuple(row) for row in weakest.tolist()),
        by_row=by_row,
        floor=detector.floor,
    )


def _others_can(families: Sequence[Family]) -> bool:
    """Whether tokens and places are held against controls of their own."""
    return {"relabelled", "displaced"} <= {family.kind for family in families}


def tail_p_values(
    target: Float[np.ndarray, "layer head"],
    controls: Float[np.ndarray, "layer head control"],
    spread: float = 1.0,
) -> Float[np.ndarray, "layer head"]:
    """Rank among the controls, and beyond them a t tail (see the module)."""
    count = controls.shape[-1]
    own = controls.var(-1, ddof=1)
    variance = np.maximum(own, own.mean()) * spread + SMALLEST_SPREAD**2
    t = (target - controls.mean(-1)) / np.sqrt(variance * (1 + 1 / count))
    tail = stats.t.sf(t, count - 1)
    reaching = (controls >= target[..., None] - SMALLEST_SPREAD).sum(-1)
    rank = (1 + reaching) / (1 + count)
    p: np.ndarray = np.where(reaching > 0, np.maximum(rank, tail), np.minimum(tail, rank))
    return p


def _paired(
    family: Family,
    controls: MatchedControls,
    sums: PatternSums,
    uniform: Float[np.ndarray, "layer row set"],
) -> tuple[Float[np.ndarray, "layer head"], ...]:
    """A t test, over rows, of the targets' excess less the control's; and the means of both.

    NaN for heads whose attention to the targets lies mostly on those that have no control.
    """
    (control,) = family.controls
    assert family.compared is not None
    target = _by_row(controls, sums, uniform, family.compared)
    other = _by_row(controls, sums, uniform, control)
    if family.partner is not None:
        n_unpaired = target.shape[1] - len(family.partner)
        other = other[:, np.pad(family.partner, (0, n_unpaired))]
    difference = target - other
    held = ~np.isnan(difference).any(axis=(0, 2))  # rows with both, the same for every head
    count = int(held.sum())
    if count < FEWEST_ROWS:
        missing = np.full(target.shape[::2], np.nan)
        return missing, missing, missing
    difference = difference[:, held]
    error = np.sqrt(difference.var(1, ddof=1) / count + SMALLEST_SPREAD**2)
    p: np.ndarray = stats.t.sf(difference.mean(1) / error, count - 1)
    whole, compared = (sums.sums[..., n].sum(1) for n in (family.target, family.compared))
    p = np.where(compared < COVERED * whole, np.nan, p)
    return p, target[:, held].mean(1), other[:, held].mean(1)


def _by_row(
    controls: MatchedControls,
    sums: PatternSums,
    uniform: Float[np.ndarray, "layer row set"],
    index: int,
) -> Float[np.ndarray, "layer row head"]:
    """A set's excess in each row; NaN where it has nothing there."""
    queries = controls.n_queries[:, index][None, :, None]
    flat = uniform[..., index][:, :, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        excess: np.ndarray = (sums.sums[..., index] - flat) / (queries - flat)
    return np.where(queries > 0, excess, np.nan)
