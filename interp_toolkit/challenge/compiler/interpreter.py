"""Programs run as they are written, in exact fractions: what compiled weights are held against."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

from interp_toolkit.challenge.compiler.language import (
    Attend,
    Bins,
    Expression,
    Indices,
    Map,
    Tokens,
    in_order,
)

Shares = list[Fraction]  # of each value, at one place


def interpret(output: Expression, symbols: Sequence[int], *, causal: bool) -> list[Shares]:
    """The shares of the output's values at every symbol's place.

    Args:
        output: the program.
        symbols: of a row, without BOS.
        causal: places see earlier ones and themselves only.
    """
    known: dict[int, list[Shares]] = {}
    for expression in in_order(output):
        known[id(expression)] = _values(expression, symbols, known, causal)
    return known[id(output)]


def _values(
    expression: Expression,
    symbols: Sequence[int],
    known: dict[int, list[Shares]],
    causal: bool,
) -> list[Shares]:
    if isinstance(expression, Tokens):
        return [_only(symbol, expression.size) for symbol in symbols]
    if isinstance(expression, Indices):
        return [_only(place, expression.size) for place in range(len(symbols))]
    if isinstance(expression, Attend):
        return _attended(expression, len(symbols), known, causal)
    if isinstance(expression, Bins):
        return [_binned(expression, shares) for shares in known[id(expression.of)]]
    columns = [known[id(part)] for part in expression.of]
    return [_mapped(expression, shares) for shares in zip(*columns, strict=True)]


def _attended(head: Attend, n: int, known: dict[int, list[Shares]], causal: bool) -> list[Shares]:
    keys, queries = known[id(head.keys)], known[id(head.queries)]
    found = []
    for query in range(n):
        seen = range(query + 1) if causal else range(n)
        levels = {key: _level(head, keys[key], queries[query]) for key in seen}
        bos = Fraction(1, 1 if head.counts_bos else 2)
        bos *= sum(queries[query])
        best = max([bos, *levels.values()])
        chosen = [key for key, level in levels.items() if level == best]
        n_chosen = len(chosen) + (bos == best)
        if head.values is None:
            found.append([Fraction(int(bos == best), n_chosen)])
            continue
        values = known[id(head.values)]
        found.append(
            [
                sum((values[key][v] for key in chosen), Fraction(0)) / n_chosen
                for v in range(head.size)
            ]
        )
    return found


def _level(head: Attend, key: Shares, query: Shares) -> Fraction:
    terms = [
        k * q * Fraction(head.level(i, j))
        for (i, k), (j, q) in product(enumerate(key), enumerate(query))
        if k and q
    ]
    return sum(terms, Fraction(0))


def _binned(bins: Bins, shares: Shares) -> Shares:
    total = sum(float(s) * w for s, w in zip(shares, bins.weights, strict=True))
    return _only(sum(total > cut for cut in bins.cuts), bins.size)


def _mapped(function: Map, arguments: Sequence[Shares]) -> Shares:
    values = [max(range(len(shares)), key=shares.__getitem__) for shares in arguments]
    return _only(function.function(*values), function.size)


def _only(value: int, size: int) -> Shares:
    return [Fraction(int(value == i)) for i in range(size)]
