"""How much alike the hidden states of different tokens are: cosines, and dimensions in use.

- In a row of tokens, the mean cosine between hidden states at positions with different token ids.
  Independent directions in d dimensions have mean 0, and each cosine a standard deviation of
  1/√d; identical directions have 1.
- Over all positions of all rows, how many dimensions the directions (hidden states at unit length,
  so that none counts more than another) take up: the participation ratio (Σλ)² / Σλ² of the
  eigenvalues of their second moments, and of their covariance, which leaves out what they all
  share. It is at most the width and at most the number of positions. Rows that collapse each to
  a direction of its own still take up many dimensions together.

Rows come in batches, and only sums are kept.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.models.weights.precision import at_least_single


def directions(
    hidden: Float[Tensor, "*batch d"],
) -> tuple[Float[Tensor, "*batch d"], Bool[Tensor, "*batch"]]:
    """Hidden states at unit length, and which have a direction at all (zero ones stay zero)."""
    hidden = at_least_single(hidden)
    hidden = hidden / hidden.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(hidden.dtype).tiny)
    norm = hidden.norm(dim=-1, keepdim=True)
    return hidden / norm.clamp_min(0.5), norm[..., 0] > 0


def mean_cosines(
    units: Float[Tensor, "batch pos d"],
    tokens: Int[Tensor, "batch pos"],
    counted: Bool[Tensor, "batch pos"],
) -> Float[Tensor, " batch"]:
    """Of each row, the mean cosine between counted positions of different ids; NaN: no such pair.

    Args:
        units: directions, as `directions` gives them.
        tokens: ids.
        counted: which positions take part.
    """
    means = [
        _mean_cosine(u[keep], ids[keep])
        for u, ids, keep in zip(units, tokens, counted, strict=True)
    ]
    return torch.stack(means)


def _mean_cosine(units: Float[Tensor, "pos d"], tokens: Int[Tensor, " pos"]) -> Float[Tensor, ""]:
    differ = tokens[:, None] != tokens
    cosines: Tensor = units @ units.T
    return cosines.double()[differ].mean()  # the mean of no pair is NaN


class DirectionMoments:
    """Sums over directions, from which the dimensions they take up follow.

    Attributes:
        count: directions seen.
        total: their sum.
        products: the sum of their outer products.
    """

    def __init__(self, d: int, device: str | torch.device = "cpu"):
        self.count = 0
        self.total = torch.zeros(d, dtype=torch.float64, device=device)
        self.products = torch.zeros(d, d, dtype=torch.float64, device=device)

    def add(self, units: Float[Tensor, "n d"]) -> None:
        """Take in more directions."""
        self.count += len(units)
        self.total += units.double().sum(0)
        self.products += units.T @ units

    def dimensions(self, *, centred: bool) -> float:
        """The participation ratio, of the covariance or of second moments; NaN: no variance."""
        second = self.products / self.count
        if centred:
            mean = self.total / self.count
            second.addr_(mean, mean, alpha=-1)
        trace = second.trace()
        if not trace > 1e-12:  # directions are of length 1: this is rounding
            return float("nan")
        return float((trace / torch.linalg.vector_norm(second)) ** 2)
