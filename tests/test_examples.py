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
        assert "✗ XOR is not linearly separable" in said
        assert "✓ XOR is linearly separable" in said
        assert "? XOR is linearly separable" in said
        assert (tmp_path / "report.html").stat().st_size > 1e6
    if script.stem == "induction_heads":
        said = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert (
            "L1H1 has the induction pattern (100 % of its attention on the pattern's keys)" in said
        )
        assert "K-composition: the keys of" in said
        assert "read the output of L0H2" in said
        assert "L0H2->L1H0<k>" in said
        assert (tmp_path / "heads.html").stat().st_size > 1e6
        assert (tmp_path / "circuit.graphml").exists()
    if script.stem == "check_claims":
        page = (Path(__file__).parents[1] / "docs" / "agents.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| (.+) \| (confirmed|refuted|undecided) \|", page, re.M)
        said = capsys.readouterr().out.splitlines()
        assert [line for line in said if line[0] != " "] == [f"{b}: {a}" for a, b in rows]
        assert len(rows) == 10
    if script.stem == "sorting":
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("by emitting the smallest value above the previous output") == 2
        assert said.count("by taking the argmax of a sum of piecewise-linear functions") == 2
        assert said.count("The model mixes two sorting algorithms") == 1
        assert "output [" in said
        assert (tmp_path / "sorting.html").stat().st_size > 1e6
    if script.stem == "superposition":
        said = " ".join(capsys.readouterr().out.split())
        random = "The ANDs are not significantly less readable from random (weight-shuffled) layers"
        assert random in said
        assert (
            "The weights have the form of the construction of universal AND by intersections"
            in said
        )
        assert "The ANDs are less readable from random (weight-shuffled) layers" in said
        assert "L0H0 checks for 64 skip-bigrams" in said
        assert "64 of the 64 found are among the 64 that it was built for" in said
        assert (tmp_path / "superposition.html").stat().st_size > 1e6
    if script.stem == "random_attention":
        said = " ".join(capsys.readouterr().out.split())
        assert (
            "frozen-qk forms an induction circuit that is detected and confirmed by ablation"
            in said
        )
        assert (tmp_path / "random_attention.html").stat().st_size > 1e6
    assert not list(tmp_path.glob("*.tmp*"))
