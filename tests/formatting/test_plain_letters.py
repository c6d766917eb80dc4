"""What a terminal lacks is written in plain letters, and nothing else is touched."""

from __future__ import annotations

import io
import string
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit.cli.main import main
from interp_toolkit.formatting import LIKENESS, lenient, plain

LACKING = ("ascii", "latin-1", "cp1252", "cp437", "shift_jis")


def written(text: str, encoding: str) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="", write_through=True)
    lenient(stream)
    stream.write(text)
    return raw.getvalue().decode(encoding)


@given(st.text(), st.sampled_from(LACKING))
def test_any_text_can_be_written(text: str, encoding: str) -> None:
    found = written(text, encoding)
    for character in set(text) & set(string.printable):
        assert found.count(character) >= text.count(character)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_unicode_is_left_alone(text: str) -> None:
    assert written(text, "utf-8") == text
    assert written(text, "utf-16") == text


def test_how_a_unicode_stream_takes_errors_is_left_alone() -> None:
    for errors in ("strict", "backslashreplace"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
        lenient(stream)
        assert stream.errors == errors


@given(st.characters())
def test_plain_letters_are_ascii(character: str) -> None:
    assert plain(character).isascii()
    assert not character.isascii() or plain(character) == character


def test_signs_have_a_likeness_where_they_are_lacking_only() -> None:
    assert written("✗ 12 × 3 → ε ≤ 0.5 …", "ascii") == "x 12 x 3 -> epsilon <= 0.5 ..."
    assert written("✗ 12 × 3 → é", "latin-1") == "x 12 × 3 -> é"
    assert all(likeness.isascii() for likeness in LIKENESS.values())


@pytest.mark.parametrize(
    ("line", "encoding"),
    [
        *((line, e) for line in ("list", "show xor", "info toy:nöthing→") for e in LACKING[:4]),
        ("analyze toy:xor-2head", "latin-1"),
        ("analyze toy:induction --probe heads", "cp437"),
    ],
)
def test_every_line_of_the_command_is_written(line, encoding, monkeypatch) -> None:
    arguments = line.split()
    raws = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, raw in raws.items():
        stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(sys, "argv", ["interp", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    said = [raw.getvalue().decode(encoding) for raw in raws.values()]
    wrong = arguments[0] == "info"
    assert leaving.value.code == (2 if wrong else 0), said[1]
    assert "a bug" not in said[1]
    assert wrong or len(said[0]) > 200
