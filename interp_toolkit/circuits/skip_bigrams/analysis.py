"""The analysis of skip-bigrams: `interp analyze MODEL --probe skip-bigrams [--features F]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interp_toolkit.circuits.skip_bigrams.find import FeatureSpec, search
from interp_toolkit.circuits.skip_bigrams.result import (
    SkipBigramResult,
    evidence_of,
    head_record,
    verdict,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.feature_sets import FeatureSet
from interp_toolkit.registry import Analysis
from interp_toolkit.stats import LEVEL


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

    `find_skip_bigrams` says what the options are, and what is refused; data are not used, weights
    alone are looked at.
    """
    found, query, key, notes = search(
        model,
        *(layer, head, features, query_features, key_features, distance),
        *(level, memory, seed, progress),
    )
    settings = {"layer": layer, "head": head, "distance": distance, "level": level}
    return SkipBigramResult(
        probe="skip-bigrams",
        verdict=verdict(found),
        evidence=evidence_of(found, notes),
        provenance=provenance(model, _described(query, key), settings, seed),
        heads=[head_record(one) for one in found],
        found=found,
    )


def _described(query: FeatureSet, key: FeatureSet) -> dict[str, Any]:
    if query is key:
        return query.described()
    return {"query features": query.described(), "key features": key.described()}


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    if (record_of(model).task or {}).get("function") == "skip-bigrams":
        return None
    return "any head has scores to look through; ask for it by name: --probe skip-bigrams"


SKIP_BIGRAMS = Analysis(
    "skip-bigrams",
    "which pairs of features a head's queries and keys check for, beyond chance",
    run,
    _unfit,
)
