"""`find_skip_bigrams`: the skip-bigrams of a model's heads, for features of any kind.

Each head's form is its QK circuit (`circuits.weights.qk`): the norm's centring and weights folded
in, keys shared between heads given to each, divided by the attention scale. Features are taken as
the norm sees them, centred behind LN, and as directions: their lengths make no difference. Biases
and what learned positions add are left out; they favour a query or a key, not a pair. A rotary head
is looked at from one distance, or from several. Without a norm in front of the head, each residual
coordinate is measured in units of what the features write to it, so that rescaled coordinates give
the same bigrams.
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

from interp_toolkit.circuits.skip_bigrams.head import HeadBigrams, skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.head_views import HeadView, head_views
from interp_toolkit.circuits.weights.permutations import coordinate_units
from interp_toolkit.circuits.weights.qk import QKCircuit, qk_circuit
from interp_toolkit.circuits.weights.token_scores import seen_by, seen_dimensions
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import EMBEDDINGS, FeatureSet, read_features
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.view import ModelWeights, weights
from interp_toolkit.stats import LEVEL

TINY = 1e-300

FeatureSpec = str | Path | FeatureSet | Tensor | np.ndarray


class Search(NamedTuple):
    """What `search` found.

    Attributes:
        found: head by head, distance by distance.
        query, key: the features.
        notes: what was left out.
    """

    found: list[HeadBigrams]
    query: FeatureSet
    key: FeatureSet
    notes: list[str]


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
    memory: int | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> list[HeadBigrams]:
    """The skip-bigrams of one head, of a layer's or of all.

    Args:
        model: any TransformerLens model.
        layer: None: all.
        head: query head; None: all.
        features: of both sides: directions [feature d_model], or what `read_features` takes;
            None: the tokens' embeddings.
        query_features: of queries, where they are others.
        key_features: of keys, likewise.
        distance: query position less key position, one or several, for heads that turn them
            (rotary); None: 1. It makes no difference to other heads.
        level: of false discoveries, for each head.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        seed: of the samples that give medians, and of the histogram's random features.
        progress: told what is being done.

    Raises:
        InputError: a head that is not there or cannot be read; features
            without directions or of another width; a distance that no head looks across, beyond
            the context or given twice; memory below what a few scores take.

    Examples:
        >>> import interp_toolkit as it
        >>> model = it.load("toy:skip-bigrams")
        >>> [found] = find_skip_bigrams(model, layer=0, head=0, features="embeddings")
        >>> len(found.bigrams)
        64
    """
    return search(
        model,
        *(layer, head, features, query_features, key_features, distance),
        *(level, memory, seed, progress),
    ).found


def search(
    model: Model,
    layer: int | None,
    head: int | None,
    features: FeatureSpec | None,
    query_features: FeatureSpec | None,
    key_features: FeatureSpec | None,
    distance: int | Sequence[int] | None,
    level: float,
    memory: int | str | None,
    seed: int,
    progress: Callable[[str], None],
) -> Search:
    """As `find_skip_bigrams`, with the features and notes on what was left out."""
    progress("features")
    query, key = feature_sides(model, features, query_features, key_features)
    view = weights(model)
    views, notes = head_views(model, view, layer, head, distance)
    found = [
        search_view(view, head_view, query, key, level, memory, seed, progress)
        for head_view in views
    ]
    if view.W_pos is not None:
        notes.append("learned positions are left out: scores are of the features alone")
    return Search(found, query, key, notes)


def feature_sides(
    model: Model,
    features: FeatureSpec | None,
    query_features: FeatureSpec | None,
    key_features: FeatureSpec | None,
) -> tuple[FeatureSet, FeatureSet]:
    """The features of queries and of keys.

    Raises:
        InputError: as `find_skip_bigrams`.
    """
    if features is not None and query_features is not None and key_features is not None:
        raise InputError("features of both sides are given, and features beside them; drop one")
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
    memory: int | str | None,
    seed: int,
    progress: Callable[[str], None],
) -> HeadBigrams:
    """One head from one distance.

    Raises:
        InputError: as `find_skip_bigrams`.
    """
    progress(head_view.name)
    circuit = qk_circuit(None, head_view.layer, head_view.head, view=view)
    if head_view.distance is not None:
        circuit = circuit.at_distance(head_view.distance)
    queries = _seen(circuit, query)
    keys = queries if key is query else _seen(circuit, key)
    units, dimensions = units_of(circuit.norm, queries, keys)
    found = skip_bigrams_of(
        (circuit.W_Q / circuit.attn_scale, circuit.W_K),
        queries,
        None if key is query else keys,
        query_names=query.names,
        key_names=key.names,
        dimensions=dimensions,
        units=units,
        level=level,
        memory=memory,
        seed=seed,
        progress=lambda step: progress(f"{head_view.name}: {step}"),
    )
    return dataclasses.replace(
        found, layer=head_view.layer, head=head_view.head, distance=head_view.distance
    )


def units_of(
    norm: NormWeights,
    queries: Float[Tensor, "query d_model"],
    keys: Float[Tensor, "key d_model"],
) -> tuple[Float[Tensor, " d_model"] | None, int]:
    """Units of residual coordinates, None behind a norm, and the dimensions features may point in.

    Units are about 1: the root mean square of those that features write to is.
    """
    if norm.kind is not None:
        return None, seen_dimensions(norm, queries.shape[1])
    units = coordinate_units(queries.square().sum(0) + keys.square().sum(0))
    dimensions = max(int((units > 0).sum()), 1)
    return units / (units.norm() / dimensions**0.5).clamp_min(TINY), dimensions


def _seen(circuit: QKCircuit, features: FeatureSet) -> Tensor:
    """Directions as the norm in front of the head lets them through."""
    if features.directions is None:
        raise InputError(f"{features.source} have no directions, which skip-bigrams need")
    return seen_by(circuit.norm, features.directions.detach().double())
