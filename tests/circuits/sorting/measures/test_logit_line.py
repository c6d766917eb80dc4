"""The regression of logits on f and x: planted coefficients come back, nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.circuits.sorting.measures.logit_line import concave_sum, logit_line
from interp_toolkit.circuits.sorting.measures.reading import ListReading, read
from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.toys.sorting.sorters import sort_argmax

LAYOUT = parse_layout("10 list1-10 11 pad12", d_vocab=13, d_vocab_out=10)


def some_reading(n: int = 300) -> ListReading:
    lists = ListSource("hard", 10, 1, 10).draw(n, torch.Generator().manual_seed(0))
    rows = LAYOUT.rows(lists)
    shape = (n, 1, 10, LAYOUT.n_positions)
    zeros = torch.zeros(n, 10, 10)
    return ListReading(LAYOUT, lists, rows, zeros, zeros, torch.ones(n, 10), torch.zeros(shape))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_f_is_the_sum_and_its_maximum_the_sorted_item(items: list[int]) -> None:
    f = concave_sum(Lists.from_rows([items], 6))[0]
    by_hand = [sum(min(0, a - x) for a in items) for x in range(6)]
    assert f.tolist() == by_hand
    for k, wanted in enumerate(sorted(items)):
        scores = [by_hand[x] + (k + 0.5) * x for x in range(6)]
        assert scores.index(max(scores)) == wanted


def test_planted_coefficients_come_back() -> None:
    reading = some_reading()
    f, x = concave_sum(reading.lists), torch.arange(10, dtype=torch.float64)
    beta = 0.3 + torch.arange(10, dtype=torch.float64)
    gamma = beta * (x * 1.2 + 0.7)
    logits = beta[:, None] * f[:, None] + gamma[:, None] * x + 4.0
    line = logit_line(reading, logits)
    np.testing.assert_allclose(line.ratio, np.arange(10) * 1.2 + 0.7, rtol=1e-9)
    np.testing.assert_allclose(line.r2, 1.0)
    assert (line.slope, line.intercept) == pytest.approx((1.2, 0.7))
    assert line.line_r2 == pytest.approx(1.0)


def test_the_regression_is_least_squares() -> None:
    reading = some_reading(50)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 10, 10, generator=generator, dtype=torch.float64)
    logits = logits + 0.1 * concave_sum(reading.lists)[:, None]
    line = logit_line(reading, logits)
    f = concave_sum(reading.lists).numpy()
    for item in (0, 4):
        rows = reading.rows.present[:, item].numpy()
        y = logits[rows, item].numpy()
        y = y - y.mean(1, keepdims=True)
        a = (f - f.mean(1, keepdims=True))[rows].ravel()
        b = np.tile(np.arange(10) - 4.5, rows.sum())
        (beta, gamma), left, *_ = np.linalg.lstsq(np.stack([a, b], 1), y.ravel(), rcond=None)
        assert beta > 0
        assert line.ratio[item] == pytest.approx(gamma / beta)
        assert line.r2[item] == pytest.approx(1 - left[0] / (y**2).sum())


@pytest.mark.parametrize("bidirectional", [True, False])
def test_algorithm_2_by_hand_is_the_theory(bidirectional: bool) -> None:
    text = str(LAYOUT) if bidirectional else "10 list10 11 sorted10"
    layout = parse_layout(text, d_vocab=13, d_vocab_out=10)
    lists = ListSource("hard", 10, layout.shortest, 10).draw(400, torch.Generator().manual_seed(2))
    reading = read(sort_argmax(bidirectional=bidirectional), layout, lists)
    line = logit_line(reading, reading.logits)
    assert line.fit is not None
    assert line.fit > 0.95  # lists of other lengths have other scales
    assert line.slope == pytest.approx(1.0, abs=0.05)
    assert line.line_r2 == pytest.approx(1.0, abs=1e-3)


def test_a_perfect_sorter_of_another_form_lies_near_the_line_but_does_not_fit() -> None:
    """Logits 1 at the sorted item, 0 elsewhere: why the line alone is no evidence."""
    reading = some_reading(2_000)
    logits = torch.nn.functional.one_hot(reading.lists.sorted().clamp(max=9), 10).double()
    line = logit_line(reading, logits)
    assert line.line_r2 is not None
    assert line.line_r2 > 0.8
    assert line.fit is not None
    assert line.fit < 0.6


def test_a_convex_sum_is_not_the_form() -> None:
    """With β < 0 the right item has the smallest logit: what is left of the form is γ x."""
    reading = some_reading()
    f, x = concave_sum(reading.lists), torch.arange(10, dtype=torch.float64)
    gamma = torch.arange(10, dtype=torch.float64) + 0.5
    logits = -(f[:, None] + gamma[:, None] * x)
    line = logit_line(reading, logits)
    assert np.isnan(line.ratio).all()
    for item in (0, 4):
        y = logits[reading.rows.present[:, item], item].numpy()
        y = y - y.mean(1, keepdims=True)
        slope = np.polyfit(np.tile(np.arange(10), len(y)), y.ravel(), 1)[0]
        left = ((y - slope * (np.arange(10) - 4.5)) ** 2).sum()
        assert line.r2[item] == pytest.approx(1 - left / (y**2).sum())


def test_constant_logits_tell_nothing() -> None:
    line = logit_line(some_reading(), torch.ones(300, 10, 10, dtype=torch.float64))
    assert line.fit is None
    assert line.slope is None
    assert np.isnan(line.r2).all()
