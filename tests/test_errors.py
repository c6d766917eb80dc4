"""Messages: their length and words, suggestions for a misspelled name, quotes of other errors."""

from __future__ import annotations

import ast
import gzip
import re
from collections import UserDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.boolean_functions import threshold_degree
from interp_toolkit.errors import (
    LONGEST,
    InputError,
    a_kind,
    first_line,
    one_line,
    reason_of,
    suggestion,
)
from interp_toolkit.models.running.memory import parse_memory

PACKAGES = [Path(it.__file__).parent, Path(it.__file__).parent.parent / "interp_studies"]

KNOWN = (
    "sorting",
    "paper/table-1",
    "paper/table-2",
    "paper/table-11",
    "paper/sde",
    "other/table-3",
)


@pytest.mark.parametrize(
    "name",
    [
        "sortin",
        "xyz",
        "paper",
        "paper/",
        "paper/xyz",
        "paper/sed",
        "sde",
        "table-3",
    ],
)
def test_a_near_name_or_all_that_begin_alike(name: str, texts) -> None:
    texts(suggestion(name, KNOWN))


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


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (1, "an int"),
        ([], "a list"),
        (np.zeros(1), "an ndarray"),
        (np.uint8(3), "a uint8"),
        (UserDict(), "a UserDict"),
        (type("", (), {})(), "a "),
    ],
)
def test_the_type_of_a_value_has_its_article(value: object, shown: str) -> None:
    assert a_kind(value) == shown


def test_an_error_of_the_system_has_a_reason_even_without_a_number(texts) -> None:
    texts(reason_of(OSError(28, "No space left on device", "a.npy")))
    with pytest.raises(OSError, check=texts) as caught:
        gzip.decompress(b"not compressed")
    assert caught.value.strerror is None
    assert reason_of(caught.value) == one_line(caught.value)


def test_little_of_a_long_error_is_quoted() -> None:
    word, sentence = "x" * 2_000, "so it is " * 100
    assert one_line(ValueError(word)) == word
    assert first_line(ValueError(f"no tensor {word} here")) == f"no tensor {'x' * 59}… here"
    assert first_line(ValueError(sentence)) == f"{sentence[:119]}…"
    assert len(first_line(ValueError(sentence), 40)) == 40


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no file 'a b' here", "no file 'a b' here"),
        (f"it is {'a ' * 99!r} here", f"it is '{'a ' * 28}a…' here"),
        (f"it is {'a' * 99} here", f"it is {'a' * 59}… here"),
        (f"/tmp/{'d/' * 40}f.pt: bad", f"/tmp/{'d/' * 40}f.pt: bad"),
        (f"/tmp/{'d/' * 400}f.pt: bad", f"…{'d/' * 57}f.pt: bad"),
        (f"a model's gates {'and ' * 20}heads' end", f"a model's gates {'and ' * 20}heads' end"),
        ("so " * 200, f"{('so ' * 200)[:195]} ... {('so ' * 200)[-100:]}"),
    ],
)
def test_echoed_input_and_messages_are_short(message: str, shown: str) -> None:
    assert str(InputError(message)) == shown


@pytest.mark.parametrize("text", ["x" * 5_000, "x " * 5_000, "x'" * 5_000, "\n" * 5_000])
@pytest.mark.parametrize(
    "refused",
    [
        lambda text: it.load(text),
        lambda text: it.load(f"toy:{text}"),
        lambda text: it.load("toy:xor-2head", dtype=text),
        lambda text: it.analyze("toy:xor-2head", text),
        lambda text: threshold_degree(text),
        lambda text: parse_memory(text),
        lambda text: it.ablate(it.load("toy:xor-2head"), heads=[(0, 0)], how=text).__enter__(),
    ],
)
def test_damaged_input_is_echoed_in_short(refused: Callable[[str], Any], text: str) -> None:
    with pytest.raises(InputError) as error:
        refused(text)
    line = str(error.value)
    assert len(line) <= LONGEST
    assert text[:61] not in line


def templates() -> Iterator[tuple[str, str]]:
    """Where each InputError is raised with its own words, and those words; `#` for a value."""
    for path in (path for package in PACKAGES for path in sorted(package.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "InputError":
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.JoinedStr):
                        values = part.values
                        words = "".join(
                            v.value if isinstance(v, ast.Constant) else "#" for v in values
                        )
                        yield f"{path.name}:{node.lineno}", words
                if isinstance(node.args[0], ast.Constant):
                    yield f"{path.name}:{node.lineno}", node.args[0].value


#: words that name nothing in the field, inversions, and British spelling
WORDS = re.compile(
    r"\b(anew|asked|behind the addition|foretold|(?<!there )is no (?!longer)|mend|readoffs?|"
    r"strangers|told|whence|wherein|which has not|normalis|optimis|quantis|initialis|modelling|"
    r"colour)"
)


def test_messages_use_the_words_of_the_field() -> None:
    assert {where: words for where, words in templates() if WORDS.search(words)} == {}


def test_messages_leave_room_for_what_they_echo() -> None:
    long = {
        where: words for where, words in templates() if len(words) + 9 * words.count("#") > LONGEST
    }
    assert long == {}
