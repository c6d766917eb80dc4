"""Which pairs a layer computes, which were readable before it, which are absent.

A pair counts as read where, held out, its worst error after the best gain and bias is below 1/4,
which no affine function of two bits attains, so where every score with both on lies above all
others by some distance. Were the labels unrelated to the activations, all k groups of rows with
both on would come out on top of n in one out of C(n, k) orders: that is the p-value, adjusted for
all pairs after Benjamini and Yekutieli, which holds whatever their dependence.

- computed: read here, and neither at the layer's input nor from what enters its nonlinearity;
- before: read at the layer's input, or from that, already;
- absent: the worst error is 1/4 or more;
- undecided: below 1/4, but on so few rows that chance is no worse an explanation, or on rows where
  an affine function of the features is below 1/4 too (one of the two is never on without the
  other, say), so that nothing follows;
- unseen: never together in the rows fitted on, or in those held out: no error at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln

from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.probes.uand.errors import PairErrors, Pairs, groups_together
from interp_toolkit.stats import benjamini_yekutieli

Claim = Literal["computed", "before", "absent", "undecided", "unseen"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
ROUNDING = 1e-3  # relative: an affine readout's 1/4 in float32 is not less than 1/4


class PairEvidence(NamedTuple):
    """Readoffs of all pairs somewhere.

    Attributes:
        errors: on held-out rows.
        q: of these, from `q_values`.
    """

    errors: PairErrors
    q: Float[np.ndarray, " pair"]


def q_values(
    errors: PairErrors, together: Int[np.ndarray, " pair"], n_groups: int
) -> Float[np.ndarray, " pair"]:
    """Adjusted p-values of the pairs' separation (see the module); NaN of pairs never seen.

    Args:
        errors: on held-out rows.
        together: independent groups of these rows in which both are on, by pair.
        n_groups: groups of held-out rows.
    """
    log_orders = gammaln(n_groups + 1) - gammaln(together + 1) - gammaln(n_groups - together + 1)
    p = np.where(errors.separated, np.exp(-log_orders), 1.0)
    return benjamini_yekutieli(np.where(errors.seen, p, np.nan))


def claims(
    here: PairEvidence,
    before: Sequence[PairEvidence],
    affine: Bool[np.ndarray, " pair"],
    level: float,
) -> list[Claim]:
    """What can be said of each pair; without anything before the layer nothing is computed there.

    Args:
        here: the readoffs at the layer.
        before: those at its input, and of what enters its nonlinearity.
        affine: where an affine function of the features is the AND on these rows.
        level: of the false discoveries.
    """
    read = is_read(here.errors)
    sure = read & (here.q <= level) & ~affine
    early = np.zeros(len(read), dtype=bool)
    surely_early = early.copy()
    for reading in before:
        also = is_read(reading.errors)
        early |= also
        surely_early |= also & (reading.q <= level) & ~affine
    named = np.where(read | early, "undecided", "absent")
    named = np.where(sure & ~early & bool(before), "computed", named)
    named = np.where(surely_early, "before", named)
    found: list[Claim] = np.where(here.errors.seen, named, "unseen").tolist()
    return found


def never_apart(features: Bool[np.ndarray, "n m"], pairs: Pairs) -> Bool[np.ndarray, " pair"]:
    """Pairs of which one of the four inputs (both, either alone, none) is not among the rows."""
    together = groups_together(features, None, pairs)
    alone = features.sum(axis=0)[pairs] - together[:, None]
    neither = len(features) - together - alone.sum(axis=1)
    return np.asarray((together == 0) | (alone == 0).any(axis=1) | (neither == 0))


def counts(found: list[Claim]) -> dict[Claim, int]:
    """How many pairs each claim is made of."""
    counted = Counter(found)
    return {claim: counted[claim] for claim in CLAIMS}


def main_claim(found: list[Claim]) -> Claim:
    """What the layer as a whole is said to do: computed or before, whichever more pairs are.

    A layer may be built for a few pairs out of many, so only where there is none of these is it
    absent or undecided, whichever more pairs are.
    """
    counted = counts(found)
    rivals: tuple[tuple[Claim, Claim], ...] = (("computed", "before"), ("absent", "undecided"))
    for one, other in rivals:
        if counted[one] + counted[other]:
            return one if counted[one] >= counted[other] else other
    return "undecided"


def is_read(errors: PairErrors) -> Bool[np.ndarray, " pair"]:
    """Whether the worst error after offset is below what an affine function attains."""
    return errors.seen & (errors.worst_after_offset < AFFINE * (1 - ROUNDING))
