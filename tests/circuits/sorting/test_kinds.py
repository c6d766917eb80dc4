"""Which lists a model sorts, found out: of sorters whose kind is known."""

from __future__ import annotations

import pytest

from interp_toolkit.circuits.sorting.analysis import sorting_fingerprint
from interp_toolkit.circuits.sorting.evaluation import (
    ListAccuracy,
    accuracies,
    distinct_only,
    with_repeats,
)
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.stats import clopper_pearson
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater

FEW_REPEATS = "30 list3 31 sorted3"  # one in ten uniform lists of 3 of 30 values has one


def accuracy(right: int, n: int) -> ListAccuracy:
    return ListAccuracy(n, right / n, *clopper_pearson(right, n), right / n, 0.0)


def test_a_sorter_of_distinct_lists_is_told_where_few_lists_have_repeats(texts) -> None:
    """All that have no repeats are right; of the others, those that repeat their largest value."""
    found = sorting_fingerprint(sort_min_greater(30, 3), FEW_REPEATS, lists=300, nulls=0)
    assert found.distinct
    assert found.algorithm == "min_greater_than_previous"
    assert found.accuracy["random"].lists_right == 1
    others = found.accuracy["repeats"]
    assert others.lists_right == pytest.approx(0.5, abs=0.1)
    assert 300 < others.n < 500
    texts(found.findings[-1])


def test_a_sorter_of_all_lists_is_measured_on_them() -> None:
    layout = parse_layout("6 list4 7 sorted4", d_vocab=8, d_vocab_out=6)
    distinct, found = accuracies(sort_argmax(6, 4, layout=str(layout)), layout, None)
    assert not distinct
    assert list(found) == ["random", "hard", "two_values", "distinct"]


def test_what_is_told_is_not_asked() -> None:
    layout = parse_layout(FEW_REPEATS, d_vocab=32, d_vocab_out=30)
    distinct, found = accuracies(sort_min_greater(30, 3), layout, False)
    assert not distinct
    assert list(found) == ["random", "hard", "two_values"]
    assert found["random"].lists_right == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("apart", "repeating", "expected"),
    [
        (accuracy(4000, 4000), accuracy(3600, 4000), True),
        (accuracy(3998, 4000), accuracy(400, 584), True),
        (accuracy(4000, 4000), accuracy(3880, 4000), False),  # the source's first experiment
        (accuracy(4000, 4000), accuracy(9, 10), False),  # too few to tell
        (accuracy(3600, 4000), accuracy(4000, 4000), False),
        (accuracy(0, 4000), accuracy(0, 4000), False),
    ],
)
def test_the_rule(apart: ListAccuracy, repeating: ListAccuracy, expected: bool) -> None:
    assert distinct_only(apart, repeating) is expected


def test_what_fills_short_lists_up_is_no_repeat() -> None:
    lists = Lists.from_rows([[1, 0], [2], [3, 0, 1, 2], [3, 0, 3]], 4)
    assert with_repeats(lists).values.tolist() == [[3, 0, 3, 4]]
