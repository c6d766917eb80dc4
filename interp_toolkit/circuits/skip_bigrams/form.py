"""A head's bilinear form on features, less the bigrams that were taken out of it, in factors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ROUNDING = 1e-9  # of the largest singular value: smaller ones are none


@dataclass(frozen=True, eq=False)
class Form:
    """`left @ right.T`, on query and key.

    Attributes:
        left, right: factors, float64.
    """

    left: Float[Tensor, "d_model r"]
    right: Float[Tensor, "d_model r"]

    def at(
        self, query: Float[Tensor, "pair d_model"], key: Float[Tensor, "pair d_model"]
    ) -> Float[Tensor, " pair"]:
        """The form's value for each query with its key."""
        return ((query @ self.left) * (key @ self.right)).sum(1)

    def less(
        self,
        query: Float[Tensor, "pair d_model"],
        key: Float[Tensor, "pair d_model"],
        strength: Float[Tensor, " pair"],
    ) -> Form:
        """Without these bigrams, each `strength * query key^T`."""
        left = torch.cat([self.left, -query.T * strength], dim=1)
        return Form(left, torch.cat([self.right, key.T], dim=1))

    def factors(self) -> tuple[Float[Tensor, "d_model k"], Float[Tensor, "d_model k"]]:
        """Factors of the same form with no more columns than dimensions."""
        d, r = self.left.shape
        if r <= d:
            return self.left, self.right
        return self.left @ self.right.T, torch.eye(d, dtype=self.left.dtype)

    def within(self, other: Form) -> Form:
        """The part of the form on what the other reads of queries and keys."""
        sides = []
        for own, read in zip(self.factors(), other.factors(), strict=True):
            U, sizes, _ = torch.linalg.svd(read, full_matrices=False)
            basis = U[:, sizes > ROUNDING * sizes.max()]
            sides.append(basis @ (basis.T @ own))
        return Form(*sides)

    def norm(self) -> float:
        """Frobenius norm of the form."""
        left, right = self.factors()
        return float(((left.T @ left) * (right.T @ right)).sum().clamp_min(0).sqrt())

    def effective_rank(self) -> float:
        """`(sum s^2)^2 / sum s^4` over the singular values s; 0 for a form of zeros."""
        left, right = self.factors()
        both = (left.T @ left) @ (right.T @ right)
        fourth = float((both * both.T).sum())
        return self.norm() ** 4 / fourth if fourth > 0 else 0.0
