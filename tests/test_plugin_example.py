"""The example plugin, installed as a user would install it, and used from the command line."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
TOY, PROBE = "toy:two-back", "attention-entropy"


@pytest.fixture(scope="module")
def interp(tmp_path_factory: pytest.TempPathFactory):
    """Run `interp` where the plugin is installed: arguments in, the finished process out."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "installed"))
    for path in PLUGIN.rglob("*"):  # building writes beside the sources
        if path.suffix in (".py", ".toml"):
            copy = source / path.relative_to(PLUGIN)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    alone = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *alone, "--target", str(target), str(source)], check=True)
    environment = os.environ | {"PYTHONPATH": str(target), "COLUMNS": "200"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "interp_toolkit", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


def spread_of_two_back(n_ctx: int = 32, score: float = 12.0) -> float:
    """The toy's head 0 in closed form: from q > 1, A/(A + q) on one key and 1/(A + q) on q."""
    A = math.exp(score)
    shares = [1.0]  # the second position sees two keys alike
    for q in range(2, n_ctx):
        one, other = A / (A + q), 1 / (A + q)
        entropy = -one * math.log(one) - q * other * math.log(other)
        shares.append(entropy / math.log(q + 1))
    return sum(shares) / len(shares)


@pytest.mark.slow
def test_the_probe_runs_with_its_option(interp) -> None:
    done = interp("analyze", TOY, "--probe", PROBE, "--sharp", "0.3", "--quiet", "--json", "-")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["evidence"]["status"] == "detected"
    assert result["provenance"]["settings"] == {"sharp": 0.3}
    one, other = result["heads"]
    assert [one["head"], one["status"]] == ["L0H0", "detected"]
    assert one["spread"] == pytest.approx(spread_of_two_back(), rel=1e-9)
    assert [other["head"], other["status"]] == ["L0H1", "not_detected"]
    assert other["spread"] == pytest.approx(1, rel=1e-12)


def test_its_names_are_listed_and_shown(interp) -> None:
    assert PROBE in interp("list", "probes").stdout
    shown = interp("show", PROBE)
    assert shown.returncode == 0, shown.stderr
    assert "--sharp" in shown.stdout
    assert "default: 0.5" in shown.stdout


def test_a_bad_value_of_its_option_is_one_clear_line(interp) -> None:
    done = interp("analyze", TOY, "--probe", PROBE, "--sharp", "1.3")
    assert done.returncode == 2
    assert done.stderr.startswith(f"interp: {PROBE}: --sharp '1.3'")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_detector_is_used_by_the_probe_of_heads(interp) -> None:
    arguments = ("--probe", "heads", "--detector", "two-back", "--quiet", "--json", "-")
    done = interp("analyze", TOY, *arguments)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["provenance"]["settings"]["detectors"] == ["two-back"]
    found = [(head["layer"], head["head"]) for head in result["heads"] if head["detected"]]
    assert found == [(0, 0)]
