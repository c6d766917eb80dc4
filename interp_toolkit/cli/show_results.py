"""Results to where the user wants them: the terminal, JSON, an HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def show_results(
    results: list[Any],
    json: str | None,
    json_path: Path | None,
    html_path: Path | None,
    quiet: bool,
) -> None:
    """Print the results, or their JSON where `json` is "-", and write the files asked for."""
    from rich.console import Console

    from interp_toolkit.report.console import render
    from interp_toolkit.report.json import write_json

    to_stdout = json == "-"
    try:
        if not (to_stdout and quiet):
            render(results, Console(stderr=to_stdout, highlight=False), quiet=quiet or to_stdout)
        if to_stdout:
            write_json(results, "-")
    finally:  # the files are written although the reader of the output may have left
        _write(results, json_path, html_path)


def _write(results: list[Any], json_path: Path | None, html_path: Path | None) -> None:
    """The files asked for; where each is goes to standard error."""
    from interp_toolkit.report.json import write_json

    if json_path is not None:
        write_json(results, json_path)
        print(f"JSON: {json_path}", file=sys.stderr)
    if html_path is not None:
        from interp_toolkit.report.html import write_report

        write_report(results, html_path)
        print(f"report: {html_path}", file=sys.stderr)
