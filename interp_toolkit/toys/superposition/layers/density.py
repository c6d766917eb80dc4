"""Connection densities of features and neurons: the source's, its errors, and a search.

Each of m features is connected to each of d neurons with probability p. What follows from p alone:

- a pair has no neuron in common with probability (1 - p^2)^d, and its AND then has error 1;
- with l features on, the mean error of a readoff is (l-2) p where both features of the pair are on,
  (l-1) p where one is, l p - 1 + (1-p)^l where none is;
- the worst error over all pairs and inputs is near the M that one set of (pair, l-1 others) in all
  is expected to reach, where a pair's neurons are Binomial(d, p^2) and the sum of the others'
  shares of n of them is Binomial((l-1) n, p) / n.

At p = sqrt(1 - N^(-1/d)), N the number of pairs, one pair without neurons is expected. The source's
p = log(m)^2 / sqrt(d) is above 1 at sizes that fit a machine, so p is chosen by search for the
least such M. Source: "Computation in superposition", section 1.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import bdtrc
from scipy.stats import binom

from interp_toolkit.errors import InputError

N_DENSITIES = 80
N_HALVINGS = 20
TAIL = 12.0  # standard deviations of a pair's number of neurons that are summed over


@dataclass(frozen=True)
class ClassMeans:
    """The mean error of a readoff with l features on, by how many of the pair are on."""

    both_on: float
    one_on: float
    none_on: float


def class_means(density: float, most_on: int) -> ClassMeans:
    """The mean errors with exactly `most_on` features on; see the module."""
    p, n_on = checked_density(density), checked_most_on(most_on)
    return ClassMeans((n_on - 2) * p, (n_on - 1) * p, n_on * p - 1 + (1 - p) ** n_on)


def empty_probability(density: float, n_neurons: int, fan_in: int = 2) -> float:
    """The probability that a pair of features (a set of `fan_in`) has no neuron in common."""
    return float((1 - checked_density(density) ** fan_in) ** n_neurons)


def source_density(n_features: int, n_neurons: int) -> float:
    """The source's log(m)^2 / sqrt(d), which is no probability where it is above 1."""
    return math.log(n_features) ** 2 / math.sqrt(n_neurons)


def sparsest_density(n_features: int, n_neurons: int) -> float:
    """The density at which one pair is expected to have no neuron in common."""
    n_pairs = math.comb(n_features, 2)
    return math.sqrt(-math.expm1(-math.log(n_pairs) / n_neurons)) if n_pairs > 1 else 0.5


def expected_worst(
    n_features: int, n_neurons: int, density: float, most_on: int = 2, *, fan_in: int = 2
) -> float:
    """About how large the worst error over all pairs and inputs will be; see the module.

    The sets are taken as independent, which they nearly are where it matters; 1 where a pair
    without neurons must be expected, and never more than `most_on`. With another fan-in k, of the
    gates of k features (see `fan_in`), which share Binomial(d, p^k) neurons.
    """
    p, n_on = checked_density(density), checked_most_on(most_on)
    n_others = min(n_on - fan_in + 1, n_features - fan_in)
    n_gates = math.comb(n_features, fan_in)
    empty = n_gates * empty_probability(p, n_neurons, fan_in) > 0.5
    if n_others <= 0:
        return float(empty)
    sets = n_gates * math.comb(n_features - fan_in, n_others)
    sizes, weights = _sizes(n_neurons, p**fan_in)
    low, high = (1.0 if empty else 0.0), float(n_others)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        reach = np.floor(middle * sizes * (1 + 1e-12))
        above = sets * float(weights @ bdtrc(reach, n_others * sizes, p))
        low, high = (middle, high) if above > 0.5 else (low, middle)
    return high


def choose_density(n_features: int, n_neurons: int, most_on: int = 2, *, fan_in: int = 2) -> float:
    """The density with the least `expected_worst`, from a grid between d^(-1/k) and 0.9.

    Raises InputError when the least is 1 or more: then no density makes a readoff that is right on
    every pair and input.
    """
    densities = np.geomspace(min(n_neurons ** (-1 / fan_in), 0.9), 0.9, N_DENSITIES)
    worst = [
        expected_worst(n_features, n_neurons, float(p), most_on, fan_in=fan_in) for p in densities
    ]
    best = int(np.argmin(worst))
    if worst[best] >= 1:
        raise InputError(
            f"{counted(n_neurons, 'neuron')} are too few for the ANDs of fan-in {fan_in} of "
            f"{n_features} features with up to {most_on} on: at the best density, "
            f"{densities[best]:.2f}, the worst error is about {worst[best]:.2f}; take more "
            "neurons, or give a density to build it all the same"
        )
    return float(densities[best])


def counted(number: int, what: str) -> str:
    """`1 pair`, `1,225 pairs`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def checked_density(density: float) -> float:
    """The density; raises InputError where it is no probability above 0."""
    if not 0 < density <= 1:
        raise InputError(f"a density is a probability above 0 and up to 1, not {density:.4g}")
    return float(density)


def checked_most_on(most_on: int) -> int:
    """The number; raises InputError where it is too small for an AND to be true."""
    if most_on < 2:
        raise InputError(f"at most {most_on} features on makes no AND true: give 2 or more")
    return most_on


def _sizes(
    n_neurons: int, chance: float
) -> tuple[Int[np.ndarray, " size"], Float[np.ndarray, " size"]]:
    """How many neurons a gate may have, each with this chance, but none; with what probability."""
    mean = n_neurons * chance
    spread = TAIL * math.sqrt(mean) + TAIL
    sizes = np.arange(max(1, int(mean - spread)), min(n_neurons, int(mean + spread)) + 1)
    return sizes, binom.pmf(sizes, n_neurons, chance)
