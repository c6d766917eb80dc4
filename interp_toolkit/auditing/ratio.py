"""The share of the behaviour that something keeps or moves: a ratio of two means over rows.

Fieller's interval (`circuits.edges.faithfulness`) knows nothing of rows it has not seen: where all
rows agree it has no width, though the next one may differ. So where fewer than FEWEST_CHANGED rows
differ from the middle one by more than ALIKE, it is widened to what Clopper and Pearson's bounds on
the share of such rows allow, each moving by the largest amount seen, or by all of the behaviour
where none was.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.behaviour.task import FEWEST_CHANGED
from interp_toolkit.circuits.behaviour.words import Share
from interp_toolkit.circuits.edges.faithfulness import ratio_interval
from interp_toolkit.stats import clopper_pearson

ALIKE = 0.05  # of the behaviour


def ratio_share(
    part: Float[np.ndarray, " row"], whole: Float[np.ndarray, " row"], coverage: float
) -> Share:
    """`mean(part) / mean(whole)` with its interval; see the module.

    Examples:
        >>> found = ratio_share(np.ones(10), np.ones(10), 0.9)
        >>> found.mean, round(found.low, 2)
        (1.0, 0.74)
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = float(part.mean() / whole.mean())
        each = part / whole.mean()
    low, high = ratio_interval(part, whole, coverage)
    middle = float(np.median(each))
    moved = each - middle
    up, down = int((moved > ALIKE).sum()), int((moved < -ALIKE).sum())
    if up + down < FEWEST_CHANGED and np.isfinite(each).all():
        step = float(np.abs(moved).max()) if up + down else 1.0
        high = max(high, middle + clopper_pearson(up, len(each), coverage)[1] * step)
        low = min(low, middle - clopper_pearson(down, len(each), coverage)[1] * step)
    return Share(mean, low, high)
