"""What is said of pairs: the p-value by enumeration, and each claim on errors made by hand."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from interp_toolkit.probes.uand.errors import (
    N_BINS,
    PairErrors,
    PairEvidence,
    claims,
    groups_together,
    main_claim,
    never_apart,
    q_values,
)
from interp_toolkit.stats import benjamini_yekutieli


def errors(ranges, fitted=5, together=3):
    """Errors with these (on_low, on_high, off_low, off_high), a pair each."""
    n = len(ranges)
    table = np.array(ranges, dtype=float).T
    low = np.stack([table[0], table[2], table[2]])
    high = np.stack([table[1], table[3], table[3]])
    count = np.full((3, n), 10)
    count[0] = together
    return PairErrors(
        pairs=np.array(list(combinations(range(9), 2))[:n]),
        fitted=np.full(n, fitted),
        together=count[0],
        count=count,
        low=low,
        high=high,
        squares=np.zeros((3, n)),
        histogram=np.zeros((3, N_BINS), dtype=np.int64),
    )


@pytest.mark.parametrize(("n", "k"), [(6, 1), (7, 2), (8, 3)])
def test_the_p_value_is_the_share_of_labelings_that_separate(n, k):
    scores = np.random.default_rng(n).permutation(n).astype(float)
    separated = 0
    for chosen in combinations(range(n), k):
        on = np.isin(np.arange(n), chosen)
        separated += scores[on].min() > scores[~on].max()
    assert separated == 1
    one = errors([(1.0, 1.1, 0.0, 0.1)], together=k)
    assert q_values(one, np.array([k]), n)[0] == pytest.approx(separated / comb(n, k))


def test_q_values_are_adjusted_over_the_pairs_that_were_seen():
    found = errors([(1.0, 1.1, 0.0, 0.1), (0.1, 1.1, 0.0, 0.5), (1.0, 1.0, 0.0, 0.9)])
    unseen = errors([(1.0, 1.1, 0.0, 0.1)] * 3, fitted=0)
    k, n = np.array([3, 3, 2]), 20
    p = np.array([1 / comb(20, 3), 1.0, 1 / comb(20, 2)])
    wanted = stats.false_discovery_control(p, method="by")
    np.testing.assert_allclose(q_values(found, k, n), wanted)
    assert np.isnan(q_values(unseen, k, n)).all()


def test_benjamini_yekutieli_is_scipys():
    p = np.random.default_rng(0).random(40) ** 3
    np.testing.assert_allclose(
        benjamini_yekutieli(p), stats.false_discovery_control(p, method="by")
    )


GOOD, AFFINE, BAD = (1.0, 1.1, 0.0, 0.1), (2.0, 2.0, 0.0, 1.0), (0.4, 1.0, 0.0, 0.6)


@pytest.mark.parametrize(
    ("here", "before", "q_here", "q_before", "claim"),
    [
        (GOOD, AFFINE, 0.01, 1.0, "computed"),
        (GOOD, BAD, 0.01, 1.0, "computed"),
        (GOOD, GOOD, 0.01, 0.01, "before"),
        (BAD, GOOD, 1.0, 0.01, "before"),
        (AFFINE, AFFINE, 0.01, 0.01, "absent"),
        (BAD, BAD, 1.0, 1.0, "absent"),
        (GOOD, AFFINE, 0.2, 1.0, "undecided"),
        (GOOD, GOOD, 0.01, 0.2, "undecided"),
        (BAD, GOOD, 1.0, 0.2, "undecided"),
    ],
)
def test_each_claim(here, before, q_here, q_before, claim):
    readings = [
        PairEvidence(errors([e]), np.array([q])) for e, q in ((here, q_here), (before, q_before))
    ]
    no = np.array([False])
    assert claims(readings[0], readings[1:], no, 0.05) == [claim]
    nothing_early = PairEvidence(errors([BAD]), np.array([1.0]))
    assert claims(readings[0], [nothing_early, readings[1]], no, 0.05) == [claim]
    affine = claims(readings[0], readings[1:], np.array([True]), 0.05)
    assert affine == (["absent"] if claim == "absent" else ["undecided"])


def test_without_an_input_nothing_is_computed_or_before():
    here = PairEvidence(errors([GOOD, BAD]), np.array([0.01, 1.0]))
    assert claims(here, [], np.array([False, False]), 0.05) == ["undecided", "absent"]


def test_pairs_without_errors_are_unseen_whatever_their_input():
    unseen = dataclasses.replace(errors([GOOD]), fitted=np.array([0]))
    before = PairEvidence(errors([GOOD]), np.array([0.01]))
    here = PairEvidence(unseen, np.array([np.nan]))
    assert claims(here, [before], np.array([False]), 0.05) == ["unseen"]


def test_pairs_that_are_never_apart():
    on = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=bool)
    pairs = np.array([[0, 1], [0, 3], [1, 2], [0, 2], [2, 3]])
    assert never_apart(on, pairs).tolist() == [False, True, True, True, True]


def test_the_main_claim():
    assert main_claim(["unseen", "unseen", "computed"]) == "computed"
    assert main_claim(["unseen"]) == "undecided"
    assert main_claim(["absent", "computed", "absent"]) == "computed"
    assert main_claim(["absent", "computed", "before", "before"]) == "before"
    assert main_claim(["absent", "undecided", "absent"]) == "absent"


def test_rows_of_one_group_count_once():
    on = np.zeros((6, 3), dtype=bool)
    on[[0, 1, 4], 0] = on[[0, 1, 4, 5], 1] = True
    on[5, 2] = True
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    assert groups_together(on, None, pairs).tolist() == [3, 0, 1]
    groups = np.array([3, 3, 3, 7, 7, 8])
    assert groups_together(on, groups, pairs).tolist() == [2, 0, 1]


def test_groups_make_the_p_value_larger():
    """Labels that come in whole groups separate by chance in one of C(groups, k) orders."""
    found = errors([GOOD], together=6)
    assert q_values(found, np.array([2]), 10)[0] == pytest.approx(1 / comb(10, 2))
