"""`interp compare A.json B.json`: compare the verdicts and numbers of two results files."""

from __future__ import annotations

from typing import Annotated

import typer

from interp_toolkit.cli.flags import OutputFlags


def compare(
    first: Annotated[str, typer.Argument(metavar="A.json", help="What --json wrote.")],
    second: Annotated[str, typer.Argument(metavar="B.json", help="Results of another run.")],
    output: OutputFlags,
) -> None:
    """Compare the verdicts of two files of results, and the words and numbers below them.

    Numbers with intervals differ if the interval of the difference excludes 0.
    """
    outputs = output.open({"A.json": first, "B.json": second})
    from interp_toolkit.report import compare as comparing

    outputs.show([comparing.compare(first, second)])
