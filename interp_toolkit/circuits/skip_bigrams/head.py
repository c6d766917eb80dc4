"""Skip-bigrams of one head: pairs (key feature, query feature) that its QK form checks for.

    score(q, k) = f_q W f_k^T,   W = W_Q W_K^T / attn_scale,   f unit vectors

Source: "Computation in superposition", section 3: a head can check for about d_model * d_head
such pairs.

Steps:

1. Score all pairs relative to their own row and column (`scores`).
2. Detect pairs by pursuit, which subtracts each detected pair (`pursuit`).
3. Estimate the number of bigrams, and split them into complete blocks (`pursuit`).
4. Compare the head with copies whose key weights have randomly permuted residual coordinates and
   random signs.

The control is needed for sparse weights and features, as in hand-constructed models. Their scores
stand out from the row and column wherever their entries fall. The copies keep the entries. If the
largest scores of the copies are as large, the entries explain the bigrams, and not the matching of
key and query features.

The null assumes that features are independent of the head's weights. Bigrams of features outside
the feature set cannot be detected. If n keys share a query equally, their t is at most sqrt(d / n),
and the bigrams are not detected for n of about d/20 or more.
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

from interp_toolkit.circuits.skip_bigrams.directions import (
    Alternative,
    Directions,
    FeatureSide,
    alternatives,
    dimensions_of,
    projected,
    read_form,
    read_limit,
    read_names,
    read_unit,
    side,
)
from interp_toolkit.circuits.skip_bigrams.pursuit import (
    CompleteBlock,
    Pursuit,
    complete_blocks,
    count,
    pursue,
)
from interp_toolkit.circuits.skip_bigrams.scores import (
    NONE,
    Features,
    Form,
    Pairs,
    PairScores,
    Tally,
    t_at,
    z_scores,
)
from interp_toolkit.circuits.weights.permutations import reciprocal
from interp_toolkit.errors import InputError
from interp_toolkit.finding import column
from interp_toolkit.options import Effort
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL

WIDEST, BIN = 12.0, 0.25  # range and bin width of the histogram of z
RANDOM = 1024  # random features on either side, for the histogram's null
#: effort -> number of permuted copies that a head is compared with
#: standard deviations of chance: nothing is denied unless such a pair would be detected
PAIR = 8.0
COPIES: dict[Effort, int] = {"quick": 0, "standard": 199, "thorough": 9_999}
ENOUGH = 20  # copies with scores as large as the head's, after which no more are drawn
MOST_FEATURES = 1024  # features per side, above which copies take too long
TIE = 1e-4  # relative difference up to which values count as equal
HEAT = 16  # features on either side of the heatmap


@dataclass(frozen=True)
class Bigram:
    """A detected skip-bigram.

    Attributes:
        key_feature, query_feature: names of the features.
        score: `f_q W f_k` of the unit directions, with all other bigrams included; negative if the
            head attends less.
        strength: coefficient in the joint fit `W = sum strength f_q f_k^T`, without the part of W
            along a common direction of all features.
        z: z-score of the score after all other bigrams are subtracted.
        alternatives: features too similar to the key or query feature (|cosine| above 0.9) to be
            distinguished; up to 8 of each, most similar first.
    """

    key_feature: str = column("key")
    query_feature: str = column("query")
    score: float = column("score")
    strength: float = column("strength")
    z: float = column("z")
    alternatives: Sequence[Alternative] = column(
        "or", format=lambda others: alternatives_text(others) or None, default=()
    )


def alternatives_text(alternatives: Sequence[Alternative]) -> str:
    """Text that lists indistinguishable features, such as "key f7 (cos 0.97)"."""
    return ", ".join(f"{a.side} {a.feature} (cos {a.cosine:.2f})" for a in alternatives)


class Histogram(NamedTuple):
    """Histogram of z over pairs of features.

    Attributes:
        edges: edges of the bins.
        pairs: counts for the features.
        null: expected counts for as many random features.
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
    """Skip-bigrams of one head, or of one matrix; see the module.

    Attributes:
        layer, head: layer and index of the head; None for a matrix.
        distance: query position minus key position, for a rotary head.
        bigrams: detected bigrams, sorted by |z|, largest first.
        estimated_count: estimated number of bigrams about as strong as the detected ones; None if
            there is no reliable estimate.
        interval: 95 % interval of that number.
        count_note: why there is no estimate, or "".
        capacity: `d_model * d_head`, order of magnitude of the number a head can check for.
        n_pairs: number of pairs of features.
        level: false discovery rate among the bigrams; without real bigrams, probability of any.
        tail: "exact" for p-values of random directions, "empirical" for those of a normal tail
            (features unlike random ones), "none" if every score is 0.
        power: chance to detect a pair whose score is PAIR standard deviations over random features.
        shared: mean cosine of the query and of the key features, whose common direction is
            projected out; None if there is none.
        control_p: p-value of the comparison with permuted copies (see `permuted_p_value`); NaN
            without bigrams or without a comparison.
        stopped: whether the search ended at its limit, with more bigrams to find.
        blocks: complete bipartite blocks of the bigrams, largest first.
        histogram: histogram of z before any bigram is subtracted.
        heat: scores between the features of the strongest bigrams.
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
    power: float
    shared: tuple[float | None, float | None]
    control_p: float
    stopped: bool
    blocks: Sequence[CompleteBlock]
    histogram: Histogram = field(repr=False)
    heat: Heat = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the head, such as L1H0 or L1H0 at distance 2."""
        assert self.layer is not None
        assert self.head is not None
        at = "" if self.distance is None else f" at distance {self.distance}"
        return head_name(self.layer, self.head) + at

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
    units: Float[Tensor, " d_model"] | None = None,
    level: float = LEVEL,
    copies: int = COPIES["standard"],
    memory: int | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> HeadBigrams:
    """Skip-bigrams of a bilinear form `f_q W f_k`, for any directions.

    Args:
        W: matrix [d_model d_model], query first, or its factors (W_Q, W_K), each [d_model d_head].
        query_features: directions [feature d_model]; their lengths make no difference.
        key_features: directions of keys; None: those of queries.
        query_names: names of the query features; None: f0, f1, ...
        key_names: names of the key features, likewise.
        dimensions: number of dimensions that features can span; None: d_model. (LN removes one.)
        units: units of the residual coordinates for the statistics (see `coordinate_units`);
            None: 1. Reported scores do not depend on them.
        level: false discovery rate.
        copies: number of copies with permuted coordinates, for the control.
        memory: memory limit, such as "4GiB".
        seed: seed of the samples for medians, the copies, and the histogram's random features.
        progress: called with a description of each step.

    Raises:
        InputError: shapes or names do not match, numbers are not finite, there are fewer than two
            features, the level is not between 0 and 1, or the memory limit is too small.

    Examples:
        >>> features = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
        >>> W = torch.outer(features[3], features[7])  # query feature f3, key feature f7
        >>> [bigram] = skip_bigrams_of(W, features).bigrams
        >>> bigram.key_feature, bigram.query_feature
        ('f7', 'f3')
    """
    factors, rank = read_form(W)
    d_model = len(factors.left)
    d = d_model if dimensions is None else dimensions
    unit = [read_unit(query_features, d_model, "query")]
    unit += unit if key_features is None else [read_unit(key_features, d_model, "key")]
    plain = Plain(factors, *unit)
    if units is not None:
        units = units.to(factors.left)
        factors = Form(factors.left * units[:, None], factors.right * units[:, None])
        unit = [torch.nn.functional.normalize(one * reciprocal(units), dim=1) for one in unit]
    query = side(unit[0], d)
    key = query if key_features is None else side(unit[1], d)
    query_names = read_names(query_names, query.unit, "query")
    key_names = query_names if key_features is None and key_names is None else key_names
    key_names = read_names(key_names, key.unit, "key")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level:g}")
    features = Features(query.scored, key.scored, dimensions_of(query, key))
    form = projected(factors, query, key)
    limit, capacity = read_limit(memory, len(query.unit), len(key.unit)), d_model * rank
    pursuit = pursue(
        form, features, level=level, capacity=capacity, seed=seed, memory=limit, progress=progress
    )
    number = count(pursuit, features.n_pairs, rank, level)
    order = np.argsort(-np.abs(pursuit.t), kind="stable")
    pairs = np.stack(pursuit.pairs, 1)[order]
    interval = None if number.low is None or number.high is None else (number.low, number.high)
    return HeadBigrams(
        layer=None,
        head=None,
        distance=None,
        bigrams=_bigrams(pursuit, plain, query, key, query_names, key_names, order),
        estimated_count=number.estimate,
        interval=interval,
        count_note=number.note,
        capacity=capacity,
        n_pairs=features.n_pairs,
        level=level,
        tail=_tail(pursuit),
        power=pursuit.before.power(PAIR, level / features.n_pairs),
        shared=(query.shared_cosine, key.shared_cosine),
        control_p=permuted_p_value(
            form, features, pursuit.pairs, pursuit.before.floor, copies, seed, limit
        )
        if len(order)
        else float("nan"),
        stopped=pursuit.stopped,
        blocks=[
            CompleteBlock([key_names[k] for k in keys], [query_names[q] for q in queries])
            for queries, keys in complete_blocks((q, k) for q, k in pairs.tolist())
        ],
        histogram=_histogram(pursuit, form, (query, key), features.n_pairs, seed, limit),
        heat=_heat(plain, pairs, query_names, key_names),
    )


def _tail(pursuit: Pursuit) -> str:
    if pursuit.before.floor == 0:
        return "none"
    return "exact" if np.isfinite(pursuit.before.d) else "empirical"


class Plain(NamedTuple):
    """Form and unit features in the original coordinates, without units."""

    form: Form
    query: Float[Tensor, "query d_model"]
    key: Float[Tensor, "key d_model"]


def _bigrams(
    pursuit: Pursuit,
    plain: Plain,
    query: FeatureSide,
    key: FeatureSide,
    query_names: Sequence[str],
    key_names: Sequence[str],
    order: Int[np.ndarray, " pair"],
) -> list[Bigram]:
    """Bigrams with scores and strengths in the original coordinates."""
    q, k = (torch.from_numpy(numbers[order]) for numbers in pursuit.pairs)
    scores = plain.form.at(plain.query[q], plain.key[k])
    strength = torch.from_numpy(pursuit.strength[order]) / (query.length[q] * key.length[k])
    z = z_scores(pursuit.t[order], pursuit.before.d)
    others = [
        alternatives(one, numbers, names, what)
        for one, numbers, names, what in (
            (key, k, key_names, "key"),
            (query, q, query_names, "query"),
        )
    ]
    columns = (column.tolist() for column in (q, k, scores, strength, z))
    return [
        Bigram(key_names[ki], query_names[qi], s, c, zi, [*others[0][ki], *others[1][qi]])
        for qi, ki, s, c, zi in zip(*columns, strict=True)
    ]


def _histogram(
    pursuit: Pursuit,
    form: Form,
    sides: tuple[FeatureSide, FeatureSide],
    n_pairs: int,
    seed: int,
    memory: int,
) -> Histogram:
    """Histogram of z over all pairs, and over random features for the same head."""
    edges = np.arange(-WIDEST, WIDEST + BIN / 2, BIN)
    at = _t_edges(edges, pursuit.before.d)
    generator = torch.Generator().manual_seed(seed)
    query, key = (one.random(min(len(one.unit), RANDOM), generator) for one in sides)
    random_features = Features(query, key, dimensions_of(*sides))
    null = PairScores(form, random_features, pursuit.before.floor, seed, memory)
    null.sweep(np.inf, NONE, tally=(tally := Tally()))
    counts = tally.between(_t_edges(edges, float(random_features.d)))
    share = n_pairs / counts.sum()
    return Histogram(edges.tolist(), pursuit.tally.between(at).tolist(), (counts * share).tolist())


def _t_edges(z: Float[np.ndarray, " edge"], d: float) -> Float[np.ndarray, " edge"]:
    """Inverse of `z_scores`: values of t that correspond to z."""
    p = 2 * stats.norm.sf(np.abs(z))
    return np.array([np.sign(at) * t_at(float(q), d) for at, q in zip(z, p, strict=True)])


def _heat(
    plain: Plain,
    pairs: Int[np.ndarray, "pair 2"],
    query_names: Sequence[str],
    key_names: Sequence[str],
) -> Heat:
    queries, keys = (list(dict.fromkeys(pairs[:HEAT, side].tolist())) for side in (0, 1))
    left = plain.query[queries] @ plain.form.left
    right = plain.key[keys] @ plain.form.right
    return Heat(
        [query_names[q] for q in queries], [key_names[k] for k in keys], (left @ right.T).numpy()
    )


def permuted_p_value(
    form: Form,
    features: Features,
    pairs: Pairs,
    floor: float,
    copies: int,
    seed: int,
    memory: int,
) -> float:
    """P-value of the head's largest |t| among copies with permuted residual coordinates.

    The statistic is the mean of the largest |t| per query. The head is counted among the copies.
    The result is NaN without copies, and for more than MOST_FEATURES features on a side. Scoring
    only a sample of them would favor the head, whose bigrams are the largest of all pairs.

    Args:
        form: bilinear form of the head.
        features: features on both sides.
        pairs: detected bigrams; the statistic averages as many of the largest |t|.
        floor: see `PairScores`.
        copies: maximal number of copies; drawing stops after ENOUGH copies that reach the head.
        seed: seed of the copies.
        memory: bytes for a tile.
    """
    if not copies or max(len(features.query), len(features.key)) > MOST_FEATURES:
        return float("nan")
    rng = np.random.default_rng(seed)
    read = (features.key != 0).any(0).nonzero()[:, 0].numpy()

    def largest(head: Form) -> float:
        best = PairScores(head, features, floor, seed, memory).sweep(np.inf, NONE).row_best
        return float(np.sort(best)[-len(pairs.query) :].mean())

    observed, reached = largest(form), 0
    for copy in range(1, copies + 1):
        order = np.arange(len(form.right))
        order[read] = rng.permutation(read)
        sign = torch.from_numpy(rng.choice((-1.0, 1.0), len(order)))
        permuted = Form(form.left, form.right[torch.from_numpy(order)] * sign[:, None])
        reached += largest(permuted) >= observed * (1 - TIE)
        if reached == ENOUGH:
            return (reached + 1) / (copy + 1)
    return (reached + 1) / (copies + 1)
