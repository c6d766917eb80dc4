"""What a model was made for, as its checkpoint says: the part an analysis makes its data from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TaskRecord:
    """A task. What a record does not say is None; recipes write what belongs to them beside it.

    Attributes:
        name: of the task, such as "sorting".
        function: what is computed: a truth table such as "0110", "uand", "skip-bigrams".
        tokens: token ids by name, among them "0" and "1".
        layout: of a prompt: a list of words, or a sorting layout in one string.
        distinct: whether lists have no repeats.
        n_features: of sparse boolean inputs.
        most_on: how many of them are on at once, at most.
        gates: the sets of features that are asked about.
        written: the record as it stands in the file.
    """

    name: str | None = None
    function: str | None = None
    tokens: Any = None
    layout: Any = None
    distinct: bool | None = None
    n_features: int | None = None
    most_on: int | None = None
    gates: Sequence[Sequence[int]] | None = None
    written: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, written: Mapping[str, Any] | None) -> TaskRecord:
        """The record that a file holds; None: nothing is known."""
        found = dict(written or {})
        distinct = found.get("distinct")
        return cls(
            name=found.get("name"),
            function=found.get("function"),
            tokens=found.get("tokens"),
            layout=found.get("layout"),
            distinct=None if distinct is None else bool(distinct),
            n_features=_whole(found.get("n_features")),
            most_on=_whole(found.get("most_on")),
            gates=found.get("gates"),
            written=found,
        )

    def to_json(self) -> dict[str, Any]:
        """The record as `from_json` was given it."""
        return dict(self.written)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
