"""Figures and tables in the README and the docs are those of the files in `docs/results`.

A figure is followed by where it comes from:

    0.8446<!-- xor :: quantities :: hand-set, two heads/score of equal bits :: median :: .4f -->

is that value of `docs/results/xor.json`, in that format; a word has the form s. A step of the path
is a key, a place in a list, or the name of an entry, whole or a part that no other has: `of/name`
of a quantity, the claim of a finding, the title of a table and then the first cell of a row and the
name of a column (or `rows` and two places); or, of a list, its `median`, `least`, `most` or
`length`. A table lies between two comments:

    <!-- table :: open/stacked-errors :: Claims :: claim={claim} | found={found:.2f} -->
    <!-- end of table -->

names the columns (heading=cell, in which {column} or {column:format} stands for a row's value, and
{0} for its first, where no column has that name). A row with nothing in a column that its cell
wants has – there.

Run: python docs/figures.py    writes every figure anew; it is idle where all are as in the files
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if RESULTS not in p.parents),
]
FIGURE = re.compile(
    r"(?P<figure>(?<![\w.,])[-−+]?\d[\d.,]*(?:e[-+]?\d+)?(?: %)?|(?<=\d-)\d+(?: %)?|`[^`\n]*`|\?)"
    r"<!-- (?P<name>[\w/-]+) :: (?P<path>.+?) :: (?P<form>\S+) -->"
)
TABLE = re.compile(
    r"(?P<begin><!-- table :: (?P<name>[\w/-]+) :: (?P<title>[^\n]+?) :: (?P<columns>[^\n]+?) -->)"
    r"\n(?P<body>(?:(?!<!-- table :: ).)*?)(?P<end><!-- end of table -->)",
    re.DOTALL,
)
OF_A_LIST = {"median": statistics.median, "least": min, "most": max, "length": len}
_OUTCOME = re.compile(r"^[a-z]+(_[a-z]+)+$|\b[a-z]+(_[a-z]+){2,}\b")  # such as not_reached
_TIMES = re.compile(r"([\d.]+(?:e-?\d+)?)\*")
_CELL = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")


@cache
def result(name: str) -> Mapping[str, Any]:
    """What an artefact found, or the file of a benchmark."""
    content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    if "results" not in content:
        return content
    [found] = content["results"]
    return found


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
        elif step in OF_A_LIST:
            value = OF_A_LIST[step](value)
        else:
            value = _only(value, step)
    return value


def _only(entries: list[Mapping[str, Any]], said: str) -> Mapping[str, Any]:
    """The entry of this name, or the one whose name holds it."""
    exact = [entry for entry in entries if said in _named(entry)]
    [found] = exact or [e for e in entries if any(said in name for name in _named(e))]
    return found


def _named(entry: Mapping[str, Any]) -> set[str]:
    names = {str(entry[key]) for key in ("name", "claim", "title") if key in entry}
    return names | {f"{entry.get('of')}/{entry.get('name')}"}


def written(value: Any, form: str) -> str:
    """As `format` has it, but with a space before %.

    `100*.0f` is of 100 times the value, `1e-6*.1f` of a millionth of it. A word, of
    the form `s`, stands between back quotes.
    """
    if form == "s":
        return f"`{value.replace('_', ' ')}`"
    if times := _TIMES.match(form):
        value, form = float(times[1]) * value, form[times.end() :]
    text = format(value, form)
    if form.endswith("%"):
        text = text.replace("%", " %")
    return text[1:] if re.fullmatch(r"-0(\.0+)?( %)?", text) else text


def figure(name: str, path: str, form: str) -> str:
    """A figure as the pages have it."""
    return written(follow(result(name), path.split(" :: ")), form)


def table(name: str, title: str, columns: str) -> str:
    """A table's lines of Markdown."""
    found = follow(result(name), ["tables", title])
    heads, cells = zip(
        *(column.strip().split("=", 1) for column in columns.split("|")), strict=True
    )
    lines = [heads, ["---"] * len(heads)]
    for values in found["rows"]:
        places = {str(place): value for place, value in enumerate(values)}
        row = {**places, **dict(zip(found["columns"], values, strict=True))}
        lines.append([_cell(cell, row) for cell in cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(template: str, row: Mapping[str, Any]) -> str:
    wanted = [row[m[1]] for m in _CELL.finditer(template)]
    if any(value is None for value in wanted):
        return "–"
    text = _CELL.sub(lambda m: written(row[m[1]], m[2] or ""), template)
    text = _OUTCOME.sub(lambda m: m[0].replace("_", " "), text)
    return text.replace("|", "\\|")


def anew(text: str) -> str:
    """A page with every figure and table as the files have them."""
    text = TABLE.sub(
        lambda m: f"{m['begin']}\n\n{table(m['name'], m['title'], m['columns'])}\n{m['end']}", text
    )
    return FIGURE.sub(
        lambda m: figure(m["name"], m["path"], m["form"]) + m[0][len(m["figure"]) :], text
    )


def unread(text: str) -> int:
    """How many references of a page are written wrongly, so that nothing would be held by them."""
    read = [*FIGURE.finditer(text), *TABLE.finditer(text)]
    return len(re.findall(r"<!-- [\w/-]+ :: ", text)) - len(read)


def main() -> None:
    """Write the pages anew.

    Raises SystemExit where a reference cannot be read.
    """
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        if unread(before):
            raise SystemExit(f"{page.relative_to(ROOT)}: {unread(before)} references are unread")
        after = anew(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
