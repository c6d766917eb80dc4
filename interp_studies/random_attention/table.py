"""A table of the source, made again: train every cell over seeds, compare, judge the ordering."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from interp_studies.claims import JudgedClaim, SeedClaim, judged
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.cells import SOURCE, TableCell
from interp_studies.random_attention.entries import (
    Entry,
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
from interp_studies.recipe_settings import settings_phrase
from interp_studies.result import Quantity, StudyResult, study_provenance
from interp_studies.texts import check_texts
from interp_toolkit.errors import InputError
from interp_toolkit.registry import Artefact
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
class TableStudy:
    """What a table shows and how it is made again.

    Attributes:
        name: of the artefact.
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

    def artefact(self) -> Artefact:
        """As `interp reproduce` finds it."""
        return Artefact(
            name=self.name,
            summary=self.summary,
            source=f"{SOURCE} {self.where}",
            presets={
                preset: f"{self._models(preset)}. {self.limits[preset]}" for preset in self.cells
            },
            run=self.run,
            shares="random-attention/tables",
        )

    def run(self, preset: str, seeds: int | None, runner: Runner) -> StudyResult:
        """Train, compare and judge; `seeds` overrides how many of each model."""
        numbers = runner.seeds(seeds or self.seeds[preset])
        plan = {
            cell: [
                cell.job(preset, seed, runner.device)
                for seed in runner.seeds(seeds or self._seeds_of(cell, preset))
            ]
            for cell in self._cells(preset, runner)
        }
        jobs = {job.name: job for mine in plan.values() for job in mine}
        check_texts(jobs.values(), runner)
        found = runner.run(list(jobs.values()))
        whole = [Entry(cell, [found[job.name] for job in mine]) for cell, mine in plan.items()]
        entries = [Entry(entry.cell, entry.seeds[: len(numbers)]) for entry in whole]
        findings = self._findings(preset, whole)
        members = ranges(entries)
        pairs = [
            judge(claim, members[claim.group][claim.first], members[claim.group][claim.second])
            for claim in self.claims(entries)
        ]
        exact, given = self.exact(), settings_phrase(runner.given)
        settings = {
            "preset": preset,
            "seeds": len(numbers),
            "models": {name.rsplit("-seed-", 1)[0]: jobs[name].arguments for name in jobs},
            "device": runner.device,
            **({"given": runner.given} if runner.given else {}),
        }
        return StudyResult(
            probe=self.name,
            verdict=f"{self._verdict(preset, entries, pairs, exact, findings)} {given}".rstrip(),
            evidence=_evidence(pairs, exact, self.notes, findings),
            provenance=study_provenance(
                self.name, f"{SOURCE} {self.where}", settings, runner.first_seed
            ),
            quantities=[*quantities(entries, judged=preset == PAPER), *exact],
            jobs=found,
            details=[
                by_seed(entries),
                *self.beside(entries),
                ordering_table(pairs),
                *self._known(),
            ],
            plots=self.figures(entries),
            first=[self.shape(entries)],
            claims=findings,
        )

    def _models(self, preset: str) -> str:
        """How many are trained, in words."""
        cells, own = self.cells[preset], self.seeds[preset]
        more = sum(self._seeds_of(cell, preset) - own for cell in cells)
        return f"{own} × {len(cells)} models" + (f" and {more} further seeds" if more else "")

    def _seeds_of(self, cell: TableCell, preset: str) -> int:
        """How many of a cell, where the user does not say."""
        own = self.seeds[preset]
        if self.over_seeds is None or not self.over_seeds.about(preset, cell):
            return own
        return max(own, self.over_seeds.seeds[preset])

    def _findings(self, preset: str, entries: Entries) -> list[JudgedClaim]:
        """What came of the claims over seeds."""
        if self.over_seeds is None:
            return []
        asked = [entry for entry in entries if self.over_seeds.about(preset, entry.cell)]
        return judged(self.over_seeds.make(asked))

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

    def _verdict(
        self,
        preset: str,
        entries: Entries,
        pairs: Sequence[Judged],
        exact: Sequence[Quantity],
        findings: Sequence[JudgedClaim],
    ) -> str:
        claims = self.over_seeds.say(findings) if self.over_seeds else ""
        parts = [sentence(pairs), _counts(exact), claims, self.remark(entries), self.limits[preset]]
        return " ".join(part for part in parts if part)

    def _known(self) -> list[Table]:
        if not self.notes:
            return []
        rows = [[about, note] for about, note in self.notes.items()]
        return [Table("What must be known", ["of", ""], rows)]


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


def _counts(exact: Sequence[Quantity]) -> str:
    """How many of the numbers that need no training are the source's, in a sentence."""
    if not exact:
        return ""
    met = sum(bool(q.reached) for q in exact)
    return f"{met} of {len(exact)} parameter counts are the source's, to the last digit."


def _evidence(
    pairs: Sequence[Judged],
    exact: Sequence[Quantity],
    notes: Mapping[str, str],
    findings: Sequence[JudgedClaim],
) -> TableEvidence:
    groups = list(dict.fromkeys(pair.claim.group for pair in pairs))
    ordering = {g: of_group([pair for pair in pairs if pair.claim.group == g]) for g in groups}
    outcomes: list[Outcome] = list(ordering.values())
    outcomes += ["reached" if q.reached else "not_reached" for q in exact]
    return TableEvidence(
        status=status_of(outcomes),
        ordering=ordering,
        pairs=pairs,
        known=dict(notes),
        judgements={f.claim: f.judgement for f in findings},
    )
