"""Every line that the README says to type works as printed; pages name what there is."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from interp_toolkit import registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 90  # a screen and a half, its table of contents among them
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
BLOCKS = BLOCK.findall(README)
LINES = [
    line.split("  #")[0].split() for kind, text in BLOCKS if not kind for line in text.splitlines()
]


def of(command: str) -> list[list[str]]:
    """What the README says to type after this name."""
    return [words[1:] for words in LINES if words and words[0] == command]


def test_it_is_short_and_every_block_is_one_that_is_tried() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    assert {kind for kind, _ in BLOCKS} == {"", "python"}
    assert {words[0] for words in LINES if words and words[0] != "#"} == {"make", "pip", "interp"}


def test_make_has_what_it_says() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert of("make") == [["demo"], ["test"]]
    assert {"demo", "test", "docs"} <= set(targets)


def test_extras_to_install_are_there() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    for install, flag, what in of("pip"):
        assert (install, flag) == ("install", "-e")
        assert set(re.findall(r"\[(\w+)\]", what)) <= set(re.findall(r"^(\w+) = \[", section, re.M))


@pytest.mark.slow
def test_the_quick_start_runs_from_the_top(tmp_path: Path) -> None:
    lines = [text for kind, text in BLOCKS if not kind and text.startswith("interp ")]
    for line in "".join(lines).splitlines():
        _, *arguments = shlex.split(line)
        command = [sys.executable, "-m", "interp_toolkit", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    for code in (text for kind, text in BLOCKS if kind == "python"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("detected\n")
    made = {"model.pt", "report.html", "results.json", "heads.html"}
    assert made <= {path.name for path in tmp_path.iterdir()}


def test_the_page_of_the_command_line_names_what_there_is() -> None:
    text = (ROOT / "docs/command-line.md").read_text(encoding="utf-8") + README
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


def test_what_a_sign_claims_is_said_as_the_report_says_it() -> None:
    from interp_toolkit.report.format import LEGEND, SIGNS

    for tone, claim in LEGEND.items():
        assert f"| {SIGNS[tone]} | {claim} |" in README


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target
