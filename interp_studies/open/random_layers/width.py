"""The mean worst error of a layer's readoffs of all pairs; the width at which it crosses 1/4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from interp_studies.jobs.attempt import Outcome
from interp_studies.open.random_layers.layers import KINDS
from interp_studies.power_law import LEAST
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.data.composites import all_composites
from interp_toolkit.probes import UANDReadout


def layers_job(
    *,
    folder: Path,
    kind: str,
    n_features: int,
    widths: Sequence[int],
    most_on: int,
    held_out: int,
    seed: int,
) -> Outcome:
    """One kind of layer on so many features, at every width."""
    rng = np.random.default_rng([seed, n_features])
    on = rng.permutation(all_composites(n_features, most_on))
    x = on.astype(np.float64)
    found = [mean_error(KINDS[kind](x, width, rng), on, held_out) for width in widths]
    return Outcome(
        {
            "kind": kind,
            "n_features": n_features,
            "seed": seed,
            "widths": list(widths),
            "error": [error for error, _ in found],
            "read": [read for _, read in found],
        }
    )


def mean_error(
    activations: Float[np.ndarray, "input neuron"],
    on: Bool[np.ndarray, "input feature"],
    held_out: int,
) -> tuple[float, float]:
    """The mean over pairs of the worst error after offset, and the share of pairs below 1/4.

    On one row in `held_out`, which the readoffs were not fitted on.
    """
    fitted = len(on) - len(on) // held_out
    readout = UANDReadout(n_jobs=1).fit(activations[:fitted], on[:fitted])
    worst = readout.errors(activations[fitted:], on[fitted:]).worst_after_offset
    worst = worst[~np.isnan(worst)]
    return float(worst.mean()), float((worst < AFFINE).mean())


def needed_width(widths: Sequence[int], errors: Sequence[float]) -> float:
    """Where the error first falls below 1/4, between two widths measured, on logarithms.

    0 where the narrowest is below already, infinity where none is: it lies outside, and how far is
    not known.
    """
    x = np.log(np.array(widths, dtype=float))
    y = np.log(np.maximum(np.array(errors, dtype=float), LEAST))
    below = np.flatnonzero(y < np.log(AFFINE))
    if not len(below):
        return math.inf
    place = int(below[0])
    if place == 0:
        return 0.0
    share = (y[place - 1] - np.log(AFFINE)) / (y[place - 1] - y[place])
    return float(np.exp(x[place - 1] + share * (x[place] - x[place - 1])))
