"""`reproduce all` trains what several tables need once, and never takes one model for another."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interp_studies import reproduce_all
from interp_studies.jobs.runner import Runner
from interp_studies.random_attention.table import TableStudy
from interp_toolkit.registry import Artefact, find, names
from interp_toolkit.results import jsonable


@pytest.fixture(name="toy")
def toy_study(monkeypatch: pytest.MonkeyPatch) -> Iterator[Artefact]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "jobs"))
    from toy_study import TOY

    yield TOY
    sys.modules.pop("toy_study", None)


@pytest.mark.parametrize("preset", ["small", "paper"])
def test_jobs_of_one_name_that_are_shared_are_one_job(preset: str) -> None:
    """As each table makes them: cells by seeds, which `run` adds none to of another name."""
    found = [find("artefacts", name) for name in names("artefacts")]
    studies = [a.run.__self__ for a in found if a.shares]
    assert len(studies) > 5
    assert all(isinstance(study, TableStudy) for study in studies)
    identities: dict[str, set[str]] = {}
    for study in studies:
        for cell in study.cells[preset]:
            for seed in range(study.seeds[preset]):
                job = cell.job(preset, seed, "cpu")
                identity = json.dumps(jsonable(job.identity()), sort_keys=True)
                identities.setdefault(job.name, set()).add(identity)
    assert {name for name, found in identities.items() if len(found) > 1} == set()


def test_what_two_share_is_done_once(
    toy: Artefact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    two = {name: dataclasses.replace(toy, name=name, shares="toys") for name in ("one", "two")}
    alone = {"three": dataclasses.replace(toy, name="three")}
    monkeypatch.setattr(reproduce_all, "find", lambda group, name: (two | alone)[name])
    said: list[str] = []

    def runner_for(place: Path, first: int) -> Runner:
        return Runner(place, workers=1, resume=place.exists(), say=said.append, first_seed=first)

    made = reproduce_all.reproduce_all(
        ["one", "two", "three"], "small", tmp_path, runner_for, said.append
    )
    assert all(one.result is not None for one in made)
    texts([line for line in said if "were done before" in line])
    assert {f.name for f in (tmp_path / "jobs").iterdir()} == {"toys", "three"}
    texts = [(tmp_path / "results" / f"{n}.json").read_text() for n in ("one", "two", "three")]
    assert texts[0] == texts[1] == texts[2]
