"""`interp litmus` as a user meets it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

TINY = ["--steps", 8, "--seeds", 2, "--workers", 1]
for pair in ("d_model=16", "rows=4", "examples=40", "test_examples=30", "most_pairs=2"):
    TINY += ["--set", pair]


@pytest.fixture(name="call")
def litmus(call):
    """`main("litmus", ...)` in this process: (code, stdout, stderr)."""
    return partial(call, "litmus")


def test_the_answer_everywhere(call, tmp_path: Path) -> None:
    document, page = tmp_path / "r.json", tmp_path / "r.html"
    code, out, err = call("retrieval", *TINY, "--json", document, "--html", page)
    assert code == 0
    assert "Whether retrieval needs in-context reasoning is undecided" in " ".join(out.split())
    assert "Standard and MixiT" in out
    assert "4 of 4 jobs done after" in err
    [result] = json.loads(document.read_text())["results"]
    assert result["probe"] == "litmus"
    assert result["evidence"]["status"] == "undecided"
    assert "Along training" in page.read_text(encoding="utf-8")


def test_json_alone_on_standard_output_and_a_resumed_test_is_the_same(call, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "kept", "--json", "-", "--quiet"]
    code, first, err = call("retrieval", *TINY, *out)
    assert (code, err) == (0, "")
    code, again, err = call("retrieval", *TINY, *out)
    assert code == 2
    assert "give --resume" in err
    code, again, err = call("retrieval", *TINY, *out, "--resume")
    assert (code, err) == (0, "")
    assert json.loads(again) == json.loads(first)
    code, out, _ = call("retrieval", *TINY, "--out", tmp_path / "kept", "--resume", "--quiet")
    assert out.startswith("? Whether retrieval needs in-context reasoning is undecided: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["retrieva"], "did you mean retrieval?"),
        (["xor"], "xor has no variants standard and mixit"),
        (["retrieval", "--seeds", "0"], "--seeds"),
        (["retrieval", "--workers", "0"], "--workers"),
        (["retrieval", "--margin", "-1"], "the margin must be above 0"),
        (["retrieval", "--preset", "smal"], "did you mean small?"),
        (["retrieval", "--set", "d_modl=8"], "did you mean d_model?"),
        (["retrieval", "--set", "steps=8", "--steps", "8"], "steps is given twice"),
        (["retrieval", "--set", "seeds=8"], "give --seeds"),
        (["retrieval", "--steps", "0"], "steps = 0"),
        (["retrieval", "--resume"], "give --out FOLDER"),
        (["retrieval", "--out", ""], "--out needs the name of a folder"),
        (["retrieval", "--device", "abacus"], "'abacus' is not a device"),
        (["retrieval", "--address", "tcp://nowhere:1"], "give --engine dask"),
        (["retrieval", "--json", "no/such/file"], "there is no folder"),
    ],
)
def test_a_slip_is_one_line_and_exit_code_2(call, arguments: list[str], says: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    assert says in line
