"""`find_skip_bigrams`: the skip-bigrams of a model's heads, for features of any kind.

Each head's form is its QK circuit (`circuits.qk`): the norm's centring and weights folded in, keys
shared between heads given to each, divided by the attention scale. Features are taken as the norm
sees them, centred behind LN, and as directions: their lengths make no difference. Biases and what
learned positions add are left out; they favour a query or a key, not a pair. A rotary head is
looked at from one distance, or from several.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from interp_toolkit.circuits.folding import seen_by, seen_dimensions
from interp_toolkit.circuits.qk import QKCircuit, qk_circuit
from interp_toolkit.circuits.skip_bigrams.head import LEVEL, HeadBigrams, skip_bigrams_of
from interp_toolkit.errors import InputError
from interp_toolkit.models.features import EMBEDDINGS, FeatureSet, read_features
from interp_toolkit.models.weights import ModelWeights, weights
from interp_toolkit.results import head_name

FeatureSpec = str | Path | FeatureSet | Tensor | np.ndarray


class Look(NamedTuple):
    """A head from a distance (None: it makes no difference)."""

    layer: int
    head: int
    distance: int | None

    @property
    def name(self) -> str:
        """Such as L1H0, or L1H0 at distance 2."""
        at = "" if self.distance is None else f" at distance {self.distance}"
        return head_name(self.layer, self.head) + at


def find_skip_bigrams(
    model: Any,
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
        distance: query position less key position, for heads that turn them; one or several;
            None: 1, and of heads that do not turn them none.
        level: of false discoveries, for each head.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        seed: of the samples that give medians, and of the histogram's random features.
        progress: told what is being done.

    Raises:
        InputError: a head that is not there or cannot be read, features without directions or of
            another width, or a distance that the head does not look across.
    """
    query, key = feature_sides(model, features, query_features, key_features)
    view = weights(model)
    looks, _ = looks_at(view, layer, head, distance)
    return [look_at(view, look, query, key, level, memory, seed, progress) for look in looks]


def feature_sides(
    model: Any,
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


def looks_at(
    view: ModelWeights, layer: int | None, head: int | None, distance: int | Sequence[int] | None
) -> tuple[list[Look], list[str]]:
    """The heads to look at, from which distances, and notes on layers that are left out.

    Raises:
        InputError: no such head; a layer asked for by its number, or every layer, that cannot be
            read.
    """
    if layer is not None and not 0 <= layer < view.n_layers:
        raise InputError(
            f"there is no layer {layer}; the model has layers 0 to {view.n_layers - 1}"
        )
    if head is not None and not 0 <= head < view.n_heads:
        raise InputError(f"there is no head {head}; the model has heads 0 to {view.n_heads - 1}")
    looks, notes = [], []
    for number in range(view.n_layers) if layer is None else [layer]:
        try:
            rotary = view.layer(number).rotary is not None
        except InputError as error:
            if layer is not None or view.n_layers == 1:
                raise
            notes.append(f"layer {number} is left out: {error}")
            continue
        for one in range(view.n_heads) if head is None else [head]:
            looks += [Look(number, one, d) for d in _distances(distance, rotary)]
    if not looks:
        raise InputError(f"no head can be read: {notes[0]}" if notes else "no distance is given")
    return looks, notes


def _distances(distance: int | Sequence[int] | None, rotary: bool) -> list[int | None]:
    if distance is None:
        return [1] if rotary else [None]
    return [distance] if isinstance(distance, int) else list(distance)


@torch.no_grad()
def look_at(
    view: ModelWeights,
    look: Look,
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
    progress(look.name)
    circuit = qk_circuit(None, look.layer, look.head, view=view)
    if look.distance is not None:
        circuit = circuit.at_distance(look.distance)
    found = skip_bigrams_of(
        (circuit.W_Q / circuit.attn_scale, circuit.W_K),
        _seen(circuit, query),
        None if key is query else _seen(circuit, key),
        query_names=query.names,
        key_names=key.names,
        dimensions=seen_dimensions(circuit.norm, view.d_model),
        level=level,
        memory=memory,
        seed=seed,
        progress=lambda step: progress(f"{look.name}: {step}"),
    )
    return dataclasses.replace(found, layer=look.layer, head=look.head, distance=look.distance)


def _seen(circuit: QKCircuit, features: FeatureSet) -> Tensor:
    """Directions as the norm in front of the head lets them through."""
    if features.directions is None:
        raise InputError(f"{features.source} have no directions, which skip-bigrams need")
    return seen_by(circuit.norm, features.directions.detach().double())
