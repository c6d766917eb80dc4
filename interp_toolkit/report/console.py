"""Results in the terminal: headline, findings as bullets, tables, provenance.

The full evidence is only in HTML and JSON.

Except with `quiet`, output fits the console's width: numbers are never broken, text folds inside
its column, and columns that still do not fit are left out and named. Verdicts have a sign as well
as a color; ASCII-only terminals get replacements.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from io import StringIO
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from interp_toolkit.errors import printable, takes
from interp_toolkit.formatting import LIKENESS
from interp_toolkit.report import format
from interp_toolkit.report.format import (
    MISSING,
    PLAIN_SIGN,
    deciding,
    format_column,
    format_value,
    is_numeric,
    legend,
    model_names,
    sign_of,
    tone_of,
    words,
)
from interp_toolkit.results import Provenance, Result, Table, Tone, check_results, jsonable

STYLES: Mapping[Tone, str] = {
    "yes": "green",
    "no": "magenta",
    "none": "default",
    "open": "yellow",
    "against": "red",
}
MAX_ROWS = 20
GAP = 2  # characters between a table's columns
FOLDED = 12  # smallest width of a folded text column (at least its heading's longest word)
_RULE = box.Box("    \n    \n ── \n" + "    \n" * 5)
_ASCII_RULE = box.Box("    \n    \n -- \n" + "    \n" * 5, ascii=True)
_NAME_PARTS = re.compile(r"[^._:/-]*[._:/-]?(?=.)|.$")
_HASH = re.compile(r"[0-9a-f]{32,}")
_ASCII = str.maketrans(LIKENESS)


@takes(results=check_results)
def render(results: Sequence[Result], console: Console, *, quiet: bool = False) -> None:
    """Show results on a `rich` console; with `quiet`, each result's sign and headline on one line.

    Examples:
        >>> import interp_toolkit as it
        >>> from rich.console import Console
        >>> result = it.analyze("toy:xor-2head", "xor")
        >>> render([result], Console(width=54), quiet=True)  # doctest: +ELLIPSIS
        ✓ XOR is linearly separable at...
    """
    names = model_names(results)
    several = len(set(names)) > 1
    for name, result in zip(names, results, strict=True):
        if quiet:
            of = f"{result.probe} of {name}: " if several else ""
            text = Text.assemble(_plain(of, console), _verdict(result, console))
            console.print(text, soft_wrap=True)
        else:
            _render_one(result, name, console)
    if results and not quiet:
        for table in format.tables(results, names):
            _print_table(table, console)
        _print_legend(results, console)


def first_stage(result: Result) -> str:
    """The headline and the first table as plain text, for the first stage of a long analysis."""
    text = StringIO()
    console = Console(file=text, width=Console(stderr=True).width, highlight=False)
    console.print(_verdict(result, console))
    for table in result.tables()[:1]:
        _print_table(table, console)
    return text.getvalue().rstrip()


def _print_legend(results: Sequence[Result], console: Console) -> None:
    parts = [f"{sign} {text}" for sign, _, text in legend(results)]
    if parts:
        console.print(Text(_plain("; ".join(parts), console), style="dim"))


def _render_one(result: Result, model: str, console: Console) -> None:
    console.print(
        Panel(
            _verdict(result, console),
            title=Text(_plain(f"{result.probe} · {model}", console), style="bold"),
            title_align="left",
            border_style=_style(result.status),
            padding=(0, 1),
        )
    )
    _print_findings(result, console)
    for table in result.tables():
        _print_table(table, console)
    line = Text(_plain(provenance_line(result.provenance), console), style="dim")
    console.print(Padding(line, (0, 0, 1, 0)))


def _verdict(result: Result, console: Console) -> Text:
    sign = Text(_plain(sign_of(result), console), style=f"bold {_style(result.status)}")
    return Text.assemble(sign, " ", (_plain(result.headline, console), "bold"))


def _print_findings(result: Result, console: Console) -> None:
    """The findings as bullets, then the notes."""
    if not (result.findings or result.notes):
        return
    grid = Grid.grid(padding=(0, 1, 0, 0))
    for sentence in result.findings:
        grid.add_row(Text(_plain(PLAIN_SIGN, console)), Text(_plain(sentence, console)))
    for note in result.notes:
        grid.add_row("", Text(_plain(f"Note: {note}", console), style="dim"))
    console.print(Padding(grid, (0, 0, 1, 0)))


def _print_table(table: Table, console: Console) -> None:
    rows = table.rows[:MAX_ROWS]
    cells = [[row[i] for row in rows] for i in range(len(table.columns))]
    texts = [[_plain(text, console) for text in format_column(column)] for column in cells]
    numeric = [is_numeric(column) for column in cells]
    headers = [
        _header(_plain(h, console), column) for h, column in zip(table.columns, texts, strict=True)
    ]
    widths = [
        max([*map(cell_len, header.split("\n")), *map(cell_len, column)])
        for header, column in zip(headers, texts, strict=True)
    ]
    floors = [max(FOLDED, *map(cell_len, header.split("\n"))) for header in headers]
    required = {0, deciding(cells)}
    fitted = fit(widths, floors, numeric, console.width, required)

    rule = _ASCII_RULE if console.options.ascii_only else _RULE
    grid = Grid(box=rule, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for i, width in fitted.items():
        justify: Literal["left", "right"] = "right" if numeric[i] else "left"
        grid.add_column(Text(headers[i]), justify=justify, width=width, overflow="fold")
    for r in range(len(rows)):
        grid.add_row(
            *(
                Text(fold(texts[i][r], width), style=_cell_style(cells[i][r]))
                for i, width in fitted.items()
            ),
            style="bold" if r in table.highlight else None,
        )
    console.print(Text(_plain(table.title, console), style="bold"))
    console.print(grid)
    for note in _notes(table, fitted):
        console.print(Text(_plain(note, console), style="dim"))
    console.print()


def _header(name: str, column: Sequence[str]) -> str:
    """A column's heading, with a line break at each space if it is wider than its cells."""
    name = words(name)
    return name.replace(" ", "\n") if len(name) > max(map(len, column), default=0) else name


def fit(
    widths: Sequence[int],
    floors: Sequence[int],
    fixed: Sequence[bool],
    available: int,
    required: Collection[int | None] = (),
) -> dict[int, int]:
    """The columns that fit next to each other, each with its width.

    The widest columns that are not fixed shrink first, each down to its floor. If that is not
    enough, the last columns are left out, required ones after all others.
    """
    fitted = dict(enumerate(widths))
    while sum(fitted.values()) + GAP * (len(fitted) - 1) > available and len(fitted) > 1:
        foldable = [i for i in fitted if not fixed[i] and fitted[i] > floors[i]]
        if foldable:
            fitted[max(foldable, key=fitted.__getitem__)] -= 1
        else:
            last = max([i for i in fitted if i not in required] or fitted)
            fitted = {i: widths[i] for i in fitted if i != last}
    return fitted


def fold(text: str, width: int) -> str:
    """Text with line breaks after punctuation in a long name; text with spaces is unchanged."""
    if cell_len(text) <= width or " " in text:
        return text
    lines = [""]
    for part in _NAME_PARTS.findall(text):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _notes(table: Table, shown: Collection[int]) -> list[str]:
    notes = [table.caption] if table.caption else []
    if len(table.rows) > MAX_ROWS:
        notes.append(f"… and {len(table.rows) - MAX_ROWS} more rows (JSON and HTML have them all)")
    if len(shown) < len(table.columns):
        hidden = ", ".join(words(c) for i, c in enumerate(table.columns) if i not in shown)
        notes.append(f"… and, too wide for this terminal: {hidden}")
    return notes


def _cell_style(cell: Any) -> str:
    return _style(cell) if tone_of(cell) else ""


def _style(status: Any) -> str:
    tone = tone_of(status)
    return STYLES[tone] if tone else "default"


def _plain(text: str, console: Console) -> str:
    """Text for this terminal, without control characters from names in files."""
    text = printable(text)
    return text.translate(_ASCII) if console.options.ascii_only else text


def provenance_line(provenance: Provenance) -> str:
    """Model, data, seed and versions in one line; hashes are cut to twelve digits."""
    model = jsonable(provenance.model)
    about = [str(model["kind"])] if model.get("kind") else []
    if model.get("path") and model["path"] != model.get("name"):
        about.append(str(model["path"]))
    if model.get("sha256"):
        about.append(f"sha256 {model['sha256']}")
    name = str(model.get("name") or MISSING)
    parts = [f"model {name} ({', '.join(about)})" if about else f"model {name}"]
    if model.get("set_aside"):
        parts.append(f"set aside: {', '.join(map(str, model['set_aside']))}")
    if provenance.data:
        data = jsonable(provenance.data)
        parts.append("data " + ", ".join(f"{words(k)} {format_value(v)}" for k, v in data.items()))
    if provenance.seed is not None:
        parts.append(f"seed {provenance.seed}")
    parts.append(", ".join(f"{name} {version}" for name, version in provenance.versions.items()))
    return _HASH.sub(lambda match: match[0][:12], " · ".join(part for part in parts if part))
