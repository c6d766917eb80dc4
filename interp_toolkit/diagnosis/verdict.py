"""The verdict on a model as an instrument, in one sentence that says no more than was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from interp_toolkit.diagnosis.checks import Check
from interp_toolkit.diagnosis.result import DoctorEvidence
from interp_toolkit.results import Status

_NAMED = 3


def evidence_of(
    checks: Sequence[Check], passes: float, calls: int, noise: float | None
) -> DoctorEvidence:
    """What the verdict rests on."""
    count = Counter(check.answer for check in checks)
    status: Status = "sound" if count["passed"] else "undecided"
    reason = None
    if count["failed"]:
        status, reason = (
            "faults_found",
            "; ".join(_fault(c) for c in checks if c.answer == "failed"),
        )
    elif status == "undecided":
        reason = "no check could be made"
    return DoctorEvidence(
        status=status,
        reason=reason,
        passed=count["passed"],
        failed=count["failed"],
        differs=count["differs"],
        not_applicable=count["not_applicable"],
        undecided=count["undecided"],
        bare_passes=round(passes, 2),
        calls=calls,
        noise=noise,
    )


def _fault(check: Check) -> str:
    return f"{check.name}: {check.said}"


def verdict(checks: Sequence[Check], evidence: DoctorEvidence) -> str:
    """What was found, in one sentence."""
    faults = [check for check in checks if check.answer == "failed"]
    asked = evidence.passed + evidence.failed + evidence.differs + evidence.undecided
    beside = []
    if evidence.differs:
        beside.append(f"{evidence.differs} differ by design")
    if evidence.undecided:
        beside.append(f"{evidence.undecided} undecided")
    also = f" ({', '.join(beside)})" if beside else ""
    if faults:
        named = "; ".join(_fault(check) for check in faults[:_NAMED])
        more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
        return f"{count} in {asked} checks{also}: {named}{more}."
    if not evidence.passed:
        return "Undecided: no check could be made of this model."
    return (
        f"No fault in the {asked} checks made{also}, on random tokens and in this process: "
        f"{evidence.passed} passed, {evidence.not_applicable} do not apply."
    )
