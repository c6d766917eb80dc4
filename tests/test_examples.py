"""The examples run as they stand."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
ELSEWHERE = "language_model"  # needs a real model, and minutes: `make real` runs it


@pytest.mark.parametrize(
    "script", [path for path in EXAMPLES if path.stem != ELSEWHERE], ids=lambda path: path.stem
)
def test_an_example(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    if script.stem == "xor_demo":
        said = capsys.readouterr().out
        assert all(f"{sign} XOR" in said for sign in "✗✓?")
        assert (tmp_path / "report.html").stat().st_size > 5e5
    if script.stem == "induction_heads":
        said = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "L1H1 has the" in said
        assert "(100 % of" in said
        assert "K-composition: the keys" in said
        assert "L0H2->L1H0<k>" in said
        assert (tmp_path / "heads.html").stat().st_size > 5e5
        assert (tmp_path / "circuit.graphml").exists()
    if script.stem == "check_claims":
        page = (Path(__file__).parents[1] / "docs" / "agents.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (.+) \| (confirmed|refuted|undecided) \|", page, re.M)
        said = capsys.readouterr().out.splitlines()
        assert [line for line in said if line[0] != " "] == [f"{b}: {a}" for a, b in rows]
        assert len(rows) == 10
    if script.stem == "sorting":
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("smallest value above") >= 2
        assert said.count("piecewise-linear functions") >= 2
        assert "output [" in said
        assert (tmp_path / "sorting.html").stat().st_size > 5e5
    if script.stem == "superposition":
        said = " ".join(capsys.readouterr().out.split())
        assert "(weight-shuffled) layers" in said
        assert "64 of the 64" in said
        assert "L0H0 checks for 64 skip-bigrams" in said
        assert (tmp_path / "superposition.html").stat().st_size > 5e5
    if script.stem == "random_attention":
        assert "frozen-qk forms an" in " ".join(capsys.readouterr().out.split())
        assert (tmp_path / "random_attention.html").stat().st_size > 5e5
    assert not list(tmp_path.glob("*.tmp*"))
