"""The scoring against figures worked out by hand."""

import pytest

from interp_studies.challenge.result import weak_spots
from interp_studies.challenge.score import (
    Scored,
    reliability,
    score,
    scores_by,
)


def scored(truths, stated, **changes):
    settings = {
        "tool": "t",
        "family": "f",
        "variant": "v",
        "strength": None,
        "seed": 0,
        "kind": "edge",
        "about": "",
        "failed": None,
        "seconds": 2.0,
        "rows": 5,
    }
    return Scored(truths=tuple(truths), stated=tuple(stated), **(settings | changes))


def test_a_score_by_hand():
    """Claims: 0.9 (true), 0.6 (false), 0.8 (true); 1/2 is none. One true item is abstained from."""
    one = score(
        [
            scored([True, False, True, True], [0.9, 0.6, None, 0.5]),
            scored([True, False], [0.8, 0.1], seed=1, failed=None),
        ]
    )
    assert (one.items, one.true, one.answered, one.claimed, one.right) == (6, 4, 5, 3, 2)
    assert one.recall == pytest.approx(2 / 4)
    assert one.precision == pytest.approx(2 / 3)
    # (0.1² + 0.6² + 0.5² + 0.2² + 0.1²) / 5, and 3/5 of those answered are true
    assert one.brier == pytest.approx((0.01 + 0.36 + 0.25 + 0.04 + 0.01) / 5)
    assert one.reference == pytest.approx(3 / 5 * 2 / 5)
    # 0.9, 0.5, 0.8 are true, 0.6 and 0.1 false: of six pairs one is the wrong way round
    assert one.auc == pytest.approx(5 / 6)
    assert one.abstained == pytest.approx(1 / 6)
    assert (one.models, one.seconds, one.rows, one.failures) == (2, 4.0, 10, 0)
    # Clopper and Pearson, 1934: 2 of 4 at 95 % is [0.0676, 0.9324]; 2 of 3 is [0.0943, 0.9916]
    assert one.recall_interval == pytest.approx((0.0676, 0.9324), abs=1e-4)
    assert one.precision_interval == pytest.approx((0.0943, 0.9916), abs=1e-4)


def test_nothing_said_is_no_precision_and_recall_of_zero():
    one = score([scored([True, False], [None, None], failed="ValueError: no")])
    assert one.recall == 0
    assert (one.precision, one.auc, one.brier, one.reference) == (None, None, None, None)
    assert (one.abstained, one.failures) == (1, 1)
    nothing_true = score([scored([False], [0.2])])
    assert nothing_true.recall is None
    assert nothing_true.recall_interval is None


def test_reliability_bins_by_hand():
    [low, high] = reliability([scored([True, False, False, True], [0.05, 0.02, 0.98, 1.0])])
    assert (low.low, low.high, low.items) == (0.0, 0.1, 2)
    assert (low.stated, low.true) == (pytest.approx(0.035), 0.5)
    assert (high.low, high.high, high.stated) == (0.9, 1.0, pytest.approx(0.99))


def test_groups_keep_tools_side_by_side():
    answers = [
        scored([True], [p], tool=tool, kind=kind)
        for kind in ("pair", "edge")
        for tool, p in (("b", 0.9), ("a", 0.1))
    ]
    found = scores_by(answers, lambda a: (a.kind,))
    assert [(one.group[0], one.tool, one.right) for one in found] == [
        ("edge", "b", 1),
        ("edge", "a", 0),
        ("pair", "b", 1),
        ("pair", "a", 0),
    ]


def test_weak_spots_are_what_is_surely_low_worst_first():
    bad = scored([True] * 20 + [False] * 20, [0.1] * 20 + [0.9] * 20, variant="bad; drawn")
    mild = scored([True] * 20, [0.9] * 12 + [0.1] * 8, variant="mild")
    fine = scored([True] * 20, [0.9] * 19 + [0.1], variant="fine")
    few = scored([True] * 4, [0.1] * 4, variant="few")
    silent = scored([True] * 20, [None] * 20, variant="silent")
    found = weak_spots([fine, mild, few, silent, bad])
    assert [(s.variant, s.what, s.right, s.of) for s in found] == [
        ("bad", "recall", 0, 20),
        ("bad", "precision", 0, 20),
        ("mild", "recall", 12, 20),
    ]
