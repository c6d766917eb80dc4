"""Feature directions as they are scored: unit vectors without the direction that all of them share.

Embeddings and dictionary directions often have a mean: f = mu + e. A form is then large along mu,
summed over all its bigrams, and this enters every score and every scale. It separates keys that all
queries favor from other keys, not one pair from another. Where the mean cosine between two features
of a side exceeds both chance and 1/d, the direction of their mean is therefore projected out of the
features and of the form. Random features stay random: given their mean, what remains of uniformly
random features is uniform over the remaining dimensions, one fewer.

A form that contains one of two similar features (|cosine| above `ALIKE`) cannot tell which one;
`alternatives` lists the others.

Input checks for `skip_bigrams_of` follow: the form, unit features, their names, memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.circuits.skip_bigrams.scores import Form, least_memory
from interp_toolkit.errors import InputError, a_kind
from interp_toolkit.models.running.memory import format_size, parse_memory

BEYOND = 4.0  # standard deviations of a mean cosine between random features
ALIKE = 0.9
MOST_NAMED = 8  # alternatives of a feature
LEAST_LENGTH = 1e-6  # of what is left without the shared direction: below, it is rounding


@dataclass(frozen=True, eq=False)
class FeatureSide:
    """The features on one side of the head: those of queries, or those of keys.

    Attributes:
        unit: as given, of length 1.
        shared: unit vector along their mean, or None where that is no more than chance.
        mean_cosine: between two different features.
        scored: without the shared direction, of length 1 again.
        length: of `unit` without the shared direction.
        d: dimensions in which a random one of `scored` would point anywhere.
    """

    unit: Float[Tensor, "feature d_model"]
    shared: Float[Tensor, " d_model"] | None
    mean_cosine: float
    scored: Float[Tensor, "feature d_model"]
    length: Float[Tensor, " feature"]
    d: int

    @property
    def shared_cosine(self) -> float | None:
        """The mean cosine, where there is a shared direction."""
        return None if self.shared is None else self.mean_cosine

    def drop(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        """Without the shared direction."""
        return rows if self.shared is None else rows - torch.outer(rows @ self.shared, self.shared)

    def random(self, count: int, generator: torch.Generator) -> Float[Tensor, "random d_model"]:
        """Random unit features in the dimensions that `scored` may point in."""
        d_model = self.unit.shape[1]
        rows = torch.randn((count, d_model), generator=generator, dtype=torch.float64)
        if self.d + (self.shared is not None) < d_model:  # behind LN
            rows = rows - rows.mean(1, keepdim=True)
        return torch.nn.functional.normalize(self.drop(rows), dim=1)


def side(unit: Float[Tensor, "feature d_model"], d: int) -> FeatureSide:
    """The query or key side: unit features with their shared direction, if any, projected out."""
    m, total = len(unit), unit.sum(0)
    mean_cosine = float((total @ total - unit.square().sum()) / (m * (m - 1)))
    chance = math.sqrt(2 / (m * (m - 1) * d))
    # without their mean, m random features have a mean cosine of -1 / (m - 1): no gain below that,
    # nor where the mean holds no more of a feature than any direction does, 1 / d
    if mean_cosine <= max(BEYOND * chance, 1 / (m - 1), 1 / d):
        return FeatureSide(unit, None, mean_cosine, unit, unit.norm(dim=1), d)
    shared = total / total.norm()
    rest = unit - torch.outer(unit @ shared, shared)
    rest[rest.norm(dim=1) < LEAST_LENGTH] = 0.0
    scored = torch.nn.functional.normalize(rest, dim=1)
    return FeatureSide(unit, shared, mean_cosine, scored, rest.norm(dim=1), d - 1)


def dimensions_of(query: FeatureSide, key: FeatureSide) -> int:
    """The dimensions of both sides; the fewer give the larger p-values."""
    return min(query.d, key.d)


def projected(form: Form, query: FeatureSide, key: FeatureSide) -> Form:
    """The form without its part along the shared directions; zero where nothing else is left."""
    rest = Form(query.drop(form.left.T).T, key.drop(form.right.T).T)
    if rest.norm() > LEAST_LENGTH * form.norm():
        return rest
    return Form(torch.zeros_like(form.left), torch.zeros_like(form.right))


@dataclass(frozen=True)
class Alternative:
    """A feature that could be meant instead.

    Attributes:
        side: "key" or "query".
        feature: its name.
        cosine: with the one that is named.
    """

    side: str
    feature: str
    cosine: float


def alternatives(
    features: FeatureSide, numbers: Int[Tensor, " pair"], names: Sequence[str], what: str
) -> dict[int, list[Alternative]]:
    """Features of the same side similar to each of these, the most similar first."""
    by_feature: dict[int, list[Alternative]] = {}
    for number in torch.unique(numbers).tolist():
        cosines = features.scored @ features.scored[number]
        cosines[number] = 0.0
        size, others = cosines.abs().topk(min(MOST_NAMED, len(cosines)))
        near = others[size > ALIKE].tolist()
        by_feature[number] = [Alternative(what, names[i], float(cosines[i])) for i in near]
    return by_feature


Directions = Tensor | np.ndarray


def read_form(W: Directions | tuple[Directions, Directions]) -> tuple[Form, int]:
    """The form and its rank at most."""
    factors = W if isinstance(W, tuple) else (W, None)
    left = _matrix(factors[0], "W")
    right = torch.eye(len(left), dtype=left.dtype) if factors[1] is None else factors[1]
    right = _matrix(right, "W_K")
    if left.shape != right.shape:
        raise InputError(
            f"W must be [d_model d_model] or (W_Q, W_K), both [d_model d_head]; got "
            f"{tuple(left.shape)} and {tuple(right.shape)}"
        )
    return Form(left, right), left.shape[1]


def _matrix(values: Directions, what: str) -> Float[Tensor, "row column"]:
    try:
        matrix = torch.as_tensor(values).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} is {a_kind(values)}; give a matrix of numbers") from error
    if matrix.ndim != 2 or not bool(matrix.isfinite().all()):
        raise InputError(
            f"{what} must be a matrix of finite numbers; got shape {tuple(matrix.shape)}"
        )
    return matrix


def read_unit(values: Directions, d_model: int, side: str) -> Float[Tensor, "feature d_model"]:
    """Rows scaled to length 1; rows of zeros stay."""
    rows = _matrix(values, f"{side} features")
    if rows.shape[1] != d_model or len(rows) < 2:
        raise InputError(
            f"{side} features must be two or more directions [feature {d_model}]; got "
            f"{tuple(rows.shape)}"
        )
    return torch.nn.functional.normalize(rows, dim=1)


def read_names(names: Sequence[str] | None, features: Tensor, side: str) -> Sequence[str]:
    """Names of the features, all different; by default f0, f1, ..."""
    if names is None:
        return [f"f{i}" for i in range(len(features))]
    if len(names) != len(features) or len(set(names)) < len(names):
        raise InputError(f"{side} features need {len(features)} different names")
    return names


def read_limit(memory: int | str | None, n_query: int, n_key: int) -> int:
    """Bytes, enough for the smallest tile of scores."""
    limit, least = parse_memory(memory), least_memory(n_query, n_key)
    if limit < least:
        raise InputError(
            f"scores are computed in tiles, which need {format_size(least)} at least, more than "
            f"the {format_size(limit)} of memory allowed; raise the limit"
        )
    return limit
