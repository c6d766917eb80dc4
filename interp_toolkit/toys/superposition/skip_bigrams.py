"""Heads with planted skip-bigrams: scores that count the feature pairs of a set that are present.

B is a set of pairs (key feature, query feature), numbered like the f-vectors. On a query x_q and a
key x_k that are sums of f-vectors, x_q W x_k with W = Σ_{(k,q)∈B} f_q f_k^T (query first) counts
the bigrams present. A head has W_Q W_K^T of rank d_head in place of W:

- `exact_head`: W itself, if B splits into at most d_head complete bipartite sets, one rank each;
- `svd_head`: the nearest matrix of that rank; the mean score on B is Σ_{i≤r} σ_i² / |B|;
- `projected_head`: W P d/r with a random orthogonal projection P of rank r = d_head. The mean score
  on B stays 1, and with m random unit f-vectors of d dimensions the noise on other pairs has the
  variance |B| (1/(dr) + 1/(mr) + 1/(md)).

Source: "Computation in superposition", section 3, which writes the key first.

*As a model*: one attention layer, one token for each feature. Token i is embedded as f-vector i, so
the attention score of a query token for a key token is the head's score of their features (there is
no scale). The head copies the attended token to the first d_head coordinates of the residual
stream, which the unembedding (the f-vectors again) reads.

With rotary positions a score depends on the distance between the tokens. In one variant the
rotating dimensions of the head are zero, so that the bigrams hold at every distance. In the other
all dimensions rotate, and the query is rotated back so that they hold exactly at one distance.
Grouped-query heads share their group's keys: `projected_head` makes such heads.

`toy:skip-bigrams` and its variants have planted heads and random ones: 256 features on 64 axes,
64 random bigrams for a planted head of 16 dimensions, one for every 16 entries of d_model x d_head.
(The variant with grouped queries has 20 in each of its heads, and no random head.) Each has
`.ground_truth`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import ShortRepr
from interp_toolkit.models.model import Head
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.registry import Toy
from interp_toolkit.toys.hand_set.heads import head_weights
from interp_toolkit.toys.superposition.layers.layer import random_unit_features
from interp_toolkit.toys.zeros import zeros

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
    """A set of all bigrams of some key features with some query features."""

    keys: tuple[int, ...]
    queries: tuple[int, ...]


class ScoreQuality(NamedTuple):
    """Separation of bigrams from other pairs by their scores.

    Attributes:
        auc: the probability that a bigram scores higher than another pair.
        signal: mean score of the bigrams.
        noise: standard deviation of the other pairs' scores.
        worst: the largest |score - count| over all pairs.
        rms: the root mean square of score - count.
    """

    auc: float
    signal: float
    noise: float
    worst: float
    rms: float


def random_bigrams(n_features: int, n_bigrams: int, seed: int = 0) -> list[Bigram]:
    """Distinct pairs (key feature, query feature), uniformly random.

    Raises InputError for more pairs than there are.
    """
    if not 0 < n_bigrams <= n_features**2:
        raise InputError(f"n_bigrams is {n_bigrams}; it must be between 1 and {n_features**2}")
    numbers = np.random.default_rng(seed).choice(n_features**2, n_bigrams, replace=False)
    return [(int(number) // n_features, int(number) % n_features) for number in numbers]


def bigram_matrix(
    bigrams: Sequence[Bigram],
    query_features: Float[Tensor, "query_feature d_model"],
    key_features: Float[Tensor, "key_feature d_model"],
) -> Float[Tensor, "d_model d_model"]:
    """W = Σ f_q f_k^T, query first.

    Raises InputError for unknown features or repeated bigrams.
    """
    present = presence(bigrams, len(query_features), len(key_features)).to(query_features)
    return query_features.T @ present @ key_features


def presence(
    bigrams: Sequence[Bigram], n_query_features: int, n_key_features: int
) -> Bool[Tensor, "query_feature key_feature"]:
    """Boolean matrix of bigrams; raises InputError as `bigram_matrix` does."""
    if not bigrams:
        raise InputError("there are no bigrams")
    if len(set(bigrams)) < len(bigrams):
        raise InputError("a bigram occurs twice")
    keys, queries = np.array(bigrams).T
    if keys.min() < 0 or keys.max() >= n_key_features:
        raise InputError(f"a bigram has a key feature outside 0 to {n_key_features - 1}")
    if queries.min() < 0 or queries.max() >= n_query_features:
        raise InputError(f"a bigram has a query feature outside 0 to {n_query_features - 1}")
    present = torch.zeros(n_query_features, n_key_features, dtype=torch.bool)
    present[torch.from_numpy(queries), torch.from_numpy(keys)] = True
    return present


def cliques(bigrams: Sequence[Bigram]) -> list[Clique]:
    """Split the bigrams into complete bipartite sets.

    Keys with the same set of queries are grouped, or queries with the same set of keys, whichever
    makes fewer sets. (The minimum is a hard problem; any number of sets is exact.)
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
    """A head with W_Q W_K^T = W, one dimension per clique.

    Raises InputError if there are more cliques than `d_head`.
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
    """The head of rank `d_head` with W_Q W_K^T nearest to W; each side gets the root of σ."""
    _check_rank(d_head, len(W))
    U, sizes, V = torch.linalg.svd(W)
    roots = sizes[:d_head].sqrt()
    return QKHead(U[:, :d_head] * roots, V[:d_head].T * roots)


def grouped_heads(Ws: Sequence[Float[Tensor, "d_model d_model"]], d_head: int) -> list[QKHead]:
    """Heads of rank `d_head` with shared keys that are together nearest to the Ws, one per W.

    W_K holds the first right singular vectors of the stacked Ws, and W_Q is W W_K.

    Raises InputError without Ws, or for an invalid `d_head`.
    """
    if not Ws:
        raise InputError("grouped heads need at least one W")
    _check_rank(d_head, len(Ws[0]))
    W_K = torch.linalg.svd(torch.cat(list(Ws)), full_matrices=False)[2][:d_head].T
    return [QKHead(W @ W_K, W_K) for W in Ws]


def projected_head(W: Float[Tensor, "d_model d_model"], d_head: int, seed: int = 0) -> QKHead:
    """The head whose keys are a random orthonormal projection: W_K its basis, W_Q = W W_K d/r.

    Heads of one seed have the same keys, for any W.
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
    """Separation of the bigrams from all other pairs by these scores.

    Raises InputError for unknown bigrams, or if there is no other pair.
    """
    present = presence(bigrams, *scores.shape)
    if present.all():
        raise InputError("every pair is a bigram: no other pairs are left to compare with")
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
        raise InputError(f"d_head must be between 1 and d_model = {d_model}, not {d_head}")


N_CTX = 32


@torch.no_grad()
def bigram_model(
    heads: Sequence[QKHead],
    features: Float[Tensor, "feature d_model"],
    *,
    rotary: bool = False,
    distance: int | None = None,
    n_key_value_heads: int | None = None,
    n_ctx: int = N_CTX,
    name: str = "skip-bigrams",
) -> Transformer:
    """A one-layer model in float64 with these heads; see the module.

    Args:
        heads: heads with equal d_head.
        features: the f-vectors.
        rotary: rotate queries and keys by their positions; otherwise there are no positions.
        distance: query position minus key position at which the bigrams hold; None: all distances,
            by dimensions that do not rotate.
        n_key_value_heads: None: every head has its own keys.
        n_ctx: number of positions.
        name: name of the model.

    Raises:
        InputError: heads of different shapes, or a context, a distance, a number of groups or
            keys in a group that do not fit.
    """
    d_head = _check(heads, features, rotary, distance, n_key_value_heads, n_ctx)
    still = rotary and distance is None
    config = TransformerConfig(
        n_layers=1,
        d_model=features.shape[1],
        n_ctx=n_ctx,
        d_head=2 * d_head if still else d_head,
        n_heads=len(heads),
        n_key_value_heads=n_key_value_heads,
        d_vocab=len(features),
        attn_only=True,
        biases=False,
        normalization_type=None,
        positional_embedding_type="rotary" if rotary else "none",
        rotary_dim=d_head if rotary else None,
        use_attn_scale=False,
        dtype=torch.float64,
        model_name=name,
    )
    model = zeros(config)
    model.embed.W_E.copy_(features)
    model.unembed.W_U.copy_(features.T)
    carrying = slice(d_head, None) if still else slice(None)
    back = _turn(model, distance).T if rotary and distance else torch.eye(d_head).double()
    for index, head in enumerate(heads):
        head_weights(model, Head(0, index), "W_Q")[:, carrying] = head.W_Q @ back
        head_weights(model, Head(0, index), "W_K")[:, carrying] = head.W_K
        head_weights(model, Head(0, index), "W_V")[:d_head, :d_head] = torch.eye(d_head)
        head_weights(model, Head(0, index), "W_O")[:d_head, :d_head] = torch.eye(d_head)
    model.eval()
    return model


def _turn(model: Transformer, distance: int) -> Float[Tensor, "d_head d_head"]:
    """M with `turned = x @ M` at this position."""
    unit = torch.eye(model.cfg.d_head, dtype=torch.float64)
    rotary = model.blocks[0].attn.rotary
    turned: Tensor = rotary(unit.expand(1, distance + 1, -1, -1))
    return turned[0, distance]


def _check(
    heads: Sequence[QKHead],
    features: Tensor,
    rotary: bool,
    distance: int | None,
    n_key_value_heads: int | None,
    n_ctx: int,
) -> int:
    """d_head, after checking that all arguments fit together."""
    if not heads:
        raise InputError("a model of skip-bigrams needs a head")
    d_head = heads[0].W_Q.shape[1]
    if any(h.W_Q.shape != (features.shape[1], d_head) for h in heads):
        raise InputError(
            "the heads of a model must have the d_model of the features and one d_head"
        )
    if n_ctx < 1:
        raise InputError(f"n_ctx is {n_ctx}: a model needs at least 1 position")
    if rotary and d_head % 2:
        raise InputError(f"rotary positions turn pairs of dimensions: d_head = {d_head} is odd")
    if distance is not None and not rotary:
        raise InputError("distance needs rotary positions")
    if distance is not None and not 0 <= distance < n_ctx:
        raise InputError(f"the distance {distance} is outside the context of {n_ctx} positions")
    if n_key_value_heads is not None:
        if n_key_value_heads < 1 or len(heads) % n_key_value_heads:
            raise InputError(f"{len(heads)} heads cannot share {n_key_value_heads} sets of keys")
        size = len(heads) // n_key_value_heads
        if any(not torch.equal(h.W_K, heads[i - i % size].W_K) for i, h in enumerate(heads)):
            raise InputError("heads of a group must share their keys: make them with grouped_heads")
    return d_head


N_FEATURES, D_MODEL, D_HEAD, N_BIGRAMS = 256, 64, 16, 64
N_SHARED_KEYS = 20
SOURCE = "Computation in superposition, section 3"


@dataclass(frozen=True, eq=False)
class BigramGroundTruth(ShortRepr):
    """The ground truth of a model of skip-bigram heads.

    Attributes:
        features: the f-vectors; feature i is token i.
        bigrams: pairs (key feature, query feature) by (layer, head); other heads have random
            weights.
    """

    features: Float[np.ndarray, "feature d_model"]
    bigrams: Mapping[tuple[int, int], Sequence[Bigram]]


def skip_bigrams(*, rotary: bool = False) -> Transformer:
    """Head (0, 0) has 64 bigrams (`svd_head`), head (0, 1) random weights of similar size.

    Rotary: 16 further dimensions of each head rotate and are zero.
    """
    features = _features()
    bigrams = random_bigrams(N_FEATURES, N_BIGRAMS)
    planted = svd_head(bigram_matrix(bigrams, features, features), D_HEAD)
    name = "skip-bigrams-rotary" if rotary else "skip-bigrams"
    model = bigram_model([planted, _random_like(planted)], features, rotary=rotary, name=name)
    model.ground_truth = BigramGroundTruth(features.numpy(), {(0, 0): bigrams})
    return model


def skip_bigrams_gqa() -> Transformer:
    """Four heads on two sets of keys, 20 bigrams each.

    The two heads of a set look for the same 20 key features, each with its own query features.
    """
    features = _features()
    bigrams: dict[tuple[int, int], list[Bigram]] = {}
    heads: list[QKHead] = []
    for group in range(2):
        rng = np.random.default_rng(group)
        keys = rng.permutation(N_FEATURES)[:N_SHARED_KEYS].tolist()
        for head in (2 * group, 2 * group + 1):
            queries = rng.permutation(N_FEATURES)[:N_SHARED_KEYS].tolist()
            bigrams[0, head] = list(zip(keys, queries, strict=True))
        both = [bigrams[0, 2 * group], bigrams[0, 2 * group + 1]]
        heads += grouped_heads([bigram_matrix(b, features, features) for b in both], D_HEAD)
    model = bigram_model(heads, features, n_key_value_heads=2, name="skip-bigrams-gqa")
    model.ground_truth = BigramGroundTruth(features.numpy(), bigrams)
    return model


def _features() -> Float[Tensor, "feature d_model"]:
    return random_unit_features(N_FEATURES, D_MODEL, torch.Generator().manual_seed(0))


def _random_like(head: QKHead) -> QKHead:
    """Normal weights with the same root mean square."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(2, D_MODEL, D_HEAD, generator=generator, dtype=torch.float64)
    W_Q, W_K = (w * like.square().mean().sqrt() for w, like in zip(weights, head, strict=True))
    return QKHead(W_Q, W_K)


def _task(name: str) -> dict[str, Any]:
    return {"function": "skip-bigrams", "name": name, "n_features": N_FEATURES}


SKIP_BIGRAMS = Toy(
    "skip-bigrams",
    "one head with 64 planted skip-bigrams of 256 features in 64 dimensions, and one random head",
    skip_bigrams,
    _task("skip-bigrams"),
    SOURCE,
)
SKIP_BIGRAMS_ROTARY = Toy(
    "skip-bigrams-rotary",
    "one head with 64 planted skip-bigrams and rotary positions, which rotate other dimensions",
    partial(skip_bigrams, rotary=True),
    _task("skip-bigrams-rotary"),
    SOURCE,
)
SKIP_BIGRAMS_GQA = Toy(
    "skip-bigrams-gqa",
    "four query heads with two sets of keys, each with 20 planted skip-bigrams",
    skip_bigrams_gqa,
    _task("skip-bigrams-gqa"),
    SOURCE,
)
