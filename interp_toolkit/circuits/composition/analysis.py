"""The analysis of composition: which heads' outputs later heads read, beyond chance.

`interp analyze MODEL --probe composition`; what is computed is told in `scores`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interp_toolkit.circuits.composition.result import (
    LISTED,
    CompositionResult,
    composition_maps,
    evidence_of,
    verdict,
)
from interp_toolkit.circuits.composition.scores import (
    MODES,
    composable_layers,
    composition_scores,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import provenance
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis
from interp_toolkit.stats import LEVEL

if TYPE_CHECKING:
    import pandas as pd


class CompositionOptions(Options):
    """Options of `--probe composition`: none of its own."""


def run(
    model: Any,
    data: FeatureData | None,
    options: CompositionOptions,
    progress: Callable[[str], None],
) -> CompositionResult:
    """Which heads' outputs later heads read more than chance would have it, from weights alone.

    Args:
        model: any TransformerLens model with two layers or more.
        data: not used: weights alone are looked at.
        options: the memory alone counts.
        progress: told what is being done.

    Raises:
        InputError: fewer than two layers whose attention weights can be read.
    """
    progress("composition of all pairs of heads")
    scores = composition_scores(model, options.memory)
    frame = scores.to_frame()
    significant = int((frame.p_adjusted <= LEVEL).sum())
    records = frame.head(significant + LISTED).to_dict("records")
    pairs = [{str(key): value for key, value in record.items()} for record in records]
    counts = {mode: _counted(frame[frame["mode"] == mode]) for mode in MODES}
    first = str(pairs[0]["mode"]) if pairs else None
    return CompositionResult(
        probe="composition",
        verdict=verdict(pairs, counts),
        evidence=evidence_of(frame.p_adjusted.to_numpy(float)),
        provenance=provenance(model, {}, options.settings(), None),
        pairs=pairs,
        counts=counts,
        notes=scores.notes,
        scores=scores,
        plots=composition_maps(scores, first),
    )


def _counted(frame: pd.DataFrame) -> dict[str, int | float]:
    known = frame.p_value.notna()
    return {
        "pairs": int(known.sum()),
        "significant": int((frame.p_adjusted <= LEVEL).sum()),
        "share_below_level": float((frame.p_value[known] <= LEVEL).mean()),
        "largest_score": float(frame.score.max()),
    }


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    if int(model.cfg.n_layers) < 2:
        return "needs two layers"
    try:
        composable_layers(weights(model))
    except InputError as error:
        return str(error)
    return None


COMPOSITION = Analysis(
    "composition",
    "which heads' outputs later heads read with queries, keys and values, from weights alone",
    CompositionOptions,
    run,
    _unfit,
)
