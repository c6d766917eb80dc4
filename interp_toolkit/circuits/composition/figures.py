"""Figures of composition, as plotly data: writers by readers, for each kind."""

from __future__ import annotations

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.composition.result import INTO
from interp_toolkit.circuits.composition.scores import MODES, CompositionScores
from interp_toolkit.results import Figure, head_name

MOST_HEADS = 200  # shown head by head; larger models are shown layer by layer


def composition_maps(scores: CompositionScores, first: str | None) -> list[Figure]:
    """A map of writers and readers for each mode, the `first` mode before the others."""
    start = [] if first is None else [first]
    return [_map(scores, mode) for mode in [*start, *(m for m in MODES if m not in start)]]


def _map(scores: CompositionScores, mode: str) -> Figure:
    """Writers by readers: heads or, in large models, the clearest pair of each two layers."""
    index = MODES.index(mode)
    n_layers, n_heads = scores.score.shape[1:3]
    by_head = n_layers * n_heads <= MOST_HEADS
    cells = {
        name: _flat(getattr(scores, name)[index], scores.z[index], by_head)
        for name in ("score", "baseline", "p_value", "p_adjusted")
    }
    names = [head_name(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    names = names if by_head else [str(layer) for layer in range(n_layers)]
    size = n_heads if by_head else 1
    hover = np.stack([cells["score"], cells["baseline"], cells["p_value"], cells["p_adjusted"]], -1)
    ratio = cells["score"] / cells["baseline"]
    writers, readers = slice(None, -size), slice(size, None)  # the last layer feeds no head
    trace = plots.heatmap(
        names[readers],
        names[writers],
        plots.rounded(ratio[writers, readers]),
        "score / baseline",
    )
    trace |= plots.SILENT_HOLES | plots.hover(
        "%{y} into %{x}<br>score %{customdata[0]}<br>baseline %{customdata[1]}"
        "<br>p %{customdata[2]}<br>adjusted p %{customdata[3]}",
        plots.rounded(hover[writers, readers]),
    )
    unit = "head" if by_head else "layer"
    layout = plots.layout(
        plots.axis(f"reading {unit}", "category") | plots.NO_GRID,
        plots.axis(f"writing {unit}", "category") | plots.NO_GRID | plots.DOWNWARD,
    )
    caption = (
        f"How much the {INTO[mode]} of later heads read of what earlier heads write; 1 is "
        "what residual coordinates in random order give."
    )
    if not by_head:
        caption += " Each cell shows the pair of heads with the largest z."
    return Figure(f"{mode}-composition", caption, [trace], layout)


def _flat(values: np.ndarray, z: np.ndarray, by_head: bool) -> np.ndarray:
    """[writer, reader]: heads, or layers with the value of the pair that has the largest z."""
    n_layers, n_heads = values.shape[:2]
    if by_head:
        heads: np.ndarray = values.reshape(n_layers * n_heads, -1)
        return heads
    pairs = values.transpose(0, 2, 1, 3).reshape(n_layers, n_layers, -1)
    size = np.nan_to_num(z.transpose(0, 2, 1, 3).reshape(pairs.shape), nan=-np.inf)
    layers: np.ndarray = np.take_along_axis(pairs, size.argmax(-1)[..., None], -1)[..., 0]
    return layers
