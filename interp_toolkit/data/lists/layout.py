"""Layouts of sorting tasks: positions of list and answers in a prompt, and prompts for lists.

A layout is written as words, in the order of the prompt:
- a number is the token id of a separator, anywhere, any number of times;
- `list10` is a list of 10 values, `list1-10` one of 1 to 10;
- `sorted10` (with the list's own length or lengths) is the sorted list, which the model predicts:
  its item k is read one position before its own;
- without it the output is read at the list's own positions, item k at the list's k-th;
- `pad12`, last, fills shorter prompts with the id 12 to the length of the longest.

The values are the ids below d_vocab_out that are neither separator nor padding, in increasing
order. "10 list10 11 sorted10" is thus BOS a0..a9 MOS s0..s9, of the values 0 to 9. The words are
first checked among themselves (`read_words`), then against the vocabulary and the context
(`parse_layout`).

`standard_sets` draws the lists on which Qi & Zhong (2023) tested sorting models.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp_toolkit.data.lists.draws import (
    ListKind,
    Lists,
    ListSource,
    all_sets,
    all_two_valued,
    joined,
)
from interp_toolkit.errors import InputError, check_texts, takes

_WORD = re.compile(r"(list|sorted|pad)?([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
MAX_LENGTH = 4096  # of a list; a longer one is taken for a typing error


class LayoutParts(NamedTuple):
    """The parsed words of a layout; the fields are those of `ListLayout`."""

    shortest: int
    longest: int
    autoregressive: bool
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    pad: int | None


class _Part(NamedTuple):
    word: str
    kind: str  # separator, list, sorted or pad
    low: int  # the id, or the shortest length
    high: int


def read_words(words: Sequence[str]) -> LayoutParts:
    """Parse the words of a layout. Raises InputError if they are not a valid layout."""
    parts = [_part(word) for word in words]
    pad = _pad(parts)
    listed = _only(parts, "list")
    if listed is None:
        raise InputError(f"layout: there is no list in {' '.join(words)!r}; add one, as list10")
    ordered = _only(parts, "sorted")
    first = second = parts.index(listed)
    if ordered is not None:
        second = parts.index(ordered)
        if second < first:
            raise InputError(f"layout: {ordered.word!r} must come after {listed.word!r}")
        if ordered[2:] != listed[2:]:
            raise InputError(f"layout: {listed.word!r} and {ordered.word!r} differ in length")
    if listed.low < listed.high and pad is None:
        raise InputError("layout: lists of several lengths need padding; end with its id, as pad12")
    return LayoutParts(
        shortest=listed.low,
        longest=listed.high,
        autoregressive=ordered is not None,
        before=_separators(parts[:first]),
        between=_separators(parts[first:second]),
        after=_separators(parts[second:]),
        pad=pad,
    )


def _part(word: str) -> _Part:
    match = _WORD.fullmatch(word)
    if match is None or (match[3] and match[1] not in ("list", "sorted")):
        raise InputError(
            f"layout: {word!r} is not a layout word; write token ids, list10 (or list1-10), "
            "sorted10, pad12, as in '10 list10 11 sorted10'"
        )
    kind = match[1] or "separator"
    low, high = int(match[2]), int(match[3] or match[2])
    if kind in ("list", "sorted") and not 1 <= low <= high <= MAX_LENGTH:
        raise InputError(f"layout: {word!r}: lengths must be 1 to {MAX_LENGTH}, the shorter first")
    return _Part(word, kind, low, high)


def _pad(parts: Sequence[_Part]) -> int | None:
    """The padding's id; None without padding."""
    for part in parts[:-1]:
        if part.kind == "pad":
            raise InputError(f"layout: {part.word!r} must be the last word, and the only padding")
    if not parts or parts[-1].kind != "pad":
        return None
    pad = parts[-1].low
    if pad in _separators(parts):
        raise InputError(f"layout: {pad} cannot be both a separator and the padding")
    return pad


def _only(parts: Sequence[_Part], kind: str) -> _Part | None:
    matching = [part for part in parts if part.kind == kind]
    if len(matching) > 1:
        raise InputError(f"layout: the word {kind}N occurs {len(matching)} times; write it once")
    return matching[0] if matching else None


def _separators(parts: Sequence[_Part]) -> tuple[int, ...]:
    return tuple(part.low for part in parts if part.kind == "separator")


class ListRows(NamedTuple):
    """Prompts, and the positions and values of their answers.

    Attributes:
        tokens: the rows, including sorted lists.
        read: the position at which item k of the sorted list is read.
        answer: item k of the sorted list, as a value's index; 0 if there is no item k.
        present: whether the list has an item k.
    """

    tokens: Int[Tensor, "row pos"]
    read: Int[Tensor, "row item"]
    answer: Int[Tensor, "row item"]
    present: Bool[Tensor, "row item"]


class Cells(NamedTuple):
    """Possible pairs of a token and a position, by position and then token."""

    tokens: Int[Tensor, " cell"]
    positions: Int[Tensor, " cell"]


class _Tables(NamedTuple):
    """By length (from the shortest): the contents of each position, and the read positions."""

    content: Tensor  # [length, pos] indices into a pool: the list, the sorted list, then constants
    constants: Tensor  # [constant] token ids
    values: Tensor  # [value + 1] token ids; the last is never used
    read: Tensor  # [length, item]


@dataclass(frozen=True)
class ListLayout:
    """A parsed layout; see the module and `parse_layout`.

    Attributes:
        words: the layout as written.
        values: the token id of each value, increasing; a value's index is also its rank.
        shortest, longest: lengths of the list, ends included.
        autoregressive: whether the sorted list follows in the row.
        before: separators before the list.
        between: separators between the list and the sorted list; none if there is no sorted list.
        after: separators after both.
        pad: the padding's id, or None.
    """

    words: tuple[str, ...]
    values: tuple[int, ...]
    shortest: int
    longest: int
    autoregressive: bool
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    pad: int | None

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def n_values(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def n_positions(self) -> int:
        """Tokens of the longest row, to which other rows are padded."""
        return len(self._row(self.longest))

    def describe(self) -> str:
        """The layout in a line, for provenance."""
        ids = self.values
        consecutive = ids[-1] - ids[0] == len(ids) - 1
        named = f"ids {ids[0]} to {ids[-1]}" if consecutive else f"ids {', '.join(map(str, ids))}"
        where = "before each sorted item" if self.autoregressive else "at the list's positions"
        return f"{self}: {self.n_values} values ({named}), read {where}"

    def token_name(self, token: int) -> str:
        """A token's name on axes: "3" for a value, "[10]" for any other token."""
        return str(token) if token in self.values else f"[{token}]"

    def value_names(self) -> tuple[str, ...]:
        """The names of the values, in order: their token ids."""
        return tuple(map(str, self.values))

    def read_positions(self, length: int) -> tuple[int, ...]:
        """The positions at which the items of a sorted list of this length are read."""
        start = len(self.before)
        if self.autoregressive:
            start += length + len(self.between) - 1
        return tuple(range(start, start + length))

    def rows(self, lists: Lists) -> ListRows:
        """The rows of these lists, on their device.

        Raises InputError if the lists have other values or lengths than the layout (lengths on a
        GPU are not checked, which would require synchronization).
        """
        self._check(lists)
        n, width = lists.values.shape
        tables = _tables(self, lists.values.device)
        items = torch.arange(self.longest, device=lists.values.device)
        present = items < lists.lengths.unsqueeze(1)
        list_items, ordered = lists.values, lists.sorted()
        if width < self.longest:
            absent = (0, self.longest - width)
            list_items = torch.nn.functional.pad(list_items, absent, value=self.n_values)
            ordered = torch.nn.functional.pad(ordered, absent, value=self.n_values)
        placed = torch.cat([list_items, ordered], dim=1) if self.autoregressive else list_items
        if self.values != tuple(range(self.n_values)):
            placed = tables.values.index_select(0, placed.reshape(-1)).view(placed.shape)
        pool = torch.cat([placed, tables.constants.expand(n, -1)], dim=1)
        if self.shortest == self.longest:
            tokens = pool.gather(1, tables.content.expand(n, -1))
            return ListRows(tokens, tables.read.expand(n, -1), ordered, present)
        of_length = lists.lengths - self.shortest
        tokens = pool.gather(1, tables.content.index_select(0, of_length))
        read = tables.read.index_select(0, of_length)
        return ListRows(tokens, read, ordered.masked_fill(~present, 0), present)

    def key_cells(self) -> Cells:
        """Every token at every position where it can occur, including separators and padding.

        In a causal model, a query sees only those at its own and earlier positions.
        """
        cells: set[tuple[int, int]] = set()
        for length in range(self.shortest, self.longest + 1):
            row = self._row(length)
            for position in range(self.n_positions):
                token = row[position] if position < len(row) else self.pad
                tokens = self.values if token is None else (token,)
                cells.update((position, token) for token in tokens)
        pairs = torch.tensor(sorted(cells))
        return Cells(tokens=pairs[:, 1].clone(), positions=pairs[:, 0].clone())

    def _row(self, length: int) -> list[int | None]:
        """The contents of a row of this length, without padding: an id, or None for any value."""
        values: list[int | None] = [None] * length
        ordered = values if self.autoregressive else []
        return [*self.before, *values, *self.between, *ordered, *self.after]

    def _check(self, lists: Lists) -> None:
        if lists.n_values != self.n_values:
            raise InputError(
                f"the layout {self} has {self.n_values} values, the lists have {lists.n_values}"
            )
        shortest, longest = 1, lists.values.shape[1]
        if lists.values.device.type == "cpu" and len(lists):
            shortest, longest = int(lists.lengths.min()), max(longest, int(lists.lengths.max()))
            if shortest < self.shortest:
                raise InputError(f"the layout {self} has no list of {shortest} items")
        if longest > self.longest:
            raise InputError(f"the layout {self} has no list of {longest} items")


@takes(text=check_texts)
def parse_layout(
    text: str | Sequence[str], *, d_vocab: int, d_vocab_out: int, n_ctx: int | None = None
) -> ListLayout:
    """A layout from its words.

    Args:
        text: the words, in one string or separately; see `data.lists.layout`.
        d_vocab: size of the vocabulary; token ids are below it.
        d_vocab_out: number of logits; ids of values are below it.
        n_ctx: the model's context length, to check the rows; None: not checked.

    Raises:
        InputError: the words are not a valid layout, or not for this vocabulary or context.

    Examples:
        >>> layout = parse_layout("10 list10 11 sorted10", d_vocab=12, d_vocab_out=10)
        >>> layout.longest, layout.autoregressive
        (10, True)
    """
    words = tuple(text.split() if isinstance(text, str) else text)
    parts = read_words(words)
    others = {*parts.before, *parts.between, *parts.after}
    if parts.pad is not None:
        others.add(parts.pad)
    for token in sorted(others):
        if token >= d_vocab:
            raise InputError(f"layout: {token} is outside the vocabulary, 0 to {d_vocab - 1}")
    values = tuple(token for token in range(min(d_vocab, d_vocab_out)) if token not in others)
    if len(values) < 2:
        raise InputError(
            f"layout: two values or more are needed; of the {d_vocab_out} ids with a logit, "
            f"{len(values)} are neither separator nor padding"
        )
    layout = ListLayout(words, values, *parts)
    if n_ctx is not None and layout.n_positions > n_ctx:
        raise InputError(
            f"layout: its rows have {layout.n_positions} tokens, the model takes {n_ctx}"
        )
    return layout


@functools.lru_cache(maxsize=64)
def _tables(layout: ListLayout, device: torch.device) -> _Tables:
    constants = [*layout.before, *layout.between, *layout.after]
    n_items = layout.longest * (2 if layout.autoregressive else 1)
    padding = n_items + len(constants)
    content, read = [], []
    for length in range(layout.shortest, layout.longest + 1):
        constant_indices = iter(range(n_items, padding))
        row = [next(constant_indices) for _ in layout.before] + list(range(length))
        row += [next(constant_indices) for _ in layout.between]
        if layout.autoregressive:
            row += range(layout.longest, layout.longest + length)
        row += [next(constant_indices) for _ in layout.after]
        content.append(row + [padding] * (layout.n_positions - len(row)))
        positions = layout.read_positions(length)
        read.append([*positions, *positions[-1:] * (layout.longest - length)])
    unused = 0  # filler, to which no index of a row points
    return _Tables(
        content=torch.tensor(content, device=device),
        constants=torch.tensor([*constants, layout.pad or unused], device=device),
        values=torch.tensor([*layout.values, unused], device=device),
        read=torch.tensor(read, device=device),
    )


STANDARD_SIZE = 4000
TEST_SEED = 2**32 - 1  # not a training seed, which would draw the training lists again
MAX_SETS_TESTED = 20_000


def fresh_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for lists other than the training and test lists of any recipe.

    PyTorch's CPU generator takes 32 bits of a seed; recipes' seeds are in the lower half.
    """
    return torch.Generator(device).manual_seed(TEST_SEED - 1 - seed % 2**30)


def standard_sets(
    layout: ListLayout, distinct: bool, n: int = STANDARD_SIZE, seed: int = TEST_SEED
) -> dict[str, Lists]:
    """The source's test sets by name, reproducible by seed.

    "random": uniform lists. If items may repeat, also "hard": hard lists. If they are distinct,
    also "sets": every set of values once, in a random order (left out if there are more than
    MAX_SETS_TESTED).

    Raises:
        InputError: distinct lists of more items than there are values.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = range(layout.shortest, layout.longest + 1)
    kinds: dict[str, ListKind] = {"random": "uniform", "hard": "hard"}
    if distinct:
        kinds = {"random": "distinct"}
    sets = {
        name: ListSource(kind, layout.n_values, sizes[0], sizes[-1]).draw(n, generator)
        for name, kind in kinds.items()
    }
    if distinct and sum(math.comb(layout.n_values, k) for k in sizes) <= MAX_SETS_TESTED:
        sets["sets"] = joined([all_sets(layout.n_values, k) for k in sizes]).shuffled(generator)
    return sets


def two_valued_sets(layout: ListLayout, seed: int = TEST_SEED) -> Lists | None:
    """A list for every multiset, of each length, that has exactly two distinct values.

    Items are in random order.

    None if lists have only one item, or if there are more than MAX_SETS_TESTED.
    """
    sizes = range(max(2, layout.shortest), layout.longest + 1)
    n_sets = sum(math.comb(layout.n_values, 2) * (k - 1) for k in sizes)
    if not 0 < n_sets <= MAX_SETS_TESTED:
        return None
    generator = torch.Generator().manual_seed(seed)
    return joined([all_two_valued(layout.n_values, k) for k in sizes]).shuffled(generator)
