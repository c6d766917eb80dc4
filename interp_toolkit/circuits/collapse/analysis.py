"""The analysis of collapse: do hidden states of different tokens become alike with depth?

`interp analyze MODEL --probe collapse`; what is measured is told in `collapse`. The value behind
the last block is read against

- the model's own embedding, row by row: what was alike from the start is no work of depth;
- copies of the model with every weight tensor's entries shuffled: what depth does to any such
  weights, trained or not, so that only a rise beyond theirs is a finding (`evidence`);
- independent directions: 0, with a standard deviation of 1/√d for a single cosine.

States that share a direction need not have lost what tells them apart: the dimensions of the
covariance, which leaves out what they share, are given beside those of the second moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from interp_toolkit.circuits.behaviour.advantage import estimate, within
from interp_toolkit.circuits.behaviour.prompts import SHORTEST
from interp_toolkit.circuits.collapse.by_depth import (
    Similarity,
    known,
    layer_similarity,
    places_of,
    random_rows,
    similarity_by_depth,
)
from interp_toolkit.circuits.collapse.result import (
    CollapseResult,
    cosine_figure,
    dimension_figure,
    evidence_of,
    verdict,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.about.record import provenance
from interp_toolkit.models.features.duplicates import equal_inputs
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis

COPIES = 8


class CollapseOptions(Options):
    """Options of `--probe collapse`."""

    reinitialisations: int = Field(
        COPIES, ge=0, description="Copies with shuffled weights to read it against."
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: CollapseOptions,
    progress: Callable[[str], None],
) -> CollapseResult:
    """Whether hidden states of different tokens become more alike with depth.

    Args:
        model: any TransformerLens model with blocks.
        data: rows of tokens, taken as independent of each other; None: random tokens.
        options: see `CollapseOptions`.
        progress: told what is being done.

    Raises:
        InputError: no blocks, fewer than two rows with two different tokens, hidden states that
            are not finite.
    """
    memory, seed = options.memory, options.seed
    reinitialisations = options.reinitialisations
    rows, notes = random_rows(model, seed=seed) if data is None else data, []
    described = {"source": rows.source, "rows": len(rows), "sha256": rows.digest()}
    first = np.unique(equal_inputs(rows.tokens), return_index=True)[1]
    if len(first) < len(rows):
        notes.append(f"{len(rows) - len(first)} rows repeat others, and do not count again")
        rows = rows.at(first)
    own = similarity_by_depth(model, rows, memory=memory, progress=progress)
    last = _last_block(own)
    rise = within(estimate(known(own.cosines[last] - own.cosines[0])), 2.0)
    copies = []
    for number in range(reinitialisations):
        progress(f"shuffled copy {number + 1} of {reinitialisations}")
        copies.append(_of_copy(model, rows, memory, seed + number))
    kept = [copy for copy in copies if copy is not None]
    layers = [layer_similarity(own, kept, place) for place in range(len(own.places))]
    if len(kept) < len(copies):
        notes.append(f"{len(copies) - len(kept)} copies gave no usable hidden states")
    evidence = evidence_of(
        rise,
        [float(known(c.cosines[last] - c.cosines[0]).mean()) for c in kept],
        largest=1 - float(known(own.cosines[0]).mean()),
    )
    counts = {"positions": own.positions, "pairs": own.pairs}
    spread = 1 / math.sqrt(int(model.cfg.d_model))
    return CollapseResult(
        probe="collapse",
        verdict=verdict(evidence, layers[0], layers[last], int(model.cfg.d_model)),
        evidence=evidence,
        provenance=provenance(model, {**described, **counts}, options.settings(), seed),
        layers=layers,
        rise={"mean": rise.mean, "low": rise.low, "high": rise.high},
        independent_spread=spread,
        notes=notes,
        plots=[cosine_figure(layers, spread), dimension_figure(layers)],
    )


def _of_copy(
    model: Any, rows: FeatureData, memory: int | str | None, seed: int
) -> Similarity | None:
    """Of a copy with shuffled weights; None where that cannot be read."""
    try:
        with reinitialised(model, seed=seed):
            return similarity_by_depth(model, rows, memory=memory)
    except (InputError, InterventionError):
        return None


def _last_block(similarity: Similarity) -> int:
    """The place behind the last block."""
    return max(n for n, place in enumerate(similarity.places) if not place.normed)


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    try:
        places_of(model)
        if data is None:
            random_rows(model, rows=1)
    except InputError as error:
        return str(error)
    longest = int(model.cfg.n_ctx) if data is None else int(np.median(data.lengths))
    if longest < SHORTEST:
        return f"needs rows of {SHORTEST} positions or more to say much"
    if data is not None and sum(len(np.unique(row)) > 1 for row in data.tokens) < 2:
        return "needs two rows of different tokens"
    return None


COLLAPSE = Analysis(
    "collapse",
    "whether hidden states of different tokens become alike with depth, and dimensions in use",
    CollapseOptions,
    run,
    _unfit,
)
