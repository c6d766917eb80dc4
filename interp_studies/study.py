"""The common form of all reproductions: a grid of jobs over seeds, and a report of their results.

    def grid(plan: Plan) -> Grid:
        return {load: plan.each_seed(f"load-{load:g}", trained_job, load=load) for load in LOADS}

    def report(run: StudyRun) -> StudyResult:
        findings = judge(CLAIMS, measures(run.values), "draws")
        return run.result(verdict(findings), claims=findings, details=[table(run.values)])

    CAPACITY = Study(
        "open/bigram-capacity", summary, source, {"small": "..."}, grid, report, seeds=6
    )

An entry point of the group `interp_toolkit.artefacts` adds a study to `interp reproduce NAME`; a
study has the attributes of an `Artefact`. This module runs the jobs and adds provenance and status,
which are common to all studies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interp_studies.claims import JudgedClaim
from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.recipe_settings import settings_phrase
from interp_studies.result import (
    Quantity,
    StudyResult,
    claims_evidence,
    missed,
    overall,
    study_provenance,
)
from interp_studies.texts import check_texts
from interp_toolkit.results import Evidence, Figure, Table

Values = Mapping[str, Any]  # of one job
Grid = Mapping[Any, Sequence[Job]]  # by point, mostly a job for each seed


@dataclass(frozen=True)
class Plan:
    """The plan of a study's run.

    Attributes:
        study: the study.
        preset: name of the preset.
        seeds: seeds, as many as the preset or the user sets.
        n_seeds: number of seeds that the user sets; None: the preset's.
        runner: runner of the jobs.
    """

    study: Study
    preset: str
    seeds: range
    n_seeds: int | None
    runner: Runner

    def each_seed(
        self,
        name: str,
        function: Callable[..., Outcome],
        /,
        *,
        cost: float = 1.0,
        seeds: Sequence[int] | None = None,
        **arguments: Any,
    ) -> list[Job]:
        """One job per seed, named `name` and the seed.

        Args:
            name: name of the point.
            function: function of the job (see `Job`).
            cost: cost of one job, relative to the others.
            seeds: seeds that replace the plan's.
            arguments: arguments of the function, except the seed.
        """
        return [
            Job(f"{name}-seed-{seed}", function, {**arguments, "seed": seed}, cost)
            for seed in (self.seeds if seeds is None else seeds)
        ]


@dataclass(frozen=True)
class StudyRun(Plan):
    """A plan whose jobs are done.

    Attributes:
        grid: the jobs.
        by_point: values of the jobs, by point of the grid.
        jobs: values by name of the job.
    """

    grid: Grid
    by_point: Mapping[Any, Sequence[Values]]
    jobs: Mapping[str, Values]

    @property
    def values(self) -> list[Values]:
        """The values of every job, in the order of the grid."""
        return list(self.jobs.values())

    def result(
        self,
        verdict: str,
        *,
        settings: Mapping[str, Any],
        quantities: Sequence[Quantity] | None = None,
        claims: Sequence[JudgedClaim] | None = None,
        evidence: Evidence | None = None,
        whose: str = "theirs",
        first: Sequence[Table] = (),
        details: Sequence[Table] = (),
        notes: Sequence[str] = (),
        plots: Sequence[Figure] = (),
    ) -> StudyResult:
        """The study's result.

        Args:
            verdict: text of the verdict; settings of the user are appended.
            settings: settings of the run, beside the preset and the number of seeds.
            quantities: see `StudyResult`.
            claims: judged claims, on the plan's seeds.
            evidence: evidence; by default that of the claims (see `claims_evidence`), or the number
                of quantities that are reached.
            whose: source of the values with which quantities are compared.
            first: tables before all others.
            details: tables after claims and quantities.
            notes: conditions that a reader must know.
            plots: figures.
        """
        if evidence is None:
            of = quantities or ()
            evidence = Evidence(overall(of), reason=missed(of))
            evidence = evidence if claims is None else claims_evidence(claims, self.seeds)
        settings = {"preset": self.preset, "seeds": len(self.seeds), **settings}
        return StudyResult(
            probe=self.study.name,
            verdict=f"{verdict} {settings_phrase(self.runner.given)}".rstrip(),
            evidence=evidence,
            provenance=study_provenance(
                self.study.name, self.study.source, settings, self.runner.first_seed
            ),
            jobs=self.jobs,
            quantities=quantities,
            whose=whose,
            question=self.study.question,
            claims=claims,
            first=first,
            details=details,
            notes=notes,
            plots=plots,
        )


@dataclass(frozen=True)
class Study:
    """A table, figure or open question that `interp reproduce NAME` runs.

    Attributes:
        name, summary, source, presets, first_seed, shares: see `interp_toolkit.registry.Artefact`.
        grid: the jobs by point.
        report: the result of a run.
        seeds: number of seeds, of all presets or by preset; 0: every point of the grid has its own
            number.
        question: the question that the source leaves open, in one sentence.
        apart: whether no job may run beside another.
    """

    name: str
    summary: str
    source: str
    presets: Mapping[str, str]
    grid: Callable[[Plan], Grid]
    report: Callable[[StudyRun], StudyResult]
    seeds: int | Mapping[str, int]
    question: str | None = None
    first_seed: int = 0
    shares: str = ""
    apart: bool = False

    def plan(self, preset: str, seeds: int | None, runner: Runner) -> Plan:
        """The plan of a run."""
        usual = self.seeds if isinstance(self.seeds, int) else self.seeds[preset]
        return Plan(self, preset, runner.seeds(seeds or usual), seeds, runner)

    def run(self, preset: str, seeds: int | None, runner: Runner) -> StudyResult:
        """Run all jobs and report.

        Args:
            preset: a key of `presets`.
            seeds: number of seeds; None: the preset's.
            runner: runner of the jobs.

        Raises:
            InputError: from a job, or because the user's settings do not fit the study.
        """
        plan = self.plan(preset, seeds, runner)
        grid = self.grid(plan)
        jobs = list({job.name: job for of in grid.values() for job in of}.values())
        check_texts(jobs, runner)
        found: dict[str, Values] = {}
        for together in [[job] for job in jobs] if self.apart else [jobs]:
            found |= runner.run(together)
        by_point = {point: [found[job.name] for job in of] for point, of in grid.items()}
        return self.report(StudyRun(**vars(plan), grid=grid, by_point=by_point, jobs=found))
