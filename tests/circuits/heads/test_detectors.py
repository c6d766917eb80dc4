"""Relations of detectors against their definitions, spelt out position by position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.circuits.heads.detectors import (
    DUPLICATE_TOKEN,
    FIRST_TOKEN,
    INDUCTION,
    NEXT_TOKEN,
    OURS,
    PREVIOUS_TOKEN,
    Detector,
    as_detector,
    as_detectors,
    hop,
)
from interp_toolkit.errors import InputError
from interp_toolkit.registry import names

rows = st.lists(st.integers(0, 4), min_size=2, max_size=14).map(np.array)


def brute(row, holds):
    n = len(row)
    return np.array([[bool(holds(q, k)) for k in range(n)] for q in range(n)])


@given(row=rows)
def test_relations_are_their_definitions(row):
    same = brute(row, lambda q, k: k != q and row[k] == row[q])
    after = brute(row, lambda q, k: k not in (0, q) and k - 1 != q and row[k - 1] == row[q])
    assert (DUPLICATE_TOKEN.relation(row, row) == same).all()
    assert (INDUCTION.relation(row, row) == after).all()
    assert (PREVIOUS_TOKEN.relation(row, row) == brute(row, lambda q, k: k == q - 1)).all()
    assert (NEXT_TOKEN.relation(row, row) == brute(row, lambda q, k: k == q + 1)).all()
    assert (FIRST_TOKEN.relation(row, row) == brute(row, lambda q, k: k == 0 < q)).all()


@given(row=rows, shift=st.integers(1, 4))
def test_a_relation_asked_about_another_token_looks_for_that_one(row, shift):
    sought = (row + shift) % 5
    found = INDUCTION.relation(row, sought)
    expected = brute(row, lambda q, k: k not in (0, q) and k - 1 != q and row[k - 1] == sought[q])
    assert (found == expected).all()


def hops(row, start, k):
    """Where k hops lead: to after the last earlier occurrence, k times; None: nowhere."""
    at = start
    for _ in range(k):
        earlier = [p for p in range(at) if row[p] == row[at]]
        if not earlier:
            return None
        at = earlier[-1] + 1
    return at


@given(row=rows, k=st.integers(2, 4))
def test_hops_are_taken_one_by_one(row, k):
    found = hop(k)(row, row)
    nearer = INDUCTION.relation(row, row) | DUPLICATE_TOKEN.relation(row, row)
    for query in range(len(row)):
        end = hops(row, query, k)
        expected = np.zeros(len(row), bool)
        if end is not None and end < query:
            expected[end] = not nearer[query, end]
        assert (found[query] == expected).all()


def test_two_hops_of_the_source_document():
    row = np.array([ord(c) for c in "adcada"])
    found = hop(2)(row, row)
    assert row[found[5]].tolist() == [ord("c")]
    assert np.flatnonzero(found[5]).tolist() == [2]


def test_ours_are_registered():
    assert set(OURS) <= set(names("detectors"))
    for name in OURS:
        assert as_detector(name).name == name


def test_masks_and_functions_are_detectors():
    mask = np.eye(9, k=-2, dtype=bool)
    assert (as_detector(mask).relation(np.arange(9), np.arange(9)) == mask).all()

    def every_third(tokens):
        return tokens[:, None] % 3 == tokens[None, :] % 3

    found = as_detector(every_third)
    assert found.name == "every_third"
    assert found.relation(np.arange(6), np.arange(6)).sum() == 12
    own = Detector("mine", "", every_third)
    assert as_detector(own) is own


@pytest.mark.parametrize(
    "given",
    [
        ["inductoin"],
        [np.ones((3, 4), bool)],
        [np.ones((3, 3))],
        ["induction", "induction"],
        [],
    ],
)
def test_what_is_no_detector(given, texts):
    with pytest.raises(InputError, check=texts):
        as_detectors(given)


def test_one_hop_is_induction():
    with pytest.raises(InputError, match="at least 2 hops"):
        hop(1)
    assert as_detector("k-hop", hops=3).summary.startswith("attends 3")
