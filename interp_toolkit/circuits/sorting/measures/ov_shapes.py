"""What a head's OV table looks like: does it copy, and is each row a line with a kink at its value.

A row is what one value, attended to alone, adds to the logit of every value x.
- *Copy score*: how many values raise their own logit most.
- *Kink*: algorithm 2 sums `min(0, i - x)` over the list's values i, and softmax and the separators
  leave room for any shift and multiple of x in each row. So the table is fitted by least squares as
  `v(x) + c_i + b_i x + s min(0, i - x)` with one slope s >= 0 (the source: all have the same).
  Lines alone explain most of many a table (nine tenths of the source's experiment 3), so the
  kinks' own part is told apart: how much of what lines leave they explain.
A vector v(x) that all rows share (a position embedding, a value bias) changes nothing that a model
computes, since attention sums to 1 and biases can take it up: it is taken off first in both, which
the source's own formula does not do.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError

FLAT = 1e-24  # of a table's sum of squares: less variance than rounding leaves
FEWEST_VALUES = 4  # with three, a line and a shared vector leave nothing to tell a kink by


@dataclass(frozen=True, eq=False)
class PiecewiseFits:
    """A table fitted by lines with kinks.

    Attributes:
        r2: share of each row's variance over x, without the shared vector, that the fit explains;
            NaN for a row that has none.
        slope: s, common to all rows.
        kink: for each row, the inner value whose kink fits it best; NaN where s is 0, and for the
            first and last row, where `min(0, i - x)` is a line.
        mean_r2: of all rows together; None for fewer than four values, or a table without variance.
        kink_r2: of what is left without kinks (s = 0), the share that they explain; None likewise.
        kink_at_value: share of inner rows whose best kink is their own value; None likewise.
    """

    r2: Float[np.ndarray, " value"]
    slope: float
    kink: Float[np.ndarray, " value"]
    mean_r2: float | None
    kink_r2: float | None
    kink_at_value: float | None


def copy_score(ov: Float[Tensor, "value value"], *, centre: bool = True) -> float:
    """Share of values whose own logit is the largest that they write; a tie is not.

    Args:
        ov: what each value writes to every value's logit.
        centre: take off what all values write alike; False for a table as it is.
    """
    table = _square(ov)
    table = table - table.mean(0) if centre else table
    others = np.where(np.eye(len(table), dtype=bool), -np.inf, table).max(1)
    return float((table.diagonal() > others).mean())


def piecewise_fits(ov: Float[Tensor, "value value"]) -> PiecewiseFits:
    """Fit the table by lines with kinks; see the module."""
    table = _square(ov)
    n = len(table)
    x = np.arange(n, dtype=np.float64)
    line = np.linalg.qr(np.stack([np.ones(n), x], axis=1))[0]
    own = table - table.mean(0)
    bent = own - own @ line @ line.T  # what no line explains
    kinks = np.minimum(0.0, x[:, None] - x)
    kinks = kinks - kinks @ line @ line.T
    shared = kinks.mean(0)
    shape = kinks - shared
    size = float((shape**2).sum())
    spread = ((own - own.mean(1, keepdims=True)) ** 2).sum(1)
    rounding = FLAT * max(float((table**2).sum()), 1.0)
    flat = spread <= rounding
    beside_lines = float((bent**2).sum())
    bends = size > FLAT and beside_lines > rounding
    slope = max(float((bent * shape).sum()) / size, 0.0) if bends else 0.0
    explained = min(slope**2 * size / beside_lines, 1.0) if bends else 0.0
    left = ((bent - slope * shape) ** 2).sum(1)
    told = n >= FEWEST_VALUES and not flat.all()
    best = _best_kinks(bent + slope * shared, kinks) if slope > 0 else np.full(n, np.nan)
    return PiecewiseFits(
        r2=np.where(flat, np.nan, 1 - left / np.where(flat, 1.0, spread)),
        slope=slope,
        kink=best,
        mean_r2=1 - float(left.sum() / spread.sum()) if told else None,
        kink_r2=explained if told else None,
        kink_at_value=float((best == x)[1:-1].mean()) if told else None,
    )


def shared_part(ov: Float[Tensor, "value value"]) -> Float[Tensor, " value"]:
    """v(x) as the fit has it: what all values write alike, beside lines and kinks of their own."""
    slope = piecewise_fits(ov).slope
    x = torch.arange(len(ov), dtype=ov.dtype, device=ov.device)
    return (ov - slope * (x[:, None] - x).clamp(max=0)).mean(0)


def _best_kinks(
    bent: Float[np.ndarray, "value value"], kinks: Float[np.ndarray, "value value"]
) -> Float[np.ndarray, " value"]:
    """For each row, the inner value whose kink, with a slope of its own, explains most of it."""
    inner = kinks[1:-1]
    along = np.maximum(bent @ inner.T, 0.0)
    best: np.ndarray = 1.0 + (along**2 / (inner**2).sum(1)).argmax(1)
    best[[0, -1]] = np.nan
    best[along.max(1) ** 2 <= FLAT * (bent**2).sum() * (inner**2).sum(1).max()] = np.nan
    return best


def _square(ov: Tensor) -> Float[np.ndarray, "value value"]:
    if ov.shape[0] < 2:
        raise InputError("the shape of an OV table needs two values or more")
    table: np.ndarray = ov.detach().double().cpu().numpy()
    return table
