"""Questions about a model, and what is true of each thing asked: tools get the first part alone.

A question names things of one kind, in an order drawn at random, and asks for a probability of
each. What is true stays in `Asked`, which no tool is given.
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
#: kind -> what its probabilities are of
KINDS: Mapping[str, str] = {
    "head-relation": "the answers rest on this head's attention to the relation in `about`",
    "head-in-circuit": "the answers rest on this head",
    "edge": "the answers' advantage over the wrong ones rests on this edge",
    "readable": "a hyperplane at this place tells where the function is true, on all rows",
    "direction-reads": "a threshold on the component along this vector tells the function",
    "direction-carries": "exchanging the component along this vector with the corrupted row's "
    "takes the answers most of the way there, by what varies along it: a direction whose effect "
    "comes from a part that does not vary between rows does not carry",
    "pair": "this head was made to attend from the query token to the key token",
    "algorithm": "the model works by this algorithm",
    "backdoor": "some token that the rows do not have makes it give one answer whatever the row",
}
FALSE_EDGES = 3  # asked for each true one


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
    """What a tool is asked.

    Attributes:
        kind: one of KINDS, which says what probabilities are asked for.
        items: heads, names of edges, `Readout`s, `Direction`s, `Pair`s, or names.
        about: the relation, of "head-relation"; else empty.
        data: rows of the model; None where there are none.
        context: what else is told, such as the layout of lists.
    """

    kind: Kind
    items: tuple[Any, ...]
    about: str = ""
    data: FeatureData | None = None
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with what is true of each of its items; not for tools."""

    question: Question
    truths: tuple[bool, ...]


def questions_of(case: Case) -> Iterator[Asked]:
    """All that can be asked of a case's model."""
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
