"""What the analysis of composition returns: the clearest pairs, counts, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.circuits.composition.scores import CompositionScores
from interp_toolkit.results import Evidence, Result, Table, head_name
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
