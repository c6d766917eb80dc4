"""A table of the source, made again: train every cell over seeds, compare, judge the ordering."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from interp_studies.claims import JudgedClaim, SeedClaim, judged
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.cells import (
    SOURCE,
    Entry,
    TableCell,
    by_seed,
    models_down,
    quantities,
    ranges,
    source_claims,
)
from interp_studies.random_attention.figures import bars
from interp_studies.random_attention.ordering import (
    Claim,
    Judged,
    Outcome,
    judge,
    of_group,
    ordering_table,
    sentence,
    status_of,
)
from interp_studies.result import Quantity, StudyResult
from interp_studies.study import Grid, Plan, Study, StudyRun
from interp_toolkit.errors import InputError
from interp_toolkit.results import Evidence, Figure, Table

Entries = Sequence[Entry]
PAPER = "paper"  # the preset in which figures, not only orderings, are held against the source's


def _bars(entries: Entries) -> list[Figure]:
    return [bars(entries)]


@dataclass(frozen=True)
class SeedClaims:
    """Claims that are judged by an interval over seeds, which needs more than one.

    Attributes:
        about: whether a preset needs a cell for them.
        seeds: how many of such a cell, by preset, unless the user says.
        make: the claims, from these cells with all their seeds.
        say: what came of them, in a sentence.
    """

    about: Callable[[str, TableCell], bool]
    seeds: Mapping[str, int]
    make: Callable[[Entries], list[SeedClaim]]
    say: Callable[[Sequence[JudgedClaim]], str]


@dataclass(frozen=True)
class TableEvidence(Evidence):
    """What the verdict on a table rests on.

    Attributes:
        ordering: whether the source's order holds, by group.
        pairs: every pair that the source orders.
        known: what must be known, by what it is of.
        judgements: the outcome of every claim over seeds, by its words.
    """

    ordering: Mapping[str, Outcome]
    pairs: Sequence[Judged]
    known: Mapping[str, str]
    judgements: Mapping[str, str]

    in_tables = frozenset({"judgements"})


@dataclass(frozen=True)
class TableStudy:
    """What a table shows and how it is made again.

    Attributes:
        name: name of the artefact.
        summary: one line for `interp list`.
        where: in the source.
        cells: by preset.
        limits: what each preset cannot show, a sentence or more.
        notes: what must be known beside the source's figures, by what it is about.
        seeds: how many of each model, by preset.
        shape: the table as the source prints it.
        claims: what the source says, where it is not to be read from its figures.
        remark: a further sentence of the verdict.
        over_seeds: further claims, with intervals.
        beside: further tables.
        exact: quantities that need no training.
        figures: to show.
    """

    name: str
    summary: str
    where: str
    cells: Mapping[str, Sequence[TableCell]]
    limits: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=lambda: {"small": 1, PAPER: 3})
    shape: Callable[[Entries], Table] = models_down
    claims: Callable[[Entries], list[Claim]] = source_claims
    remark: Callable[[Entries], str] = lambda entries: ""
    over_seeds: SeedClaims | None = None
    beside: Callable[[Entries], list[Table]] = lambda entries: []
    exact: Callable[[], list[Quantity]] = list
    figures: Callable[[Entries], list[Figure]] = _bars

    shares: ClassVar[str] = "random-attention/tables"
    first_seed: ClassVar[int] = 0

    @property
    def source(self) -> str:
        """Document and table."""
        return f"{SOURCE} {self.where}"

    @property
    def presets(self) -> Mapping[str, str]:
        """How many models each preset trains, and what it cannot show."""
        texts = {}
        for preset, cells in self.cells.items():
            own = self.seeds[preset]
            more = sum(self._seeds_of(cell, preset) - own for cell in cells)
            models = f"{own} × {len(cells)} models" + (f" and {more} further seeds" if more else "")
            texts[preset] = f"{models}. {self.limits[preset]}"
        return texts

    def run(self, preset: str, seeds: int | None, runner: Runner) -> StudyResult:
        """Train, compare and judge; see `Study.run`."""
        study = Study(
            *(self.name, self.summary, self.source, self.presets),
            *(self.grid, self.report, self.seeds),
        )
        return study.run(preset, seeds, runner)

    def grid(self, plan: Plan) -> Grid:
        """Every cell, with the settings that the user gives.

        Raises:
            InputError: these make models alike that are compared, or do not fit.
        """
        grid = {}
        for cell in self._cells(plan.preset, plan.runner):
            seeds = plan.seeds
            if plan.n_seeds is None:
                seeds = plan.runner.seeds(self._seeds_of(cell, plan.preset))
            grid[cell] = [cell.job(plan.preset, seed, plan.runner.device) for seed in seeds]
        return grid

    def report(self, run: StudyRun) -> StudyResult:
        """The table, the ordering of its models, and the claims over seeds."""
        whole = [Entry(cell, seeds) for cell, seeds in run.by_point.items()]
        entries = [Entry(entry.cell, entry.seeds[: len(run.seeds)]) for entry in whole]
        findings: list[JudgedClaim] = []
        if self.over_seeds is not None:
            compared = [e for e in whole if self.over_seeds.about(run.preset, e.cell)]
            findings = judged(self.over_seeds.make(compared))
        members = ranges(entries)
        pairs = [
            judge(claim, members[claim.group][claim.first], members[claim.group][claim.second])
            for claim in self.claims(entries)
        ]
        groups = list(dict.fromkeys(pair.claim.group for pair in pairs))
        ordering = {g: of_group([pair for pair in pairs if pair.claim.group == g]) for g in groups}
        exact = self.exact()
        met = sum(bool(q.reached) for q in exact)
        outcomes: list[Outcome] = ["reached" if q.reached else "not_reached" for q in exact]
        verdict = [
            sentence(pairs),
            f"{met} of {len(exact)} parameter counts are the source's, to the last digit."
            if exact
            else "",
            self.over_seeds.say(findings) if self.over_seeds else "",
            self.remark(entries),
            self.limits[run.preset],
        ]
        known = Table("What must be known", ["of", ""], [[*note] for note in self.notes.items()])
        given = run.runner.given
        return run.result(
            " ".join(part for part in verdict if part),
            settings={
                "models": {
                    job.name.rsplit("-seed-", 1)[0]: job.arguments
                    for jobs in run.grid.values()
                    for job in jobs
                },
                "device": run.runner.device,
                **({"given": given} if given else {}),
            },
            quantities=[*quantities(entries, judged=run.preset == PAPER), *exact],
            claims=findings,
            evidence=TableEvidence(
                status=status_of([*ordering.values(), *outcomes]),
                ordering=ordering,
                pairs=pairs,
                known=dict(self.notes),
                judgements={f.claim: f.judgement for f in findings},
            ),
            first=[self.shape(entries)],
            details=[
                by_seed(entries),
                *self.beside(entries),
                ordering_table(pairs),
                *([known] if self.notes else []),
            ],
            plots=self.figures(entries),
        )

    def _seeds_of(self, cell: TableCell, preset: str) -> int:
        """How many of a cell, where the user does not say."""
        own = self.seeds[preset]
        if self.over_seeds is None or not self.over_seeds.about(preset, cell):
            return own
        return max(own, self.over_seeds.seeds[preset])

    def _cells(self, preset: str, runner: Runner) -> list[TableCell]:
        """With what is given; raises InputError where that makes models alike that are compared."""
        own = self.cells[preset]
        cells = [
            cell.with_settings(preset, runner.settings_for(cell.recipe, cell.variant))
            for cell in own
        ]
        before, after = (
            {json.dumps([c.recipe, c.settings(preset)], sort_keys=True) for c in each}
            for each in (own, cells)
        )
        if len(after) < len(before):
            compared = {key for cell in cells for key in cell.given.keys() & cell.differs.keys()}
            raise InputError(
                f"{self.name} compares models by their {', '.join(sorted(compared))}: leave it out"
            )
        return cells
