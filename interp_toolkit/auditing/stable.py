"""Does an effect hold on rows drawn anew, and in every group of rows?

The rows are drawn again with repeats, DRAWS times (bootstrap), and the share of draws in which the
mean reaches the bound is counted. Where rows belong to groups (templates, documents), the mean of
each group is asked too: an effect of one template alone is not stable. What falls short of that is
undecided: draws of these rows know nothing of others. It is not part of what a claim's answer rests
on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from interp_toolkit.auditing.parts import Answer, Deed, Part

DRAWS = 500
STABLE = 0.95  # of the draws
FEWEST_OF_GROUP = 4  # rows, for a group to be asked


def stable_part(
    effect: Float[np.ndarray, " row"],
    bound: float,
    groups: Any | None,
    rng: np.random.Generator,
    deed: Deed = "intervened",
    *,
    percent: bool = True,
) -> Part:
    """Stability of an effect of at least `bound`, a number a row.

    Args:
        effect: of each row.
        bound: what is claimed of the mean.
        groups: of each row, or None.
        rng: of the draws.
        deed: what was done to measure the effect.
        percent: whether the effect is a share.
    """
    n = len(effect)
    means = effect[rng.integers(n, size=(DRAWS, n))].mean(1)
    share = float((means >= bound).mean())
    least = f"{bound:.0%}" if percent else f"{bound:g}"
    said = f"in {share:.0%} of {DRAWS} draws of the rows the effect is at least {least}"
    answer: Answer = "confirmed" if share >= STABLE else "undecided"
    if groups is not None:
        below, asked = [], 0
        for name in np.unique(groups):
            rows = effect[groups == name]
            if len(rows) >= FEWEST_OF_GROUP:
                asked += 1
                below += [f"{name} ({rows.mean():.0%})"] if rows.mean() < bound else []
        if asked > 1:
            said += f"; {asked - len(below)} of {asked} groups reach it"
            said += f", not {', '.join(below[:4])}" if below else ""
            answer = "undecided" if below and answer == "confirmed" else answer
    return Part("stable", answer, said, deed, value=share, bound=STABLE)
