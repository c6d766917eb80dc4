"""What the QK and OV analyses return: a table of all heads, or one head taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from interp_toolkit.results import Evidence, Result, Table, head_name
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
