"""Tables of the covariance SDE: the drift as printed, the three variances, every seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp_studies.random_attention.covariance.recursion import (
    mean_diagonal,
    network_moments,
    sde_moments,
)
from interp_toolkit.results import Table

#: the covariance of three tokens to start from: unequal variances, both signs
START = ((1.0, 0.3, -0.2), (0.3, 1.5, 0.4), (-0.2, 0.4, 0.8))
TAUS = (0.125, 0.25, 0.5)


def printed_drift(width: int) -> Table:
    """The mean of Φ under the drift as printed, as derived, and in a network."""
    start, tau = np.array(START), TAUS[-1]
    excess = float(np.trace(start) / len(start) - start.mean())
    derived = sde_moments(start, tau).mean
    network = network_moments(start, width, round(tau * width)).mean
    rows = [
        [
            f"Φ{a + 1}{b + 1}",
            float(start[a, b]),
            float(start[a, b]) + excess * tau,
            float(derived[a, b]),
            float(network[a, b]),
        ]
        for a in range(len(start))
        for b in range(a, len(start))
    ]
    columns = ["entry", "at the start", "drift as printed", "drift on the diagonal", f"n = {width}"]
    caption = (
        f"Means at τ = {tau:g}. As printed the drift Tr Φ/m - M(Φ) adds to every entry alike, "
        "and moves them all by itself times τ; the proof's (A.6) has a Kronecker delta, which puts "
        "it on the diagonal. Networks do the second: means off the diagonal stay where they were."
    )
    return Table("The drift as printed", columns, rows, caption)


def variance_names(widths: Sequence[int]) -> Table:
    """What the three variances of the mixing's entries do to the mean diagonal."""
    start, tau, heads = np.array(START), TAUS[-1], 4
    rows = []
    for n in widths:
        scales = (1.0, float(heads), math.sqrt(n * len(start)))
        rows.append([n, *(float(mean_diagonal(start, tau, n, c).mean()) for c in scales)])
    columns = ["width", "1/(n m)", f"1/(d_head m), {heads} heads", "1/sqrt(n m)"]
    caption = (
        f"E Tr Φ/m at τ = {tau:g}, from {np.trace(start) / len(start):.3g}, where every token sees "
        "all. 1/(n m) is the proof's (A.4), 1/(d_head m) the released code's, which has a limit "
        "with another drift; 1/sqrt(n m) is eq. 2.3 as printed."
    )
    return Table("The three variances", columns, rows, caption)


def by_seed(drawn: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> Table:
    """Every seed's means and spreads."""
    rows = [
        [kind, sampler, values["seed"], values["draws"], tau, mean, spread, values["repaired"]]
        for (kind, sampler), seeds in drawn.items()
        for values in seeds
        for tau, mean, spread in zip(values["tau"], values["mean"], values["spread"], strict=True)
    ]
    columns = ["mixing", "draws of", "seed", "draws", "τ", "mean", "spread", "steps repaired"]
    caption = (
        "Mean and standard deviation of Tr Φ/m. Repaired: the share of the diffusion's steps that "
        "left the cone of covariances."
    )
    return Table("Every seed", columns, rows, caption)
