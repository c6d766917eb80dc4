"""The metrics of a run: one JSON object a line, one line a measurement, nothing about the clock.

So a resumed run ends with the very file that an uninterrupted one writes.

Also here:
- the one number that a run of a task is compared by, and what must be known to compare it.

Every recipe of the variants leaves one in its training record, under "measured": so tables,
sweeps and the litmus test need not know the task.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from interp_toolkit.errors import InputError
from interp_toolkit.files import replacing
from interp_toolkit.results import jsonable


class Metrics:
    """A JSONL file that grows by whole lines."""

    def __init__(self, path: Path):
        self.path = path
        self._size = 0

    def restart(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace what is there by these lines; raises OSError when that cannot be done."""
        text = b"".join(_encoded(line) for line in lines)
        with replacing(self.path) as partial:
            partial.write_bytes(text)
        self._size = len(text)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line; raises InputError where that cannot be done, and leaves no half of it."""
        text = _encoded(line)
        try:
            with self.path.open("r+b") as file:
                file.seek(self._size)
                try:
                    file.write(text)
                    file.flush()
                except OSError:
                    os.truncate(self.path, self._size)
                    raise
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror}; "
                "mend that and go on with --resume"
            ) from error
        self._size += len(text)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(jsonable(line), allow_nan=False) + "\n").encode()


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
        """The settings as JSON data, for the training record."""
        return {KEY: asdict(self)}


def final_score_of(training: Mapping[str, Any]) -> FinalScore:
    """The figure of a training record that has one."""
    return FinalScore(**training[KEY])


def percent(share: float) -> str:
    """A share as it is written in a sentence."""
    return f"{100 * share:.2f} %"
