"""Results to where the user wants them (terminal, JSON, HTML), which is checked before the work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interp_toolkit.cli import options


class Outputs:
    """The outputs of a command, checked to be writable before the work starts.

    Args:
        json: as on the command line.
        html: as on the command line.
        quiet: print the verdict only, and no progress.
        read: the files that the command reads, by what they are, which may not be overwritten.
        written: further files that the command writes, by their flags.

    Raises:
        InputError: a file cannot be written, or would overwrite another.
    """

    def __init__(
        self,
        json: str | None,
        html: str | None,
        quiet: bool,
        read: Mapping[str, str | None],
        written: Mapping[str, Path | None] | None = None,
    ):
        self.quiet, self._to_stdout = quiet, json == "-"
        self._json_path = None if self._to_stdout else options.writable(json, "--json")
        self._html_path = options.writable(html, "--html")
        ours = {"--json": self._json_path, "--html": self._html_path}
        options.check_apart({**ours, **(written or {})}, read)

    def run(self, work: Callable[[Callable[[str], None]], Any]) -> None:
        """Do the work, which is given a place to say how far it is, and show its results."""
        from interp_toolkit.cli.progress import progress

        began = time.monotonic()
        with progress(self.quiet) as say:
            results = work(say)
        if not self.quiet:
            print(f"done in {time.monotonic() - began:.0f} s", file=sys.stderr)
        self.show(results if isinstance(results, list) else [results])

    def show(self, results: list[Any]) -> None:
        """Print the results, or their JSON where it goes to standard output, and write files."""
        from rich.console import Console

        from interp_toolkit.report.console import render
        from interp_toolkit.report.files import write_json

        to_stdout = self._to_stdout
        try:
            if not (to_stdout and self.quiet):
                console = Console(stderr=to_stdout, highlight=False)
                render(results, console, quiet=self.quiet or to_stdout)
            if to_stdout:
                write_json(results, "-")
        finally:  # the files are written although the reader of the output may have left
            _write(results, self._json_path, self._html_path)


def _write(results: list[Any], json_path: Path | None, html_path: Path | None) -> None:
    """The files asked for; where each is goes to standard error."""
    from interp_toolkit.report.files import write_json

    if json_path is not None:
        write_json(results, json_path)
        print(f"JSON: {json_path}", file=sys.stderr)
    if html_path is not None:
        from interp_toolkit.report.html import write_report

        write_report(results, html_path)
        print(f"report: {html_path}", file=sys.stderr)
