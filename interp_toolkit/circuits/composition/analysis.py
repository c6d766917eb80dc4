"""The analysis of composition: which heads' outputs later heads read, beyond chance.

`interp analyze MODEL --probe composition`; what is computed is told in `composition`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from interp_toolkit.circuits.composition.scores import (
    MODES,
    CompositionScores,
    composable_layers,
    composition_scores,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.weights.view import weights
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Figure, Result, Table, head_name

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05  # of the adjusted p-value, for a pair to be said to compose
LISTED = 100  # pairs that a result's JSON lists beyond the significant ones
SHOWN = 20  # of them in the table
MOST_HEADS = 200  # shown head by head; larger models are shown layer by layer
_INTO = {"Q": "queries", "K": "keys", "V": "values"}


@dataclass(frozen=True)
class CompositionResult(Result):
    """Composition of all pairs of heads in one model.

    Attributes:
        pairs: those significant, and the `LISTED` next by p-value; as in the frame of
            `CompositionScores`.
        counts: by mode: pairs looked at, significant, and the share with an unadjusted p of at
            most `LEVEL` (about `LEVEL` is what random weights give).
        notes: layers that were left out, and what is approximate.
        scores: all pairs.
    """

    pairs: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Mapping[str, int | float]]
    notes: Sequence[str]
    scores: CompositionScores = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"scores"})

    def to_frame(self) -> pd.DataFrame:
        """One row per pair and mode, the smallest p-values first."""
        return self.scores.to_frame()

    def tables(self) -> list[Table]:
        """The clearest pairs, and counts by mode."""
        return [_pair_table(self.pairs[:SHOWN]), _count_table(self.counts)]

    def figures(self) -> list[Figure]:
        """A map of writers and readers for each mode, that of the clearest pair first."""
        first = [str(pair["mode"]) for pair in self.pairs[:1]]
        order = [*first, *(mode for mode in MODES if mode not in first)]
        return [_map(self.scores, mode) for mode in order]


def run(
    model: Any,
    *,
    data: FeatureData | None = None,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
    probe: str = "composition",
) -> CompositionResult:
    """Which heads' outputs later heads read more than chance would have it, from weights alone.

    Args:
        model: any TransformerLens model with two layers or more.
        data: not used: weights alone are looked at.
        memory: bound on what is held at once beside the weights, such as "4GiB".
        progress: told what is being done.
        probe: the name the result goes by.

    Raises:
        InputError: fewer than two layers whose attention weights can be read.
    """
    progress("composition of all pairs of heads")
    scores = composition_scores(model, memory)
    frame = scores.to_frame()
    significant = int((frame.p_adjusted <= LEVEL).sum())
    records = frame.head(significant + LISTED).to_dict("records")
    pairs = [{str(key): value for key, value in record.items()} for record in records]
    counts = {mode: _counted(frame[frame["mode"] == mode]) for mode in MODES}
    return CompositionResult(
        probe=probe,
        verdict=_verdict(pairs, counts),
        evidence=_evidence(significant, scores),
        provenance=provenance(model, {}, {}, None),
        pairs=pairs,
        counts=counts,
        notes=scores.notes,
        scores=scores,
    )


def _counted(frame: pd.DataFrame) -> dict[str, int | float]:
    known = frame.p_value.notna()
    return {
        "pairs": int(known.sum()),
        "significant": int((frame.p_adjusted <= LEVEL).sum()),
        "share_below_level": float((frame.p_value[known] <= LEVEL).mean()),
        "largest_score": float(frame.score.max()),
    }


def _verdict(
    pairs: Sequence[Mapping[str, Any]], counts: Mapping[str, Mapping[str, int | float]]
) -> str:
    looks = sum(count["pairs"] for count in counts.values())
    found = {mode: count["significant"] for mode, count in counts.items()}
    if not sum(found.values()):
        return (
            f"No pair of heads composes more than a random rotation between them would (of {looks} "
            "looks, adjusted p above 0.05 in all)."
        )
    first = pairs[0]
    by_mode = ", ".join(f"{mode} {count}" for mode, count in found.items())
    return (
        f"By their weights, {sum(found.values())} of {looks} pairs compose more than a random "
        f"rotation between them would ({by_mode}; adjusted p at most 0.05), the clearest being "
        f"{_name(first, 'writer')} into the {_INTO[first['mode']]} of {_name(first, 'reader')} "
        f"(score {first['score']:.3g}, baseline {first['baseline']:.3g}); whether the model makes "
        "use of it, weights do not say."
    )


def _evidence(significant: int, scores: CompositionScores) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        "status": "detected" if significant else "not_detected",
        "null": "a random rotation between writer and reader, with their own singular values",
        "adjusted": "Holm, over all pairs and the three kinds of composition",
    }
    if scores.notes:
        evidence["notes"] = "; ".join(scores.notes)
    return evidence


def _name(pair: Mapping[str, Any], role: str) -> str:
    return head_name(pair[f"{role}_layer"], pair[f"{role}_head"])


def _pair_table(pairs: Sequence[Mapping[str, Any]]) -> Table:
    columns = ["kind", "writer", "reader", "score", "baseline", "z", "p", "adjusted p"]
    rows = [
        [
            *(pair["mode"], _name(pair, "writer"), _name(pair, "reader")),
            *(pair[name] for name in ("score", "baseline", "z", "p_value", "p_adjusted")),
        ]
        for pair in pairs
    ]
    return Table(
        "Pairs",
        columns,
        rows,
        "The head that writes and the one that reads, with its queries (Q), keys "
        "(K) or values (V). Baseline: root mean square of the score under random rotations; z and "
        "p are of its square.",
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
    trace = {
        "type": "heatmap",
        "x": names[readers],
        "y": names[writers],
        "z": _rounded(ratio[writers, readers]),
        "customdata": _rounded(hover[writers, readers]),
        "hovertemplate": "%{y} into %{x}<br>score %{customdata[0]}<br>baseline %{customdata[1]}"
        "<br>p %{customdata[2]}<br>adjusted p %{customdata[3]}<extra></extra>",
        "hoverongaps": False,
        "colorbar": {"title": {"text": "score / baseline"}, "outlinewidth": 0},
    }
    unit = "head" if by_head else "layer"
    layout = {
        "xaxis": {"title": {"text": f"reading {unit}"}, "type": "category", "showgrid": False},
        "yaxis": {
            "title": {"text": f"writing {unit}"},
            "type": "category",
            "autorange": "reversed",
            "showgrid": False,
        },
    }
    caption = (
        f"How much the {_INTO[mode]} of later heads read of what earlier heads write; 1 is a "
        "random rotation between them."
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


def _rounded(values: np.ndarray) -> list[Any]:
    """Nested lists in four significant digits, None where not finite."""
    if values.ndim > 1:
        return [_rounded(part) for part in values]
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    if int(model.cfg.n_layers) < 2:
        return "needs two layers"
    try:
        composable_layers(weights(model))
    except InputError as error:
        return str(error)
    return None


COMPOSITION = Analysis(
    "composition",
    "which heads' outputs later heads read with queries, keys and values, from weights alone",
    run,
    _unfit,
)
