"""Continuous causal functions of short sequences, and what is fitted to them behind frozen heads.

A sequence is POSITIONS tokens of two coordinates each, uniform in [-1, 1]². At each position t a
function gives one number, which depends continuously on the tokens up to t:

    previous   the first coordinate of the token before (0 at the first position)
    square     the square of the own first coordinate
    product    the own first coordinate times the mean of the second ones so far
    maximum    the largest first coordinate so far
    retrieval  the second coordinate of the earlier tokens whose first is near the own: their mean
               with the weights exp(-distance² / 2σ²), and 0 as one more of them, far away; an
               induction head in continuous form

Three fits to their values:

- `fit_values`: y = Σ_i W_V^i g_i, the random-feature model of the source's proof, by least
  squares: no optimizer stands between what is found and the best there is on the training rows.
- `fit_block`: the layer of the theorem, z = Σ_i W_V^i g_i and y = W_D(silu(W_G z) ⊙ W_U z) + W_O z,
  by Adam with a learning rate that falls to 0; so its error is an upper bound of the layer's.
- `linear_bound`: of every map that is affine in the tokens up to t, the least error on the held-out
  rows themselves, by least squares on these rows: none does better there.

Errors are root mean squares over the function's standard deviation at the same positions: 1 is as
good as naming its mean.
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
    """How `fit_block` trains.

    Attributes:
        d_model, d_mlp: of z, and of the MLP.
        steps, rows: updates, and sequences of a batch.
        lr: the highest learning rate.
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
    """Predictions for the held-out features by the best W_V."""
    A = read.reshape(-1, read.shape[-1])
    gram = A.T @ A
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram) / len(gram)
    weights = np.linalg.solve(gram, A.T @ wanted.reshape(-1, wanted.shape[-1]))
    predicted: np.ndarray = held_out @ weights
    return predicted


def fit_block(
    read: Features, wanted: Values, held_out: HeldOut, sizes: BlockSizes, seed: int
) -> Predicted:
    """Predictions for the held-out features by a trained W_V and MLP."""
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
    """W_V of all heads, a gated MLP without biases, and the skip around it."""

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
    """The predictions of the causal affine map that is best on these very rows."""
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
    """The k of error ~ heads^k, least squares on logarithms."""
    return power_law.exponent(by_heads, by_heads.values())
