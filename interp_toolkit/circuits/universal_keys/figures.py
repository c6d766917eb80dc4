"""Figures of universal keys: scores by query token and truth, attention on right keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.universal_keys.result import QueryFunction
from interp_toolkit.circuits.universal_keys.scores import KeyScores
from interp_toolkit.palette import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Figure


def score_figure(
    scores: KeyScores, found: Sequence[QueryFunction], head: tuple[int, int]
) -> Figure:
    """A head's mean score of every set of features, by query token, high ones in their colour."""
    points: dict[bool, list[tuple[int, float]]] = {False: [], True: []}
    for one in _of(found, head):
        query = int(np.flatnonzero(scores.queries == one.query_token)[0])
        values = scores.mean[scores.layers.index(head[0]), head[1], query]
        values = np.sort(values[~np.isnan(values)])
        cut = len(values) - (one.right_sets or 0)
        for place, value in enumerate(values.tolist()):
            points[place >= cut].append((one.query_token, value))
    data = [
        plots.markers(
            [str(x) for x, _ in points[side]],
            [y for _, y in points[side]],
            CLASS_COLORS[int(side)],
            "holds" if side else "does not hold",
            symbol=CLASS_SYMBOLS[int(side)],
            size=6,
        )
        for side in (False, True)
    ]
    layout = plots.layout(plots.axis("query token", "category"), plots.axis("score of a key"))
    caption = (
        f"Head {head[0]}.{head[1]}: the score of every set of key features for each query token "
        "that selects, by whether the function found there holds."
    )
    return Figure("Scores by query token", caption, data, layout)


def attention_figure(found: Sequence[QueryFunction], head: tuple[int, int]) -> Figure:
    """Attention on right keys beside what uniform attention would put there."""
    mine = _of(found, head)
    names = [f"{one.query_token}: {', '.join(one.features)}" for one in mine]
    data = [
        plots.bars(names, [one.on_right or 0.0 for one in mine], CLASS_COLORS[1], "on right keys"),
        plots.bars(names, [one.uniform or 0.0 for one in mine], NEUTRAL, "their share of keys"),
    ]
    layout = plots.layout(plots.axis("query token: features"), plots.axis("share"))
    caption = "In rows that were not used to find the functions."
    return Figure("Attention on right keys", caption, data, layout)


def _of(found: Sequence[QueryFunction], head: tuple[int, int]) -> list[QueryFunction]:
    return [one for one in found if one.outcome == "selects" and (one.layer, one.head) == head]
