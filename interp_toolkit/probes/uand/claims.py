"""Which pairs a layer computes, which were readable before it, which are absent.

A pair counts as read where, held out, its worst error after the best gain and bias is below 1/4,
which no affine function of two bits attains, so where every score with both on lies above all
others by some distance. Were the labels unrelated to the activations, all k groups of rows with
both on would come out on top of n in one out of C(n, k) orders: that is the p-value, adjusted for
all pairs after Benjamini and Yekutieli, which holds whatever their dependence.

- computed: read here, and at the layer's input the worst error is 1/4 or more;
- before: read at the layer's input already;
- absent: the worst error is 1/4 or more;
- undecided: below 1/4, but on so few rows that chance is no worse an explanation;
- unseen: never together in the rows fitted on, or in those held out: no error at all.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.special import gammaln

from interp_toolkit.epsilon import AFFINE
from interp_toolkit.probes.splits import Groups, group_codes
from interp_toolkit.probes.uand.errors import PairErrors, Pairs
from interp_toolkit.stats import benjamini_yekutieli

Claim = Literal["computed", "before", "absent", "undecided", "unseen"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
ROUNDING = 1e-3  # relative: an affine readout's 1/4 in float32 is not less than 1/4


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


def groups_together(
    features: Bool[np.ndarray, "n m"], groups: Groups | None, pairs: Pairs
) -> Int[np.ndarray, " pair"]:
    """In how many groups of rows (None: rows) each pair is on together at least once."""
    on = sparse.csr_matrix(features, dtype=np.int64)
    if groups is None:
        return np.asarray((on.T @ on).toarray()[pairs[:, 0], pairs[:, 1]])
    codes = group_codes(groups)
    counts = np.zeros((features.shape[1],) * 2, dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        members = on[rows]
        joint = (members.T @ members).tocoo()
        counts[joint.row, joint.col] += 1
    return np.asarray(counts[pairs[:, 0], pairs[:, 1]])


def claims(
    here: PairErrors,
    q_here: Float[np.ndarray, " pair"],
    before: PairErrors | None,
    q_before: Float[np.ndarray, " pair"] | None,
    level: float,
) -> list[Claim]:
    """What can be said of each pair; without the layer's input nothing is 'computed' or 'before'.

    Args:
        here: errors on held-out rows at the layer.
        q_here: of these, from `q_values`.
        before: the same at the layer's input.
        q_before: of these.
        level: of the false discoveries.
    """
    read_here, sure_here = is_read(here), q_here <= level
    if before is None or q_before is None:
        found = np.where(read_here, "undecided", "absent")
    else:
        read_before, sure_before = is_read(before), q_before <= level
        found = np.select(
            [read_before & sure_before, read_here & sure_here & ~read_before, ~read_here],
            ["before", "computed", "absent"],
            "undecided",
        )
        found = np.where(read_before & ~sure_before, "undecided", found)
    named: list[Claim] = np.where(here.seen, found, "unseen").tolist()
    return named


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
