"""Skip-bigrams of a model's heads, for features of any kind, and the score of one pair of tokens.

The bilinear form of each head is its QK circuit (`circuits.weights.qk`), divided by the attention
scale, with the norm's centering and weights folded in. With grouped-query attention, every query
head has its own form. Features are centered if the norm is LN; their lengths make no difference.
Biases and learned positions are left out, since they favor a query or a key, but no pair. A rotary
head is analyzed at one or several distances. Without a norm before the head, each residual
coordinate is measured in units of the features' writes to it, so that rescaling coordinates does
not change the bigrams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.skip_bigrams.head import COPIES, HeadBigrams, skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.scores import (
    FLOOR,
    ROUNDING,
    Features,
    Form,
    PairScores,
)
from interp_toolkit.circuits.weights.permutations import coordinate_units, reciprocal
from interp_toolkit.circuits.weights.qk import QKCircuit, folded_note, qk_circuit
from interp_toolkit.circuits.weights.token_scores import normalized_by, read_dimensions
from interp_toolkit.errors import InputError, takes
from interp_toolkit.formatting import listed
from interp_toolkit.models.features.feature_sets import EMBEDDINGS, FeatureSet, read_features
from interp_toolkit.models.model import Head, Model, check_model
from interp_toolkit.models.running.memory import parse_memory
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.results import head_name
from interp_toolkit.stats import LEVEL

TINY = 1e-300

NEAREST = 1  # default distance
NAMED = 5  # heads named in a note

FeatureSpec = str | Path | FeatureSet | Tensor | np.ndarray


@takes(model=check_model)
def find_skip_bigrams(
    model: Model,
    layer: int | None = None,
    head: int | None = None,
    *,
    features: FeatureSpec | None = None,
    query_features: FeatureSpec | None = None,
    key_features: FeatureSpec | None = None,
    distance: int | Sequence[int] | None = None,
    level: float = LEVEL,
    copies: int = COPIES["standard"],
    memory: int | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> list[HeadBigrams]:
    """Skip-bigrams of one head, of a layer's heads, or of all heads.

    There is one result per head and distance. Heads with W_Q W_K^T = 0 are left out, unless there
    are no others.

    Args:
        model: any TransformerLens model.
        layer: layer of the heads; None: all.
        head: index of the query head; None: all.
        features: features of both sides: directions [feature d_model], or any argument of
            `read_features`; None: token embeddings.
        query_features: features of queries; None: `features`.
        key_features: features of keys; None: `features`.
        distance: query position minus key position, one or several, for rotary heads; None: 1. It
            makes no difference to other heads.
        level: false discovery rate for each head.
        copies: number of copies with permuted coordinates that each head is compared with.
        memory: memory limit beside the weights, such as "4GiB".
        seed: seed of the samples for medians, the copies, and the histogram's random features.
        progress: called with a description of each step.

    Raises:
        InputError: a head does not exist or cannot be read; features have no directions or another
            width; `features` is given beside both other sets; a distance is repeated, beyond the
            context, or irrelevant to all heads; or the memory limit is too small.

    Examples:
        >>> import interp_toolkit as it
        >>> model = it.load("toy:skip-bigrams")
        >>> [result] = find_skip_bigrams(model, layer=0, head=0, features="embeddings")
        >>> len(result.bigrams)
        64
    """
    progress("features")
    query, key = feature_sides(model, features, query_features, key_features)
    view = weights(model)
    views, _ = head_views(model, view, layer, head, distance)
    return [
        search_view(view, one, query, key, level, copies, memory, seed, progress) for one in views
    ]


def feature_sides(
    model: Model,
    features: FeatureSpec | None,
    query_features: FeatureSpec | None,
    key_features: FeatureSpec | None,
) -> tuple[FeatureSet, FeatureSet]:
    """Features of queries and features of keys.

    Raises:
        InputError: as in `find_skip_bigrams`.
    """
    if features is not None and query_features is not None and key_features is not None:
        raise InputError("give either features, or features for both sides")
    both = EMBEDDINGS if features is None else features
    query = read_features(both if query_features is None else query_features, model)
    if query_features is None and key_features is None:
        return query, query
    return query, read_features(both if key_features is None else key_features, model)


@torch.no_grad()
def search_view(
    view: ModelWeights,
    head_view: HeadView,
    query: FeatureSet,
    key: FeatureSet,
    level: float,
    copies: int,
    memory: int | str | None,
    seed: int,
    progress: Callable[[str], None],
) -> HeadBigrams:
    """Skip-bigrams of one head at one distance.

    Raises:
        InputError: as in `find_skip_bigrams`.
    """
    progress(head_view.name)
    circuit = qk_circuit(None, head_view.layer, head_view.head, view=view)
    if head_view.distance is not None:
        circuit = circuit.at_distance(head_view.distance)
    queries = _normalized(circuit, query)
    keys = queries if key is query else _normalized(circuit, key)
    units, dimensions = units_of(circuit.norm, queries, keys)
    bigrams = skip_bigrams_of(
        (circuit.W_Q / circuit.attn_scale, circuit.W_K),
        queries,
        None if key is query else keys,
        query_names=query.names,
        key_names=key.names,
        dimensions=dimensions,
        units=units,
        level=level,
        copies=copies,
        memory=memory,
        seed=seed,
        progress=lambda step: progress(f"{head_view.name}: {step}"),
    )
    return dataclasses.replace(
        bigrams, layer=head_view.layer, head=head_view.head, distance=head_view.distance
    )


def units_of(
    norm: NormWeights,
    queries: Float[Tensor, "query d_model"],
    keys: Float[Tensor, "key d_model"],
) -> tuple[Float[Tensor, " d_model"] | None, int]:
    """Units of residual coordinates, and the number of dimensions that features can span.

    Units are None after a norm. Otherwise the root mean square of the nonzero units is 1.
    """
    if norm.kind is not None:
        return None, read_dimensions(norm, queries.shape[1])
    units = coordinate_units(queries.square().sum(0) + keys.square().sum(0))
    dimensions = max(int((units > 0).sum()), 1)
    return units / (units.norm() / dimensions**0.5).clamp_min(TINY), dimensions


def _normalized(circuit: QKCircuit, features: FeatureSet) -> Tensor:
    """Feature directions with the linear part of the norm before the head applied."""
    if features.directions is None:
        raise InputError(f"{features.source} have no directions, which skip-bigrams need")
    return normalized_by(circuit.norm, features.directions.detach().double())


class HeadView(NamedTuple):
    """A head at one distance; None if distance makes no difference."""

    layer: int
    head: int
    distance: int | None

    @property
    def name(self) -> str:
        """Name of the head, such as L1H0 or L1H0 at distance 2."""
        at = "" if self.distance is None else f" at distance {self.distance}"
        return head_name(self.layer, self.head) + at


def head_views(
    model: Model,
    view: ModelWeights,
    layer: int | None,
    head: int | None,
    distance: int | Sequence[int] | None,
) -> tuple[list[HeadView], list[str]]:
    """Heads and distances to analyze, and notes on what is left out.

    Heads that score every pair 0 are left out, unless there are no others.

    Raises:
        InputError: the model has no such head; the requested layer, or every layer, cannot be
            read; or a distance is repeated, beyond the context, or irrelevant to all heads.
    """
    layers, heads = _chosen("layer", layer, view.n_layers), _chosen("head", head, view.n_heads)
    n_ctx = int(model.cfg.n_ctx)
    distances = None if distance is None else _distances(distance, n_ctx)
    views: list[HeadView] = []
    notes: list[str] = []
    empty: list[HeadView] = []
    others = []
    for number in layers:
        try:
            rotary = view.layer(number).rotary is not None
        except InputError as error:
            if len(layers) == 1:
                raise
            notes.append(f"layer {number} is left out: {error}")
            continue
        for one in heads:
            circuit = qk_circuit(None, number, one, view=view)
            W_Q, W_K = circuit.W_Q.detach().double(), circuit.W_K.detach().double()
            if Form(W_Q, W_K).norm() <= ROUNDING * float(W_Q.norm() * W_K.norm()):
                empty.append(HeadView(number, one, None))
            elif rotary:
                turns = [min(NEAREST, n_ctx - 1)] if distances is None else distances
                views += [HeadView(number, one, turn) for turn in turns]
            else:
                others.append(head_name(number, one))
                views.append(HeadView(number, one, None))
    if not views and not empty:
        raise InputError(f"no head can be read: {notes[0]}")
    if distances is not None and others:
        if len(others) == len(views):
            why = "this model learns positions: no" if view.W_pos is not None else "no"
            raise InputError(
                f"{why} requested head depends on distance (rotary positions); leave distance out"
            )
        notes.append(
            f"analyzed without a distance, since it makes no difference: {listed(others, NAMED)}"
        )
    if empty and views:
        names = listed([one.name for one in empty], NAMED)
        notes.append(f"heads without a QK circuit (W_Q W_K^T = 0) are left out: {names}")
    if view.W_pos is not None:
        notes.append("learned positions are left out: scores are between features alone")
    notes += folded_note(view, {one.layer for one in views})
    return views or empty, notes


def _chosen(what: str, number: int | None, count: int) -> Sequence[int]:
    if number is None:
        return range(count)
    if not 0 <= number < count:
        raise InputError(
            f"there is no {what} {number}; the model has {what}s 0 to {count - 1}",
        )
    return [number]


def _distances(distance: int | Sequence[int], n_ctx: int) -> list[int]:
    distances = [distance] if isinstance(distance, int) else list(distance)
    if not distances:
        raise InputError("no distance is given")
    repeated = [one for one in distances if distances.count(one) > 1]
    if repeated:
        raise InputError(f"distance {repeated[0]} is given more than once")
    if max(distances) >= n_ctx:
        raise InputError(
            f"distance {max(distances)} is beyond the model's context of {n_ctx}; give up to "
            f"{n_ctx - 1}"
        )
    return distances


@torch.no_grad()
def token_pair_score(
    model: Model,
    head: Head,
    query: int,
    key: int,
    *,
    distance: int = 1,
    memory: int | str | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """The t statistic of one pair of token embeddings, and its dimension for p-values.

    Args:
        model: any TransformerLens model.
        head: head whose QK circuit is scored.
        query: id of the query token.
        key: id of the key token.
        distance: query position minus key position, for rotary heads.
        memory: memory limit, such as "4GiB".
        seed: seed of the samples for medians.

    Returns:
        The t statistic, and the dimension `d` for `p_values`.

    Raises:
        InputError: the head cannot be read, or the embedding has no directions.
    """
    features = read_features(EMBEDDINGS, model)
    if features.directions is None:
        raise InputError(f"{features.source} have no directions, which skip-bigrams need")
    circuit = qk_circuit(model, head.layer, head.head)
    if circuit.rotary is not None:
        circuit = circuit.at_distance(distance)
    normalized = normalized_by(circuit.norm, features.directions.detach().double())
    units, dimensions = units_of(circuit.norm, normalized, normalized)
    W_Q, W_K = (circuit.W_Q / circuit.attn_scale).double(), circuit.W_K.double()
    if units is not None:
        normalized, W_Q, W_K = (
            normalized * reciprocal(units),
            W_Q * units[:, None],
            W_K * units[:, None],
        )
    form, unit = Form(W_Q, W_K), torch.nn.functional.normalize(normalized, dim=1)
    pairs = Features(unit, unit, dimensions)
    scores = PairScores(form, pairs, FLOOR * form.norm() / pairs.d, seed, parse_memory(memory))
    t = scores.block(torch.tensor([query]), torch.tensor([key]))
    return float(t), scores.d
