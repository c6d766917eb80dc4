"""A model with the truth about it, which a tool's answers are compared with.

The truth is known by construction (hand-set or compiled weights, forced circuits), or is measured
if the construction does not determine it. Unknown parts are None, and no question is asked about
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head, Model


@dataclass(frozen=True)
class KnownReadout:
    """Whether a boolean function of features is linearly readable at a hook and position.

    Attributes:
        hook, position: hook name, and position (negative: from the end).
        features: names of the data's features, the first most significant in `table`.
        table: truth table, such as 0110.
        readable: whether a hyperplane separates the two classes on all prompts.
    """

    hook: str
    position: int
    features: tuple[str, ...]
    table: str
    readable: bool


@dataclass(frozen=True, eq=False)
class KnownDirection:
    """A direction of activations, and what it does.

    Attributes:
        hook, position: hook name, and position (negative: from the end).
        vector: vector of length 1.
        features, table: the function that a threshold on the component along the vector classifies;
            both empty if there is none.
        reads: whether such a threshold classifies the function.
        carries: whether exchanging the component with that of the corrupted prompt moves the
            answers most of the way to the corrupted prompt's, through a part that varies between
            prompts; None: not known. A direction whose effect comes from a *dormant* part, which
            does not vary between prompts, does not carry (Makelov, Lange and Nanda 2023, arXiv
            2311.17030).
    """

    hook: str
    position: int
    vector: Float[np.ndarray, " d"]
    features: tuple[str, ...]
    table: str
    reads: bool
    carries: bool | None


@dataclass(frozen=True)
class KnownPair:
    """Whether a head has a skip-bigram: it attends from `query` to `key` and changes the logits.

    Attributes:
        head: the head.
        key, query: token ids.
        present: whether the head has the skip-bigram.
    """

    head: Head
    key: int
    query: int
    present: bool


@dataclass(frozen=True, eq=False)
class Truth:
    """The truth about a model.

    Attributes:
        heads: all heads on which the answers depend; None: not known.
        unasked: heads for which dependence is a matter of definition, such as two that cancel each
            other; no question is asked about them.
        relations: by detector (see `circuits.heads.detectors`): heads on whose attention to the
            pattern the answers depend.
        attends: by detector: all heads with the pattern, including those without effect.
        edges: edges of the circuit, in EAP-IG's names (see `circuits.edges.wiring`); None: not
            known.
        readouts, directions, pairs: true and false statements of these classes.
        algorithm: name of the model's algorithm, one of `algorithms`; None: no question.
        algorithms: the possible answers to the question about the algorithm.
        flag: yes-or-no properties of the whole model, such as a backdoor, by name.
    """

    heads: frozenset[Head] | None = None
    unasked: frozenset[Head] = frozenset()
    relations: Mapping[str, frozenset[Head]] = field(default_factory=dict)
    attends: Mapping[str, frozenset[Head]] = field(default_factory=dict)
    edges: frozenset[str] | None = None
    readouts: tuple[KnownReadout, ...] = ()
    directions: tuple[KnownDirection, ...] = ()
    pairs: tuple[KnownPair, ...] = ()
    algorithm: str | None = None
    algorithms: tuple[str, ...] = ()
    flag: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """A model of the suite.

    Attributes:
        family: family of the model, such as "compiled".
        variant: short description of its construction, such as "sort, two heads".
        strength: strength of what was planted, relative to noise of 1; None if undefined.
        seed: random seed of the model.
        model: the model.
        data: prompts with answers, and where available wrong answers, corrupted prompts and
            features; None if no question needs prompts.
        truth: the truth about the model.
        context: what a tool is told in addition to model and data, such as the layout of lists.
    """

    family: str
    variant: str
    strength: float | None
    seed: int
    model: Model
    data: FeatureData | None
    truth: Truth
    context: Mapping[str, str] = field(default_factory=dict)
