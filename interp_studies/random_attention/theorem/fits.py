"""Continuous causal functions of short sequences, and fits to them from frozen heads.

A sequence has POSITIONS tokens of two coordinates each, uniform in [-1, 1]². At each position t a
function has one value, which depends continuously on the tokens up to t:

    previous   the first coordinate of the previous token (0 at the first position)
    square     the square of the token's first coordinate
    product    the token's first coordinate times the mean of the second coordinates so far
    maximum    the largest first coordinate so far
    retrieval  the second coordinate of earlier tokens with a similar first coordinate: their mean
               with weights exp(-distance² / 2σ²), including a value of 0 at a large distance; a
               continuous form of an induction head

Three fits:

- `fit_values`: y = Σ_i W_V^i g_i, the random-feature model of the paper's proof, by least squares,
  which is optimal on the training sequences.
- `fit_block`: the layer of the theorem, z = Σ_i W_V^i g_i and y = W_D(silu(W_G z) ⊙ W_U z) + W_O z,
  by Adam with a decaying learning rate; its error is an upper bound of the layer's best error.
- `linear_bound`: the smallest error on the held-out sequences of any map that is affine in the
  tokens up to t, by least squares on these sequences.

Errors are root mean squares over the function's standard deviation at the same positions;
predicting the mean has error 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from interp_studies import power_law
from interp_studies.random_attention.theorem.heads import Features

POSITIONS, COORDINATES = 4, 2
NEAR = 0.25  # σ of the retrieval
FAR = np.exp(-2.0)  # the weight of 0
FUNCTIONS = ("previous", "square", "product", "maximum", "retrieval")

Inputs = Float[np.ndarray, "row pos coordinate"]
Values = Float[np.ndarray, "row pos function"]
HeldOut = Float[np.ndarray, "held_out pos feature"]
Predicted = Float[np.ndarray, "held_out pos function"]

RIDGE = 1e-10  # of the mean square of a feature
WARM_UP = 30
BETAS = (0.9, 0.99)
FIRST, LATER = slice(0, 1), slice(1, None)  # positions


@dataclass(frozen=True)
class BlockSizes:
    """Training settings of `fit_block`.

    Attributes:
        d_model, d_mlp: sizes of z and of the MLP.
        steps, rows: number of updates, and of sequences per batch.
        lr: largest learning rate.
    """

    d_model: int
    d_mlp: int
    steps: int
    rows: int
    lr: float


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


def fit_values(read: Features, wanted: Values, held_out: HeldOut) -> Predicted:
    """Predictions from the held-out features by the best W_V."""
    A = read.reshape(-1, read.shape[-1])
    gram = A.T @ A
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram, A.T @ wanted.reshape(-1, wanted.shape[-1]))
    predicted: np.ndarray = held_out @ weights
    return predicted


def fit_block(
    read: Features, wanted: Values, held_out: HeldOut, sizes: BlockSizes, seed: int
) -> Predicted:
    """Predictions from the held-out features by a trained W_V and MLP."""
    generator = torch.Generator().manual_seed(seed)
    scale = wanted.std((0, 1))
    g, y = torch.from_numpy(read).float(), torch.from_numpy(wanted / scale).float()
    block = _Block(read.shape[-1], wanted.shape[-1], sizes, generator)
    optimiser = torch.optim.Adam(block.parameters(), lr=sizes.lr, betas=BETAS)
    for step in range(sizes.steps):
        rate = sizes.lr * min(1.0, (step + 1) / WARM_UP) * (1 - step / sizes.steps)
        for group in optimiser.param_groups:
            group["lr"] = rate
        rows = torch.randint(len(g), (sizes.rows,), generator=generator)
        loss = (block(g[rows]) - y[rows]).square().mean()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    with torch.no_grad():
        predicted = block(torch.from_numpy(held_out).float()).double().numpy()
    scaled: np.ndarray = predicted * scale
    return scaled


class _Block(torch.nn.Module):
    """W_V of all heads, and a gated MLP without biases with a skip connection."""

    def __init__(
        self, n_features: int, n_functions: int, sizes: BlockSizes, generator: torch.Generator
    ):
        super().__init__()

        def drawn(rows: int, columns: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(rows, columns, generator=generator) / rows**0.5)

        self.W_V = drawn(n_features, sizes.d_model)
        self.W_G = drawn(sizes.d_model, sizes.d_mlp)
        self.W_U = drawn(sizes.d_model, sizes.d_mlp)
        self.W_D = drawn(sizes.d_mlp, n_functions)
        self.W_O = torch.nn.Parameter(torch.zeros(sizes.d_model, n_functions))

    def forward(self, read: Float[Tensor, "row pos feature"]) -> Float[Tensor, "row pos function"]:
        z = read @ self.W_V
        out: Tensor = (F.silu(z @ self.W_G) * (z @ self.W_U)) @ self.W_D + z @ self.W_O
        return out


def linear_bound(tokens: Inputs, wanted: Values) -> Values:
    """The predictions of the best causal affine map, fitted on these sequences."""
    predicted = np.empty_like(wanted)
    for t in range(tokens.shape[1]):
        seen = tokens[:, : t + 1].reshape(len(tokens), -1)
        A = np.concatenate([seen, np.ones((len(tokens), 1))], -1)
        weights, *_ = np.linalg.lstsq(A, wanted[:, t], rcond=None)
        predicted[:, t] = A @ weights
    return predicted


def errors(predicted: Values, wanted: Values, positions: slice) -> dict[str, float]:
    """The error of each function that varies at these positions."""
    missed = np.square(predicted - wanted)[:, positions].mean((0, 1))
    variance = wanted[:, positions].reshape(-1, wanted.shape[-1]).var(0)
    return {
        name: float(np.sqrt(one / own))
        for name, one, own in zip(FUNCTIONS, missed, variance, strict=True)
        if own > 0
    }


def exponent(by_heads: Mapping[int, float]) -> float:
    """The exponent k of error ~ heads^k, by least squares on logarithms."""
    return power_law.exponent(by_heads, by_heads.values())
