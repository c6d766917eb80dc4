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


def test_the_answer_everywhere(call, tmp_path: Path, texts) -> None:
    document, page = tmp_path / "r.json", tmp_path / "r.html"
    code, out, err = call("retrieval", *TINY, "--json", document, "--html", page)
    assert code == 0
    texts(" ".join(out.split()))
    assert "Standard and MixiT" in out
    assert "4 of 4 jobs done after" in err
    [result] = json.loads(document.read_text())["results"]
    assert result["probe"] == "litmus"
    assert result["evidence"]["status"] == "undecided"
    assert "Along training" in page.read_text(encoding="utf-8")


def test_json_alone_on_standard_output_and_a_resumed_test_is_the_same(
    call, tmp_path: Path, texts
) -> None:
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
    texts(out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["retrieva"],
        ["xor"],
        ["retrieval", "--seeds", "0"],
        ["retrieval", "--workers", "0"],
        ["retrieval", "--margin", "-1"],
        ["retrieval", "--preset", "smal"],
        ["retrieval", "--set", "d_modl=8"],
        ["retrieval", "--set", "steps=8", "--steps", "8"],
        ["retrieval", "--set", "seeds=8"],
        ["retrieval", "--steps", "0"],
        ["retrieval", "--resume"],
        ["retrieval", "--out", ""],
        ["retrieval", "--device", "abacus"],
        ["retrieval", "--address", "tcp://nowhere:1"],
        ["retrieval", "--json", "no/such/file"],
    ],
)
def test_a_slip_is_one_line_and_exit_code_2(call, arguments: list[str], texts) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    texts(line)
