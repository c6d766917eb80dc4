"""P-values of attention patterns from matched controls, and the rule for attention alone.

Scores are compared as *excess*: (score - uniform) / (1 - uniform), where uniform is the score of
uniform attention over the visible keys. An excess of 0 means no preference, 1 means all attention.
Each family of controls (see `controls`) tests one other explanation of a high score:

- shifted and relabelled controls: the target's excess x is compared with the excess c1 ... cC of
  the same head's controls. If some control reaches x, the p-value is its rank, (1 + number reaching
  it) / (1 + C). Otherwise it follows the tail of a t distribution: t = (x - mean c) / (s sqrt(1 +
  1/C)) with C - 1 degrees of freedom. s^2 is the larger of the head's own variance over controls
  and the mean of this variance over heads, so that a head with similar controls (all its attention
  is elsewhere) gains nothing. s^2 is raised if the target's mean over tokens varies more among
  random heads than that of a control (`Family.spread`). Prompts too short for FEWEST_CONTROLS
  shifts have no shifted family if the relabelled and displaced families exist.
- displaced controls and other queries: t test over prompts of the difference to the control.

If the controls of a family have at least EXPLAINED of the target's excess, they explain the
attention, and p = 1. A family without a possible comparison has no p-value (NaN), and then the head
has none. The p-value of a head is the *largest* over the families, since every other explanation
must fail (Berger 1982, intersection-union). Over all heads and detectors of the model:

- p_adjusted, Holm (1979): the probability that any head of the model is wrongly detected is at most
  LEVEL, whatever the dependence between heads. `detected` uses it.
- q_value, Benjamini & Hochberg (1995): the false discovery rate, for long tables.

THE RULE, for attention alone: a head has a pattern if p_adjusted <= LEVEL, and its excess, also
minus that of the controls, is at least the detector's threshold. The threshold is a convention: 0.3
for patterns by token and 0.4 for patterns by position. Random heads have small preferences, which
enough data would make significant, so the threshold is needed beside the test. The tail beyond the
controls is a model, not a theorem; `benchmarks/head_calibration.py` measures the error rate on
random models of many shapes. P-values are clipped at SMALLEST_P, since no benchmark reaches
further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from interp_toolkit.circuits.heads.controls import Family, MatchedControls
from interp_toolkit.circuits.heads.detectors import Detector
from interp_toolkit.circuits.heads.patterns import PatternSums
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.stats import LEVEL, benjamini_hochberg, holm

SMALLEST_P = 1e-9
FEWEST_CONTROLS = 4
FEWEST_ROWS = 2  # prompts with target and control needed for a paired comparison
EXPLAINED = 0.5  # fraction of the target's excess from which controls explain the attention
COVERED = 0.2  # smallest fraction of the attention to targets that a family must compare
SMALLEST_SPREAD = 1e-4  # smaller differences of excess among controls count as rounding


@dataclass(frozen=True, eq=False)
class DetectorScores(ShortRepr):
    """Scores of every head under one detector; NaN if the prompts have no targets.

    Attributes:
        detector: name of the detector.
        score: mean attention of a query to its targets, over queries that matched controls have
            too.
        uniform: score of uniform attention.
        null_mean: score of the closest controls, or of uniform attention if that is larger.
        excess: (score - uniform) / (1 - uniform).
        over_null: excess minus that of the controls, for the family where this is smallest.
        p_value: largest p-value over the families of controls.
        weakest: family with the largest p-value.
        by_row: score in each prompt.
        floor: the detector's threshold of excess.
        attention: score over all queries with targets, also those without matched controls.
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
    attention: Float[np.ndarray, "layer head"]


def detected(
    p_adjusted: Float[np.ndarray, "layer head"], scores: DetectorScores
) -> Bool[np.ndarray, "layer head"]:
    """Whether heads have the pattern, by the rule for attention alone (see the module)."""
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
    """Scores and p-values of every detector.

    Args:
        detectors: the detectors.
        controls: targets and matched controls of these detectors.
        sums: attention to them.
        uniform: uniform attention to them, by layer (windows differ).
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
            continue  # short prompts: the other families suffice
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
        attention=score[..., controls.every[detector.name]],
    )


def _others_can(families: Sequence[Family]) -> bool:
    """Whether there are relabelled and displaced controls."""
    return {"relabelled", "displaced"} <= {family.kind for family in families}


def tail_p_values(
    target: Float[np.ndarray, "layer head"],
    controls: Float[np.ndarray, "layer head control"],
    spread: float = 1.0,
) -> Float[np.ndarray, "layer head"]:
    """P-values by rank among the controls, and by a t tail beyond them (see the module)."""
    count = controls.shape[-1]
    own = controls.var(-1, ddof=1)
    variance = np.maximum(own, own.mean()) * spread + SMALLEST_SPREAD**2
    t = (target - controls.mean(-1)) / np.sqrt(variance * (1 + 1 / count))
    tail = special.stdtr(count - 1, -t)
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
    """P-values of a t test over prompts of target minus control, and the means of both.

    P-values are NaN for heads with most of their attention on targets without a control.
    """
    (control,) = family.controls
    assert family.compared is not None
    target = _by_row(controls, sums, uniform, family.compared)
    other = _by_row(controls, sums, uniform, control)
    if family.partner is not None:
        n_unpaired = target.shape[1] - len(family.partner)
        other = other[:, np.pad(family.partner, (0, n_unpaired))]
    difference = target - other
    held = ~np.isnan(difference).any(axis=(0, 2))  # prompts with both, the same for every head
    count = int(held.sum())
    if count < FEWEST_ROWS:
        missing = np.full(target.shape[::2], np.nan)
        return missing, missing, missing
    difference = difference[:, held]
    error = np.sqrt(difference.var(1, ddof=1) / count + SMALLEST_SPREAD**2)
    p: np.ndarray = special.stdtr(count - 1, -difference.mean(1) / error)
    whole, compared = (sums.sums[..., n].sum(1) for n in (family.target, family.compared))
    p = np.where(compared < COVERED * whole, np.nan, p)
    return p, target[:, held].mean(1), other[:, held].mean(1)


def _by_row(
    controls: MatchedControls,
    sums: PatternSums,
    uniform: Float[np.ndarray, "layer row set"],
    index: int,
) -> Float[np.ndarray, "layer row head"]:
    """Excess of a set in each prompt; NaN if the prompt has no pair of the set."""
    queries = controls.n_queries[:, index][None, :, None]
    flat = uniform[..., index][:, :, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        excess: np.ndarray = (sums.sums[..., index] - flat) / (queries - flat)
    return np.where(queries > 0, excess, np.nan)
