"""The one number that a run of a task is compared by, and what must be known to compare it.

Every recipe of the variants leaves one in its training record, under "measured": so tables,
sweeps and the litmus test need not know the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

KEY = "measured"


@dataclass(frozen=True)
class FinalScore:
    """A figure of merit.

    Attributes:
        name: of the score, in the run's table and in its curve.
        value: reached by the best seed.
        better: which way is better.
        unit: "share" (0 to 1) or "nats".
        guess: what a rule that does not solve the task reaches; None: not known.
        examples: how many independent test examples the value is a mean over.
        guess_rule: that rule, in words; empty where there is none.
    """

    name: str
    value: float
    better: Literal["higher", "lower"]
    unit: Literal["share", "nats"]
    guess: float | None
    examples: int
    guess_rule: str = ""

    def recorded(self) -> dict[str, Any]:
        """As JSON data, for the training record."""
        return {KEY: asdict(self)}


def final_score_of(training: Mapping[str, Any]) -> FinalScore:
    """The figure of a training record that has one."""
    return FinalScore(**training[KEY])


def percent(share: float) -> str:
    """A share as it is written in a sentence."""
    return f"{100 * share:.2f} %"
