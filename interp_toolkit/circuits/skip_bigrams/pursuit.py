"""Search for the bigrams of a head by repeated scoring and subtraction, and their number.

*Pursuit.* A bigram (q, k) of strength c adds c f_q f_k^T to the form. It thereby changes the score
of every pair that shares a feature with it or resembles it: strong bigrams hide weak ones and
create spurious ones. Rounds of two steps repeat until no new pair is significant:

1. Score every pair relative to its row and its column (`scores`). Take the significant pairs that
   have the largest |t| of both their row and their column.
2. Refit the strengths of all pairs taken so far by least squares on the form (the Gram matrix of
   two bigrams is (f_q . f_q')(f_k . f_k')), and subtract their sum from the form.

The remainder of a low-rank form varies more between features of different bigrams than between
other features. The t of such pairs is divided by the ratio of the median |t| among these features
to that elsewhere. The ratio is the smaller of those of the two signs, so that undetected bigrams,
mostly of one sign, do not inflate it. Finally, backward elimination drops the pairs that are not
significant given all others, weakest first.

*Complete blocks.* A block K x Q contains every key of K with every query of Q. It costs a head one
rank, however many bigrams it has ("Computation in superposition", section 3.2), so a set of bigrams
that splits into few blocks is cheap. The minimum number of blocks is hard to compute. The greedy
split repeatedly takes the largest block grown from the feature with most remaining bigrams, and
gives an upper bound.

*Number of bigrams.* The expected fraction of false pairs among the detected ones is at most about
`level`. The number of bigrams just below significance is the number of pairs beyond a threshold
with one sign minus those with the other, since chance is symmetric in sign. On planted heads,
pursuit detects either nearly all bigrams, or few with many more just below significance. (It
detects nearly all of up to about a tenth of d_model * d_head equally strong bigrams without common
features, for 4 d_model features.) `count` therefore returns an interval only if

- at least `FEWEST` bigrams were detected, most of one sign;
- no more remain than expected by chance: the two signs differ by less than `BEYOND` standard
  errors, or by less than a twentieth of the number detected;
- three quarters of the detected bigrams lie well above the threshold of significance;
- they are about equally strong: the interquartile range of |strength| is at most `SPREAD` of its
  median, and nine of ten reach half the median. Otherwise weaker ones are probably missed;
- the remainder is smaller than one bigram, or spread over many directions. Bigrams that share
  features and hide each other (a query of many keys) leave few directions.

The estimate covers bigrams of at least half the median strength of the detected ones. Weaker ones
cannot be distinguished from chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from interp_toolkit.circuits.skip_bigrams.scores import (
    FLOOR,
    NONE,
    Features,
    Form,
    Pairs,
    PairScores,
    Tally,
    p_values,
    t_at,
)
from interp_toolkit.stats import COVERAGE, discovery_threshold

MOST_BIGRAMS = 4096
MOST_ROUNDS = 200
FEWEST_SIGNED = 30  # values of t of one sign needed for a ratio of medians
_RIDGE = 1e-9  # added to the Gram matrix's unit diagonal, since two features may be equal


@dataclass(frozen=True, eq=False)
class Pursuit:
    """The result of a search.

    Attributes:
        pairs: detected bigrams.
        strength: least-squares strengths: the form is about `sum strength f_q f_k^T`.
        t: t of each bigram after all others are subtracted.
        rest: remainder of the form, projected on the subspaces that the head reads.
        before: scores of the form before pursuit.
        tally: counts of their t.
        after: scores of the remainder.
        rounds: number of rounds with new bigrams.
        stopped: whether the search ended with more bigrams to find, at `MOST_ROUNDS` or at the
            smaller of `MOST_BIGRAMS` and the capacity.
    """

    pairs: Pairs
    strength: Float[np.ndarray, " pair"]
    t: Float[np.ndarray, " pair"]
    rest: Form
    before: PairScores
    tally: Tally
    after: PairScores
    rounds: int
    stopped: bool


def pursue(
    form: Form,
    features: Features,
    *,
    level: float,
    capacity: int,
    seed: int,
    memory: int,
    progress: Callable[[str], None],
) -> Pursuit:
    """Search for the bigrams of a form by pursuit; see the module."""
    floor = FLOOR * form.norm() / features.d
    rest, taken, rounds = form, NONE, 0
    scores = before = PairScores(rest, features, floor, seed, memory)
    most = min(capacity, MOST_BIGRAMS)
    tally, stopped = Tally(), False
    while floor > 0:
        first = None if rounds else tally
        new = _significant(scores, taken, features.n_pairs, most, level, first)
        if not len(new.query):
            break
        stopped = len(taken.query) + len(new.query) > most or rounds == MOST_ROUNDS
        if stopped:
            break
        rounds += 1
        taken = Pairs(*(np.concatenate(both) for both in zip(taken, new, strict=True)))
        progress(f"{len(taken.query)} skip-bigrams")
        rest, _ = _fitted(form, features, taken)
        scores = PairScores(rest, features, floor, seed, memory)
    if floor == 0:
        before.sweep(np.inf, NONE, tally=tally)
    selected, t = _backward(form, features, taken, scores, level)
    if len(selected.query) < len(taken.query):
        rest, _ = _fitted(form, features, selected)
        scores = PairScores(rest, features, floor, seed, memory)
    strength = _fitted(form, features, selected)[1]
    return Pursuit(selected, strength, t, rest.within(form), before, tally, scores, rounds, stopped)


def _significant(
    scores: PairScores, taken: Pairs, n_pairs: int, most: int, level: float, tally: Tally | None
) -> Pairs:
    """New significant pairs with the largest |t| of both their row and their column."""
    n_taken = len(taken.query)
    least = t_at(min(1.0, level * max(most, n_taken + 1) / n_pairs), scores.d)
    sweep = scores.sweep(least, taken, _echo(scores, taken), tally)
    size = np.abs(sweep.t)
    p = p_values(size, scores.d)
    query, key = sweep.pairs
    best = (size == sweep.row_best[query]) & (size == sweep.column_best[key])
    chosen = best & (p <= discovery_threshold(p, n_taken, n_pairs, level))
    order = np.argsort(-size[chosen], kind="stable")
    query, key = query[chosen][order], key[chosen][order]
    alone = np.isin(np.arange(len(query)), np.unique(query, return_index=True)[1])
    alone &= np.isin(np.arange(len(key)), np.unique(key, return_index=True)[1])
    return Pairs(query[alone], key[alone])  # the first of equal features


def _echo(scores: PairScores, taken: Pairs) -> float:
    """Ratio of the spread of t among features of taken pairs to that elsewhere; at least 1."""
    if len(taken.query) < 2:
        return 1.0
    rng = np.random.default_rng(0)
    queries, keys = (_some(np.unique(side), rng) for side in taken)
    inside = scores.block(torch.from_numpy(queries), torch.from_numpy(keys)).numpy().copy()
    together = set(zip(taken.query.tolist(), taken.key.tolist(), strict=True))
    for i, q in enumerate(queries.tolist()):
        inside[i, [j for j, k in enumerate(keys.tolist()) if (q, k) in together]] = 0.0
    elsewhere = scores.block(
        torch.from_numpy(_some(np.arange(scores.n_query), rng)),
        torch.from_numpy(_some(np.arange(scores.n_key), rng)),
    ).numpy()
    ratios = []
    for sign in (1, -1):
        near, far = sign * inside[sign * inside > 0], sign * elsewhere[sign * elsewhere > 0]
        if min(len(near), len(far)) < FEWEST_SIGNED:
            return 1.0
        ratios.append(float(np.median(near) / np.median(far)))
    return max(1.0, min(ratios))


def _some(numbers: np.ndarray, rng: np.random.Generator, most: int = 512) -> np.ndarray:
    return numbers if len(numbers) <= most else np.sort(rng.choice(numbers, most, replace=False))


def _fitted(form: Form, features: Features, pairs: Pairs) -> tuple[Form, np.ndarray]:
    """Form minus the pairs at their least-squares strengths, and the strengths."""
    query, key = features.query[pairs.query], features.key[pairs.key]
    strength = torch.linalg.solve(_gram(query, key), form.at(query, key))
    return form.less(query, key, strength), strength.numpy()


def _gram(query: Tensor, key: Tensor) -> Float[Tensor, "pair pair"]:
    ridge = _RIDGE * torch.eye(len(query), dtype=query.dtype)
    return (query @ query.T) * (key @ key.T) + ridge


def _backward(
    form: Form, features: Features, pairs: Pairs, scores: PairScores, level: float
) -> tuple[Pairs, np.ndarray]:
    """Pairs that are significant given all others, and their t."""
    while len(pairs.query):
        t = _conditional_on_others(form, features, pairs, scores)
        p = p_values(t, scores.d)
        weak = int((p > discovery_threshold(p, 0, features.n_pairs, level)).sum())
        if not weak:
            return pairs, t
        selected = np.sort(np.argsort(p, kind="stable")[: len(p) - (weak + 1) // 2])
        pairs = Pairs(pairs.query[selected], pairs.key[selected])
    return pairs, np.zeros(0)


def _conditional_on_others(
    form: Form, features: Features, pairs: Pairs, scores: PairScores
) -> Float[np.ndarray, " pair"]:
    """The t of each pair after all others are subtracted, without refitting for each.

    With Gram matrix G, strengths c and remainder R, removing pair b from the fit changes the
    remainder to `R + w_b sum_j (G^-1)_bj f_qj f_kj^T`, where `w_b = c_b / (G^-1)_bb`. Its score at
    b is w_b.
    """
    query, key = features.query[pairs.query], features.key[pairs.key]
    inverse = torch.linalg.inv(_gram(query, key))
    strength = inverse @ form.at(query, key)
    left, right = form.less(query, key, strength).factors()
    alone = strength / inverse.diagonal()
    by_row = (query @ left) @ right.T
    by_row = by_row + alone[:, None] * ((inverse * (query @ query.T)) @ key)
    by_column = (key @ right) @ left.T
    by_column = by_column + alone[:, None] * ((inverse * (key @ key.T)) @ query)
    least = scores.floor * features.d**0.5
    scale = torch.maximum(
        by_row.norm(dim=1).clamp_min(least) * scores.row.widened[pairs.query],
        by_column.norm(dim=1).clamp_min(least) * scores.column.widened[pairs.key],
    )
    t: np.ndarray = (alone * features.d**0.5 / scale).numpy()
    return t


Node = tuple[str, int]


@dataclass(frozen=True)
class CompleteBlock:
    """A complete bipartite block: every key with every query.

    Attributes:
        keys, queries: names of features.
    """

    keys: Sequence[str]
    queries: Sequence[str]

    @property
    def size(self) -> int:
        """Number of bigrams of the block."""
        return len(self.keys) * len(self.queries)


def complete_blocks(edges: Iterable[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Split (query, key) pairs greedily into complete blocks (queries, keys), largest first."""
    graph = nx.Graph()
    graph.add_edges_from((("q", q), ("k", k)) for q, k in edges)
    blocks = []
    for nodes in list(nx.connected_components(graph)):
        left = graph.subgraph(nodes).copy()
        while left.number_of_edges():
            ends = [
                max(sorted(node for node in left if node[0] == side), key=left.degree)
                for side in ("q", "k")
            ]
            near, far = max(
                (_grown(left, start) for start in ends), key=lambda b: len(b[0]) * len(b[1])
            )
            left.remove_edges_from([(a, b) for a in near for b in far])
            queries, keys = (near, far) if near[0][0] == "q" else (far, near)
            blocks.append((sorted(i for _, i in queries), sorted(i for _, i in keys)))
    return sorted(blocks, key=lambda b: (-len(b[0]) * len(b[1]), b))


def _grown(graph: nx.Graph, start: Node) -> tuple[list[Node], list[Node]]:
    """Largest block grown from one node's neighbors by adding nodes of its side greedily."""
    near, far = [start], set(graph[start])
    others = {other for node in far for other in graph[node]} - {start}
    best = (list(near), sorted(far))
    while others:
        joined = max(sorted(others), key=lambda other: len(far & set(graph[other])))
        shared = far & set(graph[joined])
        if not shared:
            break
        others.discard(joined)
        near, far = [*near, joined], shared
        if len(near) * len(far) > len(best[0]) * len(best[1]):
            best = (list(near), sorted(far))
    return best


FEWEST = 10
ONE_SIGN = 0.8  # smallest fraction of detected bigrams with the same sign
BEYOND = 3.0  # largest difference between signs of the rest, in standard errors
REMAINING = 0.05  # the same, as a fraction of the detected bigrams
CLEAR = 1.0  # smallest distance of t from the threshold of significance
SPREAD = 0.4  # largest interquartile range of |strength| over its median
WEAK = 0.5  # fraction of the median |strength| that nine of ten must reach
FEW = 0.25  # smallest effective rank of the remainder, as a fraction of the head's rank
MOST_FEW = 8.0  # upper bound of that smallest effective rank
QUARTER = 0.25  # chance pairs of either sign that are counted, per detected bigram


@dataclass(frozen=True)
class Count:
    """Estimated number of bigrams.

    Attributes:
        estimate: estimated number; None if there is no reliable estimate.
        low, high: interval of the number at `COVERAGE`; None without an estimate.
        note: why there is no estimate, or "".
    """

    estimate: int | None
    low: int | None
    high: int | None
    note: str


def count(pursuit: Pursuit, n_pairs: int, rank: int, level: float) -> Count:
    """Estimate the number of bigrams from the detected ones and the remaining scores."""
    t, after, n = pursuit.t, pursuit.after, len(pursuit.t)
    if pursuit.stopped:
        return _none("the search reached its limit before all were detected")
    if n < FEWEST:
        return _none(f"fewer than {FEWEST} were detected")
    sign = 1.0 if (t > 0).mean() >= 0.5 else -1.0
    if (sign * t > 0).mean() < ONE_SIGN:
        return _none(
            "detected pairs have both signs, so the remaining ones cannot be counted by sign"
        )
    threshold = t_at(min(1.0, 2 * QUARTER * n / n_pairs), after.d)
    rest = after.sweep(threshold, pursuit.pairs).t
    along, against = int((sign * rest > 0).sum()), int((sign * rest < 0).sum())
    net, error = along - against, float(np.sqrt(along + against + 1))
    if net > max(BEYOND * error, REMAINING * n):
        return _none("more pairs lie just below significance than expected by chance")
    clear = t_at(level * n / n_pairs, after.d) + CLEAR
    if np.quantile(np.abs(t), 0.25) < clear:
        return _none("detected pairs are barely significant, so as many may be missed")
    strength = np.abs(pursuit.strength)
    weakest, lower, middle, upper = np.quantile(strength, [0.1, 0.25, 0.5, 0.75])
    if upper - lower > SPREAD * middle or weakest < WEAK * middle:
        return _none("detected pairs differ in strength, so weaker ones may be missed")
    if pursuit.rest.norm() > middle and (pursuit.rest.effective_rank() < min(FEW * rank, MOST_FEW)):
        return _none("the remainder has low rank, so bigrams may hide each other")
    tail = (1 - COVERAGE) / 2
    false = level * n
    low = n - int(stats.poisson.isf(tail, false))
    high = n + round(max(net, 0) + stats.norm.isf(tail) * error)
    likely = min(false / 2, float((np.abs(t) < clear).sum()))
    return Count(n - round(likely) + max(net, 0), max(low, 0), high, "")


def _none(note: str) -> Count:
    return Count(None, None, None, note)
