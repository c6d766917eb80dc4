"""What is said of each place of the residual stream: the model's numbers beside its copies'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp_toolkit.circuits.behaviour.advantage import estimate, within
from interp_toolkit.circuits.collapse.by_depth import Similarity


@dataclass(frozen=True)
class LayerSimilarity:
    """One place of the residual stream.

    Attributes:
        place: "embedding", "block 0", ..., "final norm".
        hook: that carries it, or what the final norm is applied to.
        cosine: mean over rows of the mean cosine between positions of different tokens.
        low, high: its 95 % interval over rows, no wider than -1 to 1.
        reinitialised_cosine: the same in each copy with shuffled weights.
        dimensions: participation ratio of the directions' second moments.
        centred_dimensions: of their covariance.
        reinitialised_dimensions, reinitialised_centred_dimensions: the means over copies.
    """

    place: str
    hook: str
    cosine: float | None
    low: float | None
    high: float | None
    reinitialised_cosine: Sequence[float | None]
    dimensions: float | None
    centred_dimensions: float | None
    reinitialised_dimensions: float | None
    reinitialised_centred_dimensions: float | None


def known(values: Float[np.ndarray, " value"]) -> Float[np.ndarray, " number"]:
    """Those that are numbers."""
    numbers: np.ndarray = values[~np.isnan(values)]
    return numbers


def layer_similarity(own: Similarity, copies: Sequence[Similarity], place: int) -> LayerSimilarity:
    """A place of the model, and the same place in each of its copies."""
    values = known(own.cosines[place])
    cosine = within(estimate(values), 1.0) if len(values) > 1 else None
    return LayerSimilarity(
        place=own.places[place].name,
        hook=own.places[place].hook,
        cosine=None if cosine is None else cosine.mean,
        low=None if cosine is None else cosine.low,
        high=None if cosine is None else cosine.high,
        reinitialised_cosine=[mean_of_known(copy.cosines[place]) for copy in copies],
        dimensions=mean_of_known(own.dimensions[[place]]),
        centred_dimensions=mean_of_known(own.centred_dimensions[[place]]),
        reinitialised_dimensions=mean_of_known(
            np.array([copy.dimensions[place] for copy in copies])
        ),
        reinitialised_centred_dimensions=mean_of_known(
            np.array([copy.centred_dimensions[place] for copy in copies])
        ),
    )


def mean_of_known(values: Float[np.ndarray, " value"]) -> float | None:
    """The mean of those that are numbers; None: there are none."""
    numbers = known(values)
    return float(numbers.mean()) if len(numbers) else None
