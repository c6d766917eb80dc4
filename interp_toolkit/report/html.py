"""Reports written to files: one self-contained HTML page, or one JSON document.

*JSON*, for other programs:

    {"schema": "interp-toolkit/3", "version": "0.1.0", "model": {...}, "results": [...]}

`model` is the model of all results, or null if there are several or none; each result's provenance
names its own in every case. Numbers are numbers; missing and non-finite values are null, never
NaN. The schema is `docs/results.schema.json`.

*HTML*: the verdict, figures, evidence and provenance of each result. The page is `page.html`
(jinja2, everything escaped) with `page.css`, `page.js`, plotly.js and the results' JSON inside.
plotly.js is compressed (0.7 MB): its cartesian bundle, a file of this package, or all of it (2 MB,
from plotly) where a figure has another kind of trace. Pages without plots leave it out. A page
needs no network and cannot use one: its content security policy allows no request and runs only
the scripts whose hashes the page lists, so that no content of a result could run even if escaping
failed. The same results give the same bytes.

`page.css` defines the colors for light, dark and print. `page.js` reads them and passes them to the
plots as plotly's template; a figure's own settings take precedence.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError, reason_of, takes
from interp_toolkit.files import replacing
from interp_toolkit.formatting import listed
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL
from interp_toolkit.report import format
from interp_toolkit.report.format import (
    deciding,
    evidence_of,
    format_column,
    format_value,
    is_number,
    is_numeric,
    legend,
    model_name,
    model_names,
    sign_of,
    tone_of,
    words,
)
from interp_toolkit.results import SCHEMA, Figure, Result, Table, check_results, jsonable


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text through a temporary file in the same folder; returns the written path.

    Links are followed, and files that are not regular (`/dev/null`, a pipe) are written directly.
    Raises InputError if the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give a file name in it")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {target.parent}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8", newline="\n")
        else:
            with replacing(target) as partial:
                partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {reason_of(error)}") from error
    return target


STDOUT = "-"
_SPREAD_OUT_NUMBERS = re.compile(r'\[\n\s+([^\[\]{}"]+?)\n\s+\]')


def to_json(results: Sequence[Result]) -> dict[str, Any]:
    """The document as plain data; raises TypeError for values without a JSON form.

    Examples:
        >>> import interp_toolkit as it
        >>> to_json([it.analyze("toy:xor-2head", "xor")])["model"]["name"]
        'toy:xor-2head'
    """
    models = [jsonable(result.provenance.model) for result in results]
    shared = bool(models) and all(model == models[0] for model in models)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "model": models[0] if shared else None,
        "results": [result.to_dict() for result in results],
    }


def dumps(results: Sequence[Result]) -> str:
    """The results as indented JSON in ASCII, with each list of numbers on one line."""
    text = json.dumps(to_json(results), allow_nan=False, indent=2)
    return _SPREAD_OUT_NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", text)


@takes(results=check_results)
def write_json(results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Write results as one JSON document, to a file (atomically) or for `-` to standard output.

    Raises InputError if the file cannot be written, or `results` is no list of results.

    Examples:
        >>> import interp_toolkit as it
        >>> it.write_json([it.analyze("toy:xor-2head", "xor")], "results.json")
    """
    text = dumps(results) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text(path, text)


_IDENTIFIER = re.compile(r"(?=.*[._:/])[A-Za-z/][\w.:/*\[\]-]*|[0-9a-f]{32,}")
#: plotly's traces that compile code (which the page's policy forbids) or fetch maps
UNSUPPORTED_TRACES = re.compile(r".*gl|splom|parcoords|.*geo|.*map(box)?|choropleth.*")
#: plotly.js 4.1.1, npm's plotly.js-cartesian-dist-min, by gzip; its license is plotly-license.txt
CARTESIAN_BUNDLE = "plotly-cartesian.min.js.gz"
CARTESIAN_TRACES = frozenset(
    [
        "bar",
        "box",
        "contour",
        "heatmap",
        "histogram",
        "histogram2d",
        "histogram2dcontour",
        "image",
        "pie",
        "scatter",
        "scatterternary",
        "violin",
    ]
)
# In prose, an underscore distinguishes a hook's name from `e.g.` and `and/or`. The second
# alternative is a number with an exponent, which a browser would break after its minus.
_IN_PROSE = re.compile(r"(\w[\w.:/*\[\]-]*_[\w.:/*\[\]-]*\w|\d[\d.]*e[+-]?\d+)")
UNBROKEN = 16  # characters of a cell that are not broken over lines, such as an edge's name
NAMED = 4  # models in a page's title
MOST_TABLES = 2  # up to this many results, main tables are expanded; otherwise collapsed
_NAME, _NUMBER = Markup("<code>{}</code>"), Markup('<span class="whole">{}</span>')


@dataclass(frozen=True)
class Cell:
    """A table's cell as shown."""

    text: str
    style: str


@dataclass(frozen=True)
class Grid:
    """A table as shown, with the CSS class of every column, row and cell."""

    title: str
    caption: str
    columns: Sequence[str]
    styles: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]


@takes(results=check_results)
def write_report(results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Write results as one self-contained HTML page, atomically.

    Args:
        results: the results to show, in order; of one model or of several.
        path: path of the HTML file.

    Raises:
        InputError: `results` is no list of results or is empty, or the file cannot be written.
        ValueError: a figure has a trace that the page cannot draw (see `UNSUPPORTED_TRACES`).

    Examples:
        >>> import interp_toolkit as it
        >>> it.write_report([it.analyze("toy:xor-2head", "xor")], "report.html")
    """
    if not results:
        raise InputError("a report needs at least one result")
    write_text(path, to_html(results))


def to_html(results: Sequence[Result]) -> str:
    """The page as text, with plotly.js inside if it has figures.

    Raises ValueError for a figure that it cannot draw.
    """
    names = model_names(results)
    models = list(dict.fromkeys(names))
    beside_figures = format.figures(results, names)
    of_results = [result.figures() for result in results]
    figures = [jsonable(figure) for figure in [*beside_figures, *chain(*of_results)]]
    *before, _ = accumulate(map(len, of_results), initial=len(beside_figures))  # each result's
    kinds = {str(trace.get("type", "scatter")) for f in figures for trace in f["data"]}
    for kind in sorted(kinds):
        if UNSUPPORTED_TRACES.fullmatch(kind) and kind not in ("heatmap", "treemap"):
            raise ValueError(f"a page without network cannot draw a {kind} trace")
    plotly = packed_plotly(kinds <= CARTESIAN_TRACES) if figures else None
    script = script_text(_source("page.js"))
    return (
        environment()
        .get_template("page.html")
        .render(
            results=results,
            names=names,
            models=models,
            title=_title(models),
            beside=format.tables(results, names),
            beside_figures=beside_figures,
            figures_of=of_results,
            most_tables=MOST_TABLES,
            before=before,
            links=[_links(*each) for each in zip(of_results, before, strict=True)],
            version=__version__,
            css=Markup(_source("page.css")),
            script=script,
            plotly=plotly and plotly.text,
            script_hashes=[_hash(script.encode()), *([plotly.hash] if plotly else [])],
            figures=[{"data": f["data"], "layout": f["layout"]} for f in figures],
            colors=[*CLASS_COLORS, NEUTRAL],
            legend=legend(results),
            document=to_json(results),
        )
    )


def _links(figures: Sequence[Figure], before: int) -> dict[str, int]:
    """Number on the page, from 1, of the result's first figure that shows each name."""
    numbered = list(enumerate(figures, start=before + 1))
    return {name: number for number, figure in reversed(numbered) for name in figure.shows}


def _title(models: Sequence[str]) -> str:
    """The models of a page; if there are many, the first ones and the number of others."""
    return listed(models, NAMED)


def script_text(source: str) -> Markup:
    """JavaScript for a script element: without closing tags, with LF line ends.

    A browser converts CR LF to LF before it hashes a script, and the hash must match.
    """
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    return Markup(re.sub(r"</(?=script)", r"<\\/", source, flags=re.IGNORECASE))


class PackedScript(NamedTuple):
    """A script by gzip and base64, and the hash of its source for the content policy."""

    text: str
    hash: str


@cache
def packed_plotly(cartesian: bool) -> PackedScript:
    """plotly.js for a page: the cartesian bundle, or with all traces."""
    packed = _plotly(cartesian)
    return PackedScript(base64.b64encode(packed).decode(), _hash(gzip.decompress(packed)))


def _plotly(cartesian: bool) -> bytes:
    """plotly.js, compressed by gzip: the cartesian bundle, or with all traces."""
    if cartesian:
        return files("interp_toolkit").joinpath("report", CARTESIAN_BUNDLE).read_bytes()
    source = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")
    return gzip.compress(source.encode(), mtime=0)


def _hash(script: bytes) -> str:
    digest = hashlib.sha256(script).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def environment() -> Environment:
    """The template environment, which escapes all values."""
    made = Environment(
        loader=PackageLoader("interp_toolkit", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    made.filters.update(
        evidence=evidence_of,
        grid=grid,
        model_name=model_name,
        plain=jsonable,
        prose=prose,
        sign=sign_of,
        tone=tone_of,
        value=format_value,
        words=words,
    )
    made.tests["identifier"] = is_identifier
    return made


def _source(name: str) -> str:
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def is_identifier(value: Any) -> bool:
    """Whether a value is an identifier (a hook, a file, a hash), shown in a monospaced font."""
    return isinstance(value, str) and bool(_IDENTIFIER.fullmatch(value)) and not tone_of(value)


def prose(text: str) -> Markup:
    """Escaped text, with hook names in a monospaced font and no line breaks inside numbers."""
    pieces = _IN_PROSE.split(text)
    pieces[1::2] = [(_NAME if "_" in piece else _NUMBER).format(piece) for piece in pieces[1::2]]
    return Markup("").join(pieces)


def grid(table: Table) -> Grid:
    """A table as shown: formatted by column, with the cells' CSS classes."""
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    texts = [format_column(column) for column in columns]
    styles = ["number" if is_numeric(column) else "" for column in columns]
    if (in_sight := deciding(columns)) is not None:
        styles[in_sight] = "deciding"
    return Grid(
        title=table.title,
        caption=table.caption,
        columns=[words(column) for column in table.columns],
        styles=styles,
        rows=[
            (
                "highlight" if r in table.highlight else "",
                [
                    Cell(
                        texts[c][r],
                        " ".join(filter(None, (styles[c], _style(row[c], texts[c][r])))),
                    )
                    for c in range(len(row))
                ],
            )
            for r, row in enumerate(table.rows)
        ],
    )


def _style(value: Any, text: str) -> str:
    tone = tone_of(value)
    if tone:
        return f"outcome {tone}"
    if is_identifier(value):
        return "identifier"
    return "whole" if len(text) <= UNBROKEN and not is_number(value) else ""
