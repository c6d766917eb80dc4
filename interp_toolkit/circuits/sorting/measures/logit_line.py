"""Whether logits are algorithm 2's: `β_k f(x) + γ_k x`, with `γ_k / β_k = k + 0.5`.

`f(x) = Σ_i min(0, a_i - x)` is concave, and `f(x) + (k + 0.5) x` has its maximum at the k-th item
of the sorted list (Qi and Zhong 2023, "How do tiny transformers sort lists of small integers?").
For each output item k, the logits of many lists, each centred over x, are regressed on f and x,
centred likewise, with β_k >= 0: otherwise the right item would have the smallest logit. Two numbers
come out: how much of the logits that form explains (R²), and the line of γ_k/β_k against k. Any
model that sorts has its largest logit at the right item, which draws the line towards k + 0.5
whatever it computes: so the line without the R² shows little.
Item 0 is left out of the line: the source found it computed in another way. Where a final norm
divides the logits, they are taken before it.

Also here:
- what a sorting model can attend to, with its places in rows of every length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.sorting.measures.attention import straight_line
from interp_toolkit.circuits.sorting.measures.reading import ListReading
from interp_toolkit.data.lists.draws import Lists
from interp_toolkit.data.lists.layout import ListLayout


@dataclass(frozen=True, eq=False)
class LogitLine:
    """The regression by output item.

    Attributes:
        ratio: γ_k / β_k; NaN where it cannot be told, as where β_k is 0.
        r2: share of the logits' variance over x that the form explains; NaN likewise.
        fit: the median R² over items 1 and on (of all, if there is only one).
        slope, intercept: of the line of the ratios; None for fewer than three of them.
        line_r2: how straight it is.
    """

    ratio: Float[np.ndarray, " item"]
    r2: Float[np.ndarray, " item"]
    fit: float | None
    slope: float | None
    intercept: float | None
    line_r2: float | None


def concave_sum(lists: Lists) -> Float[Tensor, "row value"]:
    """f(x) of each list, for every value x."""
    x = torch.arange(lists.n_values, dtype=torch.float64)
    total = torch.zeros(len(lists), lists.n_values, dtype=torch.float64)
    for item in lists.values.T:  # what is beyond a list's end is n_values, which adds 0
        total += (item[:, None] - x).clamp(max=0.0)
    return total


def logit_line(reading: ListReading, logits: Float[Tensor, "row item value"]) -> LogitLine:
    """The regression of these logits (the model's, or what one head adds to them)."""
    n_items, n_values = logits.shape[1:]
    f = concave_sum(reading.lists)
    f = f - f.mean(1, keepdim=True)
    x = torch.arange(n_values, dtype=torch.float64) - (n_values - 1) / 2
    ratio, r2 = np.full(n_items, np.nan), np.full(n_items, np.nan)
    for item in range(n_items):
        rows = reading.rows.present[:, item]
        if int(rows.sum()) > 1:
            y = logits[rows, item]
            ratio[item], r2[item] = _regress(y - y.mean(1, keepdim=True), f[rows], x)
    line = straight_line(np.arange(n_items)[1:], ratio[1:])
    known = r2[1:] if n_items > 1 else r2
    known = known[np.isfinite(known)]
    return LogitLine(
        ratio=ratio,
        r2=r2,
        fit=float(np.median(known)) if len(known) else None,
        slope=None if line is None else line[0],
        intercept=None if line is None else line[1],
        line_r2=None if line is None else line[2],
    )


def _regress(
    y: Float[Tensor, "row value"], f: Float[Tensor, "row value"], x: Float[Tensor, " value"]
) -> tuple[float, float]:
    """γ/β and R² of y = β f + γ x, β >= 0; NaN where f cannot be told from x, or y is constant."""
    ff, fx, xx = (f * f).sum(), (f @ x).sum(), len(f) * (x @ x)
    determinant = float(ff * xx - fx * fx)
    spread = float((y * y).sum())
    if determinant <= 1e-12 * float(ff * xx) or spread == 0:
        return np.nan, np.nan
    yf, yx = (y * f).sum(), (y @ x).sum()
    beta = float(yf * xx - yx * fx) / determinant
    if beta <= 0:
        return np.nan, float(yx * yx / xx) / spread
    gamma = float(yx * ff - yf * fx) / determinant
    return gamma / beta, (beta * float(yf) + gamma * float(yx)) / spread


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
