"""A table of the paper: train every cell over seeds, compare, and judge the ordering."""

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
    """Claims that are judged by an interval over seeds, which requires several seeds.

    Attributes:
        about: whether the claims need a cell of a preset.
        seeds: number of seeds of such a cell, by preset, unless the user sets it.
        make: makes the claims from these cells with all their seeds.
        say: describes the outcomes in a sentence.
    """

    about: Callable[[str, TableCell], bool]
    seeds: Mapping[str, int]
    make: Callable[[Entries], list[SeedClaim]]
    say: Callable[[Sequence[JudgedClaim]], str]


@dataclass(frozen=True)
class TableEvidence(Evidence):
    """The evidence of the verdict on a table.

    Attributes:
        ordering: whether the paper's order holds, by group.
        pairs: all pairs that the paper orders.
        known: further notes, by subject.
        judgements: outcome of every claim over seeds, by its text.
    """

    ordering: Mapping[str, Outcome]
    pairs: Sequence[Judged]
    known: Mapping[str, str]
    judgements: Mapping[str, str]

    in_tables = frozenset({"judgements"})


@dataclass(frozen=True)
class TableStudy:
    """The content of a table, and how it is reproduced.

    Attributes:
        name: name of the artefact.
        summary: one line for `interp list`.
        where: place in the paper.
        cells: cells, by preset.
        limits: what each preset cannot show, in sentences.
        notes: notes on the paper's values, by subject.
        seeds: number of seeds of each model, by preset.
        shape: makes the table as the paper prints it.
        claims: the paper's claims that do not follow from its values.
        remark: a further sentence of the verdict.
        over_seeds: further claims, with intervals over seeds.
        beside: further tables.
        exact: quantities that need no training.
        figures: figures of the report.
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
        """Paper and table."""
        return f"{SOURCE} {self.where}"

    @property
    def presets(self) -> Mapping[str, str]:
        """The number of models that each preset trains, and what the preset cannot show."""
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
        """All cells, with the user's settings.

        Raises:
            InputError: the settings do not fit, or make two compared models equal.
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
        """The number of seeds of a cell, unless the user sets it."""
        own = self.seeds[preset]
        if self.over_seeds is None or not self.over_seeds.about(preset, cell):
            return own
        return max(own, self.over_seeds.seeds[preset])

    def _cells(self, preset: str, runner: Runner) -> list[TableCell]:
        """The cells with the user's settings; raises InputError if compared models become equal."""
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
