"""Figures in the README and the docs are those of the result files they name.

A figure that is followed by a comment such as

    0.8446<!-- xor :: quantities :: hand-set, two heads/score of equal bits :: median :: .4f -->

is that value of `docs/results/xor.json`, in that format. A step of the path is a key, a place in a
list, or the name of an entry: `of/name` of a quantity, the claim of a finding, the title of a table
and then the first cell of a row and the name of a column.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = re.compile(
    r"(?P<before>[^\n]*?)<!-- (?P<name>[\w/-]+) :: (?P<path>.+?) :: (?P<form>\S+) -->"
)


@cache
def result(name: str) -> dict[str, Any]:
    [found] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return found


def follow(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, dict) and "rows" in value and "columns" in value:
            [row] = [r for r in value["rows"] if str(r[0]) == step]
            value = dict(zip(value["columns"], row, strict=True))
        elif isinstance(value, dict):
            value = value[step]
        elif step.isdigit():
            value = value[int(step)]
        else:
            [value] = [v for v in value if step in named(v)]
    return value


def named(entry: dict[str, Any]) -> set[str]:
    names = {str(entry[key]) for key in ("name", "claim", "title") if key in entry}
    return names | {f"{entry.get('of')}/{entry.get('name')}"}


def written(value: Any, form: str) -> str:
    """As `format` has it; `100*.0f` is of a hundred times the value, `.0%` has a space before %."""
    if form.startswith("100*"):
        return format(100 * value, form[4:])
    return format(value, form).replace("%", " %")


def references() -> list[tuple[str, str, str, str, str]]:
    return [
        (str(page.relative_to(ROOT)), m["before"], m["name"], m["path"], m["form"])
        for page in PAGES
        for m in REFERENCE.finditer(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "before", "name", "path", "form"), references())
def test_a_figure_is_the_result_files(page, before, name, path, form) -> None:
    value = follow(result(name), path.split(" :: "))
    assert before.rstrip().endswith(written(value, form)), (page, before[-30:], value)


def test_there_are_figures_to_hold() -> None:
    assert len(references()) > 20


@pytest.mark.parametrize("file", sorted(RESULTS.rglob("*.json")), ids=lambda f: f.stem)
def test_a_result_file_is_of_an_artefact_that_is_there(file: Path) -> None:
    from interp_toolkit.registry import names

    assert str(file.relative_to(RESULTS).with_suffix("")) in names("artefacts")


def test_steps_of_a_path() -> None:
    document = {
        "quantities": [
            {"of": "a", "name": "x", "median": 1},
            {"of": "b", "name": "x", "median": 2},
        ],
        "tables": [{"title": "t", "columns": ["k", "v"], "rows": [["r", 3], ["s", 4]]}],
    }
    assert follow(document, ["quantities", "b/x", "median"]) == 2
    assert follow(document, ["tables", "t", "s", "v"]) == 4
    assert follow(document, ["quantities", "0", "of"]) == "a"
    with pytest.raises(ValueError, match="too many"):
        follow(document, ["quantities", "x"])
