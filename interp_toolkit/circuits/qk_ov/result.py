"""What the QK and OV analyses return: a table of all heads, or one head taken apart.

Also here:
- the verdict of the QK and OV analyses: what heads would do, by their weights, in words;
- figures of the QK and OV analyses, as plotly data: scores by head, spectrum, token pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from interp_toolkit import plots
from interp_toolkit.circuits.weights.token_scores import TokenPair, TokenScores
from interp_toolkit.evidence import comparisons_status
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Evidence, Figure, Result, Table, head_name
from interp_toolkit.stats import LEVEL

if TYPE_CHECKING:
    import pandas as pd


Records = Sequence[Mapping[str, Any]]
Circuit = Literal["qk", "ov"]


@dataclass(frozen=True)
class HeadCircuitEvidence(Evidence):
    """What is said of circuits rests on weights alone.

    Attributes:
        basis: what the numbers come from, and what they do not show.
        null: what scores are held against.
        level: of the adjusted p-values.
        heads: how many have a score.
        found: how many join tokens to themselves beyond the null.
    """

    basis: str
    null: str
    level: float
    heads: int
    found: int


@dataclass(frozen=True)
class HeadCircuitResult(Result):
    """A circuit of every head, or of one.

    Attributes:
        layer, head: the head taken apart; None for all heads.
        heads: one record per head looked at: layer, head, effective_rank and the scores of
            `weight_scores`.
        singular_values: of the head's circuit, the largest first; empty for all heads.
        components: of the head, its largest singular components with the tokens at either side.
        pairs: of the head, the token pairs with the largest scores.
    """

    layer: int | None
    head: int | None
    heads: Records
    singular_values: Sequence[float]
    components: Records
    pairs: Records
    #: prefix of the scores, and what the two sides and the score are called
    words: ClassVar[tuple[str, str, str, str]] = ("ov", "copying", "source", "logit")

    def to_frame(self) -> pd.DataFrame:
        """One row per head, or per component of the one head."""
        import pandas as pd

        return pd.DataFrame(list(self.heads if self.head is None else self.components))

    def tables(self) -> list[Table]:
        """The heads, or the one head's scores, pairs and components."""
        if self.head is None:
            return [self._head_table()]
        return [self._pair_table(), self._component_table(), self._head_table()]

    def _head_table(self) -> Table:
        circuit, name, *_ = self.words
        keys = ["effective_rank"]
        keys += [f"{circuit}_{key}" for key in (name, "diagonal", "z", "p", "p_adjusted")]
        rows = [[head_name(h["layer"], h["head"]), *(h[key] for key in keys)] for h in self.heads]
        found = [
            i for i, h in enumerate(self.heads) if (h[f"{circuit}_p_adjusted"] or 1.0) <= LEVEL
        ]
        return Table(
            "Heads" if self.head is None else "The head among all",
            ["head", "effective rank", f"{name} (eigenvalues)", "diagonal", "z", "p", "adjusted p"],
            rows,
            "Effective rank: of the circuit's squared singular values. Eigenvalues: their sum over "
            "the sum of their sizes. Diagonal: a token's own entry less the others, in root mean "
            "squares. z and p: of the trace, with residual coordinates in random order; adjusted "
            "over all heads.",
            highlight=found,
        )

    def _pair_table(self) -> Table:
        _, _, left, right = self.words
        rows = [[p[left], p[right], p["score"]] for p in self.pairs]
        return Table("Token pairs", [left, right, "score"], rows, "The largest scores.")

    def _component_table(self) -> Table:
        _, _, left, right = self.words
        keys = ("component", "singular_value", "share", "sign", left, right)
        rows = [[c[key] for key in keys] for c in self.components]
        return Table(
            "Components",
            ["component", "singular value", "share", "sign", left, right],
            rows,
            "Singular components, and the tokens that stand out most on either side; a component "
            "raises scores where both sides have the same sign. Share: of the squared singular "
            "values.",
        )


@dataclass(frozen=True)
class OVResult(HeadCircuitResult):
    """What heads write for the tokens they attend to; see `HeadCircuitResult`."""


@dataclass(frozen=True)
class QKResult(HeadCircuitResult):
    """Which tokens heads attend to from which; see `HeadCircuitResult`."""

    words: ClassVar[tuple[str, str, str, str]] = ("qk", "matching", "query", "key")


#: by circuit
RESULTS: Mapping[Circuit, type[HeadCircuitResult]] = {"qk": QKResult, "ov": OVResult}


BASIS = "weights alone: what a head would do, not whether the model makes use of it"
NULL = "the residual coordinates that the head reads, in random order and with random signs"
_DOES = {"qk": "attend to a token's own kind", "ov": "copy"}


def scored(circuit: Circuit, records: Records) -> tuple[Records, Records]:
    """The heads that have a score, and those of them that are beyond the null."""
    known = [r for r in records if r[f"{circuit}_p_adjusted"] is not None]
    return known, [r for r in known if r[f"{circuit}_p_adjusted"] <= LEVEL]


def evidence_of(circuit: Circuit, records: Records, *, one_head: bool) -> HeadCircuitEvidence:
    """What the verdict rests on; of one head taken apart nothing is claimed, it is described."""
    known, found = scored(circuit, records)
    p_values = np.array([r[f"{circuit}_p_adjusted"] for r in known], dtype=float)
    status, reason = comparisons_status(p_values, LEVEL)
    if one_head:
        status, reason = "described", None
    return HeadCircuitEvidence(
        status=status,
        reason=reason,
        basis=BASIS,
        null=NULL,
        level=LEVEL,
        heads=len(known),
        found=len(found),
    )


def about_all(circuit: Circuit, records: Records) -> str:
    """How many heads join tokens to themselves, by their weights, and which most purely."""
    known, found = scored(circuit, records)
    name = RESULTS[circuit].words[1]
    if not known:
        return f"No head of this model has a {name} score from weights alone."
    if not found:
        return (
            f"By their weights, none of {len(known)} heads would {_DOES[circuit]} more than if it "
            "read the residual coordinates in random order (adjusted p above 0.05)."
        )
    score = f"{circuit}_{name}"
    # of scores that read alike, that of the largest diagonal: rounding decides between no two
    best = max(found, key=lambda r: (float(f"{r[score]:.3g}"), r[f"{circuit}_diagonal"]))
    return (
        f"By their weights, {len(found)} of {len(known)} heads would {_DOES[circuit]}: the "
        "circuit from embeddings joins tokens to themselves more than with residual coordinates "
        "in random order (adjusted p at most 0.05), most purely in "
        f"{head_name(best['layer'], best['head'])} (eigenvalue score {best[score]:.3g})."
    )


def about_one(
    circuit: Circuit, layer: int, head: int, record: Mapping[str, Any], detail: Mapping[str, Any]
) -> str:
    """The size of one head's circuit, its score and its largest entry."""
    _, name, left, right = RESULTS[circuit].words
    first, count = detail["pairs"][0], len(detail["singular_values"])
    rank, score = record["effective_rank"], record[f"{circuit}_{name}"]
    copies = "" if score is None else f", its {name} score is {score:.3g}"
    size = "is zero" if rank is None else f"has effective rank {rank:.3g} of {count}"
    return (
        f"The {circuit.upper()} circuit of {head_name(layer, head)} {size}{copies}, and its "
        f"largest score is {first['score']:.4g}, from {left} {first[left]} to {right} "
        f"{first[right]}."
    )


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
