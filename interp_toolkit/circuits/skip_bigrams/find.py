"""Skip-bigrams of a model's heads, for features of any kind; and the score of one token pair.

Each head's form is its QK circuit (`circuits.weights.qk`): the norm's centering and weights folded
in, keys shared between heads given to each, divided by the attention scale. Features are taken as
the norm sees them, centered behind LN, and as directions: their lengths make no difference. Biases
and what learned positions add are left out; they favor a query or a key, not a pair. A rotary head
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

from interp_toolkit.circuits.skip_bigrams.head import COPIES, HeadBigrams, skip_bigrams_of
from interp_toolkit.circuits.skip_bigrams.scores import (
    FLOOR,
    ROUNDING,
    Features,
    Form,
    PairScores,
)
from interp_toolkit.circuits.weights.permutations import coordinate_units, reciprocal
from interp_toolkit.circuits.weights.qk import QKCircuit, qk_circuit
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

NEAREST = 1  # the distance where none is given
NAMED = 5  # heads that a note names

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
        copies: with permuted coordinates, that each head is compared with.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        seed: of the samples that give medians, and of the histogram's random features.
        progress: called with a description of each step.

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
    """The features of queries and of keys.

    Raises:
        InputError: as `find_skip_bigrams`.
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
        InputError: as `find_skip_bigrams`.
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
    """Units of residual coordinates, None behind a norm, and the dimensions features may point in.

    Units are about 1: the root mean square of those that features write to is.
    """
    if norm.kind is not None:
        return None, read_dimensions(norm, queries.shape[1])
    units = coordinate_units(queries.square().sum(0) + keys.square().sum(0))
    dimensions = max(int((units > 0).sum()), 1)
    return units / (units.norm() / dimensions**0.5).clamp_min(TINY), dimensions


def _normalized(circuit: QKCircuit, features: FeatureSet) -> Tensor:
    """Directions as the norm in front of the head lets them through."""
    if features.directions is None:
        raise InputError(f"{features.source} have no directions, which skip-bigrams need")
    return normalized_by(circuit.norm, features.directions.detach().double())


class HeadView(NamedTuple):
    """A head from a distance (None: it makes no difference)."""

    layer: int
    head: int
    distance: int | None

    @property
    def name(self) -> str:
        """The circuit's name, such as L1H0 or L1H0 at distance 2."""
        at = "" if self.distance is None else f" at distance {self.distance}"
        return head_name(self.layer, self.head) + at


def head_views(
    model: Model,
    view: ModelWeights,
    layer: int | None,
    head: int | None,
    distance: int | Sequence[int] | None,
) -> tuple[list[HeadView], list[str]]:
    """The heads to look at, from which distances, and notes on what is left out.

    Heads that score every pair 0 are left out, unless there are no others.

    Raises:
        InputError: no such head; a layer asked for by its number, or every layer, that cannot be
            read; a distance beyond the context or given twice,
            or that no head looks across.
    """
    layers, heads = _chosen("layer", layer, view.n_layers), _chosen("head", head, view.n_heads)
    n_ctx = int(model.cfg.n_ctx)
    distances = None if distance is None else _distances(distance, n_ctx)
    views: list[HeadView] = []
    notes: list[str] = []
    empty: list[HeadView] = []
    still = []
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
                still.append(head_name(number, one))
                views.append(HeadView(number, one, None))
    if not views and not empty:
        raise InputError(f"no head can be read: {notes[0]}")
    if distances is not None and still:
        if len(still) == len(views):
            why = "this model learns positions: no" if view.W_pos is not None else "no"
            raise InputError(
                f"{why} requested head depends on distance (rotary positions); leave distance out"
            )
        notes.append(
            f"analyzed without a distance, since it makes no difference: {listed(still, NAMED)}"
        )
    if empty and views:
        names = listed([one.name for one in empty], NAMED)
        notes.append(f"left out, since every pair scores 0 (W_Q W_K^T = 0): {names}")
    if view.W_pos is not None:
        notes.append("learned positions are left out: scores are between features alone")
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
    twice = [one for one in distances if distances.count(one) > 1]
    if twice:
        raise InputError(f"distance {twice[0]} is given more than once")
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
    """The t of one pair of tokens, as the embedding writes them, and its degrees of freedom.

    Args:
        model: any TransformerLens model.
        head: which.
        query: token id.
        key: token id.
        distance: query position less key position, for heads that turn them (rotary).
        memory: bound for the run.
        seed: of the samples that give medians.

    Raises:
        InputError: a head that cannot be read, or tokens without directions.
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
