"""Questions about a model, with their true answers.

A question lists items of one kind in random order and asks for the probability that a statement
is true of each. The true answers are in `Asked`, which tools do not get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from interp_studies.challenge.case import Case
from interp_studies.challenge.plain import edges_among
from interp_toolkit.data import FeatureData
from interp_toolkit.models.model import Head

Kind = Literal[
    "head-relation",
    "head-in-circuit",
    "edge",
    "readable",
    "direction-reads",
    "direction-carries",
    "pair",
    "algorithm",
    "backdoor",
]
#: kind -> the statement about each item whose probability is asked for
KINDS: Mapping[str, str] = {
    "head-relation": "the model's answers depend on this head's attention to the keys of the "
    "pattern named by `about`",
    "head-in-circuit": "the model's answers depend on this head",
    "edge": "the logit difference between right and wrong answers depends on this edge",
    "readable": "a hyperplane in the activations at this hook and position separates the prompts "
    "where the function is true from the others, without error",
    "direction-reads": "a threshold on the component along this vector classifies the function",
    "direction-carries": "exchanging the component along this vector with that of the corrupted "
    "prompt changes most of the answers, through the part of the component that varies between "
    "prompts (a direction that acts through a constant part does not carry)",
    "pair": "this head was constructed to attend from the query token to the key token",
    "algorithm": "the model uses this algorithm",
    "backdoor": "the model has a token, absent from the prompts, after which its answer is the "
    "same for every prompt",
}
FALSE_EDGES = 3  # number of false edges per true edge in a question


@dataclass(frozen=True)
class Readout:
    """A function of features at a place: hook, position, names of features, truth table."""

    hook: str
    position: int
    features: tuple[str, ...]
    table: str


@dataclass(frozen=True, eq=False)
class Direction:
    """A vector of length 1 at a place, and a function of features."""

    hook: str
    position: int
    vector: Float[np.ndarray, " d"]
    features: tuple[str, ...]
    table: str


@dataclass(frozen=True)
class Pair:
    """A head, and token ids: of a key and of a query."""

    head: Head
    key: int
    query: int


@dataclass(frozen=True, eq=False)
class Question:
    """A question for a tool: the probability of the same statement about each of several items.

    Attributes:
        kind: a key of KINDS, which gives the statement.
        items: heads, names of edges, `Readout`s, `Direction`s, `Pair`s, or names of algorithms.
        about: name of the attention pattern, for "head-relation"; else empty.
        data: prompts of the model; None if the model has none.
        context: further information, such as the layout of lists.
    """

    kind: Kind
    items: tuple[Any, ...]
    about: str = ""
    data: FeatureData | None = None
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with the truth about each of its items, which tools do not get."""

    question: Question
    truths: tuple[bool, ...]


def questions_of(case: Case) -> Iterator[Asked]:
    """All questions about a case's model."""
    truth, shuffle = case.truth, np.random.default_rng([case.seed, 71])
    heads = [h for h in _all_heads(case.model.cfg) if h not in truth.unasked]
    if truth.heads is not None:
        known = truth.heads
        yield _asked(case, shuffle, "head-in-circuit", [(h, h in known) for h in heads])
    for relation, there in truth.relations.items():
        pairs = [(h, h in there) for h in heads]
        yield _asked(case, shuffle, "head-relation", pairs, relation)
    if truth.edges is not None:
        yield _asked(case, shuffle, "edge", _some_edges(case, truth.edges, shuffle))
    if truth.readouts:
        readouts = [
            (Readout(r.hook, r.position, r.features, r.table), r.readable) for r in truth.readouts
        ]
        yield _asked(case, shuffle, "readable", readouts)
    if truth.directions:
        every = [
            (Direction(d.hook, d.position, d.vector, d.features, d.table), d)
            for d in truth.directions
        ]
        reads = [(item, d.reads) for item, d in every if d.features]
        carries = [(item, d.carries) for item, d in every if d.carries is not None]
        if reads:
            yield _asked(case, shuffle, "direction-reads", reads)
        if carries:
            yield _asked(case, shuffle, "direction-carries", carries)
    if truth.pairs:
        pairs_of = [(Pair(p.head, p.key, p.query), p.present) for p in truth.pairs]
        yield _asked(case, shuffle, "pair", pairs_of)
    if truth.algorithm is not None:
        names = [(name, name == truth.algorithm) for name in truth.algorithms]
        yield _asked(case, shuffle, "algorithm", names)
    if "backdoor" in truth.flag:
        yield _asked(case, shuffle, "backdoor", [("backdoor", truth.flag["backdoor"])])


def _asked(
    case: Case,
    shuffle: np.random.Generator,
    kind: Kind,
    pairs: Sequence[tuple[Any, bool]],
    about: str = "",
) -> Asked:
    order = shuffle.permutation(len(pairs))
    items = tuple(pairs[i][0] for i in order)
    truths = tuple(bool(pairs[i][1]) for i in order)
    return Asked(Question(kind, items, about, case.data, dict(case.context)), truths)


def _all_heads(cfg: Any) -> list[Head]:
    return [Head(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]


def _some_edges(
    case: Case, true: frozenset[str], shuffle: np.random.Generator
) -> list[tuple[str, bool]]:
    """The true edges, and FALSE_EDGES times as many others of the model."""
    cfg = case.model.cfg
    nodes = [f"a{layer}.h{head}" for layer, head in _all_heads(cfg)]
    nodes += [] if cfg.attn_only else [f"m{layer}" for layer in range(cfg.n_layers)]
    names = {f"{source}->{target}" for source, target in edges_among(nodes)}
    others = np.array(sorted(names - true))
    chosen = shuffle.permutation(others)[: FALSE_EDGES * len(true)]
    return [*((name, True) for name in sorted(true)), *((str(name), False) for name in chosen)]
