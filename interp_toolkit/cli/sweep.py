"""`interp sweep FILE.yaml`: a recipe at all points of a grid, over seeds."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.show import show
from interp_toolkit.errors import InputError

RESULT = "sweep.json"


def sweep(
    file: Annotated[str, typer.Argument(metavar="FILE.yaml", help="Recipe, settings, grid.")],
    engine: options.EngineName = "local",
    address: options.Address = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Runs at once; default: one a processor, one on a GPU.", min=1, max=10_000
        ),
    ] = None,
    device: options.Device = "auto",
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where to keep it all; default: FILE.sweep."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the sweep in the folder.")
    ] = False,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON; '-': to standard output.")
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Train a recipe at every point of a grid and say which is best, if that can be said.

    The folder's sweep.json is written anew after every run and says what is missing. A run that
    fails or is killed is missing, the others go on; --resume tries the missing ones again.
    """
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    options.check_apart({"--json": json_path, "--html": html_path}, {"the sweep's file": file})
    if out == "":
        raise InputError("--out needs the name of a folder")
    folder = Path(out) if out is not None else Path(file).with_suffix(".sweep")

    from interp_toolkit.cli.progress import progress
    from interp_toolkit.report.json import write_json
    from interp_toolkit.studies.engines import Engine
    from interp_toolkit.studies.sweep_file import grid_points, read_sweep

    read = read_sweep(Path(file))
    place = Engine(engine, address)
    n_points = len(grid_points(read))  # all are checked before a folder is made

    from interp_toolkit.studies.jobs import Runner
    from interp_toolkit.studies.sweep import sweep as run

    began = time.monotonic()
    with progress(quiet) as say:
        runner = Runner(
            folder,
            workers=workers,
            device=options.device_of(engine, device),
            resume=resume,
            say=say,
            engine=place,
        )
        say(f"{n_points} points, {n_points * read.seeds} runs, kept in {folder}")
        try:
            result = run(read, runner, keep=lambda found: write_json([found], folder / RESULT))
        except KeyboardInterrupt:
            print("the same command with --resume goes on", file=sys.stderr)
            raise
    if not quiet:
        print(f"done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    show_all: list[Any] = [result]
    show(show_all, json, json_path, html_path, quiet)
