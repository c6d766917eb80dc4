"""The analysis of skip-bigrams: `interp analyze MODEL --probe skip-bigrams [--features F]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from interp_toolkit.circuits.skip_bigrams.figures import bigram_figures
from interp_toolkit.circuits.skip_bigrams.find import search
from interp_toolkit.circuits.skip_bigrams.result import (
    SkipBigramResult,
    clearest,
    head_record,
    place,
)
from interp_toolkit.circuits.skip_bigrams.verdict import evidence_of, notes_of, verdict
from interp_toolkit.data import FeatureData
from interp_toolkit.models.about.record import provenance, record_of
from interp_toolkit.models.features.feature_sets import FeatureSet
from interp_toolkit.models.features.options import FeatureOptions
from interp_toolkit.options import Flag, Options
from interp_toolkit.registry import Analysis
from interp_toolkit.stats import LEVEL

SOURCE = "Computation in superposition, section 3"


def _as_several(value: Any) -> Any:
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return value if value is None or several else (value,)


class SkipBigramOptions(FeatureOptions, Options):
    """Options of `--probe skip-bigrams`."""

    layer: int | None = Field(
        None, ge=0, description="Layer of the heads to look at; default: all."
    )
    head: int | None = Field(None, ge=0, description="Head to look at; default: all.")
    query_features: Annotated[Any, Flag(metavar="FILE")] = Field(
        None, description="Features of the query alone; default: --features."
    )
    key_features: Annotated[Any, Flag(metavar="FILE")] = Field(
        None, description="Features of the key alone; default: --features."
    )
    distance: Annotated[tuple[int, ...] | None, BeforeValidator(_as_several), Flag(metavar="N")] = (
        Field(None, description="Query less key position, for rotary heads; default: 1.")
    )
    level: float = Field(LEVEL, gt=0, lt=1, description="Of false discoveries among pairs.")


def run(
    model: Any,
    data: FeatureData | None,
    options: SkipBigramOptions,
    progress: Callable[[str], None],
) -> SkipBigramResult:
    """The pairs of features that a model's heads check for, from weights alone.

    `find_skip_bigrams` says what the options are, and what is refused; data are not used, weights
    alone are looked at.
    """
    distance: Any = options.distance
    if distance is not None and len(distance) == 1:
        (distance,) = distance
    names = ("features", "query_features", "key_features")
    chosen = {name: options.read(getattr(options, name), model) for name in names}
    found, query, key, notes = search(
        model,
        options.layer,
        options.head,
        chosen["features"],
        chosen["query_features"],
        chosen["key_features"],
        distance,
        options.level,
        options.memory,
        options.seed,
        progress,
    )
    settings = options.settings(**{n: None if f is None else f.source for n, f in chosen.items()})
    first, evidence = clearest(found)[0], evidence_of(found)
    return SkipBigramResult(
        probe="skip-bigrams",
        verdict=verdict(found),
        evidence=evidence,
        provenance=provenance(model, _described(query, key), settings, options.seed),
        heads=[head_record(one) for one in found],
        found=found,
        notes=[*notes_of(found, evidence), *notes],
        plots=bigram_figures(first, place(first)),
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
    SkipBigramOptions,
    run,
    _unfit,
    SOURCE,
)
