"""Settings given for a study's recipes: in every job that trains them, or refused before any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interp_studies.jobs.attempt import Outcome
from interp_studies.jobs.runner import Runner
from interp_studies.litmus.study import litmus
from interp_studies.random_attention import cells
from interp_studies.random_attention.cells import TableCell
from interp_studies.random_attention.circuit import study as circuit
from interp_studies.random_attention.covariance import study as covariance
from interp_studies.random_attention.depth import study as depth
from interp_studies.random_attention.shaping import study as shaping
from interp_studies.random_attention.tables import GENERATED
from interp_studies.random_attention.theorem import study as theorem
from interp_studies.random_attention.throughput import study as throughput
from interp_studies.sweep.file import SweepFile
from interp_studies.sweep.study import sweep
from interp_toolkit.errors import InputError
from interp_toolkit.registry import find
from interp_toolkit.training.engine.metrics import FinalScore

Arguments = Mapping[str, Mapping[str, Any]]


class PlannedError(Exception):
    """Stops a study where its jobs would begin."""


def planned(
    artefact: str, given: Arguments, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Mapping[str, Any]]:
    """The arguments of a study's jobs; none is run."""
    found: list[Mapping[str, Any]] = []

    def run(self: Runner, jobs: Any) -> None:
        self._check_given()
        found.extend(job.arguments for job in jobs)
        raise PlannedError

    monkeypatch.setattr(Runner, "run", run)
    with pytest.raises(PlannedError):
        find("artefacts", artefact).run("small", 1, Runner(folder, workers=1, given=given))
    return found


def test_every_cell_of_the_recipe_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"retrieval": {"steps": "50", "lr": "1e-2"}}
    without = planned("random-attention/table-1", {}, tmp_path, monkeypatch)
    jobs = planned("random-attention/table-1", given, tmp_path, monkeypatch)
    assert {job["recipe"] for job in jobs} == {"retrieval", "k-hop"}
    for job, before in zip(jobs, without, strict=True):
        more = {"steps": 50, "lr": 0.01} if job["recipe"] == "retrieval" else {}
        assert job == {**before, "settings": {**before["settings"], **more}}


def test_a_variant_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"retrieval": {"frozen-qk.lr": "2e-2", "lr": "1e-2", "mixit.heads": "4"}}
    without = planned("random-attention/table-1", {}, tmp_path, monkeypatch)
    jobs = planned("random-attention/table-1", given, tmp_path, monkeypatch)
    by_variant = {"frozen-qk": {"lr": 0.02}, "mixit": {"lr": 0.01, "heads": 4}}
    for job, before in zip(jobs, without, strict=True):
        more: Mapping[str, Any] = {}
        if job["recipe"] == "retrieval":
            more = by_variant.get(job["settings"]["variant"], {"lr": 0.01})
        assert job == {**before, "settings": {**before["settings"], **more}}


def test_what_a_variant_is_given_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    monkeypatch.setattr(cells, "train_variant", made_run)
    runner = Runner(tmp_path, workers=1, given={"retrieval": {"frozen-qk.lr": "2e-2"}})
    result = find("artefacts", "random-attention/table-1").run("small", 1, runner)
    texts(result.verdict)
    settings = result.provenance.settings
    assert settings["given"] == {"retrieval": {"frozen-qk.lr": "2e-2"}}
    assert settings["models"]["retrieval-frozen-qk"]["settings"]["lr"] == 0.02
    assert settings["models"]["retrieval-standard"]["settings"]["lr"] == 5e-3


def made_run(
    *, folder: Path, recipe: str, settings: Mapping[str, Any], seed: int, device: str
) -> Outcome:
    """In place of a training."""
    measured = FinalScore("accuracy", 0.5, "higher", "share", 0.1, 100, "guess")
    values = {"seed": seed, "measured": vars(measured), "loss": 1.0, "trainable": 1}
    return Outcome({**values, "curve": {"step": [1], "loss": [1.0]}})


def test_the_circuit_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [job] = planned(circuit.FIGURE_3.name, {"retrieval": {"steps": "50"}}, tmp_path, monkeypatch)
    assert job["settings"]["steps"] == 50
    assert job["settings"]["variant"] == "frozen-qk"


def test_given_text_is_not_called_generated(tmp_path: Path) -> None:
    cell = TableCell("text", "mixit", "toy-text", "mixit", remark=GENERATED)
    assert cell.with_settings("small", {"text": str(tmp_path)}).remark == ""
    assert cell.with_settings("small", {"steps": "5"}).remark == GENERATED


@pytest.mark.parametrize(
    ("artefact", "recipe", "key", "value"),
    [
        ("table-1", "wikitext", "text", "x"),
        ("table-1", "retrieval", "stepz", "5"),
        ("table-1", "retrieval", "steps", "x"),
        ("table-1", "retrieval", "variant", "mixit"),
        ("table-1", "k-hop", "seed", "3"),
        ("table-1", "k-hop", "mixit.seed", "3"),
        ("table-1", "k-hop", "mixt.lr", "1"),
        ("table-1", "k-hop", "mixit.lrr", "1"),
        ("table-1", "k-hop", "mixit.lr", "x"),
        ("table-5", "decimal-addition", "standard.lr", "1"),
        ("figure-3", "retrieval", "mixit.lr", "1"),
        ("sde", "retrieval", "mixit.lr", "1"),
        ("table-6", "toy-text", "standard.lr", "1"),
        ("figure-2", "retrieval", "most_pairs", "3"),
        ("figure-3", "retrieval", "variant", "mixit"),
        ("figure-3", "k-hop", "steps", "5"),
        ("sde", "retrieval", "steps", "5"),
        ("table-6", "retrieval", "steps", "5"),
        ("table-6", "toy-text", "text", "no/such/folder"),
        ("table-2", "toy-text", "text", "no/such/folder"),
    ],
)
def test_what_cannot_be_given_is_refused_before_anything_starts(
    artefact: str, recipe: str, key: str, value: str, texts, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    runner = Runner(folder, workers=1, given={recipe: {key: value}})
    with pytest.raises(InputError, check=texts):
        find("artefacts", f"random-attention/{artefact}").run("small", 1, runner)
    assert not folder.exists()


def test_a_recipe_that_is_trained_without_a_variant_takes_none(tmp_path: Path, texts) -> None:
    runner = Runner(tmp_path / "study", workers=1, given={"xor": {"steps": "5", "1-head.lr": "1"}})
    assert runner.settings_for("xor") == {"steps": "5"}
    with pytest.raises(InputError, match="1-head", check=texts):
        runner.run([])


def test_sweeps_and_litmus_tests_ask_for_their_texts_first(tmp_path: Path, texts) -> None:
    folder = tmp_path / "study"
    text = {"text": str(tmp_path / "no such folder")}
    with pytest.raises(InputError, check=texts):
        litmus("toy-text", settings=text, runner=Runner(folder, workers=1))
    file = SweepFile(recipe="toy-text", settings=text, grid={"lr": [0.1, 0.2]})
    with pytest.raises(InputError, check=texts):
        sweep(file, Runner(folder, workers=1), keep=lambda found: None)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "train.jsonl").write_text('{"words": 3}\n')
    with pytest.raises(InputError, match="no column text"):
        litmus("toy-text", settings={"text": str(tmp_path / "odd")}, runner=Runner(folder))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("artefact", "room", "named"),
    [
        ("theorem-5-1", theorem, "PRESETS"),
        ("shaping", shaping, "PRESETS"),
        ("table-6", depth, "PRESETS"),
        ("table-6", depth, "DEPTHS"),
        ("sde", covariance, "START"),
        ("sde", covariance, "TAUS"),
        ("throughput", throughput, "PRESETS"),
        ("figure-3", circuit, "SCORED_ROWS"),
        ("table-5", cells, "LOOKED_AT"),
    ],
)
def test_what_a_job_computes_is_in_its_arguments(
    artefact: str, room: Any, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a constant of the study changed, its jobs are others, so that --resume says so."""
    before = planned(f"random-attention/{artefact}", {}, tmp_path, monkeypatch)
    value = getattr(room, named)
    if named == "PRESETS":
        monkeypatch.setitem(value, "small", value["paper"])
    else:
        monkeypatch.setattr(room, named, value + 1 if isinstance(value, int) else value[:-1])
    after = planned(f"random-attention/{artefact}", {}, tmp_path, monkeypatch)
    assert before != after
    assert not any("preset" in arguments for arguments in after)
