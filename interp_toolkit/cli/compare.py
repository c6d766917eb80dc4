"""`interp compare A.json B.json`: which verdicts of two files differ, and what below them."""

from __future__ import annotations

from typing import Annotated

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.outputs import show_results


def compare(
    first: Annotated[str, typer.Argument(metavar="A.json", help="What --json wrote.")],
    second: Annotated[str, typer.Argument(metavar="B.json", help="The same of another run.")],
    json: options.Json = None,
    html: options.Html = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Say which verdicts of two files of results differ, and which words and numbers below them.

    Numbers with intervals differ where the interval of the difference is beside 0.
    """
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    options.check_apart(
        {"--json": json_path, "--html": html_path}, {"A.json": first, "B.json": second}
    )
    from interp_toolkit.report import compare as comparing

    show_results([comparing.compare(first, second)], json, json_path, html_path, quiet)
