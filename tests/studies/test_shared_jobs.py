"""`reproduce all` trains what several tables need once, and never takes one model for another."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from interp_toolkit import registry
from interp_toolkit.registry import find, names
from interp_toolkit.results import jsonable
from interp_toolkit.studies import reproduce_all
from interp_toolkit.studies.jobs.runner import Job, Runner

sys.path.insert(0, str(Path(__file__).parent / "jobs"))
from toy_study import TOY


class ListedError(Exception):
    """Raised instead of running jobs."""


class Lists(Runner):
    """A runner that only says which jobs it was given."""

    def run(self, jobs):
        raise ListedError(jobs)


def jobs_of(artefact: registry.Artefact) -> list[Job]:
    with pytest.raises(ListedError) as listed:
        artefact.run("small", None, Lists(first_seed=artefact.first_seed))
    return listed.value.args[0]


def test_jobs_of_one_name_that_are_shared_are_one_job() -> None:
    sharing = [a for a in (find("artefacts", n) for n in names("artefacts")) if a.shares]
    assert len(sharing) > 5
    identities: dict[tuple[str, str], set[str]] = {}
    for artefact in sharing:
        for job in jobs_of(artefact):
            identity = json.dumps(jsonable(job.identity()), sort_keys=True)
            identities.setdefault((artefact.shares, job.name), set()).add(identity)
    assert {name for name, found in identities.items() if len(found) > 1} == set()


def test_what_two_share_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = {name: dataclasses.replace(TOY, name=name, shares="toys") for name in ("one", "two")}
    alone = {"three": dataclasses.replace(TOY, name="three")}
    monkeypatch.setattr(reproduce_all, "find", lambda group, name: (two | alone)[name])
    said: list[str] = []

    def runner_for(place: Path, first: int) -> Runner:
        return Runner(place, workers=1, resume=place.exists(), say=said.append, first_seed=first)

    made = reproduce_all.reproduce_all(
        ["one", "two", "three"], "small", tmp_path, runner_for, said.append
    )
    assert all(one.result is not None for one in made)
    assert [line for line in said if "were done before" in line] == ["2 of 2 jobs were done before"]
    assert {f.name for f in (tmp_path / "jobs").iterdir()} == {"toys", "three"}
    texts = [(tmp_path / "results" / f"{n}.json").read_text() for n in ("one", "two", "three")]
    assert texts[0] == texts[1] == texts[2]
