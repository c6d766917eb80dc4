"""Attention to some places against attention to others: two controls, each a contrast an ask.

- like: other earlier places of the same row within `NEAR` steps of the targets (all others, where
  there are none so near), never the first, where attention is often parked;
- displaced: the places that are targets in the *other* rows, in this row. A head that attends by
  place alone does not tell them apart. Where targets stand at the same places in all rows there is
  no such control, and places and tokens cannot be told apart.

A contrast is the attention paid to the targets, less as much of the control's mean a place times
the number of targets: 0 means no preference.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.circuits.roles.asks import Asks

NEAR = 3  # steps

Attention = Float[np.ndarray, "*some ask pos"]


def against_like(
    attention: Attention, asks: Asks, targets: Bool[np.ndarray, "ask pos"]
) -> Float[np.ndarray, "*some ask"]:
    """Attention to the targets beyond that to other places like them; NaN: none of either."""
    others = asks.earlier & ~targets
    others[:, 0] = False
    near = np.zeros_like(targets)
    for step in range(1, NEAR + 1):
        near[:, step:] |= targets[:, :-step]
        near[:, :-step] |= targets[:, step:]
    near &= others
    control = np.where(near.any(1, keepdims=True), near, others)
    return against(attention, targets, control.astype(float))


def against_displaced(
    attention: Attention, asks: Asks, targets: Bool[np.ndarray, "ask pos"]
) -> Float[np.ndarray, "*some ask"]:
    """Attention to the targets beyond that to the places of other rows' targets; NaN: none."""
    slot = np.arange(len(asks)) % asks.slots
    row = np.arange(len(asks)) // asks.slots
    control = np.zeros(targets.shape)
    for ask in range(len(asks)):
        theirs = targets[(slot == slot[ask]) & (row != row[ask])]
        moved = theirs & ~targets[ask] & asks.earlier[ask]
        moved = moved[moved.any(1)]
        if len(moved):
            control[ask] = (moved / moved.sum(1, keepdims=True)).mean(0)
    return against(attention, targets, control)


def against(
    attention: Attention,
    targets: Bool[np.ndarray, "ask pos"],
    control: Float[np.ndarray, "ask pos"],
) -> Float[np.ndarray, "*some ask"]:
    """Attention to the targets less as much of the control's weighted mean; NaN: none of either."""
    count, size = targets.sum(1), control.sum(1)
    known = (count > 0) & (size > 0)
    weight = targets - control * (count / np.where(size > 0, size, 1))[:, None]
    found: np.ndarray = np.einsum("...ap,ap->...a", attention, weight)
    return np.where(known, found, np.nan)
