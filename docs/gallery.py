"""The page `gallery.md`, generated while the site is built: reported and reproduced tables.

Each artifact with a file in `docs/results` has its verdict, its command and its first table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from interp_toolkit.registry import find, names
from interp_toolkit.report.format import format_column, sign_of_status, words

RESULTS = Path(__file__).parent / "results"
MOST_ROWS = 12
OF_THIS_PROJECT = "open/"  # studies, which have pages of their own

INTRODUCTION = """# Gallery of reproduced tables
Browse every table and figure of the four papers that `interp reproduce` makes with the small preset
on two cores. Each entry has the verdict and the first table ("theirs / ours" where the paper prints
one). Complete results, with every seed, are in `docs/results`; `--html` makes a full report.
See also [the papers item by item](sources.md) and [the open questions](open/index.md).
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "gallery.md", content=gallery()))
    return files


def gallery() -> str:
    """The page as Markdown."""
    return "\n".join([INTRODUCTION, *_artefacts()]) + "\n"


def _artefacts() -> Iterator[str]:
    for name in names("artefacts"):
        path = RESULTS / f"{name}.json"
        if name.startswith(OF_THIS_PROJECT) or not path.exists():
            continue
        [result] = json.loads(path.read_text(encoding="utf-8"))["results"]
        status = result["evidence"]["status"]
        yield f"## {name}\n{find('artefacts', name).summary} (`interp reproduce {name}`)\n"
        yield f"**{sign_of_status(status)} {words(status)}**: {_escaped(result['verdict'])}\n"
        yield from _table(result["tables"][0], name)


def _table(table: Mapping[str, Any], name: str) -> Iterator[str]:
    """A table's first rows in Markdown, without empty columns."""
    columns = [list(cells) for cells in zip(*table["rows"], strict=True)]
    kept = [i for i, cells in enumerate(columns) if any(cell is not None for cell in cells)]
    shown = zip(*(format_column(columns[i])[:MOST_ROWS] for i in kept), strict=True)
    rows = [[table["columns"][i] for i in kept], ["---"] * len(kept), *map(list, shown)]
    yield f"{table['title']}:\n"
    yield from (f"| {' | '.join(map(_escaped, row))} |" for row in rows)
    left = len(table["rows"]) - MOST_ROWS
    yield f"\nand {left} more rows in `docs/results/{name}.json`.\n" if left > 0 else ""


def _escaped(text: str) -> str:
    return re.sub(r"[\\|*_<\[`]", lambda m: "&lt;" if m[0] == "<" else f"\\{m[0]}", text)
