"""Suggestions for a misspelled name, and what is quoted of another library's error."""

from __future__ import annotations

import pytest

from interp_toolkit.errors import first_line, one_line, suggestion

KNOWN = (
    "sorting",
    "paper/table-1",
    "paper/table-2",
    "paper/table-11",
    "paper/sde",
    "other/table-3",
)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sortin", "; did you mean sorting?"),
        ("xyz", f"; known: {', '.join(sorted(KNOWN))}"),
        ("paper", "; known: paper/sde, paper/table-1, paper/table-11, paper/table-2"),
        ("paper/", "; known: paper/sde, paper/table-1, paper/table-11, paper/table-2"),
        ("paper/xyz", "; known: paper/sde, paper/table-1, paper/table-11, paper/table-2"),
        ("paper/sed", "; did you mean paper/sde?"),
        ("sde", "; did you mean paper/sde?"),
        ("table-3", "; did you mean other/table-3?"),
    ],
)
def test_a_near_name_or_all_that_begin_alike(name: str, says: str) -> None:
    assert suggestion(name, KNOWN) == says


def test_a_table_that_is_missing_offers_those_of_the_same_document() -> None:
    said = suggestion("paper/table-12", KNOWN)
    assert said.startswith("; did you mean ")
    assert "paper/table-11" in said
    assert "other/" not in said


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n  no header:\nmore"), "no header"),
        (NotImplementedError(), "NotImplementedError"),
        (ValueError(" \n"), "ValueError"),
        (KeyError("weight"), "KeyError 'weight'"),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
    ],
)
def test_one_line_of_an_error(error: Exception, line: str) -> None:
    assert one_line(error) == first_line(error) == line


def test_little_of_a_long_error_is_quoted() -> None:
    word, sentence = "x" * 2_000, "so it is " * 100
    assert one_line(ValueError(word)) == word
    assert first_line(ValueError(f"no tensor {word} here")) == f"no tensor {'x' * 59}… here"
    assert first_line(ValueError(sentence)) == f"{sentence[:119]}…"
    assert len(first_line(ValueError(sentence), 40)) == 40
