"""What `reproduce`, `litmus` and `sweep` share: how jobs are run, where what they find goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.show_results import show_results
from interp_toolkit.errors import InputError

Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes at once; default: one a processor, one on a GPU.", min=1, max=10_000
    ),
]
EngineName = Annotated[
    str, typer.Option("--engine", help="local: processes of this machine; dask: a cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT",
        help="A Dask scheduler; default: a cluster of this machine, for the while.",
    ),
]


class Outputs:
    """Where a study's result goes; whether that can be is asked once, before the work starts.

    Args:
        json: as on the command line.
        html: as on the command line.
        quiet: print the verdict only, and no progress.
        read: the files that the study reads, by what they are, which may not be overwritten.

    Raises:
        InputError: a file cannot be written, or would overwrite another.
    """

    def __init__(
        self, json: str | None, html: str | None, quiet: bool, read: Mapping[str, str | None]
    ):
        self._json, self._quiet = json, quiet
        self._json_path = None if json == "-" else options.writable(json, "--json")
        self._html_path = options.writable(html, "--html")
        options.check_apart({"--json": self._json_path, "--html": self._html_path}, read)

    def run(self, work: Callable[[Callable[[str], None]], Any]) -> None:
        """Do the work, which is given a place to say how far it is, and show its results."""
        from interp_toolkit.cli.progress import progress

        began = time.monotonic()
        with progress(self._quiet) as say:
            found = work(say)
        results = found if isinstance(found, list) else [found]
        if not self._quiet:
            print(f"done in {time.monotonic() - began:.0f} s", file=sys.stderr)
        show_results(results, self._json, self._json_path, self._html_path, self._quiet)


def folder_of(out: str | None, resume: bool, *, default: Path | None = None) -> Path | None:
    """The folder that a study is kept in; raises InputError where there is none to resume from."""
    if out == "":
        raise InputError("--out needs the name of a folder")
    folder = default if out is None else Path(out)
    if resume and folder is None:
        raise InputError("--resume goes on with what is in a folder: give --out FOLDER")
    return folder


def runner(
    folder: Path | None,
    workers: int | None,
    engine: str,
    address: str | None,
    device: str,
    resume: bool,
    say: Callable[[str], None],
    given: Mapping[str, Mapping[str, Any]] | None = None,
    first_seed: int = 0,
) -> Any:
    """Where and how the jobs run (see `studies.jobs.runner.Runner`)."""
    from interp_toolkit.studies.jobs.engines import JobEngine
    from interp_toolkit.studies.jobs.runner import Runner

    return Runner(
        folder,
        workers=workers,
        device=_device_of(engine, device),
        resume=resume,
        say=say,
        engine=JobEngine(engine, address),
        given=given,
        first_seed=first_seed,
    )


def _device_of(engine: str, device: str) -> str:
    """The device for an engine's jobs; other machines' devices cannot be looked for from here."""
    if engine != "local" and device != "auto":
        return device
    from interp_toolkit.models.about.device import find_device

    return str(find_device(device))
