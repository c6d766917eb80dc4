"""`interp reproduce` as a user meets it, on a study that takes milliseconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from interp_toolkit import registry

JOBS = Path(__file__).parents[1] / "jobs"
#: `interp`, with the toy study as one of its artefacts; it heeds SIGINT also where the shell has
#: it ignored
WITH_TOY = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from importlib.metadata import EntryPoint
sys.path.insert(0, {str(JOBS)!r})
from interp_toolkit import registry
toy = EntryPoint("toy-study", "toy_study:TOY", "interp_toolkit.artefacts")
real = registry._entries
registry._entries = lambda group: {{"toy-study": toy}} if group == "artefacts" else real(group)
from interp_toolkit.cli.main import main
if __name__ == "__main__":
    main()
"""


@pytest.fixture(name="call")
def reproduce(call, monkeypatch: pytest.MonkeyPatch):
    """`main("reproduce", ...)` in this process: (code, stdout, stderr)."""
    monkeypatch.syspath_prepend(str(JOBS))
    real = registry.entry_points
    toy = EntryPoint("toy-study", "toy_study:TOY", "interp_toolkit.artefacts")

    def patched(group: str):
        return [*real(group=group), *([toy] if group.endswith("artefacts") else [])]

    monkeypatch.setattr(registry, "entry_points", patched)
    registry._entries.cache_clear()

    yield partial(call, "reproduce")
    registry._entries.cache_clear()
    sys.modules.pop("toy_study", None)


def one_line(err: str) -> str:
    [line] = err.splitlines()
    return line


def test_theirs_beside_ours_everywhere(call, tmp_path: Path, texts) -> None:
    document, page = tmp_path / "r.json", tmp_path / "r.html"
    code, out, err = call("toy-study", "--workers", 1, "--json", document, "--html", page)
    assert code == 0
    assert "Theirs beside ours" in out
    assert "partly reached" not in out  # the sign says it
    texts(" ".join(out.split()))
    assert "2 of 2 jobs done after" in err
    [result] = json.loads(document.read_text())["results"]
    assert result["evidence"]["status"] == "partly_reached"
    assert [q["reached"] for q in result["quantities"]] == [True, False, None]
    assert "Losses" in page.read_text(encoding="utf-8")


def test_json_to_standard_output_is_alone_there(call) -> None:
    code, out, err = call("toy-study", "--workers", 1, "--seeds", 1, "--json", "-", "--quiet")
    assert (code, err) == (0, "")
    [result] = json.loads(out)["results"]
    assert result["quantities"][0]["seeds"] == 1
    code, out, err = call("toy-study", "--workers", 1, "--seeds", 1, "--json", "-")
    assert json.loads(out)["results"] == [result]
    assert "the median seed" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["toy-studi"],
        ["toy-study", "--preset", "papr"],
        ["toy-study", "--set", "steps=5"],
        ["toy-study", "--set", "a.b.c.d=5"],
        ["toy-study", "--set", "retrieval..lr=5"],
        ["toy-study", "--set", "xor.steps=5"],
        ["random-attention"],
        ["random-attention/tabel-1"],
        ["toy-study", "--resume"],
        ["toy-study", "--workers", "0"],
        ["toy-study", "--seeds", "0"],
        ["toy-study", "--out", ""],
        ["toy-study", "--out", "no/such/folder"],
        ["toy-study", "--device", "abacus"],
        ["toy-study", "--json", "no/such/file"],
    ],
)
def test_a_slip_is_one_line_and_exit_code_2(call, arguments: list[str], texts) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    texts(one_line(err))


def test_artefacts_are_listed(call, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    from interp_toolkit.cli.main import main

    monkeypatch.setattr(sys, "argv", ["interp", "list", "artefacts"])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 0
    listed = capfd.readouterr().out
    assert "toy-study" in listed
    assert "sorting" in listed


@pytest.fixture(name="two_artefacts")
def only_two(monkeypatch: pytest.MonkeyPatch):
    """The toy study, in a room of its own name, and one that cannot be made."""
    group = "interp_toolkit.artefacts"
    two = [
        EntryPoint("toys/study", "toy_study:TOY", group),
        EntryPoint("unlucky", "toy_study:UNLUCKY", group),
    ]
    real = registry.entry_points

    def patched(group: str):
        return two if group.endswith("artefacts") else real(group=group)

    monkeypatch.setattr(registry, "entry_points", patched)
    registry._entries.cache_clear()
    yield
    registry._entries.cache_clear()


def test_all_of_them_with_a_page_of_results(call, two_artefacts, tmp_path: Path, texts) -> None:
    folder = tmp_path / "all"
    code, out, err = call("all", "--workers", 1, "--out", folder)
    assert code == 2  # one could not be made
    assert "Theirs beside ours" in out
    texts(" ".join(err.split()))
    document = (folder / "results/toys/study.json").read_text()
    [result] = json.loads(document)["results"]
    assert result["quantities"]
    assert "jobs" not in result
    page = (folder / "results/README.md").read_text(encoding="utf-8")
    assert "| [toys/study](toys/study.json) | small | partly reached | " in page
    assert "| unlucky | small | not made: refuses-0: seed 0 is unlucky | " in page
    code, _, err = call("all", "--workers", 1, "--out", folder, "--resume")
    assert code == 2
    texts(err)
    assert (folder / "results/toys/study.json").read_text() == document


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "3"],
        ["--preset", "papr"],
        ["--out", "no/such/folder"],
        ["--out", "."],
        ["--out", "kept", "--resume"],
    ],
)
def test_what_all_does_not_take(call, tmp_path, monkeypatch, arguments, texts) -> None:
    (tmp_path / "kept").touch()
    monkeypatch.chdir(tmp_path)
    code, out, err = call("all", *arguments)
    assert (code, out) == (2, "")
    texts(one_line(err))


def interp(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WITH_TOY, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_killed_study_goes_on_to_the_same_json(call, tmp_path: Path, texts) -> None:
    options = ("toy-study", "--seeds", 3, "--workers", 1)
    code, _, _ = call(*options, "--out", tmp_path / "whole", "--json", tmp_path / "whole.json")
    assert code == 0
    out = ("--out", tmp_path / "killed")
    dying = interp("reproduce", *options, *out, DEADLY_SEED="1")
    dying.communicate(timeout=100)
    assert dying.returncode == -signal.SIGKILL
    assert (tmp_path / "killed" / "xor_model-0.json").exists()
    assert not (tmp_path / "killed" / "xor_model-1.json").exists()

    code, _, err = call(*options, *out)
    assert code == 2
    assert "give --resume" in one_line(err)
    os.environ["DEADLY_SEED"] = "1"  # an argument of the jobs, as it was
    try:
        code, _, err = call(*options, *out, "--resume", "--json", tmp_path / "killed.json")
    finally:
        del os.environ["DEADLY_SEED"]
    assert code == 0
    texts(err)
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    for seed in range(3):
        name = f"xor_model-{seed}.safetensors"
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_study_that_is_stopped_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    running = interp(
        *("reproduce", "toy-study", "--preset", "long", "--workers", 2, "--out", tmp_path / "o")
    )
    while not list(tmp_path.glob("o/*/run.json")):
        assert running.poll() is None
        time.sleep(0.05)
    if how == signal.SIGINT:  # as Ctrl-C sends it, to all
        os.killpg(running.pid, how)
        out, err = running.communicate(timeout=60)
        assert (running.returncode, out, one_line(err)) == (130, "", "interp: interrupted")
    else:
        running.kill()
        running.communicate(timeout=60)
    while processes_of(running.pid):  # they go within moments, or this never ends
        time.sleep(0.05)


def processes_of(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
