"""Feature directions for scoring: unit vectors without their common direction.

Embeddings and dictionary directions often have a nonzero mean mu: f = mu + e. Each bigram then adds
a component along mu to the QK form, and the sum enters every score and every scale. It separates
keys that all queries favor from other keys, but does not distinguish pairs. If the mean cosine
between two features of a side exceeds both chance and 1/d, the direction of their mean is therefore
projected out of the features and of the form. Uniformly random features stay uniform, over one
dimension fewer.

If two features are similar (|cosine| above `ALIKE`), a form that contains one of them does not show
which; `alternatives` lists the others.

The module also checks the inputs of `skip_bigrams_of`: the form, features, names and memory.
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
LEAST_LENGTH = 1e-6  # shorter remainders without the common direction count as rounding


@dataclass(frozen=True, eq=False)
class FeatureSide:
    """Features on one side of the head: those of queries, or those of keys.

    Attributes:
        unit: features scaled to length 1.
        shared: unit vector along their mean; None if the mean is no larger than by chance.
        mean_cosine: mean cosine between two different features.
        scored: features without the common direction, scaled to length 1 again.
        length: length of `unit` without the common direction.
        d: number of dimensions that `scored` can span.
    """

    unit: Float[Tensor, "feature d_model"]
    shared: Float[Tensor, " d_model"] | None
    mean_cosine: float
    scored: Float[Tensor, "feature d_model"]
    length: Float[Tensor, " feature"]
    d: int

    @property
    def shared_cosine(self) -> float | None:
        """Mean cosine if there is a common direction, else None."""
        return None if self.shared is None else self.mean_cosine

    def drop(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        """Project out the common direction."""
        return rows if self.shared is None else rows - torch.outer(rows @ self.shared, self.shared)

    def random(self, count: int, generator: torch.Generator) -> Float[Tensor, "random d_model"]:
        """Random unit features in the dimensions that `scored` can span."""
        d_model = self.unit.shape[1]
        rows = torch.randn((count, d_model), generator=generator, dtype=torch.float64)
        if self.d + (self.shared is not None) < d_model:  # after LN's centering
            rows = rows - rows.mean(1, keepdim=True)
        return torch.nn.functional.normalize(self.drop(rows), dim=1)


def side(unit: Float[Tensor, "feature d_model"], d: int) -> FeatureSide:
    """The query or key side: unit features with their shared direction, if any, projected out."""
    m, total = len(unit), unit.sum(0)
    mean_cosine = float((total @ total - unit.square().sum()) / (m * (m - 1)))
    chance = math.sqrt(2 / (m * (m - 1) * d))
    # projecting out the mean of m random features leaves a mean cosine of -1 / (m - 1), so smaller
    # means are kept, as are means that explain no more of a feature than any direction does (1 / d)
    if mean_cosine <= max(BEYOND * chance, 1 / (m - 1), 1 / d):
        return FeatureSide(unit, None, mean_cosine, unit, unit.norm(dim=1), d)
    shared = total / total.norm()
    rest = unit - torch.outer(unit @ shared, shared)
    rest[rest.norm(dim=1) < LEAST_LENGTH] = 0.0
    scored = torch.nn.functional.normalize(rest, dim=1)
    return FeatureSide(unit, shared, mean_cosine, scored, rest.norm(dim=1), d - 1)


def dimensions_of(query: FeatureSide, key: FeatureSide) -> int:
    """Smaller dimension of the two sides, which gives the larger p-values."""
    return min(query.d, key.d)


def projected(form: Form, query: FeatureSide, key: FeatureSide) -> Form:
    """Form with the common directions projected out; zero if only rounding is left."""
    rest = Form(query.drop(form.left.T).T, key.drop(form.right.T).T)
    if rest.norm() > LEAST_LENGTH * form.norm():
        return rest
    return Form(torch.zeros_like(form.left), torch.zeros_like(form.right))


@dataclass(frozen=True)
class Alternative:
    """A feature that cannot be distinguished from one of a bigram's features.

    Attributes:
        side: "key" or "query".
        feature: name of the feature.
        cosine: cosine with the bigram's feature.
    """

    side: str
    feature: str
    cosine: float


def alternatives(
    features: FeatureSide, numbers: Int[Tensor, " pair"], names: Sequence[str], what: str
) -> dict[int, list[Alternative]]:
    """Similar features of the same side for each of these features, most similar first."""
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
    """Parse a bilinear form, and return it with the upper bound of its rank."""
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
    """Parse features and scale them to length 1; features of zeros stay zero."""
    rows = _matrix(values, f"{side} features")
    if rows.shape[1] != d_model or len(rows) < 2:
        raise InputError(
            f"{side} features must be two or more directions [feature {d_model}]; got "
            f"{tuple(rows.shape)}"
        )
    return torch.nn.functional.normalize(rows, dim=1)


def read_names(names: Sequence[str] | None, features: Tensor, side: str) -> Sequence[str]:
    """Check that feature names are unique; by default f0, f1, ..."""
    if names is None:
        return [f"f{i}" for i in range(len(features))]
    if len(names) != len(features) or len(set(names)) < len(names):
        raise InputError(f"{side} features need {len(features)} different names")
    return names


def read_limit(memory: int | str | None, n_query: int, n_key: int) -> int:
    """Memory limit in bytes, checked to suffice for the smallest tile of scores."""
    limit, least = parse_memory(memory), least_memory(n_query, n_key)
    if limit < least:
        raise InputError(
            f"scores are computed in tiles, which need {format_size(least)} at least, more than "
            f"the {format_size(limit)} of memory allowed; raise the limit"
        )
    return limit
