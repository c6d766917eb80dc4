"""The skip-bigrams of one head: pairs (key feature, query feature) that its QK form checks for.

    score(q, k) = f_q W f_k^T,   W = W_Q W_K^T / attn_scale,   f unit vectors

Source: "Computation in superposition", section 3: a head can check for about d_resid * d_head
such pairs. Steps: scores of all pairs against their own row and column (`scores`, `null`), pursuit
with everything found taken out (`pursuit`), their number (`count`), their complete blocks
(`cliques`).

What it rests on: under no bigrams, features that are independent of the head's weights. It finds
what its features can show: a bigram of features that are not among those given is not seen. A query
that many keys share equally (n keys: t at most sqrt(d / n)) is not found where n is near d/20.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from interp_toolkit.circuits.skip_bigrams.cliques import Block, complete_blocks
from interp_toolkit.circuits.skip_bigrams.count import count
from interp_toolkit.circuits.skip_bigrams.form import Form
from interp_toolkit.circuits.skip_bigrams.null import t_at, z_scores
from interp_toolkit.circuits.skip_bigrams.pursuit import Pursuit, pursue
from interp_toolkit.circuits.skip_bigrams.scores import Features, Scores
from interp_toolkit.errors import InputError
from interp_toolkit.models.memory import parse_memory

LEVEL = 0.05
WIDEST, BIN = 12.0, 0.25  # of the histogram of z
RANDOM = 1024  # random features on either side, for the histogram's null
HEAT = 16  # features on either side of the picture of the strongest

Directions = Tensor | np.ndarray


@dataclass(frozen=True)
class Bigram:
    """A discovery.

    Attributes:
        key_feature, query_feature: names.
        score: `f_q W f_k` of the unit directions, all other bigrams included; negative where the
            head attends less.
        strength: its own part of the form, fitted with all others: `W = sum strength f_q f_k^T`.
        z: of the score given all others, as a normal deviate of its p-value.
    """

    key_feature: str
    query_feature: str
    score: float
    strength: float
    z: float


class Histogram(NamedTuple):
    """How many pairs have which z.

    Attributes:
        edges: of the bins.
        pairs: counts of the features given.
        null: counts expected of as many random features.
    """

    edges: Sequence[float]
    pairs: Sequence[int]
    null: Sequence[float]


class Heat(NamedTuple):
    """Scores between the features of the strongest bigrams."""

    queries: Sequence[str]
    keys: Sequence[str]
    scores: Float[np.ndarray, "query key"]


@dataclass(frozen=True, eq=False)
class HeadBigrams:
    """The skip-bigrams of one head, or of one matrix; see the module.

    Attributes:
        layer, head: None for a matrix.
        distance: query position less key position, for a head that turns them (rotary).
        bigrams: the largest |z| first.
        estimated_count: number of bigrams about as strong as those found; None where it cannot be
            trusted.
        interval: of that number, at 95 %.
        count_note: why there is no number, or "".
        capacity: `d_resid * d_head`, the order of what a head can check for.
        n_pairs: of features that were looked at.
        level: of the false discoveries among the bigrams, and of any discovery where none is true.
        tail: which null: "exact" for features like random ones, "empirical" for others.
        stopped: whether there was more to find than is looked for.
        blocks: complete bipartite blocks of the bigrams, the largest first.
        histogram: of the head as it is, before anything is taken out.
        heat: scores between the features of the strongest.
    """

    layer: int | None
    head: int | None
    distance: int | None
    bigrams: Sequence[Bigram]
    estimated_count: int | None
    interval: tuple[int, int] | None
    count_note: str
    capacity: int
    n_pairs: int
    level: float
    tail: str
    stopped: bool
    blocks: Sequence[Block]
    histogram: Histogram = field(repr=False)
    heat: Heat = field(repr=False)

    @property
    def graph(self) -> nx.Graph:
        """The bigrams as a bipartite graph with nodes ("q", name) and ("k", name)."""
        graph = nx.Graph()
        for bigram in self.bigrams:
            query, key = ("q", bigram.query_feature), ("k", bigram.key_feature)
            graph.add_node(query, bipartite=0)
            graph.add_node(key, bipartite=1)
            graph.add_edge(query, key, strength=bigram.strength, z=bigram.z)
        return graph


@torch.no_grad()
def skip_bigrams_of(
    W: Directions | tuple[Directions, Directions],
    query_features: Directions,
    key_features: Directions | None = None,
    *,
    query_names: Sequence[str] | None = None,
    key_names: Sequence[str] | None = None,
    dimensions: int | None = None,
    level: float = LEVEL,
    memory: int | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> HeadBigrams:
    """The skip-bigrams of a bilinear form `f_q W f_k`, on any directions.

    Args:
        W: [d_model d_model], query first, or its factors (W_Q, W_K), each [d_model d_head].
        query_features: directions [feature d_model]; their lengths make no difference.
        key_features: likewise; None: the same.
        query_names: of the features; None: f0, f1, ...
        key_names: likewise.
        dimensions: in which features may point, where it is less than d_model (1 less behind LN).
        level: of false discoveries.
        memory: bound on what is held at once, such as "4GiB".
        seed: of the samples that give medians, and of the histogram's random features.
        progress: told what is being done.

    Raises:
        InputError: shapes or names that do not fit, numbers that are not finite, fewer than two
            features, or a level outside 0 to 1.
    """
    form, rank = _form(W)
    d_model = len(form.left)
    query = _unit(query_features, d_model, "query")
    key = query if key_features is None else _unit(key_features, d_model, "key")
    query_names = _names(query_names, query, "query")
    key_names = query_names if key_features is None and key_names is None else key_names
    key_names = _names(key_names, key, "key")
    if not 0 < level < 1:
        raise InputError(f"the level is a share between 0 and 1, not {level:g}")
    features = Features(query, key, d_model if dimensions is None else dimensions)
    limit, capacity = parse_memory(memory), d_model * rank
    found = pursue(
        form, features, level=level, capacity=capacity, seed=seed, memory=limit, progress=progress
    )
    number = count(found, features.n_pairs, rank, level)
    scores = form.at(query[found.pairs.query], key[found.pairs.key]).numpy()
    z = z_scores(found.t, found.before.d)
    order = np.argsort(-np.abs(found.t), kind="stable")
    pairs = np.stack(found.pairs, 1)[order]
    interval = None if number.low is None or number.high is None else (number.low, number.high)
    return HeadBigrams(
        layer=None,
        head=None,
        distance=None,
        bigrams=[
            Bigram(key_names[k], query_names[q], float(score), float(strength), float(deviate))
            for (q, k), score, strength, deviate in zip(
                pairs.tolist(), scores[order], found.strength[order], z[order], strict=True
            )
        ],
        estimated_count=number.estimate,
        interval=interval,
        count_note=number.note,
        capacity=capacity,
        n_pairs=features.n_pairs,
        level=level,
        tail="exact" if np.isfinite(found.before.d) else "empirical",
        stopped=found.stopped,
        blocks=[
            Block([key_names[k] for k in keys], [query_names[q] for q in queries])
            for queries, keys in complete_blocks((q, k) for q, k in pairs.tolist())
        ],
        histogram=_histogram(found, form, features, seed, limit),
        heat=_heat(form, features, pairs, query_names, key_names),
    )


def _form(W: Directions | tuple[Directions, Directions]) -> tuple[Form, int]:
    """The form and its rank at most."""
    factors = W if isinstance(W, tuple) else (W, None)
    left = _matrix(factors[0], "W")
    right = torch.eye(len(left), dtype=left.dtype) if factors[1] is None else factors[1]
    right = _matrix(right, "W_K")
    if left.shape != right.shape:
        raise InputError(
            f"W is [d_model d_model] or (W_Q, W_K), both [d_model d_head]; got {tuple(left.shape)} "
            f"and {tuple(right.shape)}"
        )
    return Form(left, right), left.shape[1]


def _matrix(values: Directions, what: str) -> Float[Tensor, "row column"]:
    matrix = torch.as_tensor(values).detach().cpu().double()
    if matrix.ndim != 2 or not bool(matrix.isfinite().all()):
        raise InputError(f"{what} is a matrix of finite numbers; got one of {tuple(matrix.shape)}")
    return matrix


def _unit(values: Directions, d_model: int, side: str) -> Float[Tensor, "feature d_model"]:
    """Rows of length 1; rows of zeros stay."""
    rows = _matrix(values, f"{side} features")
    if rows.shape[1] != d_model or len(rows) < 2:
        raise InputError(
            f"{side} features are two or more directions of {d_model} numbers, one a row; got "
            f"{tuple(rows.shape)}"
        )
    return torch.nn.functional.normalize(rows, dim=1)


def _names(names: Sequence[str] | None, features: Tensor, side: str) -> Sequence[str]:
    if names is None:
        return [f"f{i}" for i in range(len(features))]
    if len(names) != len(features) or len(set(names)) < len(names):
        raise InputError(f"{side} features need {len(features)} different names")
    return names


def _histogram(found: Pursuit, form: Form, features: Features, seed: int, memory: int) -> Histogram:
    """Counts of z over all pairs, and over random features on the same head."""
    edges = np.arange(-WIDEST, WIDEST + BIN / 2, BIN)
    at = _t_edges(edges, found.before.d)
    drawn = torch.Generator().manual_seed(seed)
    sides = []
    for side in (features.query, features.key):
        shape = (min(len(side), RANDOM), side.shape[1])
        random = torch.randn(shape, generator=drawn, dtype=torch.float64)
        if features.d < shape[1]:
            random -= random.mean(1, keepdim=True)
        sides.append(torch.nn.functional.normalize(random, dim=1))
    random_features = Features(sides[0], sides[1], features.d)
    null = Scores(form, random_features, found.before.floor, seed, memory)
    counts = null.histogram(_t_edges(edges, float(features.d)))
    share = features.n_pairs / counts.sum()
    return Histogram(edges.tolist(), found.before.histogram(at).tolist(), (counts * share).tolist())


def _t_edges(z: Float[np.ndarray, " edge"], d: float) -> Float[np.ndarray, " edge"]:
    """The t at which `z_scores` gives these z."""
    p = 2 * stats.norm.sf(np.abs(z))
    return np.array([np.sign(at) * t_at(float(q), d) for at, q in zip(z, p, strict=True)])


def _heat(
    form: Form,
    features: Features,
    pairs: Int[np.ndarray, "pair 2"],
    query_names: Sequence[str],
    key_names: Sequence[str],
) -> Heat:
    queries, keys = (list(dict.fromkeys(pairs[:HEAT, side].tolist())) for side in (0, 1))
    left, right = features.query[queries] @ form.left, features.key[keys] @ form.right
    return Heat(
        [query_names[q] for q in queries], [key_names[k] for k in keys], (left @ right.T).numpy()
    )
