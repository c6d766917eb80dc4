"""What type checkers know of the package in a user's own code."""

from __future__ import annotations

import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from interp_toolkit import analysis
from interp_toolkit.registry import CATALOGUE, find

USER_CODE = """
import interp_toolkit as it

model = it.load("toy:induction")
reveal_type(model)
heads = it.analyze(model, "heads")
reveal_type(heads)
reveal_type(it.analyze("model.pt", "xor").sites)
name: str = input()
reveal_type(it.analyze(model, name))
reveal_type(heads.figures()[0].to_plotly)
finding = it.analyze(model, "collapse")
reveal_type(finding)
reveal_type(finding.layers[0].cosine)
reveal_type(finding.evidence.rise)
finding.evidence.risen
it.analyse(model, "heads")
model.run_with_cache([[0, 1]])
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="overloads are kept from Python 3.11 on")
def test_every_analysis_of_ours_is_known_by_its_result() -> None:
    said: dict[str, str] = {}
    for overload in typing.get_overloads(analysis.analyze):
        names = eval(overload.__annotations__["name"], vars(analysis))
        for name in typing.get_args(names):
            assert name not in said
            said[name] = overload.__annotations__["return"]
    wanted = {
        name: getattr(found.run, "func", found.run).__annotations__["return"]
        for name in CATALOGUE["probes"]
        for found in [find("probes", name)]
    }
    assert said == wanted


@pytest.mark.slow
def test_mypy_follows_an_installed_package_and_finds_a_slip(tmp_path: Path) -> None:
    code = tmp_path / "user.py"
    code.write_text(USER_CODE)
    flags = ["--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, code.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    revealed = re.findall(r'Revealed type is "([^"]+)"', done.stdout)
    assert [kind.rsplit(".", 1)[-1] for kind in revealed[:2]] == ["LoadedModel", "HeadsFinding"]
    assert "SiteVerdict" in revealed[2]
    assert revealed[3].endswith("results.Result")
    assert revealed[5].endswith("collapse.CollapseFinding")
    assert re.fullmatch(
        r"(builtins\.)?float \| None|Union\[(builtins\.)?float, None\]", revealed[6]
    )
    assert revealed[7].removeprefix("builtins.") == "float"
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 2, done.stdout
    assert '"CollapseEvidence" has no attribute "risen"' in errors[0]
    assert "analyse" in errors[1]
