"""Results of an audit: the claims with their answers, the verdict over all of them, and the figure.

A claim has parts, one per tested question, each with its estimate, interval and bound. The
headline answers a single claim or counts the answers to several; the findings give the decisive
numbers. The status is *refuted* if any claim is, and *confirmed* only if all are. The figure draws
the intervals of asserted parts beside their bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp_toolkit import plots
from interp_toolkit.auditing.claims.seal import Sealed
from interp_toolkit.auditing.context import AuditContext
from interp_toolkit.auditing.parts import QUESTIONS, Part
from interp_toolkit.evidence import Answer, all_answers
from interp_toolkit.finding import MOST_FINDINGS, Finding, column
from interp_toolkit.formatting import capital
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Status, Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AuditedClaim:
    """One claim, tested.

    Attributes:
        about: the claim as a phrase.
        text: the claim in its author's words, or None.
        kind: the kind of claim.
        answer: confirmed, refuted, undecided or not testable here.
        parts: one per question.
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
    """The evidence of an audit's verdict.

    Attributes:
        confirmed, refuted, undecided, not_testable: number of claims with each answer.
        level: error level, for all claims together.
        correction: the correction for multiple claims.
        task_performance: the model's performance on these prompts; None if it was not tested.
        seal: SHA-256 of the sealed audit; None if it was not sealed.
        sealed_at: time in the sealed file.
    """

    confirmed: int
    refuted: int
    undecided: int
    not_testable: int = column("not testable")
    level: float = column("error level for all claims together")
    correction: str = column("correction for multiple claims")
    task_performance: str | None = column("task performance")
    seal: str | None = column("SHA-256 of the sealed audit")
    sealed_at: str | None = column("sealed at")


@dataclass(frozen=True, kw_only=True)
class AuditFinding(Finding):
    """Claims about a model, tested.

    Attributes:
        claims: sealed claims, then the others, in the given order; a claim about several heads is
            one claim per head.
    """

    evidence: AuditEvidence
    claims: Sequence[AuditedClaim]

    def to_frame(self) -> pd.DataFrame:
        """One row per claim and question."""
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
                    "method": part.method,
                    "value": part.value,
                    "low": part.low,
                    "high": part.high,
                    "bound": part.bound,
                    "detectable_effect": part.detectable_effect,
                    "summary": part.summary,
                }
                for claim in self.claims
                for part in claim.parts
            ]
        )

    def tables(self) -> list[Table]:
        """The claims, then one table per claim with its questions."""
        sealed = bool(self.evidence.seal)
        columns = ["claim", "answer", *(["sealed"] if sealed else [])]
        rows = [[c.about, c.answer, *([c.sealed] if sealed else [])] for c in self.claims]
        return [Table("Claims", columns, rows), *map(_parts_table, self.claims)]


def _parts_table(claim: AuditedClaim) -> Table:
    rows = [
        [
            QUESTIONS[part.question] + (" *" if part.asserted else ""),
            part.answer,
            part.summary,
            _rounded(part.detectable_effect),
        ]
        for part in claim.parts
    ]
    return Table(
        claim.about,
        ["question", "answer", "result", "detectable"],
        rows,
        caption="* the claim depends on this question. Detectable: the smallest distance from the "
        "bound that this audit detects with 80 % power, as a fraction.",
        highlight=[i for i, part in enumerate(claim.parts) if part.asserted],
    )


def _rounded(value: float | None) -> str | None:
    if value is None:
        return None
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


_ORDER: tuple[Answer, ...] = ("confirmed", "refuted", "undecided", "not_testable")


def headline(claims: Sequence[AuditedClaim]) -> str:
    """The answer to a single claim, or the number of claims with each answer."""
    if len(claims) == 1:
        return f"{_word(claims[0].answer)}: {claims[0].about}."
    counts = [(answer, sum(c.answer == answer for c in claims)) for answer in _ORDER]
    listing = ", ".join(f"{n} {answer.replace('_', ' ')}" for answer, n in counts if n)
    return f"Of {len(claims)} claims, {listing}."


def findings(claims: Sequence[AuditedClaim], context: AuditContext) -> list[str]:
    """The prompts, then the decisive numbers: those of a single claim, else one finding per claim.

    Refuted claims come first, confirmed ones last; the last finding may count the rest.
    """
    first = _prompts(context)
    return [*([first] if first else []), *_answers(claims)]


def _prompts(context: AuditContext) -> str | None:
    """The prompts that the claims were tested on, and their metric; None if none were needed."""
    prompts, check = context.cached_prompts, context.cached_task_check
    if prompts is None:
        return None
    text = f"Tested on {len(prompts)} prompts of {prompts.source}"
    if context.data is None:
        text = f"Tested on {len(prompts)} synthetic prompts of repeated tokens, not on your data"
    return f"{text}." if check is None else f"{text}; the metric is {check.size} ({check.metric})."


def _answers(claims: Sequence[AuditedClaim]) -> list[str]:
    if len(claims) == 1:
        return [capital(f"{part.summary.rstrip('.')}.") for part in _deciding(claims[0])]
    order = ("refuted", "undecided", "not_testable", "confirmed")
    ranked = sorted(claims, key=lambda claim: order.index(claim.answer))
    shown = ranked if len(ranked) < MOST_FINDINGS else ranked[: MOST_FINDINGS - 2]
    sentences = [f"{_word(c.answer)}: {c.about}.{_why(c)}" for c in shown]
    if len(shown) < len(ranked):
        sentences.append(f"{len(ranked) - len(shown)} more claims are in the table.")
    return sentences


def _deciding(claim: AuditedClaim) -> list[Part]:
    """The asserted parts, those with the claim's answer first, interventions before others."""
    asserted = [part for part in claim.parts if part.asserted]
    return sorted(
        asserted, key=lambda part: (part.answer != claim.answer, part.method != "intervened")
    )


def _why(claim: AuditedClaim) -> str:
    deciding = _deciding(claim)
    return f" {capital(deciding[0].summary.rstrip('.'))}." if deciding else ""


def _word(answer: Answer) -> str:
    return capital(answer.replace("_", " "))


def evidence_of(
    claims: Sequence[AuditedClaim], context: AuditContext, sealed: Sealed | None
) -> AuditEvidence:
    """The evidence for the verdict."""
    counts = {answer: sum(c.answer == answer for c in claims) for answer in _ORDER}
    task_check = context.cached_task_check
    return AuditEvidence(
        status=_status(counts),
        reason=_reason(claims),
        **counts,
        level=context.level,
        correction=_correction(claims),
        task_performance=None if task_check is None else task_check.summary,
        seal=None if sealed is None else sealed.sha256,
        sealed_at=None if sealed is None else sealed.sealed_at,
    )


def _correction(claims: Sequence[AuditedClaim]) -> str:
    sealed = sum(claim.sealed for claim in claims)
    groups = [str(n) for n in (sealed, len(claims) - sealed) if n]
    return f"Bonferroni over {' and '.join(groups)} claims and the parts that each asserts"


def _status(counts: dict[Answer, int]) -> Status:
    """Refuted if any claim is; confirmed if all are."""
    answers = [answer for answer, n in counts.items() if n]
    return all_answers(answers, alike="refuted" not in answers)


def _reason(claims: Sequence[AuditedClaim]) -> str | None:
    """Why the first unconfirmed claim was not confirmed."""
    for claim in claims:
        if claim.answer != "confirmed":
            for part in claim.parts:
                if part.asserted and part.answer == claim.answer:
                    return part.summary
    return None


MOST = 40  # intervals that the figure shows
_ANSWER_STYLES: tuple[tuple[Answer, str, str], ...] = (
    ("confirmed", CLASS_COLORS[0], "circle"),
    ("refuted", CLASS_COLORS[1], "diamond"),
    ("undecided", NEUTRAL, "square"),
)


def interval_figure(claims: Sequence[AuditedClaim]) -> list[Figure]:
    """Asserted parts' estimates, intervals and bounds; empty if no such part has an interval."""
    rows = [
        (f"{claim.about}: {QUESTIONS[part.question]}", part)
        for claim in claims
        for part in claim.parts
        if part.asserted and part.low is not None and part.bound is not None
    ][:MOST]
    if not rows:
        return []
    deviations = any(claim.kind == "pair" for claim in claims)
    traces = []
    for answer, color, symbol in _ANSWER_STYLES:
        chosen = [(i, part) for i, (_, part) in enumerate(rows) if part.answer == answer]
        if not chosen:
            continue
        intervals = [
            (i, part.value or 0.0, part.low or 0.0, part.high or 0.0) for i, part in chosen
        ]
        marks = plots.markers(
            [value for _, value, _, _ in intervals],
            [i for i, _, _, _ in intervals],
            color,
            name=answer,
            symbol=symbol,
            size=10,
        )
        ends = plots.spread(
            [h - v for _, v, _, h in intervals], [v - low for _, v, low, _ in intervals]
        )
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
            "Evidence for each claim",
            "Estimates with their intervals, corrected for all claims together (sealed claims "
            "among themselves). A claim is confirmed if all its intervals lie right of their "
            "bounds and no circuit keeps far more than the whole model. It is refuted if an "
            "interval lies entirely left of its bound, or if a circuit keeps far more.",
            [bounds, *traces],
            plots.layout(
                plots.axis(
                    "fraction (pairs of tokens: standard deviations)" if deviations else "fraction"
                ),
                plots.axis("") | names | plots.DOWNWARD,
            )
            | {"height": 160 + 44 * len(rows), "margin": {"l": 320}},
        )
    ]
