"""What the doctor returns: every check, what they cost, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp_toolkit.diagnosis.checks import Check
from interp_toolkit.results import Evidence, Result, Table

if TYPE_CHECKING:
    import pandas as pd

NAME = "doctor"


@dataclass(frozen=True)
class DoctorEvidence(Evidence):
    """What the verdict on a model as an instrument rests on.

    Attributes:
        passed, failed, differs, not_applicable, undecided: how many checks answered so.
        bare_passes: what they cost, in passes of the model on the probe.
        calls: how many times a model was called.
        noise: the tolerance of whole passes, in logits; None where it was not measured.
    """

    passed: int
    failed: int
    differs: int
    not_applicable: int
    undecided: int
    bare_passes: float
    calls: int
    noise: float | None


@dataclass(frozen=True)
class DoctorResult(Result):
    """Whether a model measures what its hooks promise.

    Attributes:
        checks: every check, in the order of the sections.
    """

    checks: Sequence[Check]

    @property
    def faults(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.answer == "failed"]

    def to_frame(self) -> pd.DataFrame:
        """One row a check."""
        import pandas as pd

        return pd.DataFrame([vars(check) for check in self.checks])

    def tables(self) -> list[Table]:
        """What was found, faults first; what passed; what could not be asked."""
        found = [c for c in self.checks if c.answer == "failed"]
        found += [c for c in self.checks if c.answer in ("differs", "undecided")]
        good = [c for c in self.checks if c.answer == "passed"]
        rest = [c for c in self.checks if c.answer == "not_applicable"]
        tables = []
        if found:
            faults = range(sum(c.answer == "failed" for c in found))
            rows = [_row(check) for check in found]
            tables.append(Table("Found", _COLUMNS, rows, highlight=set(faults)))
        if good:
            caption = "The largest difference beside what rounding may do."
            tables.append(Table("Passed", _COLUMNS, [_row(check) for check in good], caption))
        if rest:
            columns = ["section", "check", "reason"]
            tables.append(Table("Not asked", columns, [[c.section, c.name, c.said] for c in rest]))
        return tables


_COLUMNS = ["section", "check", "answer", "what was seen", "difference", "tolerance"]


def _row(check: Check) -> list[object]:
    said = check.said if check.instead is None else f"{check.said}; use {check.instead}"
    return [
        *(check.section, check.name, check.answer, said),
        *(check.difference, check.tolerance),
    ]
