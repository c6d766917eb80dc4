"""What a model does on lists, against what is worked out by hand or planted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_toolkit.circuits.sorting import activations
from interp_toolkit.circuits.sorting.activations import (
    ListReading,
    Swaps,
    above_scores,
    concave_sum,
    logit_line,
    read,
    separator_line,
    straight_line,
    swap_previous,
)
from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.toys.sorting import sort_argmax, sort_min_greater, sort_mixed


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


@settings(max_examples=60)
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


@settings(max_examples=50)
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


LAYOUT = parse_layout("10 list1-10 11 pad12", d_vocab=13, d_vocab_out=10)


def some_reading(n: int = 300) -> ListReading:
    lists = ListSource("hard", 10, 1, 10).draw(n, torch.Generator().manual_seed(0))
    rows = LAYOUT.rows(lists)
    shape = (n, 1, 10, LAYOUT.n_positions)
    zeros = torch.zeros(n, 10, 10)
    return ListReading(LAYOUT, lists, rows, zeros, zeros, torch.ones(n, 10), torch.zeros(shape))


@settings(max_examples=60)
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


def swaps_of(*args, **options) -> Swaps | None:
    """The shares of all swaps; None where there are too few."""
    answers = swap_previous(*args, **options)
    return None if answers is None else answers.summary()


def lists_read(model, text: str, kind: str, n: int = 300) -> ListReading:
    layout = parse_layout(text, d_vocab=model.cfg.d_vocab, d_vocab_out=model.cfg.d_vocab_out)
    source = ListSource(kind, layout.n_values, layout.shortest, layout.longest)
    return read(model, layout, source.draw(n, torch.Generator().manual_seed(0)))


def test_min_greater_follows_the_token_alone() -> None:
    model = sort_min_greater()
    reading = lists_read(model, "15 list10 16 sorted10", "distinct")
    found = swaps_of(model, reading)
    assert found is not None
    assert found.n > 150
    assert (found.token, found.position) == (1.0, 0.0)


def test_argmax_follows_the_position_alone() -> None:
    model = sort_argmax(bidirectional=False)
    found = swaps_of(model, lists_read(model, "10 list10 11 sorted10", "hard"))
    assert found is not None
    assert (found.token, found.position) == (0.0, 1.0)


def test_of_two_heads_the_one_that_is_asked_for_is_patched() -> None:
    """The second does it all, and what the first holds is not what the second does."""
    model = sort_min_greater(shares=(0.0, 1.0))
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] = 0.0
    reading = lists_read(model, "15 list10 16 sorted10", "distinct")
    found = swaps_of(model, reading, head=1)
    assert found is not None
    assert found.token > 0.99


def test_in_place_there_is_no_previous_token() -> None:
    model = sort_argmax()
    assert swaps_of(model, lists_read(model, "10 list1-10 11 pad12", "hard")) is None


def test_a_head_that_does_nothing_follows_the_position() -> None:
    """Its output from the changed row changes nothing, so the answer stays the position's."""
    model = sort_min_greater(shares=(1.0, 0.0))
    reading = lists_read(model, "15 list10 16 sorted10", "distinct")
    first, second = (swaps_of(model, reading, head=h) for h in (0, 1))
    assert first is not None
    assert second is not None
    assert first.token > 0.99
    assert (second.token, second.position) == (0.0, 1.0)


def test_the_mixed_model_follows_both() -> None:
    model = sort_mixed()
    found = swaps_of(model, lists_read(model, "10 list10 11 sorted10", "hard", 1_000))
    assert found is not None
    assert found.token > 0.1
    assert found.position > 0.1


def test_algorithm_1_is_the_refined_one_on_repeats() -> None:
    """Counted by the source's pseudocode."""
    source = ListSource("hard", 10, 10, 10)
    lists = source.draw(400, torch.Generator().manual_seed(3))
    layout = parse_layout("10 list10 11 sorted10", d_vocab=12, d_vocab_out=10)
    rows = layout.rows(lists)
    n = len(lists)
    zeros, pattern = torch.zeros(n, 10, 10), torch.zeros(n, 1, 10, 22)
    reading = ListReading(layout, lists, rows, zeros, zeros, torch.ones(n, 10), pattern)
    item = torch.randint(1, 10, (n,), generator=torch.Generator().manual_seed(4))
    previous = rows.answer[torch.arange(n), torch.randint(0, 9, (n,))]
    found = activations._by_token(reading, torch.arange(n), previous, item)
    for values, t, k, got in zip(
        lists.values.tolist(), previous.tolist(), item.tolist(), found.tolist(), strict=True
    ):
        above = [v for v in values if v > t]
        wanted = (min(above) if above else 10) if len(above) >= len(values) - k else t
        assert got == wanted


def test_too_few_swaps_tell_nothing() -> None:
    model = sort_min_greater()
    assert swaps_of(model, lists_read(model, "15 list10 16 sorted10", "distinct", 10)) is None


def test_lists_of_two_cannot_be_swapped() -> None:
    layout = parse_layout("4 list2 5 sorted2", d_vocab=6, d_vocab_out=4)
    lists = Lists.from_rows([[3, 1]] * 50, 4)
    reading = ListReading(
        layout,
        lists,
        layout.rows(lists),
        torch.zeros(50, 2, 4),
        torch.zeros(50, 2, 4),
        torch.ones(50, 2),
        torch.zeros(50, 1, 2, 6),
    )
    assert swaps_of(None, reading) is None
