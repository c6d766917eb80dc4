"""The analysis of collapse: do hidden states of different tokens become alike with depth?

`interp analyze MODEL --probe collapse`; what is measured is told in `collapse`. The value behind
the last block is read against

- the model's own embedding, row by row: what was alike from the start is no work of depth;
- copies of the model with every weight tensor's entries shuffled: what depth does to any such
  weights, trained or not;
- independent directions: 0, with a standard deviation of 1/√d for a single cosine.

States that share a direction need not have lost what tells them apart: the dimensions of the
covariance, which leaves out what they share, are given beside those of the second moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp_toolkit.circuits.behaviour.advantage import estimate
from interp_toolkit.circuits.behaviour.prompts import SHORTEST
from interp_toolkit.circuits.collapse.by_depth import (
    Similarity,
    places_of,
    random_rows,
    similarity_by_depth,
)
from interp_toolkit.circuits.collapse.figures import cosine_figure, dimension_figure
from interp_toolkit.circuits.collapse.layers import (
    LayerSimilarity,
    known,
    layer_similarity,
    mean_of_known,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError, InterventionError
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.running.interventions import reinitialised
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure, Result, Table

if TYPE_CHECKING:
    import pandas as pd

RISE = 0.1  # of the mean cosine from the embedding to the last block, to be said to become alike
COPIES = 3

Status = Literal["detected", "not_detected", "undecided"]


@dataclass(frozen=True)
class CollapseResult(Result):
    """How alike hidden states are, by depth.

    Attributes:
        layers: every place, from the embedding on.
        rise: of the mean cosine from the embedding to the last block: "mean", "low" and "high".
        independent_spread: 1/√d, the standard deviation of a cosine of independent directions.
    """

    layers: Sequence[LayerSimilarity]
    rise: Mapping[str, float]
    independent_spread: float

    def to_frame(self) -> pd.DataFrame:
        """One row a place."""
        import pandas as pd

        return pd.DataFrame([vars(layer) for layer in self.layers])

    def tables(self) -> list[Table]:
        """The places."""
        return [_table(self.layers)]

    def figures(self) -> list[Figure]:
        """The cosine, and the dimensions in use, by depth."""
        return [cosine_figure(self.layers, self.independent_spread), dimension_figure(self.layers)]


def run(
    model: Any,
    *,
    data: FeatureData | None = None,
    reinitialisations: int = COPIES,
    memory: int | str | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    probe: str = "collapse",
) -> CollapseResult:
    """Whether hidden states of different tokens become more alike with depth.

    Args:
        model: any TransformerLens model with blocks.
        data: rows of tokens, taken as independent of each other; None: random tokens.
        reinitialisations: copies with shuffled weights to read it against.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        seed: of random tokens and of the copies.
        progress: told what is being done.
        probe: the name the result goes by.

    Raises:
        InputError: no blocks, fewer than two rows with two different tokens, hidden states that
            are not finite.
    """
    if reinitialisations < 0:
        raise InputError(f"{reinitialisations} copies cannot be made; give 0 or more")
    rows = random_rows(model, seed=seed) if data is None else data
    own = similarity_by_depth(model, rows, memory=memory, progress=progress)
    last = _last_block(own)
    rise = estimate(known(own.cosines[last] - own.cosines[0]))
    copies = []
    for number in range(reinitialisations):
        progress(f"shuffled copy {number + 1} of {reinitialisations}")
        copies.append(_of_copy(model, rows, memory, seed + number))
    kept = [copy for copy in copies if copy is not None]
    layers = [layer_similarity(own, kept, place) for place in range(len(own.places))]
    status = _status(rise.low, rise.high)
    evidence: dict[str, Any] = {
        "status": status,
        "rise": f"{rise.mean:.3f} ({rise.low:.3f} to {rise.high:.3f}), paired, of {rise.n} rows",
        "counts as a rise": RISE,
        "copies": "every weight tensor's entries in random order",
    }
    if len(kept) < len(copies):
        evidence["notes"] = f"{len(copies) - len(kept)} copies gave no usable hidden states"
    described = {"source": rows.source, "rows": len(rows), "sha256": rows.digest()}
    counts = {"positions": own.positions, "pairs": own.pairs}
    return CollapseResult(
        probe=probe,
        verdict=_verdict(status, layers[0], layers[last], int(model.cfg.d_model)),
        evidence=evidence,
        provenance=provenance(
            model, {**described, **counts}, {"reinitialisations": reinitialisations}, seed
        ),
        layers=layers,
        rise={"mean": rise.mean, "low": rise.low, "high": rise.high},
        independent_spread=1 / math.sqrt(int(model.cfg.d_model)),
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


def _status(low: float, high: float) -> Status:
    if low >= RISE:
        return "detected"
    return "not_detected" if high < RISE else "undecided"


def _verdict(status: Status, first: LayerSimilarity, last: LayerSimilarity, d_model: int) -> str:
    said = {
        "detected": f"become more alike with depth, by {RISE:g} or more",
        "not_detected": f"become more alike with depth by less than {RISE:g}, if at all",
        "undecided": f"may or may not become more alike with depth by {RISE:g}: rows differ",
    }[status]
    copies = [value for value in last.reinitialised_cosine if value is not None]
    beside = ""
    if copies:
        low, high = f"{min(copies):.2f}", f"{max(copies):.2f}"
        beside = f"; {low if low == high else f'{low} to {high}'} with the weights shuffled"
    return (
        f"Hidden states of different tokens {said}: their mean cosine is {last.cosine:.2f} (95 % "
        f"interval {last.low:.2f} to {last.high:.2f}) after the last block and {first.cosine:.2f} "
        f"at the embedding{beside}; independent directions would have 0, a single cosine with "
        f"a standard deviation of {1 / math.sqrt(d_model):.2f}."
    )


def _table(layers: Sequence[LayerSimilarity]) -> Table:
    columns = [
        *("place", "cosine", "low", "high", "cosine, shuffled"),
        *("dimensions", "shuffled", "dimensions, centred", "shuffled, centred"),
    ]
    rows = [
        [
            *(layer.place, layer.cosine, layer.low, layer.high),
            mean_of_known(
                np.array([np.nan if c is None else c for c in layer.reinitialised_cosine])
            ),
            *(layer.dimensions, layer.reinitialised_dimensions),
            *(layer.centred_dimensions, layer.reinitialised_centred_dimensions),
        ]
        for layer in layers
    ]
    caption = (
        "Cosine: mean over the pairs of positions of a row that hold different tokens, then over "
        "rows, with its 95 % interval. Dimensions: how many equal ones would have the same "
        "participation ratio as the second moments of the directions of all rows together or, "
        "centred, as their covariance. "
        "Shuffled: the mean over copies with every weight tensor's entries in random order."
    )
    return Table("By depth", columns, rows, caption)


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
    run,
    _unfit,
)
