"""The constructions of "Computation in superposition" at the measured sizes.

A setting is a construction at a size with its expected values: ranges over seeds, measured earlier
in float64 from the paper's text, which has no numbers of its own. Each names the function that
builds and measures it.
Source: "Computation in superposition", sections 1.1 to 1.5 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interp_studies.jobs.attempt import Outcome
from interp_studies.superposition import jobs

ALLOWED = 0.04  # beside an error's range
RMS_ALLOWED = 0.004


@dataclass(frozen=True)
class Expected:
    """The expected range of one of a setting's values.

    Attributes:
        key: key of the value in the job's results.
        name: description of the value.
        low, high: the range.
        tolerance: distance from the range that still counts as within.
    """

    key: str
    name: str
    low: float
    high: float
    tolerance: float = ALLOWED


@dataclass(frozen=True, eq=False)
class Setting:
    """A construction at a size; see the module.

    Attributes:
        name: name in tables.
        slug: name in file names.
        function: builds and measures one seed.
        arguments: arguments of the function, except the seed.
        expected: expected values.
        seeded: whether anything is random.
        fan_in: fan-in of the gates.
        exact: whether the worst error is over all gates and inputs, or over a sample.
        cost: cost of a job, relative to the other settings.
        remark: further notes.
    """

    name: str
    slug: str
    function: Callable[..., Outcome]
    arguments: Mapping[str, Any]
    expected: tuple[Expected, ...]
    seeded: bool = True
    fan_in: int = 2
    exact: bool = True
    cost: float = 1.0
    remark: str = ""


def _uand(
    m: int,
    d: int,
    density: float,
    *expected: Expected,
    most_on: tuple[int, ...] = (2,),
    **more: Any,
) -> Setting:
    sizes = {"n_features": m, "n_neurons": d, "density": density, "most_on": list(most_on)}
    name = f"U-AND, d0 = {m}, d = {d:,}, p = {density:g}"
    return Setting(name, f"uand-{m}-{d}", jobs.universal, sizes, expected, **more)


SETTINGS = (
    _uand(
        64,
        1_024,
        0.2,
        Expected("worst", "worst error", 0.50, 0.54),
        Expected("mean_t", "mean t", 0.195, 0.205, 0.0),
    ),
    _uand(128, 4_096, 0.125, Expected("worst", "worst error", 0.364, 0.395)),
    _uand(
        512,
        4_096,
        0.15,
        Expected("worst", "worst error", 0.391, 0.411),
        Expected("worst_l3", "worst error, 3 on", 0.69, 0.75),
        Expected("worst_after_offset", "worst after offset, below 1/4", 0.0, 0.25, 0.0),
        Expected("pairs_per_neuron", "pairs a neuron", 31.5, 32.5, 0.0),
        most_on=(2, 3),
        cost=6.0,
    ),
    _uand(256, 16_384, 0.1, Expected("worst", "worst error", 0.237, 0.252), cost=4.0),
    Setting(
        "affine readout",
        "affine",
        jobs.affine,
        {"n_features": 6, "most_on": 3},
        (
            Expected("worst", "worst error", 0.25, 0.25, 1e-9),
            Expected("worst_without_bias", "worst error without a bias", 1 / 3, 1 / 3, 1e-9),
        ),
        seeded=False,
        remark="the least of all affine readouts, by a linear program",
    ),
    Setting(
        "least squares, rescaled, U-AND, d0 = 64, d = 1,024, p = 0.2",
        "least-squares",
        jobs.least_squares,
        {"n_features": 64, "n_neurons": 1_024, "density": 0.2, "ridge": 1e-3},
        (
            Expected("worst", "worst error", 0.19, 0.19),
            Expected("worst_after_offset", "worst after offset", 0.12, 0.12),
        ),
        cost=2.0,
        remark="fitted to and measured on all inputs with at most 2 on",
    ),
    Setting(
        "quadratic, m = 4,096, r = 1,024",
        "quadratic",
        jobs.quadratic,
        {"n_features": 4_096, "dim": 1_024, "n_pairs": 4_000},
        (
            Expected("rms_one", "rms, one on", 0.045, 0.045, RMS_ALLOWED),
            Expected("rms_both", "rms, both on", 0.064, 0.064, RMS_ALLOWED),
        ),
        exact=False,
        cost=3.0,
    ),
    Setting(
        "targeted, m = 8,192, d0 = 4,096, d = 1,024, |E| = 1,536, s = 4",
        "targeted",
        jobs.targeted,
        {"n_features": 8_192, "d_in": 4_096, "n_neurons": 1_024, "n_gates": 1_536, "per_gate": 4},
        (
            Expected("worst_own", "worst error", 0.36, 0.36),
            Expected("worst_own_after_offset", "worst after one offset for all", 0.21, 0.21),
            Expected("rms", "rms", 0.039, 0.039, RMS_ALLOWED),
        ),
        cost=8.0,
        exact=False,
        remark="each gate on inputs about it; of all gates on all of these, the worst is more",
    ),
    Setting(
        "fan-in 3, d0 = 32, d = 16,384, p = 0.2",
        "fan-in-3",
        jobs.fan_in_three,
        {"n_features": 32, "n_neurons": 16_384, "density": 0.2},
        (Expected("worst", "worst error, 3 on", 0.33, 0.35),),
        fan_in=3,
        cost=2.0,
    ),
    Setting(
        "bigrams, exact, orthogonal, |B| = d_head = 32",
        "bigrams-exact",
        jobs.exact_bigrams,
        {"d_model": 128, "d_head": 32},
        (Expected("worst", "worst error", 0.0, 1e-13, 0.0),),
    ),
    Setting(
        "bigrams, SVD, d_resid = 128, d_head = 32, |B| = 1,024",
        "bigrams-svd",
        jobs.svd_bigrams,
        {"n_features": 512, "d_model": 128, "d_head": 32, "n_bigrams": 1_024},
        (
            Expected("auc", "AUC", 0.96, 0.96),
            Expected("signal_to_noise", "signal / noise", 2.6, 2.6, 0.1),
        ),
    ),
)

#: of the figures: densities at one size, widths at their best density, all with d0 = 64
DENSITIES = (0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
WIDTHS = (512, 1_024, 2_048, 4_096, 8_192, 16_384)
FIGURE_FEATURES, FIGURE_NEURONS = 64, 1_024
