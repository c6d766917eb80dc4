"""Finds bigrams one layer after another: take out what was found, and score again.

A bigram (q, k) of strength c adds c f_q f_k^T to the form, and with it something to the score of
every pair that shares a feature with it or resembles it; strong bigrams hide weak ones and make
false ones. So, in rounds:

1. Every pair is scored against its row and its column (`scores`). Of the significant ones those are
   taken that are the largest of both their row and their column.
2. The strengths of all that were taken are fitted again, by least squares on the form
   (the Gram matrix of two bigrams is (f_q . f_q')(f_k . f_k')), and taken out of it.

until nothing new is significant. What remains of a low-rank form between features that are in a
bigram each, but not with each other, varies more than for others: their t is divided by how much
more (the smaller of the two signs' ratios of medians, so that bigrams still to be found, mostly of
one sign, do not count as spread). Last, those are dropped that are not significant given all
others, the weakest first (backward elimination).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
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
from interp_toolkit.stats import discovery_threshold

MOST_BIGRAMS = 4096
MOST_ROUNDS = 200
FEWEST = 30  # t's of one sign, for a ratio of medians
_RIDGE = 1e-9  # on a Gram matrix with ones on its diagonal: two features may be the same


@dataclass(frozen=True, eq=False)
class Pursuit:
    """The result of a search.

    Attributes:
        pairs: the bigrams.
        strength: by least squares: the form is about `sum strength f_q f_k^T`.
        t: of each, given all others.
        rest: what remains of the form, on what the head reads.
        before: scores of the head as it is.
        tally: of their t.
        after: scores of what remains.
        rounds: how many found something.
        stopped: whether it stopped at `MOST_FOUND` or `MOST_ROUNDS` with more to find.
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
    """The bigrams of a form; see the module."""
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
    """New pairs, significant and the largest of their row and column."""
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
    return Pairs(query[alone], key[alone])  # equal features: the first of them


def _echo(scores: PairScores, taken: Pairs) -> float:
    """How much wider t spreads among the features of taken pairs than elsewhere; 1 or more."""
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
        if min(len(near), len(far)) < FEWEST:
            return 1.0
        ratios.append(float(np.median(near) / np.median(far)))
    return max(1.0, min(ratios))


def _some(numbers: np.ndarray, rng: np.random.Generator, most: int = 512) -> np.ndarray:
    return numbers if len(numbers) <= most else np.sort(rng.choice(numbers, most, replace=False))


def _fitted(form: Form, features: Features, pairs: Pairs) -> tuple[Form, np.ndarray]:
    """The form less the pairs, at the strengths that least squares gives them."""
    query, key = features.query[pairs.query], features.key[pairs.key]
    strength = torch.linalg.solve(_gram(query, key), form.at(query, key))
    return form.less(query, key, strength), strength.numpy()


def _gram(query: Tensor, key: Tensor) -> Float[Tensor, "pair pair"]:
    ridge = _RIDGE * torch.eye(len(query), dtype=query.dtype)
    return (query @ query.T) * (key @ key.T) + ridge


def _backward(
    form: Form, features: Features, pairs: Pairs, scores: PairScores, level: float
) -> tuple[Pairs, np.ndarray]:
    """The pairs that are significant given all others, and their t."""
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
    """Each pair's t with all others taken out and not itself, without fitting each time.

    With G the Gram matrix and c the strengths, taking pair b back into what remains, R, gives
    `R + w_b sum_j (G^-1)_bj f_qj f_kj^T` with `w_b = c_b / (G^-1)_bb`, whose score at b is w_b.
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
