"""A cell of a table of the paper: model, task, the paper's value, and ours.

Settings are those of the recipe's preset, changed by the variant and by the cell's `differs`. The
job's name follows from recipe, variant and these changes, so that tables that need the same model
share it in one folder. An `Entry` is a cell with the results of its seeds, as quantities, as
ranges, and in a table like the paper's.

"theirs / ours" are the paper's value and the median over seeds here. In a preset that is smaller
than the paper's, both are shown, and only the ordering of models is judged.
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
from interp_toolkit.formatting import percent
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
        group: the cells that are compared with each other: a task, or a task at a depth or a size.
        member: member of the group: the variant, or its number of heads.
        recipe, variant: training recipe and variant.
        theirs: the paper's value of the metric that the recipe measures; None: not reported.
        better, unit: direction and unit of that metric.
        differs: settings that differ from the recipe's preset.
        bits: the paper's bits per parameter, if reported.
        remark: further notes.
        given: settings of the user, which replace those of the preset and of `differs`.
        look: number of test prompts on which the similarity of hidden states is measured (see
            `depth.likeness`); for task recipes.
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
        """The cell with settings of the user; raises InputError if they do not fit."""
        read = as_read(self.recipe, self.variant, preset, self.differs, given)
        other_text = read.get("text", GENERATED) != GENERATED
        return replace(self, given=read, remark="" if other_text else self.remark)

    def settings(self, preset: str) -> dict[str, Any]:
        """The settings that differ from the recipe's defaults."""
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
    """Train one seed of a variant and measure its final score.

    Args:
        folder: folder of the training run.
        recipe: recipe of the task.
        settings: settings that differ from the recipe's defaults.
        seed: random seed of the model and its batches.
        device: device of the training.
        look: number of test prompts on which the similarity of hidden states is measured, before
            and after training; for task recipes.
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
    """A cell with the results of its seeds."""

    cell: TableCell
    seeds: Sequence[Values]

    @property
    def measured(self) -> Sequence[FinalScore]:
        """The final scores, by seed."""
        return [FinalScore(**values["measured"]) for values in self.seeds]

    @property
    def values(self) -> list[float]:
        """The values of the final scores, by seed."""
        return [measured.value for measured in self.measured]

    @property
    def median(self) -> float:
        """The median over seeds."""
        return statistics.median(self.values)

    @property
    def range(self) -> Range:
        """The range over seeds, widened (see `ordering`)."""
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
    """The paper's values and ours; with `judged`, each is compared with the paper's."""
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
    """The paper's ordering of every two members of a group."""
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
    """A value with as many digits as the paper prints."""
    if value is None:
        return "–"
    return percent(value, 2) if unit == "share" else f"{value:.2f}"


def tasks_down(entries: Sequence[Entry]) -> Table:
    """A table of theirs / ours, with one row per group and one column per member."""
    groups, members = _names(entries)
    return _shaped(entries, groups, members, lambda row, column: (row, column))


def models_down(entries: Sequence[Entry]) -> Table:
    """A table of theirs / ours, with one row per member and one column per group."""
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
