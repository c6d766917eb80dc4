"""Write the table of published data sets in `compatibility.md`: what becomes of their files.

Each layout of `tests/data/published/layouts.yaml` is written as a file and read; the table has its
columns, and the role of each or the option that the error names. Run: python docs/layouts.py
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
TABLE = re.compile(r"\| data set \| columns \| read as \|\n.*?(?=\n\n)", re.DOTALL)
sys.path.insert(0, str(ROOT / "tests" / "helpers"))


def row(layout: Mapping[str, Any], folder: Path) -> str:
    """The table's row for one data set."""
    from layouts import WordTokenizer, written

    from interp_toolkit import InputError
    from interp_toolkit.data import read_data

    path, options = written(layout, folder), layout.get("options") or {}
    columns = ", ".join(f"`{name}`" if name else "(no name)" for name in layout["columns"])
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    try:
        data = read_data(path, WordTokenizer(), schema=options or None)
    except InputError:
        outcome = f"refused: the message names `{layout['refused']}`"
    else:
        roles = [line.partition(": column ") for line in data.reading if ": column " in line]
        parts = [f"{role} {column.replace(chr(39), '`')}" for role, _, column in roles]
        parts += [f"feature `{name}`" for name in data.names]
        outcome = ", ".join(parts)
        rules = [line.split()[-1] for line in data.reading if line.startswith("read as ")]
        outcome = f"the rules of {rules[0]}" if rules else outcome
        outcome = f"with `{flags}`: {outcome}" if flags else outcome
    return f"| [{layout['name']}]({layout['source']}) | {columns} | {outcome} |"


def table() -> str:
    """The table in Markdown."""
    from layouts import layouts

    with tempfile.TemporaryDirectory() as folder:
        rows = [row(layout, Path(folder)) for layout in layouts()]
    return "\n".join(["| data set | columns | read as |", "|---|---|---|", *rows])


def main() -> None:
    """Rewrite the page."""
    text = PAGE.read_text(encoding="utf-8")
    assert TABLE.search(text), "the page has no such table"
    PAGE.write_text(TABLE.sub(lambda match: table(), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
