"""Whether a query's attention goes to the keys where a function holds, in rows not used before.

By row: the attention on right keys less their share of the keys, which uniform attention does not
exceed. The mean over rows has Student's interval; what is shown is LEAST_GAIN of the way from that
share to all of it. A gap between scores that is small shows no such thing, however exact it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from interp_toolkit.circuits.universal_keys.rows import KeyRows
from interp_toolkit.circuits.universal_keys.scores import KeyScores

LEAST_GAIN = 0.1  # of the way from uniform attention to all of it on keys where a function holds


def attention_on(
    scores: KeyScores,
    rows: KeyRows,
    head: tuple[int, int],
    query: int,
    right: Bool[np.ndarray, " set"],
    coverage: float,
) -> dict[str, Any]:
    """Attention on right keys in the second part's rows, and on keys where none is right."""
    mine = np.flatnonzero((scores.query_of == query) & rows.second)
    sets = scores.set_of[mine]
    keys = sets >= 0
    is_right = keys & right[np.maximum(sets, 0)]
    pattern = scores.attention[head][mine]
    some = is_right.any(axis=1)
    on_right = (pattern * is_right).sum(axis=1)[some].astype(float)
    on_keys = (pattern * keys).sum(axis=1)[~some].astype(float)
    shares = is_right[some].sum(axis=1) / np.maximum(keys[some].sum(axis=1), 1)
    low, high = mean_interval(on_right - shares, coverage)
    return {
        "on_right": _mean(on_right),
        "on_right_least": float(on_right.min()) if len(on_right) else None,
        "uniform": _mean(shares),
        "excess_low": low,
        "excess_high": high,
        "on_wrong": _mean(on_keys),
    }


def mean_interval(
    values: Float[np.ndarray, " row"], coverage: float
) -> tuple[float | None, float | None]:
    """Student's interval of the mean; unknown of fewer than two values."""
    if len(values) < 2:
        return None, None
    half = stats.t.ppf((1 + coverage) / 2, len(values) - 1) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def _mean(values: Sequence[float] | np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def shown(attention: Mapping[str, Any]) -> bool:
    """Whether the whole interval is LEAST_GAIN or more of the way."""
    least, uniform = attention["excess_low"], attention["uniform"]
    return least is not None and uniform is not None and least > LEAST_GAIN * (1 - uniform)


def left_open(attention: Mapping[str, Any]) -> bool:
    """Whether it is not shown, and some of the interval is; so where nothing is known."""
    most, uniform = attention["excess_high"], attention["uniform"]
    if most is None or uniform is None:
        return True
    return not shown(attention) and most > LEAST_GAIN * (1 - uniform)
