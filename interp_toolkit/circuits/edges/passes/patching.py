"""Activation patching by layer and position: where what tells the prompts apart is, layer by layer.

The residual stream in front of a layer is replaced, at one position, with what it is for the row's
corrupted counterpart; what the row is worth then, less its worth intact, as a share of what the
corrupted prompt itself costs: 1 where that place holds all that tells the two apart (Meng et al.
2022, arXiv 2202.05262; Heimersheim & Nanda 2024, arXiv 2404.15255). Exact, on a few rows: every
layer would cost half a pass a position, so layers are taken at equal steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit import plots
from interp_toolkit.circuits.behaviour.objective import AskedObjective
from interp_toolkit.circuits.behaviour.prompts import Prompts
from interp_toolkit.circuits.edges.passes.patched_pass import PatchedModel
from interp_toolkit.models.running.memory import rows_that_fit
from interp_toolkit.results import Figure

ROWS = 4  # that are patched
MOST_LAYERS = 10  # at which


@dataclass(frozen=True, eq=False)
class Patching:
    """The effect of patching the residual stream.

    Attributes:
        layers: in front of which.
        effect: the share of what the corrupted prompt costs, mean over rows.
        tokens: at each position the token, where all rows have the same; else None.
        n_rows: how many rows.
    """

    layers: Sequence[int]
    effect: Float[np.ndarray, "layer pos"]
    tokens: Sequence[int | None]
    n_rows: int


def patched_stream(
    engine: PatchedModel,
    prompts: Prompts,
    judged: AskedObjective,
    memory: int,
    progress: Callable[[str], None] = lambda step: None,
) -> Patching | None:
    """The residual stream patched at every position, in front of some layers.

    Args:
        engine: the model.
        prompts: rows with corrupted counterparts; ROWS of them are taken, evenly spread.
        judged: what each row is worth.
        memory: bytes to hold at once beside the weights.
        progress: told what is being done.

    Returns:
        None where the rows have no counterparts, or these cost nothing.
    """
    if prompts.corrupted is None:
        return None
    rows = torch.linspace(0, len(prompts) - 1, min(ROWS, len(prompts))).round().long()
    tokens, corrupted = prompts.tokens[rows], prompts.corrupted[rows]
    positions = judged.positions[rows]
    clean, other = engine.whole(tokens, positions), engine.whole(corrupted, positions)
    intact, gone = (judged.of_asked(p.logits, rows) for p in (clean, other))
    whole = float((intact - gone).mean())
    if whole <= 0:
        return None
    n_pos, n = prompts.n_pos, engine.wiring.n_layers
    layers = sorted({round(i) for i in np.linspace(0, n - 1, min(n, MOST_LAYERS))})
    at_layer = {s.layer: i for i, s in enumerate(engine.wiring.stages) if s.kind == "attention"}
    effect = np.empty((len(layers), n_pos))
    row_bytes = len(rows) * engine.bytes_from_stream(n_pos)
    at_once = min(rows_that_fit(memory, row_bytes, n_pos), n_pos)
    for i, layer in enumerate(layers):
        progress(f"patching the residual stream in front of layer {layer}")
        stage = at_layer[layer]
        stream, patch = clean.trace.totals[stage], other.trace.totals[stage]
        for some in torch.split(torch.arange(n_pos), at_once):
            patched = stream.repeat(len(some), 1, 1)
            for number, position in enumerate(some.tolist()):
                part = slice(number * len(rows), (number + 1) * len(rows))
                patched[part, position] = patch[:, position]
            logits = engine.from_stream(stage, patched, positions.repeat(len(some), 1))
            metric = judged.of_asked(logits, rows.repeat(len(some))).reshape(len(some), len(rows))
            lost = (intact - metric).mean(1) / whole
            effect[i, some.numpy()] = lost.double().cpu().numpy()
    return Patching(layers, effect, _shared(tokens), len(rows))


def patching_figure(patching: Patching, words: Callable[[int], str]) -> Figure:
    """The heat map, layers from bottom to top; `words` gives a token id's text."""
    names = [
        str(i) if token is None else f"{i} {words(token)}"
        for i, token in enumerate(patching.tokens)
    ]
    cells = [plots.rounded(row) for row in patching.effect]
    reach = max(1.0, float(np.abs(patching.effect).max()))
    data = plots.heatmap(None, None, cells, "share", low=-reach, high=reach)
    across = plots.axis("position") | plots.ticks(range(len(names)), names)
    up = plots.axis("in front of layer") | plots.ticks(
        range(len(patching.layers)), map(str, patching.layers)
    )
    caption = (
        "The residual stream at one position replaced with what it is for the corrupted prompt: "
        f"what that costs, as a share of what the corrupted prompt costs, mean over "
        f"{patching.n_rows} rows (exact passes; too few rows for intervals)."
    )
    layout = plots.layout(across, up) | plots.NO_LEGEND
    return Figure("Where what tells the prompts apart is", caption, [data | plots.TILES], layout)


def _shared(tokens: Tensor) -> list[int | None]:
    same = (tokens == tokens[:1]).all(0)
    return [int(t) if s else None for t, s in zip(tokens[0], same, strict=True)]
