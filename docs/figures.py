"""Numbers and tables on the README and docs pages, held to the result files in `docs/results`.

`docs/figures.yaml` lists, for each page and result file, sentences and tables of that page:

    docs/speed.md:
      benchmarks/startup:
        - "`interp --help` takes {medians_s :: interp --help :: .2f} s on {} cores"
        - Packages: package={package} | MB={itself, MB:.0f}

The name of a result file may go on with the first steps of a path (`benchmarks/startup :: cores`).

A sentence is a piece of the page that occurs once, however its lines are wrapped. A number in it
stands as `{path :: format}`: a value of the result file and how it is written, or as `{}` where it
is held elsewhere or not at all. A step of the path is a key, an index of a list, or the name of an
entry, whole or a part that no other entry has: `of/name` of a quantity, the claim of a finding, the
title of a table and then the first cell of a row and the name of a column (or `rows` and two
indices); or, of a list, its `median`, `least`, `most` or `length`. The format is Python's, but
`100*.0f` multiplies first, and `s` is a word in back quotes.

A table is given by its path or, from a table of the file, its title, and by its columns:
heading=cell, where {column:format} stands for the row's value and {0} for its first. On the page it
is the table with these headings.

Run: python docs/figures.py    rewrites every number that differs from its result file
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
REFERENCES: dict[str, dict[str, list[str | dict[str, str]]]] = yaml.safe_load(
    (ROOT / "docs" / "figures.yaml").read_text(encoding="utf-8")
)
LIST_SUMMARIES = {"median": statistics.median, "least": min, "most": max, "length": len}
_NUMBER = r"[-−+]?\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?"
_PATTERNS = {"%": rf"{_NUMBER}(?: %)?", "s": r"`[^`\n]*`"}
_REFERENCE = re.compile(r"\{(?:([^{}]+) :: ([^{}:]+))?\}")
_CELL = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")
_STATUS = re.compile(r"^[a-z]+(_[a-z]+)+$|\b[a-z]+(_[a-z]+){2,}\b")  # such as not_reached


@cache
def load_result(name: str) -> Any:
    """The result of an artefact, or the file of a benchmark, or the value at a path in it."""
    name, *steps = name.split(" :: ")
    content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return follow(content["results"][0] if "results" in content else content, steps)


def follow(value: Any, steps: list[str]) -> Any:
    """The value at the end of a path."""
    for step in steps:
        if isinstance(value, dict) and "columns" in value and step != "rows":
            [row] = [r for r in value["rows"] if str(r[0]) == step]
            value = dict(zip(value["columns"], row, strict=True))
        elif isinstance(value, dict):
            value = value[step]
        elif step.isdigit():
            value = value[int(step)]
        elif step in LIST_SUMMARIES:
            value = LIST_SUMMARIES[step](value)
        else:
            exact = [entry for entry in value if step in _names(entry)]
            [value] = exact or [e for e in value if any(step in name for name in _names(e))]
    return value


def _names(entry: Mapping[str, Any]) -> set[str]:
    names = {str(entry[key]) for key in ("name", "claim", "title") if key in entry}
    return names | {f"{entry.get('of')}/{entry.get('name')}"}


def format_value(value: Any, form: str) -> str:
    """A value as pages print it: as `format` does, but with a space before %."""
    if form == "s":
        return f"`{value.replace('_', ' ')}`"
    if "*" in form:
        factor, form = form.split("*")
        value = float(factor) * value
    text = format(value, form)
    if form.endswith("%"):
        text = text.replace("%", " %")
    return text[1:] if re.fullmatch(r"-0(\.0+)?( %)?", text) else text


def update_sentence(text: str, name: str, sentence: str) -> str:
    """The page's text with the numbers of one sentence as in the result file.

    Raises LookupError unless the sentence occurs once.
    """
    pattern = ""
    values: list[str | None] = []
    end = 0
    for reference in _REFERENCE.finditer(sentence):
        path, form = reference.groups()
        pattern += _literal(sentence[end : reference.start()])
        pattern += f"({_PATTERNS.get((form or '%')[-1], _NUMBER)})"
        values.append(path and format_value(follow(load_result(name), path.split(" :: ")), form))
        end = reference.end()
    pattern = rf"(?<![\d.,\w]){pattern}" if sentence.startswith("{") else pattern
    pattern += _literal(sentence[end:]) + (r"(?![.,]?\d)" if end == len(sentence) else "")
    matches = list(re.finditer(pattern, text))
    if len(matches) != 1:
        raise LookupError(f"{len(matches)} matches, not 1, of {sentence!r} ({name})")
    for group in reversed(range(len(values))):
        start, stop = matches[0].span(group + 1)
        text = text[:start] + (values[group] or text[start:stop]) + text[stop:]
    return text


def _literal(text: str) -> str:
    return r"\s+".join(re.escape(part) for part in re.split(r"\s+", text))


def update_table(text: str, name: str, title: str, columns: str) -> str:
    """The page's text with the rows of one table as in the result file.

    Raises LookupError unless one table of the page has these headings.
    """
    head, *rows = table_lines(name, title, columns)
    parts = re.split(rf"^({re.escape(head)}\n)((?:\|.*\n)*)", text, flags=re.M)
    if len(parts) != 4:
        raise LookupError(f"{len(parts) // 3} tables, not 1, headed {head!r} ({name})")
    return "".join([*parts[:2], *(f"{row}\n" for row in rows), parts[3]])


def table_lines(name: str, title: str, columns: str) -> list[str]:
    """A table's lines of Markdown."""
    result = load_result(name)
    table = follow(result, ["tables", title] if "tables" in result else title.split(" :: "))
    if isinstance(table, list):
        table = {"columns": list(table[0]), "rows": [list(row.values()) for row in table]}
    heads, cells = zip(*(c.strip().split("=", 1) for c in columns.split("|")), strict=True)
    lines = [heads, ["---"] * len(heads)]
    for values in table["rows"]:
        row = {str(index): value for index, value in enumerate(values)}
        row |= dict(zip(table["columns"], values, strict=True))
        lines.append([_cell(cell, row) for cell in cells])
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(template: str, row: Mapping[str, Any]) -> str:
    if any(row[reference[1]] is None for reference in _CELL.finditer(template)):
        return "–"
    text = _CELL.sub(lambda m: format_value(row[m[1]], m[2] or ""), template)
    return _STATUS.sub(lambda m: m[0].replace("_", " "), text).replace("|", "\\|")


def update_page(text: str, references: Mapping[str, list[str | dict[str, str]]]) -> str:
    """A page's text with every number and table as in the result files."""
    for name, entries in references.items():
        for entry in entries:
            if isinstance(entry, str):
                text = update_sentence(text, name, entry)
            else:
                [(title, columns)] = entry.items()
                text = update_table(text, name, title, columns)
    return text


def count_references(references: Mapping[str, list[str | dict[str, str]]]) -> int:
    """How many numbers and tables of a page are held to a result file."""
    entries = [entry for of_file in references.values() for entry in of_file]
    return sum(
        sum(bool(m[1]) for m in _REFERENCE.finditer(entry)) if isinstance(entry, str) else 1
        for entry in entries
    )


def main() -> None:
    """Rewrite the pages."""
    for name, references in REFERENCES.items():
        page = ROOT / name
        before = page.read_text(encoding="utf-8")
        after = update_page(before, references)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
