"""A cell of a table of the source: which model on which task, the source's figure, and ours.

Settings are the recipe's own preset, read when they are needed, with the variant's and what the
cell says differs. The job's name follows from recipe, variant and differences, so that tables that
need the same model share it in one folder. An `Entry` is a cell with what its seeds reached, as
quantities, as ranges, and in a table like the source's.

"theirs / ours": the source's figure, and the median over seeds here. In a preset that is smaller
than the source's, both are shown and neither is judged by the other; only the ordering is.
Source: "Is random attention sufficient for sequence modeling?".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.random_attention.depth.likeness import before_and_after
from interp_studies.random_attention.ordering import Claim, Range, claims_of, range_of
from interp_studies.recipe_settings import as_read
from interp_studies.result import Better, Quantity, Unit, compare
from interp_studies.study import Values
from interp_studies.train_seed import train_seed, variant_of
from interp_toolkit.registry import find
from interp_toolkit.results import Table
from interp_toolkit.toys.random_attention.variants import trainable_parameters
from interp_toolkit.training.engine.metrics import FinalScore, final_score_of
from interp_toolkit.training.engine.run_files import end_run
from interp_toolkit.training.tasks.problem import BITS, TaskProblem
from interp_toolkit.training.text.store import GENERATED

SOURCE = "Is random attention sufficient for sequence modeling?"
BITS_PER_PARAMETER = "bits per parameter"
SHAPED = "As the source prints it: theirs / ours"


LOOKED_AT = 64  # test rows
SHORT = 16  # about how many tokens a row has whose recipe does not say


@dataclass(frozen=True, eq=False)
class TableCell:
    """One model on one task.

    Attributes:
        group: what is compared with each other: the task, or the task at a depth or a size.
        member: member of the group: the variant, or its number of heads.
        recipe, variant: that train it.
        theirs: the source's figure of merit, as the recipe measures it; None: it gives none.
        better, unit: of that figure.
        differs: from the recipe's preset.
        bits: the source's bits per parameter, where it gives them.
        remark: what else must be known.
        given: by the user, in place of the preset's and of what differs from it.
        look: whether to say how alike its hidden states are (see `depth.likeness`); of a task.
    """

    group: str
    member: str
    recipe: str
    variant: str
    theirs: float | None = None
    better: Better = "higher"
    unit: Unit = "share"
    differs: Mapping[str, Any] = field(default_factory=dict)
    bits: float | None = None
    remark: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    look: bool = False

    def with_settings(self, preset: str, given: Mapping[str, Any]) -> TableCell:
        """The cell with settings that the user gives.

        Raises InputError where they do not fit.
        """
        read = as_read(self.recipe, self.variant, preset, self.differs, given)
        other_text = read.get("text", GENERATED) != GENERATED
        return replace(self, given=read, remark="" if other_text else self.remark)

    def settings(self, preset: str) -> dict[str, Any]:
        """What differs from the recipe's defaults."""
        settings = dict(find("recipes", self.recipe).presets[preset])
        settings.pop("seeds", None)
        return {**settings, **variant_of(self.recipe, self.variant), **self.differs, **self.given}

    def job(self, preset: str, seed: int, device: str) -> Job:
        """The job of one seed."""
        settings = self.settings(preset)
        config = find("recipes", self.recipe).config(**settings)
        differences = [f"{key}-{value}" for key, value in sorted(self.differs.items())]
        return Job(
            name="-".join([self.recipe, self.variant, *differences, "seed", str(seed)]).replace(
                "/", ":"
            ),
            function=train_variant,
            arguments={
                "recipe": self.recipe,
                "settings": settings,
                "seed": seed,
                "device": device,
                **({"look": LOOKED_AT} if self.look else {}),
            },
            cost=config.steps
            * config.layers
            * config.rows
            * math.sqrt(config.d_model)
            * getattr(config, "length", SHORT),
        )


def train_variant(
    *,
    folder: Path,
    recipe: str,
    settings: Mapping[str, Any],
    seed: int,
    device: str,
    look: int = 0,
) -> Outcome:
    """Train one seed of a variant and say what it reaches.

    Args:
        folder: for the training run's files.
        recipe: recipe of the task.
        settings: what differs from the recipe's defaults.
        seed: random seed of the model and its batches.
        device: where to train.
        look: on how many test rows to say how alike hidden states are, before and after; of a
            task's recipe.
    """
    config, run = train_seed(recipe, settings, seed, device, folder)
    end_run(folder)
    values: dict[str, Any] = {
        "seed": seed,
        "measured": asdict(final_score_of(run.training)),
        "loss": run.training["loss"],
        "trainable": trainable_parameters(run.model),
        **{name: run.training[name] for name in (BITS,) if name in run.training},
        "curve": run.training["curve"],
    }
    if look:
        problem = TaskProblem(config, seed)
        values["likeness"] = before_and_after(problem, run.model, look)
    return Outcome(values, run.model, run.task, run.training)


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
        return [float(values[BITS]) for values in self.seeds]

    @property
    def bits_range(self) -> Range:
        """The range of the bits per parameter."""
        return range_of(self.bits, 0, unit="")


def quantities(entries: Sequence[Entry], *, judged: bool) -> list[Quantity]:
    """Theirs beside ours; without `judged`, none is called reached or not."""
    rows = []
    for entry in entries:
        cell, first = entry.cell, entry.measured[0]
        of = f"{cell.group}, {cell.member}"
        guess = "" if first.guess is None else f"guessing: {written(first.guess, first.unit)}"
        rows.append(
            compare(
                of,
                first.name,
                entry.values,
                cell.theirs,
                better=cell.better,
                unit=cell.unit,
                remark=cell.remark or guess,
            )
        )
        if cell.bits is not None:
            rows.append(compare(of, BITS_PER_PARAMETER, entry.bits, cell.bits, unit=""))
    return rows if judged else [replace(q, reached=None, seeds_reaching=None) for q in rows]


def ranges(entries: Sequence[Entry]) -> dict[str, dict[str, Range]]:
    """By group, each member's range."""
    by_group: dict[str, dict[str, Range]] = {}
    for entry in entries:
        by_group.setdefault(entry.cell.group, {})[entry.cell.member] = entry.range
        if entry.cell.bits is not None:
            group = f"{entry.cell.group}, {BITS_PER_PARAMETER}"
            by_group.setdefault(group, {})[entry.cell.member] = entry.bits_range
    return by_group


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
        claims += claims_of(f"{group}, {BITS_PER_PARAMETER}", bits, "higher", "")
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
