"""The null of a random rotation, against rotations drawn and against cases known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from interp_toolkit.circuits.weights.haar import overlap_null, spectra, trace_p_value

DRAWS = 20_000


def rotations(d: int, draws: int, seed: int = 0) -> np.ndarray:
    gaussian = np.random.default_rng(seed).normal(size=(draws, d, d))
    Q, R = np.linalg.qr(gaussian)
    return Q * np.sign(np.diagonal(R, axis1=-2, axis2=-1))[:, None, :]


@pytest.fixture(scope="module")
def turns() -> np.ndarray:
    return rotations(12, DRAWS)


def overlaps(A: np.ndarray, B: np.ndarray, turns: np.ndarray) -> np.ndarray:
    norms = (A**2).sum() * (B**2).sum()
    return ((A @ turns @ B) ** 2).sum((1, 2)) / norms


@pytest.mark.parametrize(
    ("a", "b"),
    [((1.0,), (1.0,)), ((1.0, 1.0, 1.0), (2.0, 2.0)), ((3.0, 1.0, 0.3), (1.0, 0.5, 0.2, 0.1))],
)
def test_mean_and_variance_are_those_of_drawn_rotations(a, b, turns) -> None:
    A = np.diag(a) @ rotations(12, 1, seed=2)[0][: len(a)]
    B = rotations(12, 1, seed=3)[0][:, : len(b)] @ np.diag(b)
    drawn = overlaps(A, B, turns)
    null = overlap_null(spectra(np.array([a])), spectra(np.array([b])), 12)
    assert null.mean == pytest.approx(1 / 12)
    assert drawn.mean() == pytest.approx(null.mean, abs=4 * null.sd.item() / np.sqrt(DRAWS))
    kurtosis = stats.kurtosis(drawn)
    error = np.sqrt((kurtosis + 2) / DRAWS)  # of a variance, relative
    assert drawn.var() == pytest.approx(null.sd.item() ** 2, rel=4 * error)


def test_p_values_do_not_promise_more_than_drawn_rotations_keep(turns) -> None:
    """At 5 % near the level; far out never above it by more than drawing 20,000 can show."""
    for a, b in (((1.0,), (1.0,)), ((2.0, 1.0, 0.5), (2.0, 1.0, 0.5)), ((1.0, 1.0), (1.0, 1.0))):
        A = np.diag(a) @ np.eye(12)[: len(a)]
        B = np.eye(12)[:, : len(b)] @ np.diag(b)
        null = overlap_null(spectra(np.array([a])), spectra(np.array([b])), 12)
        p = null.p_value(overlaps(A, B, turns))
        assert 0.03 < (p <= 0.05).mean() < 0.06
        for level in (0.01, 0.001):
            assert (p <= level).sum() <= stats.binom.ppf(0.999, DRAWS, level)


def test_rank_one_in_many_dimensions_is_a_chi_square() -> None:
    d = 10_000
    null = overlap_null(spectra(np.ones((1, 1))), spectra(np.ones((1, 1))), d)
    for x in (0.5, 4.0, 20.0):
        p = null.p_value(np.array([x / d])).item()
        assert p == pytest.approx(float(stats.chi2.sf(x, 1)), rel=0.01)


def test_where_every_rotation_gives_the_same_there_is_no_p_value() -> None:
    flat = spectra(np.ones((1, 6)))
    null = overlap_null(flat, flat, 6)
    assert np.isnan(null.z(np.array([1 / 6])))
    assert np.isnan(null.p_value(np.array([1 / 6])))


def test_a_matrix_of_zeros_has_no_spectrum() -> None:
    found = spectra(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert np.isnan(found.second[0])
    assert found.second[1] == pytest.approx(0.5)
    assert found.third[1] == pytest.approx(0.25)


def test_traces_have_the_spread_that_is_said_and_light_tails(turns) -> None:
    rng = np.random.default_rng(5)
    for M in (rng.normal(size=(12, 12)), np.outer(rng.normal(size=12), rng.normal(size=12))):
        z = np.einsum("nij,ji->n", turns, M) / np.sqrt((M**2).sum() / 12)
        assert z.mean() == pytest.approx(0, abs=4 / np.sqrt(DRAWS))
        assert z.var() == pytest.approx(1, rel=0.05)
        p = trace_p_value(z)
        assert 0.035 < (p <= 0.05).mean() < 0.055
        assert (p <= 0.001).sum() <= stats.binom.ppf(0.999, DRAWS, 0.001)
