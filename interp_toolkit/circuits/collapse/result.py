"""What the analysis of hidden states by depth returns: every place, and the rise between them.

Also here:
- the verdict on hidden states by depth: do they become alike, and how sure is that?
- figures of collapse: how alike hidden states are, and the dimensions they take up, by depth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.behaviour.advantage import Estimate
from interp_toolkit.circuits.collapse.by_depth import LayerSimilarity, mean_of_known
from interp_toolkit.evidence import control_of_copies, effect_status
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL, translucent
from interp_toolkit.results import Evidence, Figure, Result, Table

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


RISE = 0.1  # of the mean cosine from the embedding to the last block, to be said to become alike
COPIES = "every weight tensor's entries in random order"


def evidence_of(
    rise: Estimate, of_copies: Sequence[float], largest: float = math.inf
) -> CollapseEvidence:
    """The status of the claim that states become alike, and the numbers that it follows from.

    Args:
        rise: of the mean cosine from the embedding to the last block.
        of_copies: the same of each copy with shuffled weights.
        largest: rise that is possible.
    """
    copies = control_of_copies(
        "models with shuffled weights", rise.mean, rise.low, np.array(of_copies), largest
    )
    status, reason = effect_status(rise.low, rise.high, RISE, [copies])
    return CollapseEvidence(
        status=status,
        reason=reason,
        rise=rise.mean,
        rise_low=rise.low,
        rise_high=rise.high,
        rows=rise.n,
        least_rise=RISE,
        copies=COPIES,
        rises_of_copies=list(of_copies),
    )


def verdict(
    evidence: CollapseEvidence, first: LayerSimilarity, last: LayerSimilarity, d_model: int
) -> str:
    """Whether hidden states become alike, beside shuffled weights and independent directions."""
    finding = {
        "detected": f"become more alike with depth, by {RISE:g} or more and by more than with "
        "shuffled weights",
        "uninformative": "become more alike with depth no more than with shuffled weights",
        "not_detected": f"become more alike with depth by less than {RISE:g}, if at all",
    }.get(evidence.status, f"may or may not become more alike with depth ({evidence.reason})")
    copies = [value for value in last.reinitialised_cosine if value is not None]
    beside = ""
    if copies:
        low, high = f"{min(copies):.2f}", f"{max(copies):.2f}"
        beside = f"; {low if low == high else f'{low} to {high}'} with the weights shuffled"
    return (
        f"Hidden states of different tokens {finding}: their mean cosine is {last.cosine:.2f} "
        f"(95 % interval {last.low:.2f} to {last.high:.2f}) after the last block and "
        f"{first.cosine:.2f} at the embedding{beside}; independent directions would have 0, "
        f"a single cosine with a standard deviation of {1 / math.sqrt(d_model):.2f}."
    )


def cosine_figure(layers: Sequence[LayerSimilarity], spread: float) -> Figure:
    """The mean cosine by depth, with its interval, beside the copies'."""
    names = [layer.place for layer in layers]
    known = [layer for layer in layers if layer.low is not None]
    around = [layer.place for layer in known]
    low, high = [layer.low for layer in known], [layer.high for layer in known]
    shared = plots.band(around, low, high, translucent(CLASS_COLORS[0], 0.25))
    cosines = [layer.cosine for layer in layers]
    data = [
        shared | {"name": "95 % interval"},
        _line("the model", names, cosines, CLASS_COLORS[0], "solid"),
    ]
    copies = max((len(layer.reinitialised_cosine) for layer in layers), default=0)
    for copy in range(copies):
        values = [layer.reinitialised_cosine[copy] for layer in layers]
        line = _line("weights shuffled", names, values, CLASS_COLORS[1], "dash")
        data.append(line | plots.grouped("shuffled", listed=copy == 0))
    for end in (-spread, spread):
        line = _line("independent: one cosine", names, [end] * len(names), NEUTRAL, "dot")
        line |= {"mode": "lines"} | plots.NO_HOVER
        data.append(line | plots.grouped("independent", listed=end > 0))
    layout = plots.layout(
        plots.axis("place", "category"), plots.axis("mean cosine of different tokens")
    )
    caption = (
        "Mean cosine between the hidden states of different tokens of a row; 1: all are one "
        "direction. Dotted: one standard deviation of a single cosine of independent directions; "
        "a mean over many pairs would stay far closer to 0."
    )
    return Figure("How alike hidden states are", caption, data, layout)


def dimension_figure(layers: Sequence[LayerSimilarity]) -> Figure:
    """The participation ratios by depth."""
    names = [layer.place for layer in layers]
    lines = [
        ("all they are", "dimensions", 0, "solid"),
        ("without what they share", "centred_dimensions", 1, "solid"),
        ("all, weights shuffled", "reinitialised_dimensions", 0, "dash"),
        ("without, weights shuffled", "reinitialised_centred_dimensions", 1, "dash"),
    ]
    data = [
        _line(name, names, [getattr(layer, field) for layer in layers], CLASS_COLORS[side], dash)
        for name, field, side, dash in lines
        if any(getattr(layer, field) is not None for layer in layers)
    ]
    layout = plots.layout(plots.axis("place", "category"), plots.axis("dimensions in use", "log"))
    caption = (
        "How many equal dimensions would have the same participation ratio as the directions of "
        "the hidden states (all they are) and as their differences from the mean direction "
        "(without what they share)."
    )
    return Figure("Dimensions in use", caption, data, layout)


def _line(
    name: str, x: Sequence[str], y: Sequence[float | None], color: str, dash: str
) -> plots.Part:
    return plots.line(x, y, color, name, dash=dash) | plots.marked(size=6)
