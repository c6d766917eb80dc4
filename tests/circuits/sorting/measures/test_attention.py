"""Scores of attention against plain Python, item by item, and hand-set heads with known ratios."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.circuits.sorting.measures.attention import (
    above_scores,
    separator_line,
    straight_line,
)
from interp_toolkit.circuits.sorting.measures.reading import ListReading, read
from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.toys.sorting.sorters import sort_argmax, sort_min_greater


def reading_of(
    rows: list[list[int]], text: str, pattern: torch.Tensor | None = None
) -> ListReading:
    layout = parse_layout(text, d_vocab=9, d_vocab_out=7)
    lists = Lists.from_rows(rows, layout.n_values)
    made = layout.rows(lists)
    n, items = made.read.shape
    if pattern is None:
        generator = torch.Generator().manual_seed(0)
        raw = torch.rand(n, 1, items, layout.n_positions, generator=generator, dtype=torch.float64)
        pattern = raw / raw.sum(-1, keepdim=True)
    zeros = torch.zeros(n, items, layout.n_values)
    return ListReading(layout, lists, made, zeros, zeros, torch.ones(n, items), pattern)


def above_by_hand(rows: list[list[int]], attention: np.ndarray) -> dict[str, float]:
    """The five scores, counted one query at a time."""
    share, uniform, won, pairs, first, chance = [], [], 0.0, 0, [], []
    for row, paid in zip(rows, attention, strict=True):
        ordered = sorted(row)
        for item in range(1, len(row)):
            previous = ordered[item - 1]
            above = [i for i, v in enumerate(row) if v > previous]
            below = [i for i, v in enumerate(row) if v <= previous]
            if not above:
                continue
            share.append(paid[item, above].sum() / paid[item, : len(row)].sum())
            uniform.append(len(above) / len(row))
            for a in above:
                for b in below:
                    pairs += 1
                    won += 1.0 if paid[item, a] > paid[item, b] else 0.0
                    won += 0.5 if paid[item, a] == paid[item, b] else 0.0
            kinds = {row[a] for a in above}
            if len(kinds) > 1:
                best = max(above, key=lambda a: paid[item, a])
                first.append(row[best] == min(kinds))
                chance.append(1 / len(kinds))
    return {
        "above": float(np.mean(share)),
        "above_uniform": float(np.mean(uniform)),
        "filter_score": won / pairs,
        "smallest_first": float(np.mean(first)) if first else 1.0,
        "smallest_chance": float(np.mean(chance)) if chance else 1.0,
    }


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=5), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
def test_above_scores_are_those_counted_by_hand(rows: list[list[int]], seed: int) -> None:
    rows[0] = [0, 3, 1]  # one query with something above and something below, at least
    reading = reading_of(rows, "7 list2-5 8 sorted2-5 pad6")
    generator = torch.Generator().manual_seed(seed)
    items = reading.rows.read.shape[1]
    attention = torch.rand(len(rows), items, 5, generator=generator, dtype=torch.float64)
    attention = (attention * 4).round() / 4 + 0.01  # ties
    attention += torch.arange(5) * 1e-9 * (seed % 2)  # or none
    found = above_scores(reading, attention)
    wanted = above_by_hand(rows, attention.numpy())
    assert found is not None
    for name in ("above", "above_uniform", "filter_score", "smallest_chance"):
        assert getattr(found, name) == pytest.approx(wanted[name]), name
    if seed % 2:
        assert found.smallest_first == pytest.approx(wanted["smallest_first"])


def test_uniform_attention_has_no_lift() -> None:
    reading = reading_of([[3, 0, 1, 2], [5, 5, 1, 0]], "7 list4 8 sorted4")
    uniform = torch.full((2, 4, 4), 0.1, dtype=torch.float64)
    found = above_scores(reading, uniform)
    assert found is not None
    assert found.above_lift == pytest.approx(0.0)
    assert found.filter_score == 0.5


def test_outputs_in_place_follow_nothing() -> None:
    reading = reading_of([[3, 0, 1, 2]], "7 list4 8")
    assert above_scores(reading, reading.at_list[:, 0]) is None


def test_a_filtering_head_lifts_all_the_way() -> None:
    model = sort_min_greater()
    layout = parse_layout("15 list10 16 sorted10", d_vocab=17, d_vocab_out=15)
    lists = ListSource("distinct", 15, 10, 10).draw(300, torch.Generator().manual_seed(0))
    reading = read(model, layout, lists)
    found = above_scores(reading, reading.at_list[:, 0])
    assert found is not None
    assert found.above_lift > 0.999
    assert found.filter_score == 1.0
    assert found.smallest_lift == 1.0


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_separators_line_is_k_and_a_half(bidirectional: bool) -> None:
    text = "10 list1-10 11 pad12" if bidirectional else "10 list10 11 sorted10"
    layout = parse_layout(text, d_vocab=13, d_vocab_out=10)
    lists = ListSource("hard", 10, layout.shortest, 10).draw(400, torch.Generator().manual_seed(0))
    reading = read(sort_argmax(bidirectional=bidirectional), layout, lists)
    line = separator_line(reading, reading.pattern[:, 0])
    assert line is not None
    np.testing.assert_allclose(line.ratio, np.arange(10) + 0.5, rtol=1e-9)
    assert line.slope == pytest.approx(1.0)
    assert line.r2 == pytest.approx(1.0)
    assert line.rising == 1.0


def test_without_a_separator_there_is_no_line() -> None:
    reading = reading_of([[3, 0, 1, 2]], "list4 8 sorted4")
    assert separator_line(reading, reading.pattern[:, 0]) is None


def test_a_ratio_is_geometric_over_the_values_but_the_largest() -> None:
    reading = reading_of([[0, 6, 1]], "7 list3 8")
    pattern = torch.tensor([[[0.4, 0.1, 0.2, 0.2, 0.1]] * 3], dtype=torch.float64)
    line = separator_line(reading, pattern)
    assert line is not None
    np.testing.assert_allclose(line.ratio, 0.4 / math.sqrt(0.1 * 0.2))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=3, max_size=12))
def test_a_line_is_numpys(values: list[float]) -> None:
    y = np.array(values)
    x = np.arange(len(y))
    fit = straight_line(x, y)
    assert fit is not None
    if y.std() > 1e-6:
        assert fit[2] == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, abs=1e-8)
    assert straight_line(x[:2], y[:2]) is None


def test_missing_points_are_left_out_and_a_flat_line_explains_nothing() -> None:
    fit = straight_line(np.arange(5), np.array([1.0, np.nan, 5.0, 7.0, np.nan]))
    assert fit == pytest.approx((2.0, 1.0, 1.0))
    flat = straight_line(np.arange(4), np.full(4, 3.0))
    assert flat is not None
    assert flat[2] == 0.0
