"""What the analysis of composition returns: the clearest pairs, counts, tables.

Also here:
- the verdict on composition in words: how many pairs, and which has the largest score;
- figures of composition, as plotly data: writers by readers, for each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from interp_toolkit import plots
from interp_toolkit.circuits.composition.scores import MODES, CompositionScores
from interp_toolkit.evidence import comparisons_status
from interp_toolkit.results import Evidence, Figure, Result, Table, head_name
from interp_toolkit.stats import LEVEL

if TYPE_CHECKING:
    import pandas as pd


LISTED = 100  # pairs that a result's JSON lists beyond the significant ones
SHOWN = 20  # of them in the table
INTO = {"Q": "queries", "K": "keys", "V": "values"}


@dataclass(frozen=True)
class CompositionEvidence(Evidence):
    """What the verdict on composition rests on.

    Attributes:
        pairs: of heads and kinds of composition looked at.
        significant: how many have an adjusted p of at most `level`.
        level: of the adjusted p-values.
        null: what a score is held against.
        adjusted: how p-values are corrected.
    """

    pairs: int
    significant: int
    level: float
    null: str
    adjusted: str


@dataclass(frozen=True)
class CompositionResult(Result):
    """Composition of all pairs of heads in one model.

    Attributes:
        pairs: those significant, and the `LISTED` next by p-value; as in the frame of
            `CompositionScores`.
        counts: by mode: pairs looked at, significant, and the share with an unadjusted p of at
            most `LEVEL` (about `LEVEL` is what random weights give).
        scores: all pairs.
    """

    pairs: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Mapping[str, int | float]]
    scores: CompositionScores = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"scores"})

    def to_frame(self) -> pd.DataFrame:
        """One row per pair and mode, the smallest p-values first."""
        return self.scores.to_frame()

    def tables(self) -> list[Table]:
        """The clearest pairs, and counts by mode."""
        return [_pair_table(self.pairs[:SHOWN]), _count_table(self.counts)]


def pair_name(pair: Mapping[str, Any], role: str) -> str:
    """The head that writes, or reads, in a pair."""
    return head_name(pair[f"{role}_layer"], pair[f"{role}_head"])


def _pair_table(pairs: Sequence[Mapping[str, Any]]) -> Table:
    columns = ["kind", "writer", "reader", "score", "baseline", "z", "p", "adjusted p"]
    rows = [
        [
            *(pair["mode"], pair_name(pair, "writer"), pair_name(pair, "reader")),
            *(pair[name] for name in ("score", "baseline", "z", "p_value", "p_adjusted")),
        ]
        for pair in pairs
    ]
    return Table(
        "Pairs",
        columns,
        rows,
        "The head that writes and the one that reads, with its queries (Q), keys "
        "(K) or values (V). Baseline: root mean square of the score with residual coordinates in "
        "random order; z and p are of the overlap of what is written and what is read.",
        highlight=[i for i, pair in enumerate(pairs) if pair["p_adjusted"] <= LEVEL],
    )


def _count_table(counts: Mapping[str, Mapping[str, int | float]]) -> Table:
    columns = ["kind", "pairs", "significant", "share p ≤ 0.05", "largest score"]
    rows = [[mode, *count.values()] for mode, count in counts.items()]
    return Table(
        "By kind",
        columns,
        rows,
        "Significant: adjusted over all pairs and kinds. Random weights give p ≤ 0.05, unadjusted, "
        "in a share of about 0.05 of the pairs.",
    )


NULL = "the residual coordinates that the reader reads, in random order and with random signs"
ADJUSTED = "Holm, over all pairs and the three kinds of composition"


def evidence_of(p_adjusted: Float[np.ndarray, " pair"]) -> CompositionEvidence:
    """What the verdict rests on: p-values of all pairs and modes, NaN where none could be made."""
    status, reason = comparisons_status(p_adjusted, LEVEL)
    return CompositionEvidence(
        status=status,
        reason=reason,
        pairs=int((~np.isnan(p_adjusted)).sum()),
        significant=int((p_adjusted <= LEVEL).sum()),
        level=LEVEL,
        null=NULL,
        adjusted=ADJUSTED,
    )


def verdict(
    pairs: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, int | float]]
) -> str:
    """How many pairs compose beyond chance, and which of them has the largest score."""
    n_pairs = sum(count["pairs"] for count in counts.values())
    significant = {mode: count["significant"] for mode, count in counts.items()}
    if not n_pairs:
        return "Undecided: no pair of heads has weights that could be compared with permuted ones."
    if not sum(significant.values()):
        return (
            "No pair of heads composes more than with residual coordinates in random order (of "
            f"{n_pairs} comparisons, adjusted p above 0.05 in all)."
        )
    first = max((pair for pair in pairs if pair["p_adjusted"] <= LEVEL), key=lambda p: p["score"])
    by_mode = ", ".join(f"{mode} {count}" for mode, count in significant.items())
    return (
        f"By their weights, {sum(significant.values())} of {n_pairs} pairs compose more than with "
        f"residual coordinates in random order ({by_mode}; adjusted p at most 0.05), the largest "
        "score being that of "
        f"{pair_name(first, 'writer')} into the {INTO[first['mode']]} of "
        f"{pair_name(first, 'reader')} "
        f"(score {first['score']:.3g}, baseline {first['baseline']:.3g}); whether the model makes "
        "use of it, weights do not say."
    )


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
