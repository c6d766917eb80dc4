"""The tutorials run as printed: every file and every line of a page, from the top."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(?:python title="(?P<file>[\w.]+)")?\n(?P<text>.*?)^```$', re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_from_the_top(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("\n```") / 2  # none is left out
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    said = ""
    for block in blocks:
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
            continue
        for line in block["text"].splitlines():
            name, *arguments = shlex.split(line)
            module = ["-m", "interp_toolkit"] if name == "interp" else []
            assert name in ("interp", "python")
            command = [sys.executable, *module, *arguments]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            said += done.stdout
    if page.stem == "checkpoint":
        heads, circuit = json.loads((tmp_path / "first.json").read_text())["results"]
        assert heads["evidence"]["status"] == "detected"
        assert circuit["probe"] == "circuit"  # how much it carries: other kernels, another model
        assert "induction" in said
        assert (tmp_path / "report.html").stat().st_size > 1e6
