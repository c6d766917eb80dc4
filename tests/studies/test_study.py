"""The shape of studies: a grid over seeds, jobs that run once, a report of them by point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from interp_studies.claims import Claim, clauses, judge
from interp_studies.jobs.attempt import Job, Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.result import FRESH, StudyResult, compare
from interp_studies.study import Grid, Plan, Study, StudyRun
from interp_toolkit.results import Table

CLAIM = Claim(
    "twice", "twice x is above 1", above=1.0, clauses=("it is", "it is not,", "whether it is")
)


def double(*, folder: Path, x: float, seed: int) -> Outcome:
    return Outcome({"seed": seed, "value": 2 * x + seed / 1_000})


def grid(plan: Plan) -> Grid:
    jobs: dict[object, Sequence[Job]] = {
        x: plan.each_seed(f"x-{x:g}", double, x=x) for x in (1.0, 2.0)
    }
    return {**jobs, "again": jobs[1.0]}


def report(run: StudyRun) -> StudyResult:
    values = {x: [v["value"] for v in of] for x, of in run.by_point.items()}
    findings = judge([CLAIM], {"twice": values[2.0]}, "draws")
    [clause] = clauses([CLAIM], findings)
    return run.result(
        f"{clause}.",
        settings={"x": [1.0, 2.0]},
        claims=findings,
        details=[Table("Values", ["x", "values"], [[str(x), v] for x, v in values.items()])],
    )


TOY = Study("toy", "doubles", "nowhere", {"small": "", "paper": ""}, grid, report, seeds=3)


def test_points_have_what_their_jobs_found_and_no_job_runs_twice(tmp_path: Path) -> None:
    result = TOY.run("small", None, Runner(tmp_path, workers=1, first_seed=FRESH))
    assert [*result.jobs] == [f"x-{x}-seed-{FRESH + s}" for x in (1, 2) for s in range(3)]
    [_, table] = result.tables()
    assert table.rows[0][1] == table.rows[2][1] == pytest.approx([5.0, 5.001, 5.002])
    assert result.provenance.settings == {"preset": "small", "seeds": 3, "x": [1.0, 2.0]}
    assert (result.provenance.seed, result.provenance.model["name"]) == (FRESH, "toy")
    assert result.verdict == f"it is {result.claims[0].value:.2f} (7.00 to 7.00)."
    assert result.claims[0].units == "3 draws"


def test_seeds_are_the_presets_or_the_users() -> None:
    by_preset = Study(**{**vars(TOY), "seeds": {"small": 2, "paper": 5}})
    runner = Runner(first_seed=7)
    assert by_preset.plan("paper", None, runner).seeds == range(7, 12)
    assert by_preset.plan("paper", 1, runner).seeds == range(7, 8)
    assert by_preset.plan("small", 1, runner).n_seeds == 1


def test_claims_alone_are_status_and_keys_and_old_seeds_are_no_test() -> None:
    result = TOY.run("small", None, Runner(workers=1, first_seed=FRESH))
    assert result.status == "answered"
    assert {"quantities", "whose", "question"}.isdisjoint(result.to_dict())
    assert list(result.to_frame()["judgement"]) == ["confirmed"]
    assert TOY.run("small", None, Runner(workers=1)).status == "undecided"


def test_quantities_alone_are_status_and_keys(texts) -> None:
    def compared(run: StudyRun) -> StudyResult:
        values = [v["value"] for v in run.by_point[1.0]]
        quantities = [compare("x", "twice", values, 1.0), compare("x", "more", values, 9.0)]
        return run.result("so", settings={}, quantities=quantities)

    result = Study(**{**vars(TOY), "report": compared}).run("small", 1, Runner(workers=1))
    assert result.status == "partly_reached"
    texts(result.evidence.reason)
    assert "claims" not in result.to_dict()
    assert [table.title for table in result.tables()] == ["Theirs beside ours"]


def test_jobs_that_run_apart_are_given_to_the_runner_one_by_one() -> None:
    runner = Runner(workers=2)
    together: list[int] = []
    whole = runner.run
    runner.run = lambda jobs: together.append(len(jobs)) or whole(jobs)  # type: ignore[method-assign]
    Study(**{**vars(TOY), "apart": True}).run("small", 1, runner)
    assert together == [1, 1]
