"""The verdict of an audit in a sentence or two, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from interp_toolkit.auditing.claims.seal import Sealed
from interp_toolkit.auditing.ground import Ground
from interp_toolkit.auditing.parts import Answer
from interp_toolkit.auditing.result import AuditedClaim, AuditEvidence
from interp_toolkit.results import Status

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
