"""Batches of lists to sort, drawn from several distributions on any device, and their sorted order.

The distributions are: items independent and uniform; "hard" lists, whose items come from a random
support, so that repeats and close values are common; uniform lists without repeats; and lists of
exactly two values. Every draw is a fixed sequence of tensor operations of fixed shapes: there is no
rejection, and no synchronization with the device. Values are int64, as index look-ups need; a
narrower type was no faster over draw, sort and look-up together.

*Supports of hard lists* (Qi & Zhong 2023, on sorting transformers): the recipe first chooses a set
of values, then draws the list's items from it with replacement. With probability 2/3 a chance p is
drawn uniformly from (0, 1) and each value is kept with probability p; while the set is empty, all
of this is repeated, p included. Otherwise the set is all integers between two uniform draws, ends
included. Given p, a set of k out of n values has probability p^k (1 - p)^(n - k). Integrated over p
this is 1 / ((n + 1) C(n, k)), so the first branch draws a size uniform in 1..n and then a uniform
set of that size, and no rejection is needed. While 2^n is small, the whole mixture fits in one
table, sampled in constant time by the alias method (Walker 1977, built as by Vose 1991).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError

#: P(the set is scattered, of a uniform size), in the recipe; otherwise it is an interval
SCATTERED = 2 / 3
#: 2^16 - 1 supports are a table of 9 MB; larger alphabets are drawn without one
MAX_TABLE_VALUES = 16


class SupportTable(NamedTuple):
    """An alias table over all supports; support s holds the values of the bits of s + 1.

    Attributes:
        keep: the probability that a uniformly drawn column stands for itself.
        alias: the support that it stands for otherwise.
        size: number of values in a support.
        members: a support's values in increasing order, then zeros.
    """

    keep: Float[Tensor, " support"]
    alias: Int[Tensor, " support"]
    size: Float[Tensor, " support"]
    members: Int[Tensor, "support value"]


def support_probabilities(n_values: int) -> Float[np.ndarray, " support"]:
    """The probability of every support; entry s is the set of the bits of s + 1."""
    supports = np.arange(1, 2**n_values)
    bits = (supports[:, None] >> np.arange(n_values)) & 1
    sizes = bits.sum(axis=1)
    of_size = np.array([math.comb(n_values, k) for k in range(n_values + 1)])
    scattered = 1 / (n_values * of_size[sizes])
    lowest = supports & -supports
    is_interval = (supports + lowest) & supports == 0
    ends = np.where(sizes == 1, 1, 2)  # ordered pairs of ends that give this interval
    interval = is_interval * ends / n_values**2
    mixture: Float[np.ndarray, " support"] = SCATTERED * scattered + (1 - SCATTERED) * interval
    return mixture


@functools.lru_cache(maxsize=16)
def support_table(n_values: int, device: torch.device) -> SupportTable:
    """The alias table for at most MAX_TABLE_VALUES values, cached per device."""
    keep, alias = alias_table(support_probabilities(n_values))
    bits = (np.arange(1, 2**n_values)[:, None] >> np.arange(n_values)) & 1
    members = np.argsort(1 - bits, axis=1, kind="stable") * np.sort(bits, axis=1)[:, ::-1]
    return SupportTable(
        keep=torch.from_numpy(keep).to(device, torch.float32),
        alias=torch.from_numpy(alias).to(device),
        size=torch.from_numpy(bits.sum(axis=1)).to(device, torch.float32),
        members=torch.from_numpy(np.ascontiguousarray(members)).to(device, torch.int64),
    )


def alias_table(
    probabilities: Float[np.ndarray, " outcome"],
) -> tuple[Float[np.ndarray, " outcome"], Int[np.ndarray, " outcome"]]:
    """Vose's alias table: column i yields outcome i with probability keep[i], else alias[i]."""
    n = len(probabilities)
    scaled = (probabilities * (n / probabilities.sum())).tolist()
    keep, alias = np.ones(n), np.arange(n)
    small = [i for i, weight in enumerate(scaled) if weight < 1]
    large = [i for i, weight in enumerate(scaled) if weight >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            small.append(large.pop())
    return keep, alias


ListKind = Literal["uniform", "hard", "distinct", "two-valued"]
KINDS: tuple[ListKind, ...] = ("uniform", "hard", "distinct", "two-valued")
MAX_SETS = 10_000_000


@dataclass(frozen=True, eq=False)
class Lists:
    """A batch of lists of the values 0 to n_values - 1.

    Attributes:
        values: the items; n_values (which sorts to the end) beyond a list's length.
        lengths: number of items of each list.
        n_values: size of the alphabet.
    """

    values: Int[Tensor, "row item"]
    lengths: Int[Tensor, " row"]
    n_values: int

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], n_values: int) -> Lists:
        """A batch of these lists. Raises InputError for an empty one or an unknown value."""
        if not rows or not all(rows):
            raise InputError("give at least one list, each with at least one item")
        if any(not 0 <= value < n_values for row in rows for value in row):
            raise InputError(f"a list has an item outside 0 to {n_values - 1}")
        longest = max(map(len, rows))
        padded = [[*row, *[n_values] * (longest - len(row))] for row in rows]
        return cls(torch.tensor(padded), torch.tensor([len(row) for row in rows]), n_values)

    def __len__(self) -> int:
        return len(self.values)

    def sorted(self) -> Int[Tensor, "row item"]:
        """Each list in ascending order; n_values beyond its length."""
        return _ascending(self.values)

    def take(self, rows: slice | Tensor) -> Lists:
        """A subset of the lists."""
        return Lists(self.values[rows], self.lengths[rows], self.n_values)

    def to(self, device: torch.device | str) -> Lists:
        """The same lists on a device."""
        return Lists(self.values.to(device), self.lengths.to(device), self.n_values)

    def shuffled(self, generator: torch.Generator) -> Lists:
        """Each list in its own random order; the generator is on the lists' device."""
        keys = torch.rand(
            self.values.shape,
            generator=generator,
            dtype=torch.float64,
            device=self.values.device,
        )
        absent = self.values == self.n_values
        order = keys.masked_fill_(absent, 2.0).argsort(dim=1)
        return Lists(self.values.gather(1, order), self.lengths, self.n_values)


@dataclass(frozen=True)
class ListSource:
    """A distribution of lists.

    Attributes:
        kind: "uniform": items independent and uniform; "hard": items uniform from a random set of
            the values; "distinct": uniform among the lists without repeats; "two-valued": the pair
            of values, the number of items with the smaller one, and their order are uniform.
        n_values: items are 0 to n_values - 1.
        shortest, longest: lengths are uniform in this range, ends included.

    Raises InputError if there are no such lists.

    Examples:
        >>> source = ListSource("distinct", n_values=10, shortest=3, longest=5)
        >>> source.kind, source.longest
        ('distinct', 5)
    """

    kind: ListKind
    n_values: int
    shortest: int
    longest: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"lists must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {self.kind!r}"
            )
        if self.n_values < 1:
            raise InputError(f"lists need one value or more, got {self.n_values}")
        if not 1 <= self.shortest <= self.longest:
            raise InputError(
                f"lists have one item or more, up to {self.longest}; got {self.shortest}"
            )
        if self.kind == "distinct" and self.longest > self.n_values:
            raise InputError(
                f"{self.longest} distinct items cannot come from {self.n_values} values; "
                "shorten the lists or allow repeats"
            )

        if self.kind == "two-valued" and (self.n_values < 2 or self.shortest < 2):
            raise InputError("lists of two values need two items and two values to choose from")

    def draw(self, n: int, generator: torch.Generator) -> Lists:
        """`n` independent lists, on the generator's device.

        Uniform positions within a support come from 24-bit random numbers, so that relative errors
        of probabilities are at most n_values / 2^24.
        """
        size, device = (n, self.longest), generator.device
        if self.kind == "uniform":
            values = torch.randint(self.n_values, size, generator=generator, device=device)
        elif self.kind == "distinct":
            values = _distinct(n, self.longest, self.n_values, generator)
        elif self.kind == "two-valued":
            return _two_valued(self, n, generator)
        elif self.n_values <= MAX_TABLE_VALUES:
            values = _hard_by_table(size, self.n_values, generator)
        else:
            values = _hard(size, self.n_values, generator)
        return self._cut(values, generator)

    def _cut(self, values: Int[Tensor, "row item"], generator: torch.Generator) -> Lists:
        """Cut lists to random lengths: entries beyond the length are n_values."""
        n, device = len(values), generator.device
        if self.shortest == self.longest:
            lengths = torch.full((n,), self.longest, device=device)
        else:
            high = self.longest + 1
            lengths = torch.randint(self.shortest, high, (n,), generator=generator, device=device)
            items = torch.arange(self.longest, device=device)
            values.masked_fill_(items >= lengths[:, None], self.n_values)
        return Lists(values, lengths, self.n_values)


def joined(parts: Sequence[Lists]) -> Lists:
    """Concatenate batches of one alphabet, in this order."""
    longest = max(part.values.shape[1] for part in parts)
    n_values = parts[0].n_values
    values = [
        torch.nn.functional.pad(part.values, (0, longest - part.values.shape[1]), value=n_values)
        for part in parts
    ]
    return Lists(torch.cat(values), torch.cat([part.lengths for part in parts]), n_values)


def all_sets(n_values: int, size: int) -> Lists:
    """Every set of `size` distinct values once, ascending.

    Raises InputError if there are none, or more than MAX_SETS.
    """
    if not 1 <= size <= n_values:
        raise InputError(f"sets of {size} out of {n_values} values do not exist")
    n_sets = math.comb(n_values, size)
    if n_sets > MAX_SETS:
        raise InputError(f"{n_values} values have {n_sets} sets of {size}, too many to list")
    items = itertools.chain.from_iterable(itertools.combinations(range(n_values), size))
    values = np.fromiter(items, dtype=np.int64, count=n_sets * size).reshape(n_sets, size)
    return Lists(torch.from_numpy(values), torch.full((n_sets,), size), n_values)


def all_two_valued(n_values: int, size: int) -> Lists:
    """Every multiset of `size` items of exactly two values once, ascending.

    Raises InputError if there are none, or more than MAX_SETS.
    """
    if n_values < 2 or size < 2:
        raise InputError(f"{size} items of {n_values} values cannot have exactly two of them")
    n_sets = math.comb(n_values, 2) * (size - 1)
    if n_sets > MAX_SETS:
        raise InputError(f"there are {n_sets} multisets of {size} items of two values: too many")
    rows = [
        [low] * copies + [high] * (size - copies)
        for low, high in itertools.combinations(range(n_values), 2)
        for copies in range(1, size)
    ]
    return Lists.from_rows(rows, n_values)


def _two_valued(source: ListSource, n: int, generator: torch.Generator) -> Lists:
    """Lists of exactly two values, of the source's lengths."""
    device, longest = generator.device, source.longest
    lengths = torch.randint(source.shortest, longest + 1, (n,), generator=generator, device=device)
    pair = _ascending(_distinct(n, 2, source.n_values, generator))
    share = torch.rand(n, generator=generator, dtype=torch.float64, device=device)
    copies = 1 + (share * (lengths - 1)).long()
    items = torch.arange(longest, device=device)
    values = torch.where(items < copies[:, None], pair[:, :1], pair[:, 1:])
    values = values.masked_fill(items >= lengths[:, None], source.n_values)
    return Lists(values, lengths, source.n_values).shuffled(generator)


def _hard_by_table(
    size: tuple[int, int], n_values: int, generator: torch.Generator
) -> Int[Tensor, "row item"]:
    table, device = support_table(n_values, generator.device), generator.device
    column = torch.randint(len(table.alias), size[:1], generator=generator, device=device)
    chance = torch.rand(size[:1], generator=generator, device=device)
    aliased = table.alias.index_select(0, column)
    support = torch.where(chance < table.keep.index_select(0, column), column, aliased)
    rank = torch.rand(size, generator=generator, device=device)
    rank = rank.mul_(table.size.index_select(0, support).unsqueeze(1)).to(torch.int32)
    cell = rank.add_(support.mul_(n_values).unsqueeze(1))
    return table.members.view(-1).index_select(0, cell.view(-1)).view(size)


def _hard(
    size: tuple[int, int], n_values: int, generator: torch.Generator
) -> Int[Tensor, "row item"]:
    """Hard lists from any alphabet; only the members of a support that are drawn are generated.

    Items are ranks within the support. In an interval, rank r is its lower end plus r. In a
    scattered set, equal ranks are equal values and different ranks are different values in
    uniformly random order: the j-th new rank of a list takes the j-th value of a distinct draw.
    """
    n, longest = size
    device = generator.device
    ends = torch.randint(n_values, (2, n), generator=generator, device=device)
    lower, upper = ends.amin(dim=0), ends.amax(dim=0)
    sizes = torch.randint(1, n_values + 1, (n,), generator=generator, device=device)
    scattered = torch.rand(n, generator=generator, device=device) < SCATTERED
    n_members = torch.where(scattered, sizes, upper - lower + 1)
    rank = torch.rand(size, generator=generator, device=device)
    rank = (rank * n_members.unsqueeze(1)).to(torch.int64)
    first = (rank.unsqueeze(2) == rank.unsqueeze(1)).to(torch.uint8).argmax(dim=2)
    is_new = first == torch.arange(longest, device=device)
    nth_new = (is_new.cumsum(dim=1) - 1).gather(1, first)
    members = _distinct(n, min(longest, n_values), n_values, generator)
    return torch.where(
        scattered.unsqueeze(1), members.gather(1, nth_new), lower.unsqueeze(1) + rank
    )


def _distinct(
    n: int, length: int, n_values: int, generator: torch.Generator
) -> Int[Tensor, "row item"]:
    """Uniform lists without repeats."""
    if n_values <= 2 * length:
        return _shuffled_values(n, n_values, generator)[:, :length]
    return _first_shuffle_steps(n, length, n_values, generator)


def _shuffled_values(n: int, n_values: int, generator: torch.Generator) -> Int[Tensor, "row value"]:
    """All values in a random order, by sorting random keys that carry the values."""
    bits = (n_values - 1).bit_length()
    size, device = (n, n_values), generator.device
    keys = torch.randint(2 ** (62 - bits), size, generator=generator, device=device)
    keys.mul_(2**bits).add_(torch.arange(n_values, device=device))
    return _ascending(keys).bitwise_and_(2**bits - 1)


def _first_shuffle_steps(
    n: int, length: int, n_values: int, generator: torch.Generator
) -> Int[Tensor, "row item"]:
    """The first steps of a Fisher-Yates shuffle, traced backwards.

    Step k swaps positions k and r_k >= k. The value that ends up at position k was at r_k before
    step k; going back through the earlier steps j, the value at r_j came from position j.
    """
    device = generator.device
    steps = torch.arange(length, device=device)
    swap_with = torch.rand((n, length), generator=generator, device=device)
    swap_with = swap_with.mul_(n_values - steps).to(torch.int64).add_(steps)
    swapped_with = swap_with.clone()
    for j in range(length - 2, -1, -1):
        later = swap_with[:, j + 1 :]
        later.masked_fill_(later == swapped_with[:, j : j + 1], j)
    return swap_with


def _ascending(values: Int[Tensor, "row item"]) -> Int[Tensor, "row item"]:
    if values.device.type == "cpu":  # numpy's vectorized sort is 3 to 5 times as fast
        return torch.from_numpy(np.sort(values.numpy(), axis=1))
    return values.sort(dim=1).values
