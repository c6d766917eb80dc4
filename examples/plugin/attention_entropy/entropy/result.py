"""What the probe returns: every head's spread, and what it was held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp_toolkit.results import Evidence, Result, Status, Table

if TYPE_CHECKING:
    import pandas as pd


# --8<-- [start:records]
@dataclass(frozen=True)
class HeadSpread:
    """One head.

    Attributes:
        head: such as L1H0.
        spread: mean entropy of its attention, as a share of uniform attention's.
        p: how often the sharpest head of a shuffled copy is as sharp; the head itself counts.
        status: "detected", or "not_detected".
    """

    head: str
    spread: float
    p: float
    status: Status

    @classmethod
    def of(cls, head: str, spread: float, sharpest: Sequence[float], sharp: float) -> HeadSpread:
        """A head's record, from its spread and the least spread of each copy."""
        p = (1 + sum(null <= spread for null in sharpest)) / (1 + len(sharpest))
        found = spread < sharp and p <= LEVEL
        return cls(head, spread, p, "detected" if found else "not_detected")


@dataclass(frozen=True)
class EntropyEvidence(Evidence):
    """What the verdict rests on.

    Attributes:
        sharp: the share of uniform attention's entropy below which attention is sharp.
        level: of the p-values, which hold for all heads together.
        copies: how many shuffled copies there are.
        sharpest_copy: the least spread of any head of any of them.
    """

    sharp: float
    level: float
    copies: int
    sharpest_copy: float


# --8<-- [end:records]

LEVEL = 0.05


@dataclass(frozen=True)
class EntropyResult(Result):
    """How spread the attention of every head is.

    Attributes:
        heads: by layer, then head.
    """

    heads: Sequence[HeadSpread]

    def to_frame(self) -> pd.DataFrame:
        """One row a head."""
        import pandas as pd

        return pd.DataFrame([vars(head) for head in self.heads])

    def tables(self) -> list[Table]:
        """The heads."""
        rows = [[head.head, head.spread, head.p, head.status] for head in self.heads]
        caption = "Spread: mean entropy of attention as a share of uniform attention's."
        found = [n for n, head in enumerate(self.heads) if head.status == "detected"]
        columns = ["head", "spread", "p", "status"]
        return [Table("Attention entropy", columns, rows, caption, found)]
