"""Universal AND with the activation x -> x^2: products of readoffs as a readout of squares.

Features are random unit vectors f_i of r dimensions, many more than r. The AND of i and j on the
sum v of the f-vectors that are on is (v·f_i)(v·f_j), a quadratic function of v; every quadratic
function of r numbers is a linear combination of squares of linear forms. Of these r(r+1)/2 are
independent, here those of v_a and v_a + v_b: the source's r^2 squares ("Computation in
superposition", section 1.5) span no more. A readout weighs them by the symmetric part of f_i f_j^T,
since v_a v_b = ((v_a + v_b)^2 - v_a^2 - v_b^2) / 2.

With δ = f·f' of order 1/√r: on f_i + f_j the product is (1 + δ)^2, an error of 2/√r (rms); on
f_i + f_x it is (1 + δ)(δ' + δ''), an error of √2/√r; on two others of the order of 1/r.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp_toolkit.data.composites import random_subsets
from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.superposition.layers.gate_model import gate_model, random_unit_features
from interp_toolkit.toys.superposition.layers.gates import Gate, checked_gates
from interp_toolkit.toys.superposition.layers.layer import FeatureLayer

MOST_DIMENSIONS = 128  # of features whose squares are made as neurons: 8,256 of them
MOST_ERROR = 0.5  # that is expected (rms) where a pair is on: 2 / sqrt(r), so 16 dimensions


class ClassError(NamedTuple):
    """The errors of an AND's readoff on inputs of one class: the largest, and root mean square."""

    worst: float
    rms: float


@dataclass(frozen=True, eq=False)
class QuadraticAND(Brief):
    """Universal AND of features in superposition by squares; see the module.

    Attributes:
        features: the f-vectors.
    """

    features: Float[Tensor, "feature dim"]

    def scores(
        self, on: Bool[Tensor, "input feature"], gates: Sequence[Gate]
    ) -> Float[Tensor, "input gate"]:
        """What the readouts of these pairs give, as products: without the squares' neurons."""
        first, second = self._pairs(gates).T
        own = on.to(self.features) @ self.features @ self.features.T
        return own[:, first] * own[:, second]

    def layer(self) -> FeatureLayer:
        """The r(r+1)/2 squares as neurons.

        Raises InputError above 128 dimensions.
        """
        dim = self.features.shape[1]
        if dim > MOST_DIMENSIONS:
            raise InputError(
                f"{dim} dimensions make {dim * (dim + 1) // 2} squares; "
                f"neurons are made up to {MOST_DIMENSIONS} dimensions, use `scores` instead"
            )
        axes = torch.eye(dim, dtype=torch.float64)
        first, second = torch.triu_indices(dim, dim, offset=1)
        W_in = torch.cat([axes, axes[:, first] + axes[:, second]], dim=1)
        b_in = torch.zeros(W_in.shape[1], dtype=torch.float64)
        return FeatureLayer(W_in, b_in, self.features, "square")

    def readoffs(self, gates: Sequence[Gate]) -> Float[Tensor, "gate neuron"]:
        """The pairs' readouts of `layer`'s neurons."""
        dim = self.features.shape[1]
        first, second = torch.triu_indices(dim, dim, offset=1)
        pairs = self._pairs(gates)
        f, g = self.features[pairs[:, 0]], self.features[pairs[:, 1]]
        crossed = f[:, first] * g[:, second] + f[:, second] * g[:, first]
        alone = f * g
        alone.index_add_(1, first, crossed, alpha=-0.5)
        alone.index_add_(1, second, crossed, alpha=-0.5)
        return torch.cat([alone, crossed / 2], dim=1)

    def as_model(self, gates: Sequence[Gate], most_on: int) -> Transformer:
        """The layer as a model whose logits are these pairs; see `gate_model`.

        Raises InputError as `layer` does.
        """
        checked = checked_gates(gates, len(self.features), fan_in=2)
        readoffs = self.readoffs(checked)
        return gate_model(self.layer(), readoffs, checked, None, most_on, "uand-quadratic")

    def sampled_errors(self, most_on: int, n: int, seed: int = 0) -> Mapping[str, ClassError]:
        """Errors on random pairs with both, one or none of the pair among `most_on` features on.

        Args:
            most_on: how many features are on, at least 2.
            n: pairs, each with an input of its own in each class.
            seed: of the sample.

        Raises:
            InputError: fewer features than the pair and `most_on` others, or no pairs.
        """
        if n < 1:
            raise InputError(f"{n} pairs to sample: give 1 or more")
        n_features = len(self.features)
        if not 2 <= most_on <= n_features - 2:
            raise InputError(f"{most_on} features on: between 2 and {n_features - 2} can be")
        rng = np.random.default_rng(seed)
        subsets = random_subsets(n, n_features, most_on + 2, rng)
        chosen = torch.from_numpy(rng.permuted(subsets, axis=1))
        return {
            "both": self._class_error(chosen, range(most_on), 1.0),
            "one": self._class_error(chosen, [0, *range(2, most_on + 1)], 0.0),
            "none": self._class_error(chosen, range(2, most_on + 2), 0.0),
        }

    def _class_error(
        self, chosen: Int[Tensor, "n k"], on: Sequence[int], truth: float
    ) -> ClassError:
        vectors = self.features[chosen]
        inputs = vectors[:, list(on)].sum(dim=1)
        scores = (inputs * vectors[:, 0]).sum(dim=1) * (inputs * vectors[:, 1]).sum(dim=1)
        errors = scores - truth
        return ClassError(float(errors.abs().max()), float(errors.square().mean().sqrt()))

    def _pairs(self, gates: Sequence[Gate]) -> Int[Tensor, "gate 2"]:
        return torch.tensor(checked_gates(gates, len(self.features), fan_in=2))


def quadratic_and(n_features: int, dim: int, *, seed: int = 0) -> QuadraticAND:
    """Universal AND of random unit f-vectors.

    Args:
        n_features: m.
        dim: r, the dimensions they share.
        seed: of the f-vectors.

    Raises:
        InputError: no features or no dimensions, more than fit, or so few dimensions (below 16)
            that an AND that is true is expected to be read off by more than 1/2.
    """
    if dim >= 1 and 2 / math.sqrt(dim) > MOST_ERROR:
        raise InputError(
            f"{dim} dimensions are too few for squares: an AND that is true is read off by "
            f"{2 / math.sqrt(dim):.2f} (rms), where {MOST_ERROR} is the limit; take "
            f"{math.ceil((2 / MOST_ERROR) ** 2)} or more"
        )
    generator = torch.Generator().manual_seed(seed)
    return QuadraticAND(random_unit_features(n_features, dim, generator))
