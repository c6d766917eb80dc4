"""What the README says to type works as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from interp_toolkit import registry

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def section(title: str) -> str:
    """From a heading to the next."""
    return re.split(r"^## ", README.split(f"## {title}\n")[1], maxsplit=1, flags=re.M)[0]


def python(code: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_quick_start_runs_from_the_top(tmp_path: Path) -> None:
    blocks = BLOCK.findall(section("Quick start"))
    assert [kind for kind, _ in blocks] == ["", "python"]
    for kind, code in blocks:
        if kind == "python":
            python(code, tmp_path)
            continue
        for line in code.splitlines():
            name, *arguments = shlex.split(line)
            assert name == "interp"
            command = [sys.executable, "-m", "interp_toolkit", *arguments]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert {"model.pt", "report.html", "results.json"} <= {p.name for p in tmp_path.iterdir()}


@pytest.mark.slow
def test_the_first_lines_of_python_run(tmp_path: Path) -> None:
    first = next(code for kind, code in BLOCK.findall(README) if kind == "python")
    python(first, tmp_path)
    assert (tmp_path / "heads.html").exists()


def test_commands_name_what_there_is() -> None:
    text = section("On the command line") + section("Quick start")
    for group, pattern in {
        "probes": r"--probe ([\w-]+)",
        "toys": r"toy:([a-z][\w-]+)",
        "tasks": r"--task ([\w-]+)",
        "recipes": r"interp train ([\w-]+)",
        "artefacts": r"interp reproduce ([\w/-]+)",
    }.items():
        said = set(re.findall(pattern, text))
        assert said
        assert said <= {*registry.names(group), *(["all"] if group == "artefacts" else [])}


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (Path(__file__).parents[1] / target).exists(), target
