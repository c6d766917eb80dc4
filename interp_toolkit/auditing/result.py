"""The result of an audit: each claim with its answer, and each of its parts with its figures.

Also here:
- the verdict of an audit in a sentence or two, and what it rests on;
- the figure of an audit: every interval beside the bound that it is held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp_toolkit import plots
from interp_toolkit.auditing.claims.seal import Sealed
from interp_toolkit.auditing.ground import Ground
from interp_toolkit.auditing.parts import ASKED, Answer, Part
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Result, Status, Table

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


NAMED = 4  # claims of each answer, in the verdict
_ORDER: tuple[Answer, ...] = ("confirmed", "refuted", "undecided", "not_testable")


def verdict(claims: Sequence[AuditedClaim]) -> str:
    """What the claims came to, and why where one failed.

    One claim is told with its figures; of several how many have each answer, and which.
    """
    if len(claims) == 1:
        return _one(claims[0])
    parts = []
    for answer in _ORDER:
        found = [claim for claim in claims if claim.answer == answer]
        if found:
            names = ", ".join(claim.about for claim in found[:NAMED])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            parts.append(f"{len(found)} {answer.replace('_', ' ')} ({names}{more})")
    return f"Of {len(claims)} claims {'; '.join(parts)}."


def _one(claim: AuditedClaim) -> str:
    word = claim.answer.replace("_", " ")
    deciding = [p for p in claim.parts if p.asserted and p.answer == claim.answer]
    deciding = deciding or [p for p in claim.parts if p.asserted]
    deciding.sort(key=lambda part: part.deed != "intervened")  # what was done says more
    why = "; ".join(part.said.rstrip(".") for part in deciding[:1])
    return f"{_capital(claim.about)}: {word} here. {_capital(why)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def evidence_of(
    claims: Sequence[AuditedClaim], ground: Ground, sealed: Sealed | None
) -> AuditEvidence:
    """What the verdict rests on."""
    counts = {answer: sum(c.answer == answer for c in claims) for answer in _ORDER}
    home = ground.asked_home
    return AuditEvidence(
        status=_status(counts),
        reason=_reason(claims),
        **counts,
        level=ground.level,
        correction=_correction(claims),
        home=None if home is None else home.said,
        seal=None if sealed is None else sealed.sha256,
        sealed_at=None if sealed is None else sealed.sealed_at,
    )


def _correction(claims: Sequence[AuditedClaim]) -> str:
    sealed = sum(claim.sealed for claim in claims)
    groups = [str(n) for n in (sealed, len(claims) - sealed) if n]
    return f"Bonferroni over {' and '.join(groups)} claims and the parts that each asserts"


def _status(counts: dict[Answer, int]) -> Status:
    """Refuted where any claim is; confirmed where all are."""
    total = sum(counts.values())
    if counts["refuted"]:
        return "refuted"
    if counts["confirmed"] == total:
        return "confirmed"
    return "not_testable" if counts["not_testable"] == total else "undecided"


def _reason(claims: Sequence[AuditedClaim]) -> str | None:
    """Why the first claim that was not confirmed was not."""
    for claim in claims:
        if claim.answer != "confirmed":
            for part in claim.parts:
                if part.asserted and part.answer == claim.answer:
                    return part.said
    return None


MOST = 40  # rows that a figure can show
_LOOKS: tuple[tuple[Answer, str, str], ...] = (
    ("confirmed", CLASS_COLORS[0], "circle"),
    ("refuted", CLASS_COLORS[1], "diamond"),
    ("undecided", NEUTRAL, "square"),
)


def interval_figure(claims: Sequence[AuditedClaim]) -> list[Figure]:
    """Estimates with their intervals, and bounds; nothing where no part is a number."""
    rows = [
        (f"{claim.about}: {ASKED[part.question]}", part)
        for claim in claims
        for part in claim.parts
        if part.asserted and part.low is not None and part.bound is not None
    ][:MOST]
    if not rows:
        return []
    deviations = any(claim.kind == "pair" for claim in claims)
    traces = []
    for answer, color, symbol in _LOOKS:
        chosen = [(i, part) for i, (_, part) in enumerate(rows) if part.answer == answer]
        if not chosen:
            continue
        found = [(i, part.value or 0.0, part.low or 0.0, part.high or 0.0) for i, part in chosen]
        marks = plots.markers(
            [value for _, value, _, _ in found],
            [i for i, _, _, _ in found],
            color,
            name=answer,
            symbol=symbol,
            size=10,
        )
        ends = plots.spread([h - v for _, v, _, h in found], [v - low for _, v, low, _ in found])
        traces.append(marks | {"error_x": ends})
    bounds = plots.markers(
        [part.bound for _, part in rows],
        list(range(len(rows))),
        NEUTRAL,
        name="bound of the claim",
        symbol="line-ns-open",
        size=18,
    )
    names = plots.ticks(range(len(rows)), [name for name, _ in rows])
    return [
        Figure(
            "What each claim rests on",
            "Estimates with their intervals, corrected for all claims together. A claim is "
            "confirmed where all its intervals lie right of their bounds, refuted where one lies "
            "wholly left of it; a circuit that keeps far more than the model has is refuted too.",
            [bounds, *traces],
            plots.layout(
                plots.axis("share (of pairs: standard deviations)" if deviations else "share"),
                plots.axis("") | names | plots.DOWNWARD,
            )
            | {"height": 160 + 44 * len(rows), "margin": {"l": 320}},
        )
    ]
