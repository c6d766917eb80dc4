"""ε of readoffs by running their layer: on every input where these are few, else on a sample.

Every input with at most l features on makes it exact. A sample is drawn about the features that
each readoff is of (see `data.composites.sample_about`); its worst error is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.boolean_functions import Epsilon, epsilon
from interp_toolkit.data.composites import (
    all_composites,
    count_composites,
    sample_about,
    sample_composites,
)
from interp_toolkit.errors import InputError

MOST_INPUTS = 20_000  # all are taken where there are no more; else so many are drawn
MOST_SCORES = 2**27  # inputs x readoffs: 1 GiB of scores
BLOCK = 2_048  # inputs that run through the layer at once

Scores = Callable[[Bool[Tensor, "input feature"]], Float[Tensor, "input readoff"]]
Truth = Callable[[Bool[np.ndarray, "input feature"]], Bool[np.ndarray, "input readoff"]]


@dataclass(frozen=True, eq=False)
class MeasuredEpsilon:
    """The errors of readoffs on inputs with at most l features on.

    Attributes:
        over_all: over all readoffs and inputs.
        worst: each readoff's largest error.
        exact: whether every input was run; otherwise `worst` is a lower bound.
        how: what was run, in words.
    """

    over_all: Epsilon
    worst: Float[np.ndarray, " readoff"]
    exact: bool
    how: str


def measured_epsilon(
    scores: Scores,
    truth: Truth,
    about: Sequence[Sequence[int]],
    n_features: int,
    most_on: int,
    *,
    seed: int = 0,
) -> MeasuredEpsilon:
    """Run every input, or a sample.

    Args:
        scores: what is read off.
        truth: what should be.
        about: the features that each readoff is of.
        n_features: of the inputs.
        most_on: how many of them are on together, at most.
        seed: of a sample.

    Raises:
        InputError: sizes that are not there or do not fit.
    """
    inputs = f"with at most {most_on} of {n_features} features on"
    n_inputs = count_composites(n_features, most_on) if most_on <= n_features else 0
    exact = n_inputs <= MOST_INPUTS
    if len(about) * min(n_inputs, MOST_INPUTS) > MOST_SCORES:
        raise InputError(f"{len(about):,} readoffs do not fit: measure fewer at once")
    if exact:
        on, how = all_composites(n_features, most_on), f"every input {inputs}"
    else:
        rng = np.random.default_rng(seed)
        sets = [members for members in about if 0 < len(members) <= most_on]
        size = MOST_INPUTS, n_features, most_on
        on = sample_about(size[0], sets, *size[1:], rng) if sets else sample_composites(*size, rng)
        how = f"{MOST_INPUTS:,} random inputs {inputs}; seed {seed}"
    blocks = (torch.from_numpy(on[k : k + BLOCK]) for k in range(0, len(on), BLOCK))
    values = torch.cat([scores(block) for block in blocks]).numpy()
    right = truth(on)
    return MeasuredEpsilon(
        over_all=epsilon(values, right),
        worst=np.asarray(np.abs(values - right).max(axis=0)),
        exact=exact,
        how=how,
    )
