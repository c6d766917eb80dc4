"""Moments of the covariance against exact enumeration, plain sums, closed forms, known values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp_studies.random_attention.covariance.recursion import (
    MixingLaw,
    diffusion,
    drift,
    mean_diagonal,
    network_moments,
    sde_moments,
)
from interp_toolkit.errors import InputError

START = np.array([[1, 0.3, -0.2], [0.3, 1.5, 0.4], [-0.2, 0.4, 0.8]])
UPPER = np.triu_indices(3)
LAWS = [MixingLaw(), MixingLaw(causal=True), MixingLaw(n_heads=4, scale=2.5)]
#: takes a polynomial of degree 5 in a standard normal to its mean
POINTS, WEIGHTS = (-math.sqrt(3), 0.0, math.sqrt(3)), (1 / 6, 2 / 3, 1 / 6)


def starts(m: int, seed: int) -> np.ndarray:
    """A random covariance."""
    factor = np.random.default_rng(seed).standard_normal((m, m + 1))
    return factor @ factor.T / m + 0.1 * np.eye(m)


def normals(size: int) -> tuple[np.ndarray, np.ndarray]:
    """All points of the product rule and their weights."""
    points = np.array(list(itertools.product(POINTS, repeat=size)))
    weights = np.array(list(itertools.product(WEIGHTS, repeat=size))).prod(1)
    return points, weights


def mixing(entries: np.ndarray, causal: bool) -> np.ndarray:
    """A - I of W [... token mixed, query], in plain loops over columns."""
    m = entries.shape[-1]
    out = np.zeros_like(entries)
    for query in range(m):
        seen = query + 1 if causal else m
        column = entries[..., :seen, query]
        out[..., :seen, query] = column - column.mean(-1, keepdims=True)
    return out


def enumerated(phi0: np.ndarray, width: int, law: MixingLaw) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of Φ behind one layer, by enumeration over all normal numbers in it."""
    m, H = len(phi0), law.n_heads
    rows = width // H
    values, value_weights = normals(rows * m)
    values = values.reshape(-1, rows, m) @ np.linalg.cholesky(phi0).T
    grams = np.swapaxes(values, 1, 2) @ values
    draws, draw_weights = normals(m * m)
    std = math.sqrt(law.scale / (width * m))
    A = np.eye(m) + std * mixing(draws.reshape(-1, m, m), law.causal)
    parts = np.einsum("wai,vab,wbj->wvij", A, grams, A).reshape(-1, m, m) / width
    weights = np.outer(draw_weights, value_weights).reshape(-1)
    mean = np.einsum("w,wij->ij", weights, parts)
    variance = np.einsum("w,wij->ij", weights, (parts - mean) ** 2)
    return H * mean, H * variance  # heads are independent and add up


@pytest.mark.parametrize(
    ("m", "width", "law"),
    [
        (2, 2, MixingLaw()),
        (2, 2, MixingLaw(causal=True)),
        (2, 2, MixingLaw(n_heads=2, scale=2.0)),
        (2, 3, MixingLaw(n_heads=3, causal=True, scale=0.7)),
        (3, 1, MixingLaw()),
        (3, 1, MixingLaw(causal=True)),
    ],
)
def test_one_layer_is_what_enumeration_finds(m: int, width: int, law: MixingLaw) -> None:
    phi0 = START[:m, :m]
    mean, variance = enumerated(phi0, width, law)
    moments = network_moments(phi0, width, 1, law)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(moments.variance, variance, rtol=1e-10)


@pytest.mark.parametrize("law", LAWS)
def test_second_layer_continues_the_first(law: MixingLaw) -> None:
    """E Φ₂ and E Φ₂⊗Φ₂ averaged over draws of Φ₁: the map is linear, so moments suffice."""
    once, twice = network_moments(START, 8, 1, law), network_moments(START, 8, 2, law)
    np.testing.assert_allclose(network_moments(once.mean, 8, 1, law).mean, twice.mean, rtol=1e-12)
    assert (twice.variance >= once.variance).all()


@pytest.mark.parametrize("law", LAWS)
def test_wide_networks_reach_the_diffusion(law: MixingLaw) -> None:
    width = 4_000_000
    network, sde = network_moments(START, width, width // 2, law), sde_moments(START, 0.5, law)
    np.testing.assert_allclose(network.mean, sde.mean, rtol=1e-5)
    np.testing.assert_allclose(network.variance, sde.variance, rtol=1e-5)


@pytest.mark.parametrize("law", LAWS)
def test_drift_and_diffusion_by_plain_sums(law: MixingLaw) -> None:
    m = 3

    def K(query: int, a: int, b: int) -> float:
        seen = query + 1 if law.causal else m
        return float((a == b) - 1 / seen) if max(a, b) < seen else 0.0

    def mixed(query: int, row: int, column: int) -> float:
        return sum(
            START[row, i] * K(query, i, j) * START[j, column] for i in range(m) for j in range(m)
        )

    drifts, noise = drift(START, law), diffusion(START, law)
    for a, b in itertools.product(range(m), repeat=2):
        trace = sum(K(a, i, j) * START[j, i] for i in range(m) for j in range(m))
        assert drifts[a, b] == pytest.approx((a == b) * law.scale * trace / m, abs=1e-12)
        for c, d in itertools.product(range(m), repeat=2):
            expected = START[a, c] * START[b, d] + START[a, d] * START[b, c]
            expected += (
                law.scale / law.n_heads / m
                * (
                    (a == c) * mixed(a, b, d)
                    + (a == d) * mixed(a, b, c)
                    + (b == c) * mixed(b, a, d)
                    + (b == d) * mixed(b, a, c)
                )
            )  # fmt: skip
            assert noise[a, b, c, d] == pytest.approx(expected, abs=1e-12)


def test_reference_values() -> None:
    quarter, half = sde_moments(START, 0.25), sde_moments(START, 0.5)
    np.testing.assert_allclose(np.diag(quarter.mean), np.diag(START) + 0.1693, atol=1e-4)
    np.testing.assert_allclose(
        quarter.variance[UPPER], [1.5453, 0.8773, 0.5678, 2.5559, 0.7709, 1.0915], atol=1e-3
    )
    np.testing.assert_allclose(np.diag(half.mean), np.diag(START) + 0.3692, atol=1e-4)
    np.testing.assert_allclose(
        half.variance[UPPER], [6.8499, 3.2350, 2.3070, 9.8917, 2.8924, 5.1306], atol=1e-3
    )
    causal = sde_moments(START, 0.5, MixingLaw(causal=True))
    np.testing.assert_allclose(np.diag(causal.mean), [1, 1.6651, 1.1384], atol=1e-4)


def test_gap_falls_as_one_over_the_width() -> None:
    sde = sde_moments(START, 0.5)
    gaps = [
        np.abs(network_moments(START, n, n // 2).variance / sde.variance - 1).max()
        for n in (64, 128, 256, 512)
    ]
    np.testing.assert_allclose(gaps, [0.042, 0.021, 0.011, 0.0054], atol=5e-4)
    assert gaps[0] / gaps[-1] == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize(("width", "growth"), [(64, 75), (512, 3.4e5)])
def test_the_printed_variance_has_no_limit(width: int, growth: float) -> None:
    """Entries of variance 1/sqrt(nm): c = sqrt(nm) grows with the width."""
    law = MixingLaw(scale=math.sqrt(3 * width))
    mean = np.diag(network_moments(START, width, width // 2, law).mean)
    excess = np.trace(START) / 3 - START.mean()
    np.testing.assert_allclose(mean, mean_diagonal(START, 0.5, width, law.scale), rtol=1e-9)
    assert (mean - np.diag(START))[0] * (2 / 3) / excess + 1 == pytest.approx(growth, rel=0.01)


@given(
    m=st.integers(1, 4),
    seed=st.integers(0, 99),
    tau=st.floats(0, 1.5),
    heads=st.integers(1, 3),
    scale=st.floats(0.1, 3),
    causal=st.booleans(),
)
@settings(max_examples=20)
def test_laws_that_hold_everywhere(
    m: int, seed: int, tau: float, heads: int, scale: float, causal: bool
) -> None:
    phi0, law = starts(m, seed), MixingLaw(causal, heads, scale)
    moments = sde_moments(phi0, tau, law)
    off = ~np.eye(m, dtype=bool)
    np.testing.assert_allclose(moments.mean[off], phi0[off], rtol=1e-9, atol=1e-9)
    assert (np.diag(moments.mean) >= np.diag(phi0) - 1e-9).all()
    assert (moments.variance >= -1e-9).all()
    assert np.linalg.eigvalsh(diffusion(phi0, law).reshape(m * m, m * m))[0] >= -1e-9
    if causal:
        assert moments.mean[0, 0] == pytest.approx(phi0[0, 0])  # it sees itself alone
    else:
        np.testing.assert_allclose(
            np.diag(moments.mean), mean_diagonal(phi0, tau, scale=scale), rtol=1e-9
        )


def test_one_token_is_a_linear_networks_norm() -> None:
    """Mixing does nothing to a single token: Φ is geometric Brownian motion."""
    moments = sde_moments(np.array([[1.7]]), 0.4)
    assert moments.mean[0, 0] == pytest.approx(1.7)
    assert moments.variance[0, 0] == pytest.approx(1.7**2 * math.expm1(0.8))
    network = network_moments(np.array([[1.7]]), 10, 4)
    assert network.variance[0, 0] == pytest.approx(1.7**2 * (1.2**4 - 1))


def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="positive definite"):
        sde_moments(np.ones((2, 2)), 0.5)
    with pytest.raises(InputError, match="tau"):
        sde_moments(START, -1.0)
    with pytest.raises(InputError, match="do not divide"):
        network_moments(START, 10, 4, MixingLaw(n_heads=3))
    with pytest.raises(InputError, match="no network"):
        network_moments(START, 0, 4)
    with pytest.raises(InputError, match="positive"):
        MixingLaw(scale=0.0)
