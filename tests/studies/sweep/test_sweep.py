"""Sweeps: files and points checked first, what is best said only where it can be."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from interp_studies.jobs.engines import JobEngine
from interp_studies.jobs.runner import Runner
from interp_studies.sweep import study as module
from interp_studies.sweep.file import SweepFile, grid_points, read_sweep
from interp_studies.sweep.result import SweepResult, sweep_result
from interp_toolkit.errors import InputError
from interp_toolkit.report.html import dumps

GRID = {"variant": ["standard", "mixit"], "lr": ["1e-1", 0.01]}
ROOT = Path(__file__).parents[3]


def file(**changed) -> SweepFile:
    return SweepFile(**{"recipe": "retrieval", "grid": GRID, "seeds": 2, "name": "toy", **changed})


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch):
    """Points that train nothing, in processes of their own as ever."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "studies" / "jobs"))
    import light_jobs

    monkeypatch.setattr(module, "train_point", light_jobs.made_up_point)
    yield
    del sys.modules["light_jobs"]


def test_points_are_all_combinations_as_the_recipe_reads_them() -> None:
    points = grid_points(file(settings={"steps": 7}))
    assert [dict(point.at) for point in points] == [
        {"variant": variant, "lr": lr} for variant in ("standard", "mixit") for lr in (0.1, 0.01)
    ]
    assert points[2].settings.items() >= {"lr": 0.1, "steps": 7, "variant": "mixit"}.items()
    assert not points[2].settings.keys() & {"seed", "seeds", "device"}
    assert len({point.name for point in points}) == 4
    assert all(point.name.replace("-", "").replace(".", "").isalnum() for point in points)
    assert [p.name for p in grid_points(file())][:1] == [points[0].name]  # of its place alone


@pytest.mark.parametrize(
    "changed",
    [
        {"recipe": "retreival"},
        {"preset": "papr"},
        {"grid": {"heads": [4], "d_model": [8, 10]}},
        {"grid": {"lr": [None]}},
        {"grid": {"lr": [0.1, -1]}},
        {"grid": {"rate": [1]}},
        {"grid": {"variant": ["mixed"]}},
        {"grid": {"variant": [1]}},
        {"grid": {"lr": [0.1, "1e-1"]}},
        {"grid": {"lr": []}},
        {"grid": {"seed": [1, 2]}},
        {"settings": {"device": "cuda"}},
        {"settings": {"lr": 1}},
        {"grid": {"lr": [1.0], "steps": list(range(1, 60_000))}},
    ],
)
def test_a_grid_that_cannot_be(changed, texts) -> None:
    with pytest.raises(InputError) as refused:
        grid_points(file(**changed))
    texts(str(refused.value))


@pytest.mark.parametrize(
    "text",
    [
        "recipe: [",
        "- a list",
        "grid: {lr: [1]}",
        "recipe: retrieval",
        "recipe: r\ngrid: {lr: [1]}\nseed: 3",
        "recipe: r\ngrid: {lr: 1}",
        "recipe: r\ngrid: {lr: [1]}\nseeds: 0",
        "recipe: r\ngrid: {lr: [1]}\nseeds: two",
        "recipe: r\ngrid: {}",
        "recipe: r\ngrid:",
        "recipe: r\ngrid: {yes: [1]}",
        "recipe: r\nrecipe: s\ngrid: {lr: [1]}",
        "recipe: r\ngrid:\n  lr: [1]\n  lr: [2]",
        "recipe: r\ngrid:\n  a: [{b: 1, b: 2}]",
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str, texts) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_sweep(path)
    texts(str(refused.value))
    assert str(refused.value).startswith(str(path))


def test_files_that_are_none(tmp_path: Path, texts) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_sweep(tmp_path / "none.yaml")
    (tmp_path / "odd.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match="UTF-8", check=texts):
        read_sweep(tmp_path / "odd.yaml")


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "sweeps").glob("*.yaml")), ids=str)
def test_the_shipped_sweeps_fit_their_recipes(path: Path) -> None:
    read = read_sweep(path)
    n_points = np.prod([len(values) for values in read.grid.values()])
    assert len(grid_points(read)) == n_points


def result(values, unit: str = "share", better: str = "higher", examples: int = 1000, **missing):
    """Of a sweep whose point i has the values `values[i]`, one a seed."""
    grid = {"lr": [0.1 / 2**i for i in range(len(values))]}
    swept = file(grid=grid, seeds=len(values[0]))
    points = grid_points(swept)
    figure = {"name": "accuracy", "better": better, "unit": unit, "examples": examples}
    runs = {
        p.name: {s: {"measured": {**figure, "value": v}, "seconds": 2.0} for s, v in enumerate(row)}
        for p, row in zip(points, values, strict=True)
    }
    lost = {p.name: {} for p in points}
    for i, seeds in missing.get("missing", {}).items():
        for seed in seeds:
            del runs[points[i].name][seed]
            lost[points[i].name][seed] = "its process was killed"
    return sweep_result(swept, points, runs, lost, "cpu")


def test_the_best_is_said_where_no_other_can_be_as_good(texts) -> None:
    found = result([[0.5, 0.51, 0.5], [0.9, 0.91, 0.9], [0.6, 0.61, 0.6]])
    assert found.status == "finished"
    assert found.evidence.choice == "decided"
    assert found.evidence.best["lr"] == 0.05
    assert found.evidence.second["lr"] == 0.025
    texts(found.verdict)
    assert "likely too good" in found.verdict
    lower = result([[0.5, 0.51, 0.5], [0.9, 0.91, 0.9]], unit="nats", better="lower")
    assert lower.evidence.best["lr"] == 0.1
    assert lower.evidence.choice == "decided"


def test_no_best_is_said_where_another_may_be_as_good(texts) -> None:
    found = result([[0.5, 0.9], [0.6, 0.9], [0.1, 0.1]])
    assert found.evidence.choice == found.evidence.status == "undecided"
    texts(found.verdict)
    one = result([[0.9], [0.1]])
    assert one.evidence.not_told_from_the_best == 1
    texts(one.verdict)
    alone = result([[0.9, 0.9]])
    assert alone.evidence.choice is None
    assert alone.verdict.startswith("lr=0.1 has accuracy 90.00 %")


def test_only_a_decided_best_is_bold_and_settings_are_as_given() -> None:
    decided = result([[0.5, 0.51, 0.5], [0.9, 0.91, 0.9], [0.6, 0.61, 0.6]])
    open_ = result([[0.5, 0.9], [0.6, 0.9]])
    assert list(decided.tables()[0].highlight) == [0]
    assert list(open_.tables()[0].highlight) == []
    assert [row[0] for row in decided.tables()[0].rows] == ["0.05", "0.025", "0.1"]
    assert list(decided.to_frame()["lr"]) == [0.05, 0.025, 0.1]


def test_a_figure_has_the_intervals_where_there_are_seeds(texts) -> None:
    several = result([[0.5, 0.51, 0.52], [0.9, 0.91, 0.9]])
    [figure] = several.figures()
    bars = figure.data[0]["error_y"]
    for n, point in enumerate(several.points):
        assert figure.data[0]["y"][n] + bars["array"][n] == pytest.approx(100 * point.high)
        assert figure.data[0]["y"][n] - bars["arrayminus"][n] == pytest.approx(100 * point.low)
    assert "its bar the 95 % interval" in figure.caption
    [alone] = result([[0.5], [0.9]]).figures()
    assert "error_y" not in alone.data[0]
    assert "with one seed" in alone.caption
    [mixed] = result([[0.5, 0.51], [0.9, 0.91]], missing={1: [1]}).figures()
    texts(mixed.caption)
    assert mixed.data[0]["error_y"]["array"][1] == 0


def test_more_points_need_a_wider_gap() -> None:
    """A gap that two points decide is not decided among forty, of which some must be lucky."""
    best, other = [0.800, 0.810, 0.805], [0.700, 0.710, 0.705]
    assert result([best, other]).evidence.choice == "decided"
    assert result([best, *[other] * 39]).evidence.choice == "undecided"


def test_alike_points_are_called_best_rarely() -> None:
    """The promise of the rule, on points that are all alike: a wrong "best" in at most 5 %."""
    draws = np.random.default_rng(0).normal(1.0, 0.1, (150, 6, 3))
    wrong = sum(
        result(draw.tolist(), unit="nats", better="lower").evidence.choice == "decided"
        for draw in draws
    )
    assert wrong <= stats.binom.ppf(0.999, len(draws), 0.05)


def test_a_point_with_runs_missing_is_never_best(texts) -> None:
    found = result([[0.99, 0.99, 0.1], [0.5, 0.5, 0.5]], missing={0: [2]})
    assert found.status == "unfinished"
    assert found.evidence.best["lr"] == 0.05
    assert found.verdict.startswith("Unfinished, 1 of 2 points: lr=0.05 has accuracy 50.00 %")
    assert found.ranked()[1].mean == pytest.approx(0.99)
    [missing] = [table for table in found.tables() if table.title == "Missing runs"]
    [(point, seeds, why)] = missing.rows
    assert (point, seeds) == ("lr=0.1", 2)
    texts(why)
    nothing = result([[0.1]], missing={0: [0]})
    texts(nothing.verdict)
    assert nothing.figures() == []


def trained(folder: Path, kept: list[SweepResult] | None = None, **options) -> SweepResult:
    runner = Runner(folder, workers=2, **options)
    return module.sweep(file(), runner, keep=(kept if kept is not None else []).append)


def test_a_sweep_from_its_runs_to_its_table(made_up, tmp_path: Path) -> None:
    kept: list[SweepResult] = []
    found = trained(tmp_path, kept)
    assert [len(k.points[0].missing) for k in (kept[0], kept[-1])] == [2, 0]
    assert [k.evidence.runs_missing for k in kept] == list(range(8, -1, -1))
    frame = found.to_frame()
    assert list(frame["lr"]) == [0.01, 0.1, 0.01, 0.1]
    assert list(frame["variant"]) == ["standard", "standard", "mixit", "mixit"]
    assert list(frame["mean accuracy"]) == pytest.approx([0.9905, 0.9005, 0.7405, 0.6505])
    by_variant = found.tables()[1]
    assert [row[0] for row in by_variant.rows] == ["standard", "mixit"]
    [figure] = found.figures()
    assert figure.title == "Accuracy against lr"
    assert figure.layout["xaxis"]["type"] == "log"
    lines = {t["name"]: t["y"] for t in figure.data if t["mode"] == "lines+markers"}
    assert lines["standard"] == pytest.approx([99.05, 90.05])
    assert json.loads(dumps([found]))["results"][0]["evidence"]["status"] == "finished"


def test_what_is_killed_or_fails_is_missing_and_tried_again(
    made_up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts
) -> None:
    monkeypatch.setenv("KILL_AT", "0.1")
    monkeypatch.setenv("FAIL_AT", "0.01")
    found = trained(tmp_path)
    why = [dict(point.missing) for point in found.points]
    assert [sorted(seeds) for seeds in why] == [[1], [0, 1], [1], [0, 1]]
    texts(why[0][1])
    texts(why[1][0])
    assert found.points[0].values == {0: 0.9}
    for name in ("KILL_AT", "FAIL_AT"):
        monkeypatch.delenv(name)
    said: list[str] = []
    again = trained(tmp_path, resume=True, say=said.append)
    texts(said[0])
    assert again.status == "finished"
    monkeypatch.setenv("FAIL_AT", "0.1")
    with pytest.raises(InputError, check=texts):
        module.sweep(file(grid={"lr": [0.1]}), Runner(None, workers=1), keep=lambda found: None)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "dask"])
def test_a_sweep_survives_killed_workers(
    made_up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """One job of 20 kills its process once, another's is killed from outside."""
    pytest.importorskip("distributed")
    monkeypatch.setenv("KILL_ONCE_AT", "0.1")
    monkeypatch.setenv("WAIT_AT", "0.7")
    grid = file(grid={"lr": [n / 10 for n in range(1, 11)]}, seeds=2)
    [victim] = [p.name for p in grid_points(grid) if p.at["lr"] == 0.7]
    note = tmp_path / f"{victim}-seed-1.pid"

    def kill() -> None:
        while not note.exists():
            time.sleep(0.05)
        os.kill(int(note.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    runner = Runner(tmp_path, workers=2, engine=JobEngine(engine))
    found = module.sweep(grid, runner, keep=lambda result: None)
    killer.join(timeout=60)
    assert len(list(tmp_path.glob("*.pid"))) == 2
    assert found.status == "finished"
    assert [sorted(point.values) for point in found.points] == [[0, 1]] * 10
    assert len(list(tmp_path.glob("*-seed-*.json"))) == 20
