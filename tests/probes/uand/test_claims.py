"""What is said of pairs: the p-value by enumeration, and each claim on errors made by hand."""

from __future__ import annotations

import dataclasses
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from scipy import optimize, stats

from interp_toolkit.probes.uand.absence import LIMIT, SiteRows, not_affine
from interp_toolkit.probes.uand.errors import (
    N_BINS,
    PairErrors,
    PairEvidence,
    claims,
    counts,
    groups_together,
    main_claim,
    never_apart,
    q_values,
)
from interp_toolkit.probes.uand.readout import UANDReadout
from interp_toolkit.probes.uand.site import Split, affine_in, reading
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


BITS = np.array(list(product([0, 1], repeat=2)) * 10, dtype=bool)


def layer_rows():
    """A layer that holds the AND of two bits, with its readout."""
    X = np.column_stack([BITS, BITS.all(axis=1)]).astype(float)
    return SiteRows(X, BITS, UANDReadout().fit(X, BITS))


def bits_alone():
    """An input that holds two bits, and so no affine function within 1/4 of their AND."""
    return SiteRows(BITS.astype(float), BITS)


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
        PairEvidence(errors([e]), np.array([q]), rows)
        for e, q, rows in ((here, q_here, layer_rows()), (before, q_before, bits_alone()))
    ]
    no = np.array([False])
    assert claims(readings[0], readings[1:], no, 0.05) == [claim]
    nothing_early = PairEvidence(errors([BAD]), np.array([1.0]), bits_alone())
    assert claims(readings[0], [nothing_early, readings[1]], no, 0.05) == [claim]
    affine = claims(readings[0], readings[1:], np.array([True]), 0.05)
    assert affine == (["absent"] if claim == "absent" else ["undecided"])


def test_without_an_input_nothing_is_computed_or_before():
    here = PairEvidence(errors([GOOD, BAD]), np.array([0.01, 1.0]), layer_rows())
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
    assert main_claim(counts(["unseen", "unseen", "computed"])) == "computed"
    assert main_claim(counts(["unseen"])) == "undecided"
    assert main_claim(counts(["absent", "computed", "absent"])) == "computed"
    assert main_claim(counts(["absent", "computed", "before", "before"])) == "before"
    assert main_claim(counts(["absent", "undecided", "absent"])) == "absent"


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


def test_without_the_rows_nothing_is_shown_to_be_absent():
    bare = [PairEvidence(errors([e]), np.array([0.01])) for e in (GOOD, BAD)]
    no = np.array([False])
    assert claims(bare[0], bare[1:], no, 0.05) == ["undecided"]
    assert claims(bare[1], bare[1:], no, 0.05) == ["undecided"]


@pytest.mark.parametrize(("error", "lacks"), [(0.99 * LIMIT, False), (1.001 * LIMIT, True)])
@pytest.mark.parametrize("turned", [False, True])
def test_the_best_affine_function_is_found_to_the_limit(error, lacks, turned):
    """An AND with errors of one size and random signs, beside others of little variance."""
    rng = np.random.default_rng(0)
    truth = rng.random(400) < 0.3
    noise = error * rng.choice([-1.0, 1.0], 400)
    X = np.column_stack([truth + noise, 1e-3 * rng.normal(size=(400, 12))])
    if turned:
        X = 5 + X @ np.linalg.qr(rng.normal(size=(13, 13)))[0]
    assert not_affine(SiteRows(X, truth[:, None]).components, truth) == lacks


@pytest.mark.parametrize("seed", range(6))
def test_a_true_and_needs_twice_as_many_rows_as_columns(seed):
    """Independent oracle: the linear program of Chebyshev's error."""
    rng = np.random.default_rng(seed)
    for n, shown in ((18, False), (120, True)):
        on = rng.random((n, 2)) < 0.5
        X = np.column_stack([on, rng.normal(size=(n, 12))])
        truth = on.all(axis=1)
        design = np.column_stack([X, np.ones(n)])
        bound = -np.ones((n, 1))
        solved = optimize.linprog(
            np.append(np.zeros(15), 1),
            A_ub=np.block([[design, bound], [-design, bound]]),
            b_ub=np.concatenate([truth, -1.0 * truth]),
            bounds=(None, None),
        )
        assert (solved.fun >= LIMIT) == shown
        assert not_affine(SiteRows(X, on).components, truth) == shown


def copied(n, d, seed, noise=0.05):
    """Rows whose input holds the ANDs of four features among random directions."""
    rng = np.random.default_rng(seed)
    on = rng.random((n, 4)) < 0.5
    ands = np.stack([on[:, i] & on[:, j] for i, j in combinations(range(4), 2)], axis=1)
    core = np.concatenate([on, ands], axis=1) + noise * rng.normal(size=(n, 10))
    X = np.concatenate([core, rng.normal(size=(n, d - 10))], axis=1)
    X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    order = rng.permutation(n)
    rows = Split(order[n // 5 :], order[: n // 5], on, np.arange(n), seed)
    return X, core, on, rows


@pytest.mark.parametrize(
    ("n", "d", "noise"),
    [(500, 400, 0.05), (400, 256, 0.05), (300, 100, 0.08), (600, 100, 0.1), (200, 250, 0.02)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_linear_copies_are_never_computed(n, d, noise, seed):
    X, core, on, rows = copied(n, d, seed, noise)
    pairs = np.array(list(combinations(range(4), 2)))
    here, before = (reading(values, on, rows, pairs) for values in (core, X))
    assert "computed" not in claims(here, [before], affine_in(rows, pairs), 0.05)


@pytest.mark.parametrize(("n", "found"), [(150, 0), (600, 6)])
def test_true_gates_are_computed_if_there_are_rows_enough(n, found):
    rng = np.random.default_rng(0)
    on = rng.random((n, 4)) < 0.5
    X = np.column_stack([on, rng.normal(size=(n, 96))])
    pairs = np.array(list(combinations(range(4), 2)))
    Y = np.maximum(X[:, pairs].sum(axis=2) - 1, 0)
    rows = Split(np.arange(n // 5, n), np.arange(n // 5), on, np.arange(n), 0)
    here, before = (reading(values, on, rows, pairs) for values in (Y, X))
    assert claims(here, [before], affine_in(rows, pairs), 0.05).count("computed") == found
