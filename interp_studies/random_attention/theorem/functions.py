"""Continuous causal functions of short sequences, to be fitted by layers with frozen heads.

A sequence is POSITIONS tokens of two coordinates each, uniform in [-1, 1]². At each position t a
function gives one number, which depends continuously on the tokens up to t:

    previous   the first coordinate of the token before (0 at the first position)
    square     the square of the own first coordinate
    product    the own first coordinate times the mean of the second ones so far
    maximum    the largest first coordinate so far
    retrieval  the second coordinate of the earlier tokens whose first is near the own: their mean
               with the weights exp(-distance² / 2σ²), and 0 as one more of them, far away; an
               induction head in continuous form
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

POSITIONS, COORDINATES = 4, 2
NEAR = 0.25  # σ of the retrieval
FAR = np.exp(-2.0)  # the weight of 0
FUNCTIONS = ("previous", "square", "product", "maximum", "retrieval")

Inputs = Float[np.ndarray, "row pos coordinate"]
Values = Float[np.ndarray, "row pos function"]


def draw(n_rows: int, rng: np.random.Generator) -> Inputs:
    """Sequences of independent uniform tokens."""
    tokens: np.ndarray = rng.uniform(-1, 1, (n_rows, POSITIONS, COORDINATES))
    return tokens


def values(tokens: Inputs) -> Values:
    """Every function at every position, in the order of FUNCTIONS."""
    first, second = tokens[..., 0], tokens[..., 1]
    previous = np.zeros_like(first)
    previous[:, 1:] = first[:, :-1]
    mean = second.cumsum(1) / np.arange(1, tokens.shape[1] + 1)
    distance = first[:, :, None] - first[:, None]
    weight = np.exp(-(distance**2) / (2 * NEAR**2)) * np.tril(np.ones(distance.shape[1:]), -1)
    near = np.einsum("rts,rs->rt", weight, second) / (weight.sum(-1) + FAR)
    columns = [previous, first**2, first * mean, np.maximum.accumulate(first, 1), near]
    return np.stack(columns, axis=-1)
