"""Figures of the QK and OV analyses, as plotly data: scores by head, spectrum, token pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from interp_toolkit import plots
from interp_toolkit.circuits.qk_ov.result import RESULTS, Circuit, Records
from interp_toolkit.circuits.weights.token_scores import TokenPair, TokenScores
from interp_toolkit.palette import CLASS_COLORS
from interp_toolkit.results import Figure

AXIS = 12  # tokens on either axis of the picture of pairs


def score_map(circuit: Circuit, records: Records) -> Figure:
    """Layers by heads, coloured by how much each circuit joins tokens to themselves."""
    name = RESULTS[circuit].words[1]
    caption = (
        f"The {name} score of every head, from its circuit's eigenvalues: 1 where all are "
        "positive, 0 where they cancel, -1 where all are negative."
    )
    return _head_map(records, f"{circuit}_{name}", f"{name.capitalize()} scores", caption)


def pair_figure(
    scores: TokenScores,
    top: Sequence[TokenPair],
    words: Callable[[int], str],
    sides: tuple[str, str],
) -> Figure:
    """The scores among the tokens of the top pairs."""
    rows = list(dict.fromkeys(pair.row for pair in top))[:AXIS]
    columns = list(dict.fromkeys(pair.column for pair in top))[:AXIS]
    grid = torch.cartesian_prod(torch.tensor(rows), torch.tensor(columns))
    values = scores.score(grid[:, 0], grid[:, 1]).reshape(len(rows), len(columns))
    return _pair_map(_apart(rows, words), _apart(columns, words), values.tolist(), sides)


def _apart(tokens: Sequence[int], words: Callable[[int], str]) -> list[str]:
    """Tokens as text, with their ids where two read the same."""
    texts = [words(token) for token in tokens]
    if len(set(texts)) == len(texts):
        return texts
    return [f"{text} ({token})" for text, token in zip(texts, tokens, strict=True)]


def _head_map(heads: Records, key: str, title: str, caption: str) -> Figure:
    """Layers by heads, coloured by an eigenvalue score."""
    layers = sorted({h["layer"] for h in heads})
    columns = sorted({h["head"] for h in heads})
    by_place = {(h["layer"], h["head"]): h for h in heads}
    prefix = key.split("_")[0]
    hover = ("effective_rank", f"{prefix}_z", f"{prefix}_p_adjusted")
    scores = [[by_place[layer, column][key] for column in columns] for layer in layers]
    beside = [
        [plots.rounded([by_place[layer, column][name] for name in hover], 3) for column in columns]
        for layer in layers
    ]
    trace = plots.heatmap(columns, layers, scores, "score", low=-1, high=1) | plots.TILES
    trace |= plots.hover(
        "head %{y}.%{x}<br>score %{z:.3g}<br>effective rank %{customdata[0]}"
        "<br>z %{customdata[1]}<br>adjusted p %{customdata[2]}",
        beside,
    )
    layout = plots.layout(
        plots.axis("head") | plots.whole(len(columns)),
        plots.axis("layer") | plots.whole(len(layers)),
    )
    return Figure(title, caption, [trace], layout)


def spectrum(values: Sequence[float], what: str) -> Figure:
    """The singular values of a circuit."""
    trace = plots.bars(range(len(values)), values, CLASS_COLORS[0]) | plots.NO_LEGEND
    layout = plots.layout(plots.axis("component"), plots.axis("singular value") | plots.FROM_ZERO)
    return Figure("Spectrum", f"Singular values of {what}, the largest first.", [trace], layout)


def _pair_map(
    rows: Sequence[str],
    columns: Sequence[str],
    scores: Sequence[Sequence[float]],
    words: tuple[str, str],
) -> Figure:
    """Scores between the tokens of the top pairs."""
    largest = max((abs(value) for row in scores for value in row), default=1.0)
    trace = plots.heatmap(columns, rows, plots.rounded(scores), "score", low=-largest, high=largest)
    trace |= plots.hover(f"{words[0]} %{{y}}<br>{words[1]} %{{x}}<br>score %{{z:.4g}}")
    layout = plots.layout(
        plots.axis(words[1], "category"), plots.axis(words[0], "category") | plots.DOWNWARD
    )
    caption = f"Scores of the top pairs' tokens: {words[0]} (rows) by {words[1]} (columns)."
    return Figure("Token pairs", caption, [trace], layout)
