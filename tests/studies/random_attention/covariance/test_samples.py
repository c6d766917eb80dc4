"""Draws of Φ against the exact moments, where their tails are light enough to say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp_studies.random_attention.covariance.recursion import (
    MixingLaw,
    Moments,
    network_moments,
    sde_moments,
)
from interp_studies.random_attention.covariance.samples import (
    run_layers,
    sample_network,
    sample_sde,
)
from interp_toolkit.errors import InputError

START = np.array([[1, 0.3, -0.2], [0.3, 1.5, 0.4], [-0.2, 0.4, 0.8]])
LAWS = [MixingLaw(), MixingLaw(causal=True), MixingLaw(n_heads=4, scale=4.0)]


def check(draws: np.ndarray, moments: Moments) -> None:
    """Means and variances within 4.5 standard errors."""
    n = len(draws)
    squares = (draws - moments.mean) ** 2
    off = np.abs(draws.mean(0) - moments.mean) / (draws.std(0) / np.sqrt(n))
    assert off.max() < 4.5
    spread = np.abs(squares.mean(0) - moments.variance) / (squares.std(0) / np.sqrt(n))
    assert spread.max() < 4.5


@pytest.mark.parametrize("law", LAWS)
def test_draws_of_the_diffusion(law: MixingLaw) -> None:
    samples = sample_sde(START, [0.02, 0.05], 20_000, law=law)
    for phi, tau in zip(samples.phi, (0.02, 0.05), strict=True):
        check(phi, sde_moments(START, tau, law))
    assert 0 <= samples.repaired < 0.01


@pytest.mark.parametrize("law", LAWS)
def test_draws_of_the_network_in_law(law: MixingLaw) -> None:
    draws = sample_network(START, 64, [0, 1, 4], 20_000, law=law)
    np.testing.assert_allclose(draws[0], np.broadcast_to(START, draws[0].shape))
    check(draws[1], network_moments(START, 64, 1, law))
    check(draws[2], network_moments(START, 64, 4, law))


@pytest.mark.parametrize(
    ("causal", "heads", "mixing", "scale"),
    [(False, 1, "1/(n m)", 1.0), (True, 1, "1/(n m)", 1.0), (True, 4, "1/(d_head m)", 4.0)],
)
def test_hidden_states_of_the_toolkits_layers(
    causal: bool, heads: int, mixing: str, scale: float
) -> None:
    draws = run_layers(
        START, 32, [0, 1, 3], 1500, causal=causal, n_heads=heads, mixing=mixing, seed=1
    )
    np.testing.assert_allclose(draws[0], np.broadcast_to(START, draws[0].shape))
    law = MixingLaw(causal, heads, scale)
    check(draws[1], network_moments(START, 32, 1, law))
    check(draws[2], network_moments(START, 32, 3, law))


def test_states_that_leave_the_cone_are_brought_back() -> None:
    nearly = np.array([[1.0, 0.999], [0.999, 1.0]])
    samples = sample_sde(nearly, [1.0], 2000, longest_step=1 / 16)
    assert samples.repaired > 0
    assert np.linalg.eigvalsh(samples.phi[-1]).min() > -1e-9


def test_seeds_settle_the_draws() -> None:
    state = torch.random.get_rng_state()
    for sample in (
        lambda seed: sample_sde(START, [0.1], 10, seed=seed).phi,
        lambda seed: sample_network(START, 16, [2], 10, seed=seed),
        lambda seed: run_layers(START, 16, [2], 3, seed=seed),
    ):
        assert (sample(3) == sample(3)).all()
        assert not (sample(3) == sample(4)).all()
    assert torch.equal(state, torch.random.get_rng_state())


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="must increase"):
        sample_sde(START, [0.5, 0.25], 10)
    with pytest.raises(InputError, match="must increase"):
        sample_network(START, 64, [4, 2], 10)
    with pytest.raises(InputError, match="draws"):
        sample_network(START, 64, [4], 0)
    with pytest.raises(InputError, match="fewer than the 3 tokens"):
        sample_network(START, 8, [4], 10, law=MixingLaw(n_heads=4))
    with pytest.raises(InputError, match="do not fit"):
        run_layers(START, 2, [1], 1)
