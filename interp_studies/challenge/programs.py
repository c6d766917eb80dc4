"""RASP programs for tracr, in sizes drawn from seeds, with prompts and independent answers.

The answers come from `answer`, which does not use the program, so that a wrong program would fail
on its own prompts. A prompt is BOS and n symbols, which are integers from 0. Source: Weiss et al.
2021, "Thinking Like Transformers" (RASP).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int
from tracr.compiler import lib
from tracr.rasp import rasp

Draw = Callable[[np.random.Generator], list[int]]  # symbols of a row


@dataclass(frozen=True, eq=False)
class Program:
    """A program with its prompts.

    Attributes:
        name: what the program computes.
        output: the program, a `tracr.rasp.rasp.SOp` whose values are integers.
        n_symbols, n_places: number of different symbols, and of positions without BOS.
        tells: token id for each of the output's values, from 0.
        causal: whether attention is causal.
        asked: position of the symbol whose output is the answer.
        draw: draws the symbols of a prompt.
        answer: answer to a prompt, as a value of the output.
        relations: by detector: the `Aggregate` that attends to that pattern.
    """

    name: str
    output: Any
    n_symbols: int
    n_places: int
    tells: tuple[int, ...]
    causal: bool
    asked: int
    draw: Draw
    answer: Callable[[list[int]], int]
    relations: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def d_vocab(self) -> int:
        """Number of token ids: BOS, symbols, and answers that are not symbols."""
        return max(self.n_symbols + 1, *(t + 1 for t in self.tells))


def reverse(rng: np.random.Generator) -> Program:
    """The prompt in reverse order, by one head."""
    n, v = _sizes(rng)
    head = _fetch(rasp.indices, rasp.indices, lambda k, q: k == n - 1 - q)
    place = _not_middle(rng, n)
    return Program(
        "reverse",
        head,
        v,
        n,
        _symbols(v),
        False,
        place,
        lambda r: _distinct(r, v, n),
        lambda row: row[::-1][place],
    )


def compare(rng: np.random.Generator) -> Program:
    """Whether the first symbol is larger than the second, by one head for each and an MLP."""
    n, v = _sizes(rng)
    first, second = (
        _fetch(rasp.indices, rasp.indices, lambda k, q, place=place: k == place) for place in (0, 1)
    )
    above = rasp.SequenceMap(lambda a, b: int(a > b), first, second)
    place = int(rng.integers(2, n))
    return Program(
        "compare",
        above,
        v,
        n,
        (v + 1, v + 2),
        True,
        place,
        lambda r: _distinct(r, v, n),
        lambda row: int(row[0] > row[1]),
    )


def histogram(rng: np.random.Generator) -> Program:
    """How often the symbol at a position occurs in the prompt."""
    n, v = _sizes(rng)
    most = min(n, 4)
    place = int(rng.integers(n))

    def draw(r: np.random.Generator) -> list[int]:
        row = r.integers(v, size=n)
        again = r.permutation(np.delete(np.arange(n), place))[: int(r.integers(most))]
        row[again] = row[place]
        while (row == row[place]).sum() > most:
            extra = np.flatnonzero(row == row[place])
            row[extra[extra != place][0]] = (row[place] + 1) % v
        return [int(s) for s in row]

    return Program(
        "histogram",
        lib.make_hist(),
        v,
        n,
        tuple(range(v + 1, v + 2 + most)),
        False,
        place,
        draw,
        lambda row: Counter(row)[row[place]],
    )


def most_frequent(rng: np.random.Generator) -> Program:
    """The most frequent symbol, at the last position, from the average of one head."""
    n, v = int(rng.integers(7, 11)), int(rng.integers(5, 9))
    output = _fetch(rasp.tokens, rasp.indices, lambda k, q: k < v)  # symbol v, the last one, asks

    def draw(r: np.random.Generator) -> list[int]:
        while True:
            row = [int(s) for s in r.integers(v, size=n - 1)]
            (_, best), (_, second) = ([*Counter(row).most_common(2), (0, 0)])[:2]
            if best > second:
                return [*row, v]

    return Program(
        "most frequent",
        output,
        v + 1,
        n,
        _symbols(v + 1),
        True,
        n - 1,
        draw,
        lambda row: Counter(row[:-1]).most_common(1)[0][0],
    )


def sort(rng: np.random.Generator) -> Program:
    """The sorted prompt: each symbol counts the smaller ones, which gives its position."""
    n, v = _sizes(rng)
    fetched = lib.make_sort_unique(rasp.tokens, rasp.tokens)
    place = int(rng.integers(n))
    return Program(
        "sort",
        fetched,
        v,
        n,
        _symbols(v),
        False,
        place,
        lambda r: _distinct(r, v, n),
        lambda row: sorted(row)[place],
        {"answer": (fetched,)},
    )


def hops(rng: np.random.Generator, k: int) -> Program:
    """The symbol k hops back, in prompts of pairs: a hop goes from the first symbol to the second.

    The second symbol of a pair can be the first symbol of an earlier pair. The prompt ends with the
    symbol where the hops start. Only second symbols need to know the symbol before them.
    """
    pairs, v = int(rng.integers(k + 2, k + 5)), int(rng.integers(4 * k + 9, 4 * k + 14))
    n = 2 * pairs + 1
    before = _fetch(rasp.indices, rasp.indices, lambda i, q: i == q - 1 and q % 2 == 1)
    hop, hopping = rasp.tokens, []
    for _ in range(k):
        hop = _fetch(before, hop, rasp.Comparison.EQ)
        hopping.append(hop)

    def draw(r: np.random.Generator) -> list[int]:
        row = _distinct(r, v, n)
        starts = [2 * int(p) for p in sorted(r.permutation(pairs)[:k])]
        for earlier, later in itertools.pairwise(starts):
            row[later + 1] = row[earlier]
        row[-1] = row[starts[-1]]
        return row

    def answer(row: list[int]) -> int:
        second = dict(zip(row[:-1:2], row[1::2], strict=True))
        symbol = row[-1]
        for _ in range(k):
            symbol = second[symbol]
        return symbol

    relations = {"previous-token": (before,), "induction": (hopping[0],)}
    if k == 2:
        relations["k-hop"] = (hopping[1],)
    return Program(f"{k}-hop", hop, v, n, _symbols(v), True, n - 1, draw, answer, relations)


def dyck(rng: np.random.Generator) -> Program:
    """Whether the brackets are balanced, as in tracr's library."""
    n = 2 * int(rng.integers(3, 5))
    output = lib.make_shuffle_dyck([(0, 1)])  # opens, closes

    def draw(r: np.random.Generator) -> list[int]:
        if r.random() < 1 / 2:
            row = [int(s) for s in r.permutation([0, 1] * (n // 2))]
            if r.random() < 2 / 3:
                row = _balanced(row)
        else:
            row = [int(s) for s in r.integers(2, size=n)]
        return row

    def answer(row: list[int]) -> int:
        depths = np.cumsum([1 if s == 0 else -1 for s in row])
        return int(depths.min() >= 0 and depths[-1] == 0)

    return Program("Dyck-1", output, 2, n, (3, 4), False, n - 1, draw, answer)


#: by name, each drawn in sizes of its own
LIBRARY: Mapping[str, Callable[[np.random.Generator], Program]] = {
    "reverse": reverse,
    "compare": compare,
    "histogram": histogram,
    "most frequent": most_frequent,
    "sort": sort,
    "1-hop": lambda rng: hops(rng, 1),
    "2-hop": lambda rng: hops(rng, 2),
    "3-hop": lambda rng: hops(rng, 3),
    "Dyck-1": dyck,
}


def rows_of(program: Program, n: int, seed: int) -> Int[np.ndarray, "row symbol"]:
    """`n` random prompts, as symbols."""
    rng = np.random.default_rng([seed, n, 0xA])
    return np.array([program.draw(rng) for _ in range(n)])


def _sizes(rng: np.random.Generator) -> tuple[int, int]:
    """Random numbers of positions and symbols; tracr allows two more symbols than positions."""
    n = int(rng.integers(5, 9))
    return n, n + int(rng.integers(1, 3))


def _symbols(v: int) -> tuple[int, ...]:
    return tuple(range(1, v + 1))


def _distinct(rng: np.random.Generator, v: int, n: int) -> list[int]:
    return [int(s) for s in rng.permutation(v)[:n]]


def _not_middle(rng: np.random.Generator, n: int) -> int:
    places = [p for p in range(n) if 2 * p != n - 1]
    return int(rng.choice(places))


def _fetch(keys: Any, queries: Any, predicate: Any) -> Any:
    """Average of the tokens at the positions whose key the predicate selects for a query."""
    return rasp.Aggregate(rasp.Select(keys, queries, predicate), rasp.tokens)


def _balanced(row: list[int]) -> list[int]:
    """The brackets rotated so that the depth is never below 0 (the cycle lemma)."""
    depths = np.cumsum([1 if s == 0 else -1 for s in row])
    start = (int(depths.argmin()) + 1) % len(row)
    return row[start:] + row[:start]
