"""The tables and figures of what was trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interp_studies.open.causal_sorting.plan import (
    EARLY,
    KEYS,
    LAYOUTS,
    OPTIMISERS,
    RATES,
    SEARCHED,
    STEPS,
    Found,
    Values,
)
from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure, Table

COLORS = dict(zip(OPTIMISERS, (*CLASS_COLORS, NEUTRAL), strict=True))


def layouts(found: Found) -> Table:
    """A row for each way to train."""
    rows: list[list[Any]] = []
    for key, mine in found.items():
        ends = [v["loss"] for v in mine]
        pairs = [100 * v["two_values"] for v in mine if v["two_values"] is not None]
        rows.append(
            [
                *key,
                len(mine),
                float(np.exp(np.mean(np.log(ends)))),
                min(ends),
                max(ends),
                min(100 * v["hard"] for v in mine),
                min(pairs) if pairs else None,
                sum(v["wrong"] == 0 for v in mine),
            ]
        )
    columns = ["attention", "optimiser", "rates", "seeds", "loss", "least", "most"]
    columns += ["hard right, worst seed %", "two values, worst %", "seeds without a failure"]
    caption = (
        f"{STEPS:,} steps each. Low rates: 1e-3 to 1e-4, geometrically (the source's); high: 3e-3 "
        "to 3e-5 on a cosine, β₂ 0.99. Loss: nats an item on hard lists, geometric mean over "
        f"seeds. A seed without a failure sorts {SEARCHED:,} hard lists."
    )
    return Table("By attention, optimiser and rates", columns, rows, caption)


def by_seed(found: Found) -> Table:
    """A row for each model."""
    rows = [
        [*key, v["seed"], v["loss"], v["wrong"], v["early_lift"]]
        for key, mine in found.items()
        for v in mine
    ]
    columns = ["attention", "optimiser", "rates", "seed", "loss", "wrong", "above, lift, early"]
    return Table("Every seed", columns, rows, f"Wrong: of {SEARCHED:,} hard lists.")


def losses(found: Found) -> Figure:
    """Every model's loss, by attention and what it was trained with."""
    data = []
    ways = list(dict.fromkeys(key[1:] for key in KEYS))
    for side, (optimiser, rates) in enumerate(ways):
        points = [
            (place + 0.1 * (2 * side - len(ways) + 1), v["loss"])
            for place, attention in enumerate(LAYOUTS)
            for v in found.get((attention, optimiser, rates), ())
        ]
        data.append(
            plots.markers(
                [x for x, _ in points],
                [y for _, y in points],
                COLORS[optimiser],
                f"{optimiser}, {rates} rates",
                symbol=plots.symbol(list(RATES).index(rates)),
                size=8,
            )
        )
    names = plots.ticks(range(len(LAYOUTS)), LAYOUTS)
    layout = plots.layout(
        names | plots.BARE | {"range": [-0.5, len(LAYOUTS) - 0.5]},
        plots.axis("loss on hard lists (nats an item)", "log"),
    )
    caption = "Each point is a seed. What rates and optimiser do is within a column."
    return Figure("Loss by attention, optimiser and rates", caption, data, layout)


def foretold(mine: Sequence[Values]) -> Figure:
    """Final losses by the attention of early steps."""
    points = plots.markers(
        [v["early_lift"] for v in mine],
        [v["loss"] for v in mine],
        CLASS_COLORS[0],
        "seeds",
        size=9,
    )
    layout = plots.layout(
        plots.axis(f"attention above the previous token, step {EARLY}"),
        plots.axis("final loss (nats an item)", "log"),
    )
    caption = (
        "Causal models, Adam, low rates: does the early pattern foretell how well they will sort?"
    )
    return Figure("Does early attention foretell the loss?", caption, [points], layout)
