"""The analysis of skip-bigrams: `interp analyze MODEL --probe skip-bigrams [--features F]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interp_toolkit.circuits.skip_bigrams.find import (
    FeatureSpec,
    feature_sides,
    look_at,
    looks_at,
)
from interp_toolkit.circuits.skip_bigrams.head import LEVEL
from interp_toolkit.circuits.skip_bigrams.result import SkipBigramResult, head_record, verdict
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.features import FeatureSet
from interp_toolkit.models.provenance import provenance
from interp_toolkit.models.weights import weights
from interp_toolkit.registry import Analysis

MOST_PAIRS = 2 * 10**8  # over all heads, of a model that is looked at without being asked


def run(
    model: Any,
    *,
    data: FeatureData | None = None,
    layer: int | None = None,
    head: int | None = None,
    features: FeatureSpec | None = None,
    query_features: FeatureSpec | None = None,
    key_features: FeatureSpec | None = None,
    distance: int | Sequence[int] | None = None,
    level: float = LEVEL,
    memory: int | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> SkipBigramResult:
    """The pairs of features that a model's heads check for, from weights alone.

    Args:
        model: any TransformerLens model.
        data: not used: weights alone are looked at.
        layer: None: all.
        head: query head; None: all.
        features: directions of both sides; None: the tokens' embeddings.
        query_features: of queries, where they are others.
        key_features: of keys, likewise.
        distance: query position less key position, for heads that turn them; None: 1.
        level: of false discoveries, for each head.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        seed: of the samples that give medians, and of the histogram's random features.
        progress: told what is being done.

    Raises:
        InputError: as `find_skip_bigrams`.
    """
    progress("features")
    query, key = feature_sides(model, features, query_features, key_features)
    view = weights(model)
    looks, notes = looks_at(view, layer, head, distance)
    found = [look_at(view, look, query, key, level, memory, seed, progress) for look in looks]
    evidence: dict[str, Any] = {
        "status": "detected" if any(one.bigrams for one in found) else "not_detected",
        "null": "features drawn independently of the head's weights, row by row and column by "
        "column: the larger of the two p-values counts",
        "adjusted": "Benjamini and Hochberg, over all pairs of a head",
        "pairs of features, each head": found[0].n_pairs,
        "capacity": "d_resid x d_head: the order of how many a head can check for",
    }
    if len(found) > 1:
        evidence["several heads"] = (
            f"the level holds for each of {len(found)}: without any bigram, up to "
            f"{level * len(found):.2g} of them would show one by chance"
        )
    if any(one.tail == "empirical" for one in found):
        evidence["features"] = (
            "not spread over all directions as random ones are: p-values are from each row's and "
            "column's own spread and a normal tail, and hold less strictly"
        )
    if view.W_pos is not None:
        notes.append("learned positions are left out: scores are of the features alone")
    if notes:
        evidence["notes"] = "; ".join(notes)
    settings = {"layer": layer, "head": head, "distance": distance, "level": level}
    return SkipBigramResult(
        probe="skip-bigrams",
        verdict=verdict(found),
        evidence=evidence,
        provenance=provenance(model, _described(query, key), settings, seed),
        heads=[head_record(one) for one in found],
        found=found,
    )


def _described(query: FeatureSet, key: FeatureSet) -> dict[str, Any]:
    if query is key:
        return query.described()
    return {"query features": query.described(), "key features": key.described()}


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    try:
        view = weights(model)
        looks, _ = looks_at(view, None, None, None)
    except InputError as error:
        return str(error)
    if len(looks) * view.d_vocab**2 > MOST_PAIRS:
        return (
            f"all pairs of {view.d_vocab} tokens in {len(looks)} heads take long; ask for it by "
            "name: --probe skip-bigrams"
        )
    return None


SKIP_BIGRAMS = Analysis(
    "skip-bigrams",
    "which pairs of features a head's queries and keys check for, beyond chance",
    run,
    _unfit,
)
