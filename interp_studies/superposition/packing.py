"""How many one-hot inputs are worth keeping in d dimensions: N_Lp(d), by optimization.

An autoencoder x -> act(W^T W x), with act = ReLU (the usual toy model of superposition, without
biases) or the identity, gets infinitely many one-hot inputs. An input is kept, as a unit vector, or
sent to zero, which costs 1. Keeping n inputs costs the interference I_p(n), the sum over ordered
pairs of |act(w_i . w_j)|^p for the best directions. Relative to keeping none, the loss is I_p(n) -
n, and N_Lp(d) is the n that minimizes it. Directions are found by Adam from random starts, so
I_p(n) is an upper bound, and N is the minimum for the best directions found.

The norms are fixed at 1, because free norms do not give such a number: an input of small norm r
gains of the order of r^2 and interferes with unit vectors by the order of r^p. For p > 2 every
input is then worth keeping a little, and for p = 2 both are of one order; `free_norms` shows this.
Known values: without ReLU, the sum of cos^p over n unit vectors is at least n^2 / c (Welch 1974),
with c = d (d+2) ... (d+p-2) / (1 3 ... (p-1)) for even p. Hence I - n >= n^2/c - 2n, which is
smallest at n = c. For p = 2 the bound is attained from n = d on (tight frames), and N is d.
Source: "Computation in superposition", section 2 (N_Lp(d), N_ε(d)).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

FIRST_RATE, STEPS = 0.05, 200
GROWTH = 1.12  # of n from one try to the next
PAST = 1.5  # the search ends at so many times the best n yet
REFINED = 9  # tries between the neighbors of the best n


def interference(directions: Float[Tensor, "n d"], power: int, *, relu: bool) -> Float[Tensor, ""]:
    """The sum over ordered pairs of different ones of |act(cosine)|^p."""
    unit = directions / directions.norm(dim=1, keepdim=True)
    cosines = unit @ unit.T
    read = cosines.relu() if relu else cosines.abs()
    total: Tensor = (read**power).sum() - len(directions)
    return total


def least_interference(
    n: int, d: int, power: int, *, relu: bool, generator: torch.Generator
) -> float:
    """The interference of n unit vectors in d dimensions, at the best directions found."""
    dtype, device = torch.float32, generator.device
    directions = torch.randn(n, d, generator=generator, dtype=dtype, device=device)
    directions.requires_grad_()
    optimiser = torch.optim.Adam([directions])
    for step in range(STEPS):
        _anneal(optimiser, step, STEPS)
        loss = interference(directions, power, relu=relu)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    with torch.no_grad():
        return interference(directions.double(), power, relu=relu).item()


def capacity(
    d: int, power: int, *, relu: bool, seed: int, device: str = "cpu"
) -> tuple[int, dict[int, float]]:
    """N_Lp(d), and the loss relative to keeping none for every n that was tried.

    n grows by the factor GROWTH from d until the loss has clearly increased again. Then up to
    REFINED values between the neighbors of the minimum are tried.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tried: dict[int, float] = {}

    def attempt(n: int) -> None:
        if n not in tried:
            least = least_interference(n, d, power, relu=relu, generator=generator)
            tried[n] = least - n

    n = d
    while not tried or n <= PAST * _best(tried):
        attempt(n)
        n = max(n + 1, round(n * GROWTH))
    ordered = sorted(tried)
    index = ordered.index(_best(tried))
    low, high = ordered[max(0, index - 1)], ordered[min(len(ordered) - 1, index + 1)]
    for k in range(1, REFINED + 1):
        attempt(low + round(k * (high - low) / (REFINED + 1)))
    return _best(tried), dict(sorted(tried.items()))


def welch_capacity(d: int, power: int) -> float:
    """The n that minimizes Welch's bound without ReLU, for an even p; see the module."""
    if power % 2:
        raise ValueError(f"Welch's bound is for even powers, not {power}")
    return math.prod((d + k) / (k + 1) for k in range(0, power, 2))


def random_capacity(d: int, epsilon: float) -> float:
    """How many random unit vectors have all cosines within ε, in expectation: a model of N_ε(d).

    The n at which n (n-1) / 2 pairs times the exact probability of |cosine| > ε is one; cosine^2 is
    Beta(1/2, (d-1)/2). It grows at least as C exp(ε^2 d / 4).
    """
    if d == 1:
        return 1.0
    beyond = float(stats.beta.sf(epsilon**2, 0.5, (d - 1) / 2))
    return (1 + math.sqrt(1 + 8 / beyond)) / 2


def free_norms(
    n: int, d: int, power: int, *, seed: int, steps: int = 2_000
) -> tuple[float, Float[Tensor, " n"]]:
    """Loss and norms of the ReLU autoencoder of n inputs, trained with free norms.

    The loss is the sum of |act(W^T W) - 1|^p, minus n, as in `capacity`.
    """
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n, d, generator=generator) / d**0.5
    vectors.requires_grad_()
    optimiser = torch.optim.Adam([vectors])
    wanted = torch.eye(n)
    for step in range(steps):
        _anneal(optimiser, step, steps)
        loss = ((vectors @ vectors.T).relu() - wanted).abs().pow(power).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    return loss.item() - n, vectors.detach().norm(dim=1)


def _anneal(optimiser: torch.optim.Optimizer, step: int, steps: int) -> None:
    for group in optimiser.param_groups:
        group["lr"] = FIRST_RATE * 0.5 * (1 + math.cos(math.pi * step / steps))


def _best(tried: dict[int, float]) -> int:
    return min(tried, key=lambda n: tried[n])
