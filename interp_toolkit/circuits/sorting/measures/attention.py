"""Where a sorting head looks: at larger values than the previous one, at small ones, at separators.

Read from attention patterns on lists, each over the list's own places, so that every number is a
share of what the head pays to the list:
- *above the previous*: attention to values above the previous output, against uniform attention;
- *filter*: of pairs of a value at most the previous one and a value above it, how many have more
  attention on the latter (ties count half);
- *smallest first*: whether, of the values above the previous one, the smallest gets the most;
- *separator line*: attention to the first separator over that to the values but the largest, by
  output item: `exp(mean ln(separator / value))`, which a ratio of scores is.
The first three are algorithm 1's (min{> previous}), for outputs that follow the list; the line is
algorithm 2's, for all.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.circuits.sorting.measures.reading import ListReading

QUERIES = 2**12  # scored at once: more leave a CPU's caches
SMALLEST_SHARE = 1e-30  # of attention: softmax underflows; below it, ln is cut off


@dataclass(frozen=True)
class AboveScores:
    """How a head's attention follows the previous output.

    Attributes:
        above, above_uniform: share of attention to the list on values above the previous one, and
            what uniform attention would put there.
        filter_score: chance that a value above the previous one gets more than one that is not.
        smallest_first, smallest_chance: how often the smallest value above gets the most attention
            of those above, and how often a value picked at random is the smallest; None where
            there never are two to choose from.
    """

    above: float
    above_uniform: float
    filter_score: float
    smallest_first: float | None
    smallest_chance: float | None

    @property
    def above_lift(self) -> float:
        """`above` from 0 (uniform) to 1 (all)."""
        return _lift(self.above, self.above_uniform)

    @property
    def smallest_lift(self) -> float | None:
        """`smallest_first` from 0 (chance) to 1 (always)."""
        if self.smallest_first is None or self.smallest_chance is None:
            return None
        return _lift(self.smallest_first, self.smallest_chance)


def above_scores(
    reading: ListReading,
    attention: Float[Tensor, "row item place"],
    previous: range | None = None,
) -> AboveScores | None:
    """Scores of attention to the list's places; None where no output follows another.

    Args:
        reading: the lists.
        attention: to their places.
        previous: count the outputs behind these values only; None: behind all.
    """
    if not reading.layout.autoregressive or reading.layout.longest < 2:
        return None
    asked = reading.rows.present[:, 1:]
    if previous is not None:
        before = reading.rows.answer[:, :-1]
        asked = asked & (before >= previous.start) & (before < previous.stop)
    at = torch.nonzero(asked)
    tallies = [
        _tally(reading, attention, *at[start : start + QUERIES].T)
        for start in range(0, len(at), QUERIES)
    ]
    found = _Tally(*map(sum, zip(*tallies, strict=True))) if tallies else None
    if found is None or not found.queries:
        return None
    return AboveScores(
        above=found.share / found.queries,
        above_uniform=found.uniform / found.queries,
        filter_score=(1 + found.won / found.pairs) / 2,
        smallest_first=found.first / found.several if found.several else None,
        smallest_chance=found.chance / found.several if found.several else None,
    )


class _Tally(NamedTuple):
    """Sums over queries, which come from several batches of them."""

    queries: float
    share: float
    uniform: float
    won: float  # pairs that the value above wins, less those that it loses
    pairs: float
    several: float  # queries with several values above
    first: float
    chance: float


def _tally(
    reading: ListReading,
    attention: Float[Tensor, "row item place"],
    row: Int[Tensor, " query"],
    item: Int[Tensor, " query"],
) -> _Tally:
    """Sums over the items after these, those with values both above and not above them."""
    previous, key = reading.rows.answer[row, item], reading.lists.values[row]
    paid = attention[row, item + 1, : key.shape[1]]
    held = key < reading.layout.n_values
    above = held & (key > previous[:, None])
    asked = above.any(1) & (held & ~above).any(1)
    key, paid, above, held = key[asked], paid[asked], above[asked], held[asked]
    n_above, n_held = above.sum(1), held.sum(1)
    share = (paid * above).sum(1) / (paid * held).sum(1).clamp(min=SMALLEST_SHARE)
    return _Tally(
        len(key),
        float(share.sum()),
        float((n_above / n_held.double()).sum()),
        _won(paid, above, held & ~above),
        int((n_above * (n_held - n_above)).sum()),
        *_smallest_first(key, paid, above),
    )


def _won(
    paid: Float[Tensor, "query place"],
    above: Bool[Tensor, "query place"],
    below: Bool[Tensor, "query place"],
) -> int:
    """Pairs that those above win less those they lose, counted along the order of attention."""
    order = paid.masked_fill(~(above | below), torch.inf).argsort(dim=1)
    paid, above, below = (part.gather(1, order) for part in (paid, above, below))
    starts = torch.ones_like(above)  # of a run of equal attention
    starts[:, 1:] = paid[:, 1:] != paid[:, :-1]
    first = (starts * torch.arange(paid.shape[1])).cummax(1).values
    won = (_earlier(below).gather(1, first) * above).sum()
    lost = (_earlier(above).gather(1, first) * below).sum()
    return int(won - lost)


def _earlier(counted: Bool[Tensor, "query place"]) -> Int[Tensor, "query place"]:
    """How many there are at the places before each."""
    return counted.cumsum(1) - counted.long()


def _smallest_first(
    key: Int[Tensor, "query place"],
    paid: Float[Tensor, "query place"],
    above: Bool[Tensor, "query place"],
) -> tuple[int, float, float]:
    """Queries with several values above; where the smallest has most attention; as by chance."""
    if not len(key):
        return 0, 0.0, 0.0
    largest = int(key.max()) + 1
    smallest = key.masked_fill(~above, largest).amin(1)
    several = key.masked_fill(~above, -1).amax(1) > smallest
    key, paid, above = key[several], paid[several], above[several]
    top = paid.masked_fill(~above, -1.0).argmax(1)
    chosen = key.gather(1, top[:, None])[:, 0]
    kinds = torch.zeros(len(key), largest + 1, dtype=torch.bool)
    kinds.scatter_(1, key.masked_fill(~above, largest), True)
    first = (chosen == smallest[several]).sum()
    chance = (1 / kinds[:, :largest].sum(1).double()).sum()
    return len(key), float(first), float(chance)


@dataclass(frozen=True, eq=False)
class SeparatorLine:
    """Attention to the first separator, relative to the list's values but the largest.

    Attributes:
        ratio: by output item; NaN where no list has such an item.
        r2: of a straight line through the ratios of items 1 and on, None for fewer than three.
        slope: of that line.
        rising: share of steps from one item to the next that go up.
    """

    ratio: Float[np.ndarray, " item"]
    r2: float | None
    slope: float | None
    rising: float | None


def separator_line(
    reading: ListReading, pattern: Float[Tensor, "row item pos"]
) -> SeparatorLine | None:
    """The line of one head's pattern; None for a layout without a separator before the list."""
    layout = reading.layout
    if not layout.before:
        return None
    start = len(layout.before)
    logs = pattern.clamp(min=SMALLEST_SHARE).log()
    values = reading.lists.values
    width = values.shape[1]
    counted = (values < layout.n_values - 1)[:, None, :] & reading.rows.present[..., None]
    mean = (logs[..., start : start + width] * counted).sum(-1) / counted.sum(-1)
    asked = counted.any(-1)
    gap = torch.where(asked, logs[..., 0] - mean, 0.0)
    ratio = torch.where(asked.any(0), (gap.sum(0) / asked.sum(0)).exp(), torch.nan).numpy()
    fit = straight_line(np.arange(len(ratio))[1:], ratio[1:])
    steps = np.diff(ratio[1:])
    return SeparatorLine(
        ratio=ratio,
        r2=None if fit is None else fit[2],
        slope=None if fit is None else fit[0],
        rising=float(np.mean(steps > 0)) if len(steps) and np.isfinite(steps).all() else None,
    )


def straight_line(
    x: Float[np.ndarray, " point"] | Int[np.ndarray, " point"], y: Float[np.ndarray, " point"]
) -> tuple[float, float, float] | None:
    """Slope, intercept and R² of the least-squares line; None for fewer than three points.

    R² is 0 where y is constant: there is nothing to explain.
    """
    known = np.isfinite(y)
    x, y = x[known].astype(np.float64), y[known]
    if len(x) < 3:
        return None
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - slope * x - intercept) ** 2).sum())
    flat = spread <= 1e-24 * max(1.0, float((y**2).sum()))
    return float(slope), float(intercept), 0.0 if flat else 1 - left / spread


def _lift(share: float, chance: float) -> float:
    return (share - chance) / (1 - chance) if chance < 1 else 0.0
