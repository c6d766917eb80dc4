"""Results in a notebook: the verdict, the figure that explains it, the main table.

A notebook shows the value of a cell's last line by its `_repr_html_`, which for a result calls
`html_of`. The figure loads plotly.js from the network, since plotly.js in every cell would take
megabytes. `show` displays all figures and tables with the notebook's own tools, plotly's renderer
among them. Outside a notebook it prints the result without figures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from interp_toolkit.report.format import tone_of
from interp_toolkit.report.html import environment, grid
from interp_toolkit.results import Figure, Result, Table, Tone

SHOWN_ROWS = 12
COLORS: Mapping[Tone | None, str] = {  # readable on light and dark paper
    "yes": "#1a9079",
    "no": "#b8508a",
    "open": "#a07c1c",
    "against": "#c0262d",
    "none": "#7d8590",
    None: "#7d8590",
}


def html_of(result: Result, plotly: str = "cdn") -> str:
    """A result as an HTML fragment with everything escaped, for `_repr_html_`.

    Args:
        result: result of any analysis.
        plotly: address of plotly.js, ending in `.js`, or "cdn".
    """
    parts = [_verdict(result)]
    for figure in result.figures()[:1]:
        parts += [_rendered(figure, plotly), _macro("caption", figure)]
    parts.append(_macro("findings", result))
    parts += [_table(table, SHOWN_ROWS) for table in result.tables()[:1]]
    return "<div>\n{}</div>".format("".join([*parts, _macro("source", result)]))


def show(result: Result) -> None:
    """Display verdict, figures and tables in a notebook; elsewhere print all but the figures."""
    if not in_notebook():
        from rich.console import Console

        from interp_toolkit.report.console import render

        render([result], Console())
        return
    from IPython.display import HTML, display

    display(HTML(_verdict(result)))
    for figure in result.figures():
        renders = find_spec("nbformat")  # plotly's own renderer needs it
        output = figure.to_plotly() if renders else HTML(_rendered(figure))
        display(output, HTML(_macro("caption", figure)))
    if result.findings:
        display(HTML(_macro("findings", result)))
    for table in result.tables():
        display(HTML(_table(table, len(table.rows))))


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this; IPython in a terminal does not count."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _rendered(figure: Figure, plotly: str = "cdn") -> str:
    return str(figure.to_plotly().to_html(full_html=False, include_plotlyjs=plotly))


def _verdict(result: Result) -> str:
    return _macro("verdict", result, COLORS[tone_of(result.status)])


def _table(table: Table, rows: int) -> str:
    return _macro("table", grid(table), rows)


def _macro(name: str, *values: Any) -> str:
    macros = environment().get_template("notebook.html").module
    return str(getattr(macros, name)(*values))
