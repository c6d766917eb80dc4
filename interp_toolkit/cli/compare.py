"""`interp compare A.json B.json`: compare the verdicts and numbers of two results files."""

from __future__ import annotations

from typing import Annotated

import typer

from interp_toolkit.cli.flags import OutputFlags


def compare(
    first: Annotated[str, typer.Argument(metavar="A.json", help="Results written by --json.")],
    second: Annotated[
        str, typer.Argument(metavar="B.json", help="Results of another run, written by --json.")
    ],
    output: OutputFlags,
) -> None:
    """Compare two files of results: verdicts, statuses and numbers.

    Numbers with intervals differ if the interval of the difference excludes 0.
    """
    outputs = output.open({"A.json": first, "B.json": second})
    from interp_toolkit.report import compare as comparing

    outputs.show([comparing.compare(first, second)])
