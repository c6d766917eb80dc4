"""Tables and figures of the widths that random layers need, and of their errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.open.random_layers.layers import KINDS, RANDOM
from interp_studies.open.random_layers.width import needed_width
from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.plots import shade
from interp_toolkit.results import Figure, Table

AT = 32  # features at which kinds are compared

Values = Mapping[str, Any]


def _widths(values: Sequence[Values], kind: str, m: int) -> list[float]:
    kept = [v for v in values if v["kind"] == kind and v["n_features"] == m]
    return [needed_width(v["widths"], v["error"]) for v in kept]


def _median(values: Sequence[Values], kind: str, m: int) -> float | None:
    """The median width; None where it lies outside the widths measured."""
    median = statistics.median(_widths(values, kind, m))
    return median if 0 < median < math.inf else None


def _width_in_words(values: Sequence[Values], kind: str, m: int) -> int | str:
    median = statistics.median(_widths(values, kind, m))
    if median == 0:
        return f"below {min(min(v['widths']) for v in values)}"
    return f"above {max(max(v['widths']) for v in values)}" if median == math.inf else round(median)


def width_table(values: Sequence[Values]) -> Table:
    """The width each kind needs, by features."""
    sizes = sorted({v["n_features"] for v in values})
    rows = [[kind, *(_width_in_words(values, kind, m) for m in sizes)] for kind in RANDOM]
    caption = (
        "Neurons at which the mean worst error after offset crosses 1/4, where that lies between "
        "widths measured; medians over draws."
    )
    return Table("Width needed", ["layer", *(f"m = {m}" for m in sizes)], rows, caption)


def error_table(values: Sequence[Values]) -> Table:
    """Every layer that was read."""
    rows = [
        [v["kind"], v["n_features"], v["seed"], width, error, read]
        for v in values
        for width, error, read in zip(v["widths"], v["error"], v["read"], strict=True)
    ]
    columns = ["layer", "features", "draw", "neurons", "mean worst error", "pairs below 1/4"]
    return Table("Every layer", columns, rows)


def width_figure(values: Sequence[Values]) -> Figure:
    """The width each kind needs against features."""
    sizes = sorted({v["n_features"] for v in values})
    data = [
        plots.line(
            sizes,
            [_median(values, kind, m) for m in sizes],
            shade(place, len(RANDOM)),
            kind,
        )
        | plots.marked(plots.symbol(place), size=8)
        for place, kind in enumerate(RANDOM)
    ]
    pairs = [m * (m + 1) / 2 for m in sizes]
    data.append(plots.dashed(sizes, pairs, "m (m + 1) / 2, where squares are exact"))
    layout = plots.layout(plots.axis("features m", "log"), plots.axis("neurons needed", "log"))
    caption = "Where the mean over pairs of the worst held-out error crosses 1/4; medians."
    return Figure("Width needed to compute universal AND", caption, data, layout)


def error_figure(values: Sequence[Values]) -> Figure:
    """Each kind's error against width, at AT features."""
    m = AT if any(v["n_features"] == AT for v in values) else values[0]["n_features"]
    data = []
    for place, kind in enumerate(KINDS):
        kept = [v for v in values if v["kind"] == kind and v["n_features"] == m]
        widths = kept[0]["widths"]
        medians = [statistics.median(v["error"][k] for v in kept) for k in range(len(widths))]
        data.append(plots.line(widths, medians, shade(place, len(KINDS)), kind) | plots.marked())
    layout = plots.layout(
        plots.axis("neurons", "log"), plots.axis("mean worst error") | plots.FROM_ZERO
    )
    layout |= {"shapes": [plots.at_y(AFFINE)]}
    caption = f"{m} features; the dashed line is the 1/4 of an affine function. Medians over draws."
    return Figure("Error against width", caption, data, layout)
