"""A model with its measurements: what a tool's answers are held against.

Truth is what the model was made from (hand-set or compiled weights, forced circuits), measured
again where making it does not settle it. What is not known is None: no question is asked of it.
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
    """Whether a boolean function of features is linearly readable at a place.

    Attributes:
        hook, position: where; positions count from the end where negative.
        features: names of the data's features, the first most significant in `table`.
        table: truth table, such as 0110.
        readable: whether a hyperplane separates it on all rows.
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
        hook, position: where; positions count from the end where negative.
        vector: vector of length 1.
        features, table: the function that a threshold on the component along it reads; both empty
            where it reads none.
        reads: whether it does.
        carries: whether the answers rest on it: exchanging the component along it with that of the
            corrupted row moves them most of the way to the corrupted row's, and does so by what
            varies along it. A direction whose effect comes from a part that does not vary between
            rows (a *dormant* part, moved by a scalar that another part follows) is not one that
            carries: Makelov, Lange and Nanda 2023, arXiv 2311.17030. None: not known.
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
    """Whether a head has a skip-bigram: attends from `query` to `key` tokens and writes for it.

    Attributes:
        head: which.
        key, query: token ids.
        present: whether it has.
    """

    head: Head
    key: int
    query: int
    present: bool


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known.

    Attributes:
        heads: every head that the answers rest on; None: not known.
        unasked: heads of which it depends on the word's meaning whether the answers rest on them,
            such as two that undo each other: no question is asked of them.
        relations: by detector (see `circuits.heads.detectors`): the heads whose attention to that
            relation the answers rest on; heads that attend so and do nothing are not among them.
        attends: by detector: heads that attend so, whether or not anything rests on it.
        edges: edges of the circuit, in EAP-IG's names (see `circuits.edges.wiring`); None: not
            known.
        readouts, directions, pairs: see there; what is false of the model is among them.
        algorithm: its name among `algorithms`; None: not asked.
        algorithms: what a tool may answer.
        flag: a yes-or-no truth of the model as a whole, such as a backdoor, by name.
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
    """One model of the suite.

    Attributes:
        family: such as "compiled".
        variant: how it was made, in a phrase, such as "sort, two heads".
        strength: strength of what was planted, among noise of 1; None where that has no meaning.
        seed: that it was made from.
        model: a live model.
        data: rows with answers (and wrong ones and corrupted rows, and features, where it has
            them); None where the question needs none.
        truth: what is known.
        context: what a tool is told beside model and data, such as the layout of lists.
    """

    family: str
    variant: str
    strength: float | None
    seed: int
    model: Model
    data: FeatureData | None
    truth: Truth
    context: Mapping[str, str] = field(default_factory=dict)
