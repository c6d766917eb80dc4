"""What a sorting model can attend to, with its places in rows of every length."""

from __future__ import annotations

from dataclasses import dataclass

from interp_toolkit.data.lists.layout import ListLayout


@dataclass(frozen=True)
class Source:
    """A value of the list, a separator or the padding.

    Attributes:
        name: on axes; separators of one id are told apart by their order, as "[10] 2nd".
        token: its id.
        places: the positions where it can stand, for each length of the list from the shortest;
            none for padding that a length does not need.
    """

    name: str
    token: int
    places: tuple[tuple[int, ...], ...]


def sources(layout: ListLayout) -> tuple[Source, ...]:
    """The values at the list's positions, then the separators in their order, then the padding."""
    lengths = range(layout.shortest, layout.longest + 1)
    start = len(layout.before)
    listed = tuple(tuple(range(start, start + length)) for length in lengths)
    values = [Source(layout.token_name(token), token, listed) for token in layout.values]
    separators = [*layout.before, *layout.between, *layout.after]
    by_length = [_separator_places(layout, length) for length in lengths]
    others = [
        Source(_name(layout, separators, i), token, tuple((places[i],) for places in by_length))
        for i, token in enumerate(separators)
    ]
    padding = tuple(tuple(range(_row_length(layout, n), layout.n_positions)) for n in lengths)
    if layout.pad is not None and any(padding):
        others.append(Source("padding", layout.pad, padding))
    return (*values, *others)


def _separator_places(layout: ListLayout, length: int) -> list[int]:
    """Where each separator stands in a row whose list has this length."""
    between = len(layout.before) + length
    after = _row_length(layout, length) - len(layout.after)
    return [
        *range(len(layout.before)),
        *range(between, between + len(layout.between)),
        *range(after, after + len(layout.after)),
    ]


def _row_length(layout: ListLayout, length: int) -> int:
    n_lists = 2 if layout.autoregressive else 1
    separators = len(layout.before) + len(layout.between) + len(layout.after)
    return n_lists * length + separators


def _name(layout: ListLayout, separators: list[int], number: int) -> str:
    """A separator's name, with its order where another has the same id."""
    token = separators[number]
    name = layout.token_name(token)
    if separators.count(token) == 1:
        return name
    order = separators[: number + 1].count(token)
    return f"{name} {order}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(order, 'th') }"
