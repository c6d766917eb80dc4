"""What the analysis of hidden states by depth returns: every place, and the rise between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp_toolkit.circuits.collapse.layers import LayerSimilarity, mean_of_known
from interp_toolkit.results import Evidence, Result, Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CollapseEvidence(Evidence):
    """What the verdict on hidden states rests on.

    Attributes:
        rise, rise_low, rise_high: of the mean cosine from the embedding to the last block, paired
            over rows, with its 95 % interval.
        rows: it is of.
        least_rise: what counts as one.
        copies: what the re-initialised models are.
        rises_of_copies: theirs.
    """

    rise: float
    rise_low: float
    rise_high: float
    rows: int
    least_rise: float
    copies: str
    rises_of_copies: Sequence[float]


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
