"""Swapping the previous token: hand-set models follow what they were built to follow."""

from __future__ import annotations

import torch

from interp_toolkit.circuits.sorting.measures import swap
from interp_toolkit.circuits.sorting.measures.reading import ListReading, read
from interp_toolkit.circuits.sorting.measures.swap import Swaps, swap_previous
from interp_toolkit.data.lists.draws import Lists, ListSource
from interp_toolkit.data.lists.layout import parse_layout
from interp_toolkit.toys.sorting.sorters import sort_argmax, sort_min_greater, sort_mixed


def swaps_of(*args, **options) -> Swaps | None:
    """The shares of all swaps; None where there are too few."""
    answers = swap_previous(*args, **options)
    return None if answers is None else answers.summary()


def reading_of(model, text: str, kind: str, n: int = 300) -> ListReading:
    layout = parse_layout(text, d_vocab=model.cfg.d_vocab, d_vocab_out=model.cfg.d_vocab_out)
    source = ListSource(kind, layout.n_values, layout.shortest, layout.longest)
    return read(model, layout, source.draw(n, torch.Generator().manual_seed(0)))


def test_min_greater_follows_the_token_alone() -> None:
    model = sort_min_greater()
    reading = reading_of(model, "15 list10 16 sorted10", "distinct")
    found = swaps_of(model, reading)
    assert found is not None
    assert found.n > 150
    assert (found.token, found.position) == (1.0, 0.0)


def test_argmax_follows_the_position_alone() -> None:
    model = sort_argmax(bidirectional=False)
    found = swaps_of(model, reading_of(model, "10 list10 11 sorted10", "hard"))
    assert found is not None
    assert (found.token, found.position) == (0.0, 1.0)


def test_of_two_heads_the_one_that_is_asked_for_is_patched() -> None:
    """The second does it all, and what the first holds is not what the second does."""
    model = sort_min_greater(shares=(0.0, 1.0))
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] = 0.0
    reading = reading_of(model, "15 list10 16 sorted10", "distinct")
    found = swaps_of(model, reading, head=1)
    assert found is not None
    assert found.token > 0.99


def test_in_place_there_is_no_previous_token() -> None:
    model = sort_argmax()
    assert swaps_of(model, reading_of(model, "10 list1-10 11 pad12", "hard")) is None


def test_a_head_that_does_nothing_follows_the_position() -> None:
    """Its output from the changed row changes nothing, so the answer stays the position's."""
    model = sort_min_greater(shares=(1.0, 0.0))
    reading = reading_of(model, "15 list10 16 sorted10", "distinct")
    first, second = (swaps_of(model, reading, head=h) for h in (0, 1))
    assert first is not None
    assert second is not None
    assert first.token > 0.99
    assert (second.token, second.position) == (0.0, 1.0)


def test_the_mixed_model_follows_both() -> None:
    model = sort_mixed()
    found = swaps_of(model, reading_of(model, "10 list10 11 sorted10", "hard", 1_000))
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
    found = swap._by_token(reading, torch.arange(n), previous, item)
    for values, t, k, got in zip(
        lists.values.tolist(), previous.tolist(), item.tolist(), found.tolist(), strict=True
    ):
        above = [v for v in values if v > t]
        wanted = (min(above) if above else 10) if len(above) >= len(values) - k else t
        assert got == wanted


def test_too_few_swaps_tell_nothing() -> None:
    model = sort_min_greater()
    assert swaps_of(model, reading_of(model, "15 list10 16 sorted10", "distinct", 10)) is None


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
