"""The null: p-values against drawn directions, thresholds against the textbook procedure."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from interp_toolkit.circuits.skip_bigrams.scores import p_values, t_at, z_scores


@pytest.mark.parametrize("d", [2.0, 5.0, 40.0])
def test_p_values_are_those_of_random_directions(d) -> None:
    rng = np.random.default_rng(int(d))
    drawn = rng.standard_normal((100_000, int(d)))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    a = rng.standard_normal(int(d))
    p = p_values(np.sqrt(d) * drawn @ a / np.linalg.norm(a), d)
    assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_in_two_dimensions_p_is_an_angle() -> None:
    angle = 0.3
    assert p_values(np.array([np.sqrt(2) * np.cos(angle)]), 2.0) == pytest.approx(2 * angle / np.pi)


def test_infinite_dimensions_are_the_normal() -> None:
    assert p_values(np.array([-1.96]), np.inf) == pytest.approx(0.05, rel=1e-3)
    assert p_values(np.array([3.0]), 1e7) == pytest.approx(2 * stats.norm.sf(3.0), rel=1e-4)


@pytest.mark.parametrize("d", [3.0, 64.0, np.inf])
def test_t_at_inverts_p(d) -> None:
    p = np.array([0.5, 1e-2, 1e-6])
    assert p_values(np.array([t_at(float(q), d) for q in p]), d) == pytest.approx(p, rel=1e-6)


def test_z_has_the_p_value_and_the_sign_of_t() -> None:
    z = z_scores(np.array([-3.0, 2.0]), 20.0)
    assert 2 * stats.norm.sf(np.abs(z)) == pytest.approx(p_values(np.array([3.0, 2.0]), 20.0))
    assert np.sign(z).tolist() == [-1, 1]
    assert np.isfinite(z_scores(np.array([10.0]), 4.0)).all()  # beyond what is possible
