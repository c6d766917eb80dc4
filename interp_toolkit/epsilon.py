"""ε-accuracy: how far the linear readout of a boolean function is from the function.

A readout is ε-accurate where it lies within ε of 1 on every input on which the function is true,
and within ε of 0 on every other ("Computation in superposition", notation). The worst error is
one definition; a bias or a gain that the next layer may supply anyway makes another: after the
best gain and bias of each gate. With the on-scores in an interval of width s_on, the off-scores in
one of width s_off, D = max(s_on, s_off) and the gap g = min(on) - max(off) (negative where they
overlap), the least worst error over gains and biases is D / (2 (g + D)), and 1/2 where that is
more or g + D <= 0: a constant. A readout that is affine in the two features has 1/4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.errors import InputError

#: the least worst error of an affine readout of the AND of two bits, all four inputs present
AFFINE = 0.25


@dataclass(frozen=True)
class Epsilon:
    """The errors of readouts of some gates over some inputs.

    Attributes:
        worst: the largest |readout - function|.
        q99: its 99 % quantile over gates and inputs.
        rms: its root mean square over gates and inputs.
        worst_after_offset: the largest over gates after the gate's best gain and bias.
    """

    worst: float
    q99: float
    rms: float
    worst_after_offset: float


def after_offset(
    on_low: Float[np.ndarray, "*gate"],
    on_high: Float[np.ndarray, "*gate"],
    off_low: Float[np.ndarray, "*gate"],
    off_high: Float[np.ndarray, "*gate"],
) -> Float[np.ndarray, "*gate"]:
    """The worst error of each gate after its best gain (>= 0) and bias, from its scores' ranges.

    NaN where a gate has no score on one side (give NaN for its range).
    """
    spread = np.maximum(on_high - on_low, off_high - off_low)
    room = (on_low - off_high) + spread
    known = ~np.isnan(room)
    least = np.full(np.shape(room), 0.5)
    useful = known & (room > 0)
    least[useful] = np.minimum(0.5, spread[useful] / (2 * room[useful]))
    least[~known] = np.nan
    return least


def gate_after_offset(
    scores: Float[np.ndarray, "input gate"], truth: Bool[np.ndarray, "input gate"]
) -> Float[np.ndarray, " gate"]:
    """`after_offset` of each gate's scores; NaN where it is true on all inputs or on none."""
    on, off = np.where(truth, scores, np.nan), np.where(truth, np.nan, scores)
    both = truth.any(axis=0) & ~truth.all(axis=0)
    least = np.full(scores.shape[1], np.nan)
    ranges = [f(side[:, both], axis=0) for side in (on, off) for f in (np.nanmin, np.nanmax)]
    least[both] = after_offset(*ranges)
    return least


def epsilon(
    scores: Float[np.ndarray, "input gate"], truth: Bool[np.ndarray, "input gate"]
) -> Epsilon:
    """The errors of the scores of some gates on some inputs.

    Raises InputError without inputs or gates. Gates that are constant on the inputs count in all
    but `worst_after_offset`, which is NaN where there is no other gate.
    """
    if not scores.size:
        raise InputError("there is no readout to measure: no inputs or no gates")
    errors = np.abs(scores - truth)
    least = gate_after_offset(scores, truth)
    known = least[~np.isnan(least)]
    return Epsilon(
        worst=float(errors.max()),
        q99=float(np.quantile(errors, 0.99)),
        rms=float(np.sqrt(np.mean(errors**2))),
        worst_after_offset=float(known.max()) if len(known) else float("nan"),
    )
