"""The record of one check, and the doctor's result: all checks, the headline, and the findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from interp_toolkit.errors import InputError, one_line
from interp_toolkit.finding import MOST_FINDINGS, Finding
from interp_toolkit.formatting import listed as listed
from interp_toolkit.results import Evidence, Status, Table

if TYPE_CHECKING:
    import pandas as pd

Answer = Literal["passed", "failed", "differs", "not_applicable", "undecided"]
#: fraction of the compared values above which a difference is not small, even if due to rounding
SMALL = 0.02


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        section: hooks, sums, weights, configuration, reload, original, invariance or prompts.
        name: the property that is checked.
        answer: passed; failed (a fault of this model); differs (by design of the class or release,
            worth knowing); not_applicable; undecided (could not be run or distinguished).
        summary: the observation, as a phrase.
        difference: the largest, in the units of the compared values; None if none were compared.
        tolerance: the largest difference that rounding explains.
        basis: the derivation of the tolerance.
        locations: all hook points or tensors concerned.
        instead: hook points to use in their place.
    """

    section: str
    name: str
    answer: Answer
    summary: str
    difference: float | None = None
    tolerance: float | None = None
    basis: str | None = None
    locations: Sequence[str] = ()
    instead: str | None = None


def measured(
    section: str,
    name: str,
    difference: float,
    tolerance: float,
    scale: float,
    basis: str,
    summary: str = "not the same",
    locations: Sequence[str] = (),
) -> Check:
    """A check from a difference and its tolerance: passed, failed (NaN too), or undecided.

    A difference is undecided if rounding may explain it but it is not small relative to `scale`,
    the size of the compared values. `summary` describes a failure.
    """
    answer = judged(difference, tolerance, scale)
    if answer == "failed":
        return Check(section, name, answer, summary, difference, tolerance, basis, locations)
    return Check(section, name, answer, WORDS[answer], difference, tolerance, basis)


NOT_ASKED = "could not be checked"
#: descriptions of answers
WORDS: dict[Answer, str] = {
    "passed": "equal up to rounding",
    "undecided": "undecided: the difference is large, but rounding could explain it",
}


def judged(difference: float, tolerance: float, scale: float) -> Answer:
    """The answer from a difference, its tolerance and the size of the compared values."""
    if not difference <= tolerance:  # NaN too
        return "failed"
    return "passed" if difference <= max(SMALL * scale, 0.0) else "undecided"


def guarded(section: str, name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """The results of a check, or one result that says why it could not be made."""
    try:
        return list(check())
    except InputError as error:  # names the part that the model lacks
        return [Check(section, name, "not_applicable", str(error))]
    except Exception as error:  # third-party models raise many types
        reason = f"{NOT_ASKED}: {type(error).__name__}: {one_line(error)}"
        return [Check(section, name, "undecided", reason)]


def largest(values: Iterable[float]) -> float:
    """The largest value; NaN if any is."""
    values = list(values)
    return math.nan if any(math.isnan(v) for v in values) else max(values, default=0.0)


NAME = "doctor"
NAMED = 2  # faults that get a finding each


@dataclass(frozen=True)
class DoctorEvidence(Evidence):
    """Counts of checks by outcome, and the cost of the examination.

    Attributes:
        passed, failed, differs, not_applicable, undecided: number of checks with each answer.
        bare_passes: cost in forward passes of the model on the probe prompts.
        calls: number of calls of a model.
        noise: tolerance of a whole pass, in logits; None if it was not measured.
    """

    passed: int
    failed: int
    differs: int
    not_applicable: int
    undecided: int
    bare_passes: float
    calls: int
    noise: float | None


@dataclass(frozen=True, kw_only=True)
class DoctorFinding(Finding):
    """Whether a model's hooks read and edit what they promise.

    Attributes:
        checks: every check, in the order in which they ran.
    """

    evidence: DoctorEvidence
    checks: Sequence[Check]

    @property
    def faults(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.answer == "failed"]

    def to_frame(self) -> pd.DataFrame:
        """One row per check."""
        import pandas as pd

        return pd.DataFrame([vars(check) for check in self.checks])

    def tables(self) -> list[Table]:
        """Up to three tables: problems (faults first), passed checks, and not applicable ones."""
        problems = [c for c in self.checks if c.answer in ("failed", "differs", "undecided")]
        problems.sort(key=lambda check: check.answer != "failed")
        passed = [_row(c) for c in self.checks if c.answer == "passed"]
        rest = [[c.section, c.name, c.summary] for c in self.checks if c.answer == "not_applicable"]
        columns = ["section", "check", "answer", "observation", "difference", "tolerance"]
        caption = "Largest difference, and the difference that rounding can explain."
        faults = range(len(self.faults))
        tables = [
            Table("Problems", columns, list(map(_row, problems)), highlight=faults),
            Table("Passed", columns, passed, caption),
            Table("Not applicable", ["section", "check", "reason"], rest),
        ]
        return [table for table in tables if table.rows]


def _named(check: Check) -> str:
    return f"{check.name} ({check.summary.partition(';')[0]})"


def _observation(check: Check) -> str:
    return check.summary if check.instead is None else f"{check.summary}; use {check.instead}"


def _row(check: Check) -> list[object]:
    about = (check.section, check.name, check.answer, _observation(check))
    return [*about, check.difference, check.tolerance]


def evidence_of(
    checks: Sequence[Check], passes: float, calls: int, noise: float | None
) -> DoctorEvidence:
    """Counts and status: faults if a check failed, sound if one passed, else undecided."""
    count = Counter(check.answer for check in checks)
    faults = [f"{c.name}: {c.summary}" for c in checks if c.answer == "failed"]
    status: Status = "faults_found" if faults else "sound" if count["passed"] else "undecided"
    return DoctorEvidence(
        status=status,
        reason="; ".join(faults) or ("no check could be run" if status == "undecided" else None),
        passed=count["passed"],
        failed=count["failed"],
        differs=count["differs"],
        not_applicable=count["not_applicable"],
        undecided=count["undecided"],
        bare_passes=round(passes, 2),
        calls=calls,
        noise=noise,
    )


def headline(checks: Sequence[Check], evidence: DoctorEvidence) -> str:
    """The number of failed checks and the first fault, or else the number of passed checks."""
    made = evidence.passed + evidence.failed + evidence.differs + evidence.undecided
    faults = [check.name for check in checks if check.answer == "failed"]
    if faults:
        return f"Faults: {len(faults)} of {made} checks failed: {listed(faults, 1)}."
    if not evidence.passed:
        return "Undecided: no check could be run on this model."
    counts = {"differ by design": evidence.differs, "undecided": evidence.undecided}
    also = "".join(f", {number} {word}" for word, number in counts.items() if number)
    return f"No fault found: {evidence.passed} of {made} checks passed{also}."


def findings(checks: Sequence[Check], evidence: DoctorEvidence, source: str) -> list[str]:
    """The faults, the undecided checks and those that differ by design, and the tokens' source."""
    by_answer = {
        answer: [check for check in checks if check.answer == answer]
        for answer in ("failed", "undecided", "differs")
    }
    faults = by_answer["failed"]
    sentences = [f"Fault: {check.name}: {_observation(check)}." for check in faults[:NAMED]]
    if faults[NAMED:]:
        sentences.append(f"Also failed: {listed([check.name for check in faults[NAMED:]])}.")
    for answer, word in (("undecided", "Undecided"), ("differs", "By design different")):
        if by_answer[answer] and len(sentences) < MOST_FINDINGS - 1:
            sentences.append(f"{word}: {listed([_named(check) for check in by_answer[answer]])}.")
    sentences.append(
        f"The checks ran on {source}, in this process; {evidence.not_applicable} do not apply to "
        "this model."
    )
    return sentences
