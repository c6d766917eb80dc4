"""What the seeds of a cell found: as quantities, as ranges, and in a table like the source's.

"theirs / ours": the source's figure, and the median over seeds here. In a preset that is smaller
than the source's, both are shown and neither is judged by the other; only the ordering is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interp_studies.random_attention.cells import TableCell
from interp_studies.random_attention.ordering import (
    Claim,
    Range,
    claims_of,
    range_of,
)
from interp_studies.result import Quantity, Unit, compare
from interp_toolkit.results import Table
from interp_toolkit.training.engine.metrics import FinalScore

Values = Mapping[str, Any]
BITS = "bits per parameter"
SHAPED = "As the source prints it: theirs / ours"


@dataclass(frozen=True)
class Entry:
    """A cell with what every seed of it found."""

    cell: TableCell
    seeds: Sequence[Values]

    @property
    def measured(self) -> Sequence[FinalScore]:
        """The figures of merit, by seed."""
        return [FinalScore(**values["measured"]) for values in self.seeds]

    @property
    def values(self) -> list[float]:
        """Their values."""
        return [measured.value for measured in self.measured]

    @property
    def median(self) -> float:
        """Over seeds."""
        return statistics.median(self.values)

    @property
    def range(self) -> Range:
        """Over seeds, widened (see `ordering`)."""
        cell = self.cell
        examples = self.measured[0].examples
        return range_of(self.values, examples, better=cell.better, unit=cell.unit)

    @property
    def bits(self) -> list[float]:
        """Bits per parameter, by seed."""
        return [float(values["bits_per_parameter"]) for values in self.seeds]

    @property
    def bits_range(self) -> Range:
        """Of the bits per parameter."""
        return range_of(self.bits, 0, unit="")


def quantities(entries: Sequence[Entry], *, judged: bool) -> list[Quantity]:
    """Theirs beside ours; without `judged`, none is called reached or not."""
    found = []
    for entry in entries:
        cell, first = entry.cell, entry.measured[0]
        of = f"{cell.group}, {cell.member}"
        found.append(
            compare(
                of,
                first.name,
                entry.values,
                cell.theirs,
                better=cell.better,
                unit=cell.unit,
                remark=cell.remark or _guess(first),
            )
        )
        if cell.bits is not None:
            found.append(compare(of, BITS, entry.bits, cell.bits, unit=""))
    return found if judged else [replace(q, reached=None, seeds_reaching=None) for q in found]


def _guess(measured: FinalScore) -> str:
    if measured.guess is None:
        return ""
    return f"guessing: {written(measured.guess, measured.unit)}"


def ranges(entries: Sequence[Entry]) -> dict[str, dict[str, Range]]:
    """By group, each member's range."""
    found: dict[str, dict[str, Range]] = {}
    for entry in entries:
        found.setdefault(entry.cell.group, {})[entry.cell.member] = entry.range
        if entry.cell.bits is not None:
            group = f"{entry.cell.group}, {BITS}"
            found.setdefault(group, {})[entry.cell.member] = entry.bits_range
    return found


def source_claims(entries: Sequence[Entry]) -> list[Claim]:
    """What the source's figures say of every two members of a group."""
    theirs: dict[str, dict[str, float]] = {}
    for entry in entries:
        cell = entry.cell
        if cell.theirs is not None:
            theirs.setdefault(cell.group, {})[cell.member] = cell.theirs
    claims = []
    for group, figures in theirs.items():
        one = next(entry for entry in entries if entry.cell.group == group)
        guess = one.measured[0].guess if one.cell.unit == "share" else None
        claims += claims_of(group, figures, one.cell.better, one.cell.unit, guess)
        bits = {
            e.cell.member: e.cell.bits
            for e in entries
            if e.cell.group == group and e.cell.bits is not None
        }
        claims += claims_of(f"{group}, {BITS}", bits, "higher", "")
    return claims


def written(value: float | None, unit: Unit) -> str:
    """A figure with as many digits as the source gives."""
    if value is None:
        return "–"
    return f"{100 * value:.2f} %" if unit == "share" else f"{value:.2f}"


def tasks_down(entries: Sequence[Entry]) -> Table:
    """A row a group, a column a member: theirs / ours."""
    groups, members = _names(entries)
    return _shaped(entries, groups, members, lambda row, column: (row, column))


def models_down(entries: Sequence[Entry]) -> Table:
    """A row a member, a column a group: theirs / ours."""
    groups, members = _names(entries)
    return _shaped(entries, members, groups, lambda row, column: (column, row))


def _names(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    groups = dict.fromkeys(entry.cell.group for entry in entries)
    return list(groups), list(dict.fromkeys(entry.cell.member for entry in entries))


def _shaped(
    entries: Sequence[Entry],
    down: Sequence[str],
    across: Sequence[str],
    key: Callable[[str, str], tuple[str, str]],
) -> Table:
    cells = {(e.cell.group, e.cell.member): both(e) for e in entries}
    rows = [[row, *(cells.get(key(row, column)) for column in across)] for row in down]
    return Table(SHAPED, ["", *across], rows, "Ours: the median over seeds.")


def both(entry: Entry) -> str:
    """Theirs / ours."""
    unit = entry.cell.unit
    return f"{written(entry.cell.theirs, unit)} / {written(entry.median, unit)}"


def by_seed(entries: Sequence[Entry]) -> Table:
    """Every seed of every cell."""
    rows = [
        [
            entry.cell.group,
            entry.cell.member,
            values["seed"],
            written(measured.value, entry.cell.unit),
            values["loss"],
            values["trainable"],
        ]
        for entry in entries
        for values, measured in zip(entry.seeds, entry.measured, strict=True)
    ]
    columns = ["of", "model", "seed", "reached", "training loss", "trained parameters"]
    return Table("Every seed", columns, rows, "Training loss in nats, at the end.")
