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
