"""Composition of heads with earlier heads, from weights alone: `--probe composition`.

Every pair of heads is scored for Q-, K- and V-composition (`weights.composition`). The null is the
same pair with randomly permuted and sign-flipped residual coordinates of the later head. P-values
are adjusted over all pairs and the three kinds.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.weights.composition import (
    MODES,
    CompositionScores,
    composable_layers,
    composition_scores,
)
from interp_toolkit.circuits.weights.permutations import MATTERS
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.evidence import comparisons_status, power_of_z
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import equals_p, p_cell, percent
from interp_toolkit.models.weights.view import weights
from interp_toolkit.options import Options
from interp_toolkit.results import Evidence, Figure, Status, head_name
from interp_toolkit.stats import LEVEL

if TYPE_CHECKING:
    import pandas as pd

LISTED = 100  # pairs in the JSON beyond the significant ones
SHOWN = 20  # pairs in the table
MOST_HEADS = 200  # heads up to which figures show heads; larger models are shown by layer
READS = {"Q": "queries", "K": "keys", "V": "values"}
NULL = "the residual coordinates that the reader reads, randomly permuted and with random signs"
ADJUSTED = "Holm, over all pairs and the three kinds of composition"


class CompositionOptions(Options):
    """Options of `--probe composition`: none of its own."""


@dataclass(frozen=True)
class Pair:
    """Composition of a head with a later head's queries, keys or values (`mode` Q, K or V)."""

    mode: str = column("kind")
    writer: str = column("writer")
    reader: str = column("reader")
    writer_layer: int = column()
    writer_head: int = column()
    reader_layer: int = column()
    reader_head: int = column()
    score: float = column("score")
    baseline: float = column("baseline")
    z: float = column("z")
    p_value: float = column("p", format=p_cell)
    p_adjusted: float = column("adjusted p", format=p_cell)
    q_value: float = column()

    def __str__(self) -> str:
        return f"{self.writer} → {self.reader} ({self.mode})"


@dataclass(frozen=True)
class PairCount:
    """Counts of pairs for one kind of composition."""

    pairs: int = column("pairs")
    significant: int = column("significant")
    share_below_level: float = column("fraction with p ≤ 0.05")
    largest_score: float = column("largest score")


@dataclass(frozen=True)
class CompositionEvidence(Evidence):
    """Counts over all pairs of heads and kinds of composition, with the null and the correction."""

    pairs: int = column("comparisons")
    significant: int = column("significant")
    level: float = column("level of the adjusted p-values")
    null: str = column("null")
    adjusted: str = column("adjusted by")


@dataclass(frozen=True, kw_only=True)
class CompositionFinding(Finding):
    """Composition of all pairs of heads.

    Attributes:
        pairs: the significant pairs and the next 100 by p-value.
        counts: counts of pairs by kind of composition.
        scores: scores of all pairs, as arrays.
    """

    evidence: CompositionEvidence
    pairs: Sequence[Pair] = records(
        Pair,
        "Pairs",
        "Writer and reader: the earlier head, and the later one that reads it with its queries "
        "(Q), keys (K) or values (V). Baseline: root mean square of the score with "
        "randomly permuted residual coordinates; z and p test the overlap of the writer's output "
        "with the reader's input.",
        lambda pair: pair.p_adjusted <= LEVEL,
        select=lambda pairs: pairs[:SHOWN],
    )
    counts: Mapping[str, PairCount] = records(
        PairCount,
        "By kind",
        "Significant: adjusted over all pairs and kinds. Random weights give an unadjusted p ≤ "
        "0.05 in about 5 % of the pairs.",
        key="kind",
    )
    scores: CompositionScores = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"scores"})

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per pair and mode, sorted by p-value."""
        return self.scores.to_frame()


def analyze(run: Run[CompositionOptions]) -> CompositionFinding:
    """Score all pairs of heads of a model with two layers or more.

    Raises:
        InputError: the attention weights of fewer than two layers can be read.
    """
    run.progress("composition of all pairs of heads")
    scores = composition_scores(run.model, run.memory)
    frame = scores.to_frame()
    counts = {}
    for mode in MODES:
        of_mode = frame[frame["mode"] == mode]
        p_values = of_mode.p_value.dropna()
        counts[mode] = PairCount(
            pairs=len(p_values),
            significant=int((of_mode.p_adjusted <= LEVEL).sum()),
            share_below_level=float((p_values <= LEVEL).mean()),
            largest_score=float(of_mode.score.max()),
        )
    n_pairs = sum(count.pairs for count in counts.values())
    status, reason = comparisons_status(
        frame.p_adjusted.to_numpy(float),
        LEVEL,
        power=power_of_z(MATTERS * scores.z_most, LEVEL, n_pairs),
        least=f"an overlap of {percent(MATTERS)} of the way from chance to the largest possible",
    )
    significant = sum(count.significant for count in counts.values())
    pairs = [
        Pair(
            writer=head_name(row["writer_layer"], row["writer_head"]),
            reader=head_name(row["reader_layer"], row["reader_head"]),
            **{str(name): value for name, value in row.items()},
        )
        for row in frame.head(significant + LISTED).to_dict("records")
    ]
    modes = sorted(MODES, key=lambda mode: bool(pairs) and mode != pairs[0].mode)
    return CompositionFinding(
        headline=headline(pairs, significant, n_pairs, status),
        findings=sentences(pairs, counts, n_pairs),
        evidence=CompositionEvidence(
            status, n_pairs, significant, LEVEL, NULL, ADJUSTED, reason=reason
        ),
        provenance=run.provenance(),
        pairs=pairs,
        counts=counts,
        notes=scores.notes,
        scores=scores,
        plots=[composition_map(scores, mode) for mode in modes],
    )


def strongest(pairs: Sequence[Pair]) -> Pair:
    """Significant pair with the largest score, or else the pair with the smallest p-value."""
    significant = [pair for pair in pairs if pair.p_adjusted <= LEVEL]
    return max(significant, key=lambda pair: pair.score, default=pairs[0])


def headline(pairs: Sequence[Pair], significant: int, n_pairs: int, status: Status) -> str:
    """Headline: number of significant compositions, and the strongest."""
    if not n_pairs:
        return "No pair of heads could be tested for composition."
    if status == "undecided":
        return "Whether any heads compose is undecided from weights alone."
    if not significant:
        return "No composition between heads is detected from weights alone."
    if significant == 1:
        return f"One composition exceeds chance, from weights alone: {strongest(pairs)}."
    return (
        f"{significant:,} compositions between heads exceed chance, from weights alone; the "
        f"strongest is {strongest(pairs)}."
    )


def sentences(pairs: Sequence[Pair], counts: Mapping[str, PairCount], n_pairs: int) -> list[str]:
    """Findings: counts by kind, the strongest pair, and the limits of weights."""
    if not n_pairs:
        reason = "in every pair a circuit is zero or cannot be read"
        return [f"Undecided: no comparison could be made, since {reason}."]
    by_mode = ", ".join(
        f"{mode} {count.significant:,} of {count.pairs:,}" for mode, count in counts.items()
    )
    pair = strongest(pairs)
    which = "Largest score" if pair.p_adjusted <= LEVEL else "Smallest p"
    return [
        "Head pairs with significant composition, against randomly permuted residual coordinates: "
        f"{by_mode} (p ≤ {LEVEL:g}, Holm over all {n_pairs:,}).",
        f"{which}: {pair}, score {pair.score:.3g}, chance {pair.baseline:.3g}, "
        f"{equals_p(pair.p_adjusted, 'adjusted p')}.",
        "Weights alone do not show whether the model uses a composition.",
    ]


def composition_map(scores: CompositionScores, mode: str) -> Figure:
    """Plot writers by readers: heads or, in large models, the top pair of each pair of layers."""
    index = MODES.index(mode)
    n_layers, n_heads = scores.score.shape[1:3]
    by_head = n_layers * n_heads <= MOST_HEADS
    score, baseline, p_value, p_adjusted = (
        _flat(values[index], scores.z[index], by_head)
        for values in (scores.score, scores.baseline, scores.p_value, scores.p_adjusted)
    )
    names = [head_name(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    names = names if by_head else [str(layer) for layer in range(n_layers)]
    size = n_heads if by_head else 1
    writers, readers = slice(None, -size), slice(size, None)  # no head reads the last layer
    beside = np.stack([score, baseline, p_value, p_adjusted], -1)[writers, readers]
    ratio = (score / baseline)[writers, readers]
    trace = plots.heatmap(names[readers], names[writers], plots.rounded(ratio), "score / baseline")
    trace |= plots.SILENT_HOLES | plots.hover(
        "%{y} into %{x}<br>score %{customdata[0]}<br>baseline %{customdata[1]}"
        "<br>p %{customdata[2]}<br>adjusted p %{customdata[3]}",
        plots.rounded(beside),
    )
    unit = "head" if by_head else "layer"
    layout = plots.layout(
        plots.axis(f"reading {unit}", "category") | plots.NO_GRID,
        plots.axis(f"writing {unit}", "category") | plots.NO_GRID | plots.DOWNWARD,
    )
    caption = (
        f"How much the {READS[mode]} of later heads read from the outputs of earlier heads; 1 is "
        "the baseline, with randomly permuted residual coordinates."
    )
    if not by_head:
        caption += " Each cell shows the pair of heads with the largest z."
    return Figure(f"{mode}-composition", caption, [trace], layout)


def _flat(values: np.ndarray, z: np.ndarray, by_head: bool) -> np.ndarray:
    """Matrix [writer, reader] of heads, or of layers with the value of the pair of largest z."""
    n_layers, n_heads = values.shape[:2]
    if by_head:
        heads: np.ndarray = values.reshape(n_layers * n_heads, -1)
        return heads
    pairs = values.transpose(0, 2, 1, 3).reshape(n_layers, n_layers, -1)
    size = np.nan_to_num(z.transpose(0, 2, 1, 3).reshape(pairs.shape), nan=-np.inf)
    layers: np.ndarray = np.take_along_axis(pairs, size.argmax(-1)[..., None], -1)[..., 0]
    return layers


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why the analysis cannot run on this model; None if it can."""
    if int(model.cfg.n_layers) < 2:
        return "needs two layers"
    try:
        composable_layers(weights(model))
    except InputError as error:
        return str(error)
    return None


COMPOSITION = analysis(
    "composition",
    "which pairs of heads compose (Q-, K- and V-composition), from weights alone",
    CompositionOptions,
    analyze,
    unfit,
    reads_stream=True,
)
