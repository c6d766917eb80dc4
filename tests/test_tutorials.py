"""The tutorials run as printed: every file and every line of a page, from the top."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(?:\w+ title="(?P<file>[\w.]+)")?\n(?P<text>.*?)^```$', re.M | re.S)
#: what `pip install .` is told here, so that it needs no network and leaves this environment alone
ALONE = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", "installed"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_from_the_top(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("\n```") / 2  # none is left out
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path / "installed")}
    said = ""
    for block in blocks:
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
            continue
        for line in block["text"].splitlines():
            name, *arguments = shlex.split(line)
            module = {"interp": ["-m", "interp_toolkit"], "pip": ["-m", "pip"], "python": []}[name]
            command = [sys.executable, *module, *arguments, *(ALONE if name == "pip" else [])]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            said += done.stdout
    CHECKS[page.stem](tmp_path, " ".join(said.replace("│", " ").split()))  # frames of panels


def results(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return found


def check_checkpoint(folder: Path, said: str) -> None:
    heads, circuit = results(folder / "first.json")
    assert heads["evidence"]["status"] == "detected"
    assert circuit["probe"] == "circuit"  # how much it carries: other kernels, another model
    assert "induction" in said
    assert (folder / "report.html").stat().st_size > 5e5


def check_target_model(folder: Path, said: str) -> None:
    assert "not separable" in said
    assert "side by side" in said
    assert (folder / "both.html").stat().st_size > 5e5
    models = [result["provenance"]["model"]["path"] for result in results(folder / "along.json")]
    assert len(models) == 6
    assert (folder / "along.html").exists()
    assert "2 passed" in said


def check_plugin(folder: Path, said: str) -> None:
    assert "block-growth" in said
    [result] = results(folder / "growth.json")
    assert result["evidence"]["copies"] == 99
    assert 0.01 <= result["evidence"]["p_value"] <= 1
    assert len(result["growth"]) == 2
    assert result["verdict"] in said


def check_notebook(folder: Path, said: str) -> None:
    assert "detected HeadsEvidence(" in said


#: what each page has to come to
CHECKS = {
    "checkpoint": check_checkpoint,
    "target-model": check_target_model,
    "plugin": check_plugin,
    "notebook": check_notebook,
}
