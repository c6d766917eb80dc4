"""A small language of sequences, after RASP: what a transformer's parts can be told to compute.

A program is an expression. Rows are BOS and then n symbols; every expression has a value at each
symbol's place:

- `Tokens`, `Indices`: the symbol there, and its place, counted from 0;
- `Attend`: a head. It gives each place a level for each other one, and takes the mean, over the
  places of the highest level, of their `values`, a share for each value; or, without values, the
  share of BOS. BOS has level 1/2, so that it is what is found where there is nothing, or 1 where
  it is to be counted among what is found: then BOS's share is 1 / (1 + how many);
- `Bins`: an MLP. A weighted sum of shares, put into bins;
- `Map`: an MLP. A function of one or two expressions that have one value.

`Attend` as a key, a query or an argument of `Map` counts as its shares say (mostly one value).
Sources: Weiss et al. 2021, "Thinking Like Transformers" (RASP); Lindner et al. 2023, "Tracr",
arXiv 2301.05062, whose way of counting, by BOS and bins, this is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Level = Callable[[int, int], float]  # of a key's value, for a query's


@dataclass(frozen=True, eq=False)
class Tokens:
    """The symbol at a place, of `size`."""

    size: int


@dataclass(frozen=True, eq=False)
class Indices:
    """The place itself, of `size`."""

    size: int


@dataclass(frozen=True, eq=False)
class Attend:
    """A head; see the module.

    Attributes:
        keys, queries: what is compared.
        level: of a key's value for a query's, 0 (not attended to), 1, 2, ...
        values: what is fetched; None: the share of BOS.
        counts_bos: BOS has level 1, not 1/2.
    """

    keys: Expression
    queries: Expression
    level: Level
    values: Expression | None
    counts_bos: bool = False

    @property
    def size(self) -> int:
        """Shares that it gives."""
        return 1 if self.values is None else self.values.size


@dataclass(frozen=True, eq=False)
class Bins:
    """How many of the cuts the weighted sum of an expression's shares is above.

    Attributes:
        of: the expression.
        weights: one a share.
        cuts: ascending.
        margin: no sum is nearer to a cut than this.
    """

    of: Expression
    weights: tuple[float, ...]
    cuts: tuple[float, ...]
    margin: float

    @property
    def size(self) -> int:
        """Bins."""
        return len(self.cuts) + 1


@dataclass(frozen=True, eq=False)
class Map:
    """A function of the values of other expressions.

    Attributes:
        of: one or two expressions.
        function: of a value of each; its values are below `size`.
        size: of its values.
    """

    of: tuple[Expression, ...]
    function: Callable[..., int]
    size: int


Expression = Tokens | Indices | Attend | Bins | Map


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """What an expression reads."""
    if isinstance(expression, Attend):
        values = () if expression.values is None else (expression.values,)
        return (expression.keys, expression.queries, *values)
    if isinstance(expression, Bins):
        return (expression.of,)
    return expression.of if isinstance(expression, Map) else ()


def in_order(output: Expression) -> list[Expression]:
    """All expressions of a program, each after what it reads, once."""
    found: list[Expression] = []

    def visit(expression: Expression) -> None:
        if any(expression is other for other in found):
            return
        for part in parts_of(expression):
            visit(part)
        found.append(expression)

    visit(output)
    return found
