"""Random layers of one kind each, never trained, as `study` describes them; and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float

from interp_toolkit.errors import InputError
from interp_toolkit.toys.superposition.layers.density import choose_density

SPARSE = 0.2

Inputs = Float[np.ndarray, "input feature"]


def _gaussian(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray(np.maximum(_affine(x, width, rng), 0))


def _affine(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray(x @ rng.standard_normal((x.shape[1], width)) + rng.standard_normal(width))


def _sparse(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    shape = (x.shape[1], width)
    weights = rng.standard_normal(shape) * (rng.random(shape) < SPARSE)
    return np.asarray(np.maximum(x @ weights + rng.standard_normal(width) / 2, 0))


def _squares(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray((x @ rng.standard_normal((x.shape[1], width))) ** 2)


def _gated(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    return np.asarray(_gaussian(x, width, rng) * _affine(x, width, rng))


def _construction(x: Inputs, width: int, rng: np.random.Generator) -> Float[np.ndarray, "input _"]:
    try:
        density = choose_density(x.shape[1], width)
    except InputError:  # too narrow for its own readoffs: about one pair without neurons a pair
        density = min(0.9, 1 / np.sqrt(width))
    return np.asarray(np.maximum(x @ (rng.random((x.shape[1], width)) < density) - 1.0, 0))


KINDS: Mapping[str, Callable[[Inputs, int, np.random.Generator], Float[np.ndarray, "input _"]]] = {
    "construction": _construction,
    "gaussian": _gaussian,
    "sparse": _sparse,
    "squares": _squares,
    "gated": _gated,
    "linear": _affine,
}
RANDOM = tuple(kind for kind in KINDS if kind != "linear")
