"""Skip feature-bigrams: attention scores that count which of a set of feature pairs is present.

B is a set of pairs (key feature, query feature), numbered as the f-vectors. On a query x_q and a
key x_k that are sums of f-vectors, x_q W x_k with W = Σ_{(k,q)∈B} f_q f_k^T (query first) counts
the bigrams present, and a head has W_Q W_K^T of rank d_head in place of W:

- `exact_head`: W itself, where B splits into at most d_head complete bipartite sets, one rank each;
- `svd_head`: the nearest matrix of that rank; the mean score on B is Σ_{i≤r} σ_i² / |B|;
- `projected_head`: W P d/r with a random orthogonal projection P of rank r = d_head. The mean score
  on B stays 1, and with m random unit f-vectors of d dimensions the noise on other pairs has the
  variance |B| (1/(dr) + 1/(mr) + 1/(md)).

Source: "Computation in superposition", section 3, which writes the key first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError

Bigram = tuple[int, int]  # key feature, query feature


class QKHead(NamedTuple):
    """A head's weights: it scores a query x_q against a key x_k as x_q W_Q W_K^T x_k."""

    W_Q: Float[Tensor, "d_model d_head"]
    W_K: Float[Tensor, "d_model d_head"]

    def scores(
        self,
        query_features: Float[Tensor, "query_feature d_model"],
        key_features: Float[Tensor, "key_feature d_model"],
    ) -> Float[Tensor, "query_feature key_feature"]:
        """The scores of every query feature against every key feature."""
        return (query_features @ self.W_Q) @ (key_features @ self.W_K).T


class Clique(NamedTuple):
    """Bigrams of every key feature with every query feature."""

    keys: tuple[int, ...]
    queries: tuple[int, ...]


class ScoreQuality(NamedTuple):
    """How well scores tell bigrams from other pairs.

    Attributes:
        auc: the chance that a bigram scores higher than another pair.
        signal: mean score of the bigrams.
        noise: standard deviation of the other pairs' scores.
        worst: the largest |score - count| over all pairs.
        rms: its root mean square.
    """

    auc: float
    signal: float
    noise: float
    worst: float
    rms: float


def random_bigrams(n_features: int, n_bigrams: int, seed: int = 0) -> list[Bigram]:
    """Distinct pairs (key feature, query feature), uniform among all.

    Raises InputError for more pairs than there are.
    """
    if not 0 < n_bigrams <= n_features**2:
        raise InputError(f"{n_bigrams} bigrams of {n_features} features: 1 to {n_features**2} are")
    numbers = np.random.default_rng(seed).choice(n_features**2, n_bigrams, replace=False)
    return [(int(number) // n_features, int(number) % n_features) for number in numbers]


def bigram_matrix(
    bigrams: Sequence[Bigram],
    query_features: Float[Tensor, "query_feature d_model"],
    key_features: Float[Tensor, "key_feature d_model"],
) -> Float[Tensor, "d_model d_model"]:
    """W = Σ f_q f_k^T, query first.

    Raises InputError for bigrams of features that are not there, or given twice.
    """
    present = presence(bigrams, len(query_features), len(key_features)).to(query_features)
    return query_features.T @ present @ key_features


def presence(
    bigrams: Sequence[Bigram], n_query_features: int, n_key_features: int
) -> Bool[Tensor, "query_feature key_feature"]:
    """Which pairs are bigrams; InputError as in `bigram_matrix`."""
    if not bigrams:
        raise InputError("there are no bigrams")
    if len(set(bigrams)) < len(bigrams):
        raise InputError("a bigram is given twice")
    keys, queries = np.array(bigrams).T
    if min(keys.min(), queries.min()) < 0 or keys.max() >= n_key_features:
        raise InputError(f"a key feature of a bigram is not among 0..{n_key_features - 1}")
    if queries.max() >= n_query_features:
        raise InputError(f"a query feature of a bigram is not among 0..{n_query_features - 1}")
    present = torch.zeros(n_query_features, n_key_features, dtype=torch.bool)
    present[torch.from_numpy(queries), torch.from_numpy(keys)] = True
    return present


def cliques(bigrams: Sequence[Bigram]) -> list[Clique]:
    """The bigrams as complete bipartite sets, each bigram in one.

    Keys with the same set of queries go together, or queries with the same set of keys, whichever
    makes fewer. (The fewest possible is a hard problem; any number of them is exact.)
    """
    by_keys = [Clique(firsts, seconds) for firsts, seconds in _alike(bigrams)]
    by_queries = [
        Clique(seconds, firsts) for firsts, seconds in _alike([(q, k) for k, q in bigrams])
    ]
    return min(by_keys, by_queries, key=len)


def exact_head(
    bigrams: Sequence[Bigram],
    query_features: Float[Tensor, "query_feature d_model"],
    key_features: Float[Tensor, "key_feature d_model"],
    d_head: int,
) -> QKHead:
    """A head with W_Q W_K^T = W, a clique a dimension.

    Raises InputError where the bigrams make more cliques than `d_head`.
    """
    presence(bigrams, len(query_features), len(key_features))
    groups = cliques(bigrams)
    if len(groups) > d_head:
        raise InputError(
            f"{len(bigrams)} bigrams make {len(groups)} cliques, more than d_head = {d_head}: "
            "no exact head; use svd_head or projected_head"
        )
    W_Q = torch.zeros(query_features.shape[1], d_head, dtype=query_features.dtype)
    W_K = torch.zeros_like(W_Q)
    for dim, clique in enumerate(groups):
        W_Q[:, dim] = query_features[list(clique.queries)].sum(dim=0)
        W_K[:, dim] = key_features[list(clique.keys)].sum(dim=0)
    return QKHead(W_Q, W_K)


def svd_head(W: Float[Tensor, "d_model d_model"], d_head: int) -> QKHead:
    """The head of rank `d_head` whose W_Q W_K^T is nearest to W, each side with the root of σ."""
    _check_rank(d_head, len(W))
    U, sizes, V = torch.linalg.svd(W)
    roots = sizes[:d_head].sqrt()
    return QKHead(U[:, :d_head] * roots, V[:d_head].T * roots)


def grouped_heads(Ws: Sequence[Float[Tensor, "d_model d_model"]], d_head: int) -> list[QKHead]:
    """The heads of rank `d_head`, one a W, with the same keys, that are together nearest to them.

    W_K holds the first right singular vectors of the Ws above each other, W_Q is W W_K.

    Raises InputError for no W, or a `d_head` that is none.
    """
    if not Ws:
        raise InputError("grouped heads need at least one W")
    _check_rank(d_head, len(Ws[0]))
    W_K = torch.linalg.svd(torch.cat(list(Ws)), full_matrices=False)[2][:d_head].T
    return [QKHead(W @ W_K, W_K) for W in Ws]


def projected_head(W: Float[Tensor, "d_model d_model"], d_head: int, seed: int = 0) -> QKHead:
    """The head whose keys are a random orthonormal projection: W_K its basis, W_Q = W W_K d/r.

    Heads of one seed have the same keys, whatever they look for.
    """
    d_model = len(W)
    _check_rank(d_head, d_model)
    projection = np.random.default_rng(seed).standard_normal((d_model, d_head))
    basis = torch.linalg.qr(torch.from_numpy(projection)).Q.to(W)
    return QKHead(W @ basis * (d_model / d_head), basis)


def projection_noise(n_bigrams: int, d_model: int, d_head: int, n_features: int) -> float:
    """The variance of `projected_head`'s scores on other pairs, for random unit f-vectors."""
    d, r, m = d_model, d_head, n_features
    return n_bigrams * (1 / (d * r) + 1 / (m * r) + 1 / (m * d))


def score_quality(
    scores: Float[Tensor, "query_feature key_feature"], bigrams: Sequence[Bigram]
) -> ScoreQuality:
    """How well these scores tell the bigrams from all other pairs.

    Raises InputError for bigrams that are not there, or where no other pair is.
    """
    present = presence(bigrams, *scores.shape)
    if present.all():
        raise InputError("every pair is a bigram: there is nothing to tell them from")
    inside, outside = scores[present], scores[~present]
    ordered = outside.sort().values
    below = torch.searchsorted(ordered, inside) + torch.searchsorted(ordered, inside, right=True)
    errors = scores - present.to(scores)
    return ScoreQuality(
        auc=float(below.double().mean() / (2 * len(outside))),
        signal=float(inside.mean()),
        noise=float(outside.std(correction=0)),
        worst=float(errors.abs().max()),
        rms=float(errors.square().mean().sqrt()),
    )


def _alike(pairs: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The first members grouped by the set of second members they occur with."""
    partners: dict[int, set[int]] = {}
    for first, second in pairs:
        partners.setdefault(first, set()).add(second)
    groups: dict[tuple[int, ...], list[int]] = {}
    for first, seconds in sorted(partners.items()):
        groups.setdefault(tuple(sorted(seconds)), []).append(first)
    return [(tuple(firsts), seconds) for seconds, firsts in groups.items()]


def _check_rank(d_head: int, d_model: int) -> None:
    if not 1 <= d_head <= d_model:
        raise InputError(f"d_head is between 1 and d_model = {d_model}, not {d_head}")
