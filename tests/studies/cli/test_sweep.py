"""`interp sweep` as a user meets it: one whole file however it ends, and the same on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

JOBS = Path(__file__).parents[1] / "jobs"
MADE_UP = """
recipe: retrieval
grid: {lr: [0.1, 0.01]}
seeds: 2
"""
TRAINED = """
recipe: retrieval
settings: {steps: 4, layers: 1, d_model: 8, rows: 8, examples: 64, test_examples: 50,
           most_pairs: 2, symbols: 8}
grid:
  variant: [standard, mixit]
"""
#: `interp`, whose sweeps train nothing; it heeds SIGINT also where the shell has it ignored
WITHOUT_TRAINING = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(JOBS)!r})
from interp_toolkit.cli.main import main
from interp_studies.sweep import study as sweep
import light_jobs
sweep.train_point = light_jobs.made_up_point
if __name__ == "__main__":
    main()
"""


@pytest.fixture(name="call")
def sweep(call):
    """`main("sweep", ...)` in this process: (code, stdout, stderr)."""
    return partial(call, "sweep")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch):
    """Points that train nothing."""
    from interp_studies.sweep import study as sweep

    monkeypatch.syspath_prepend(str(JOBS))
    import light_jobs

    monkeypatch.setattr(sweep, "train_point", light_jobs.made_up_point)
    yield
    del sys.modules["light_jobs"]


def yaml(tmp_path: Path, text: str = MADE_UP) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return path


def read(path: Path):
    [result] = json.loads(path.read_text())["results"]
    return result


def one_line(err: str) -> str:
    [line] = err.splitlines()
    return line


def test_a_sweep_keeps_its_result_beside_its_file(call, made_up, tmp_path: Path, texts) -> None:
    page = tmp_path / "r.html"
    code, out, err = call(yaml(tmp_path), "--workers", 1, "--html", page, "--json", "-")
    assert code == 0
    assert "2 points, 4 runs, kept in" in err
    assert "4 of 4 jobs done after" in err
    assert json.loads(out)["results"] == [read(tmp_path / "grid.sweep" / "sweep.json")]
    assert "Accuracy against lr" in page.read_text(encoding="utf-8")
    code, out, err = call(tmp_path / "grid.yaml", "--workers", 1)
    assert (code, out) == (2, "")
    texts(one_line(err))
    code, out, err = call(tmp_path / "grid.yaml", "--resume", "--quiet")
    assert (code, err) == (0, "")
    texts(" ".join(out.split()))


@pytest.mark.parametrize(("seeds", "words"), [(1, "1 run is"), (2, "2 runs are")])
def test_what_is_missing_is_told_and_how_to_get_it(
    call, made_up, tmp_path: Path, monkeypatch, seeds: int, words: str, texts
) -> None:
    monkeypatch.setenv("FAIL_AT", "0.1")
    path = yaml(tmp_path, MADE_UP.replace("seeds: 2", f"seeds: {seeds}"))
    code, _, err = call(path, "--workers", 1)
    assert code == 0
    texts(err)
    said = f"{words} missing: the same command with --resume tries again"
    assert err.splitlines()[-1] == said
    monkeypatch.delenv("FAIL_AT")
    code, _, err = call(path, "--workers", 1, "--resume")
    assert code == 0
    assert "missing:" not in err


def test_one_point_is_not_points_and_refusals_stand_alone(
    call, made_up, tmp_path: Path, texts
) -> None:
    path = yaml(tmp_path, "recipe: retrieval\ngrid: {lr: [0.1]}")
    code, _, err = call(path, "--workers", 1)
    assert code == 0
    assert "1 point, 1 run, kept in" in err
    path = yaml(tmp_path, "recipe: retrieval\nsettings: {steps: 3}\ngrid: {lr: [0.1]}")
    code, out, err = call(path, "--workers", 1, "--resume")
    assert (code, out) == (2, "")
    texts(one_line(err))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "recipe: retrieval\ngrid: {heads: [3]}"),
        ([], "recipe: retrieval\ngird: {}"),
        (["--engine", "dusk"], MADE_UP),
        (["--address", "tcp://a:1"], MADE_UP),
        (["--out", "no/such/folder"], MADE_UP),
        (["--device", "abacus"], MADE_UP),
    ],
)
def test_a_slip_is_one_line_and_exit_code_2(
    call, tmp_path: Path, arguments: list[str], text: str, texts
) -> None:
    code, out, err = call(yaml(tmp_path, text), *arguments)
    assert (code, out) == (2, "")
    texts(one_line(err))
    assert not list(tmp_path.glob("grid.sweep/sweep.json"))


@pytest.mark.slow
def test_a_sweep_that_is_interrupted_leaves_a_whole_file(call, made_up, tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TRAINING, "sweep", yaml(tmp_path), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HANG_AT": "0.01"},
        start_new_session=True,
    )
    document = tmp_path / "grid.sweep" / "sweep.json"
    while not document.exists():
        assert running.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(running.pid, signal.SIGINT)  # as Ctrl-C sends it, to all
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    said = ["the same command with --resume goes on", "interp: interrupted"]
    assert err.splitlines()[-2:] == said
    assert "Traceback" not in err
    while processes_of(running.pid):  # they go within moments, or this never ends
        time.sleep(0.05)
    assert read(document)["evidence"]["status"] == "unfinished"
    code, _, _ = call(tmp_path / "grid.yaml", "--resume", "--workers", 2, "--quiet")
    assert code == 0
    assert read(document)["evidence"]["status"] == "finished"


def processes_of(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_the_same_table_on_local_processes_and_on_a_cluster(call, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    found = {}
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, memory_limit=None, dashboard_address=None
    )
    with cluster:
        there = ("--engine", "dask", "--address", cluster.scheduler_address)
        for name, options in {"here": ("--workers", 1), "there": there}.items():
            code, _, _ = call(yaml(tmp_path, TRAINED), "--out", tmp_path / name, *options)
            assert code == 0
            found[name] = read(tmp_path / name / "sweep.json")
    for result in found.values():
        assert result["evidence"]["status"] == "finished"
        for point in result["points"]:
            assert point.pop("seconds") > 0
    assert found["here"] == found["there"]
