"""The result of an audit: each claim with its answer, and each of its parts with its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp_toolkit.auditing.parts import ASKED, Answer, Part
from interp_toolkit.results import Evidence, Result, Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AuditedClaim:
    """One claim, tested.

    Attributes:
        about: in a few words.
        text: the words of whoever made it; None: there were none.
        kind: what it is about.
        answer: confirmed, refuted, undecided or not testable here.
        parts: question by question.
        sealed: whether it was sealed before this run.
    """

    about: str
    text: str | None
    kind: str
    answer: Answer
    parts: Sequence[Part]
    sealed: bool


@dataclass(frozen=True)
class AuditEvidence(Evidence):
    """What an audit's verdict rests on.

    Attributes:
        confirmed, refuted, undecided, not_testable: claims with each answer.
        level: of error, for all claims together.
        correction: how claims were corrected together.
        home: what the model does on these rows; None where that was not asked.
        seal: SHA-256 of the sealed audit; None: it was not sealed.
        sealed_at: when, as the sealed file says.
    """

    confirmed: int
    refuted: int
    undecided: int
    not_testable: int
    level: float
    correction: str
    home: str | None
    seal: str | None
    sealed_at: str | None


@dataclass(frozen=True)
class AuditResult(Result):
    """Claims about a model, tested.

    Attributes:
        claims: in the order given; of several heads one each.
    """

    claims: Sequence[AuditedClaim]

    def to_frame(self) -> pd.DataFrame:
        """One row a question."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "claim": claim.about,
                    "answer_of_claim": claim.answer,
                    "sealed": claim.sealed,
                    "question": part.question,
                    "asserted": part.asserted,
                    "answer": part.answer,
                    "done": part.deed,
                    "value": part.value,
                    "low": part.low,
                    "high": part.high,
                    "bound": part.bound,
                    "least_seen": part.least_seen,
                    "said": part.said,
                }
                for claim in self.claims
                for part in claim.parts
            ]
        )

    def tables(self) -> list[Table]:
        """The claims; then each with its questions."""
        columns = ["claim", "answer", *(("sealed",) if self.evidence_of_audit.seal else ())]
        rows = [
            [c.about, c.answer, *((c.sealed,) if self.evidence_of_audit.seal else ())]
            for c in self.claims
        ]
        found = [Table("Claims", columns, rows)]
        return [*found, *(_parts_table(claim) for claim in self.claims)]

    @property
    def evidence_of_audit(self) -> AuditEvidence:
        """The evidence, as what it is."""
        assert isinstance(self.evidence, AuditEvidence)
        return self.evidence


def _parts_table(claim: AuditedClaim) -> Table:
    rows = [
        [
            ASKED[part.question] + (" *" if part.asserted else ""),
            part.answer,
            part.said,
            _rounded(part.least_seen),
        ]
        for part in claim.parts
    ]
    return Table(
        claim.about,
        ["question", "answer", "figures", "could have seen"],
        rows,
        caption="* the claim rests on it. The last column: how far from its bound an effect had "
        "to lie to be seen with a chance of 80 %, a share.",
        highlight=[i for i, part in enumerate(claim.parts) if part.asserted],
    )


def _rounded(value: float | None) -> str | None:
    if value is None:
        return None
    return "< 0.001" if value < 0.001 else f"{value:.2g}"
