"""`interp reproduce ARTEFACT`: a table or figure of a source document, theirs beside ours."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.show import show
from interp_toolkit.errors import InputError, suggestion


def reproduce(
    artefact: Annotated[str, typer.Argument(help="What to make again (interp list artefacts).")],
    preset: Annotated[
        str, typer.Option(help="small: on two processors; paper: as the document has it.")
    ] = "small",
    seeds: Annotated[
        int | None,
        typer.Option(help="How many of each model; default: the preset's.", min=1, max=100_000),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes at once; default: one a processor, one on a GPU.", min=1, max=10_000
        ),
    ] = None,
    engine: options.EngineName = "local",
    address: options.Address = None,
    device: options.Device = "auto",
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Keep every job's numbers and model here."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the study in the --out folder.")
    ] = False,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON; '-': to standard output.")
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Make a document's table or figure again, over several seeds, and compare.

    A study that is killed goes on where it was with --resume, if it has an --out folder; with a
    larger --seeds, a finished one is extended.
    """
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    options.check_apart({"--json": json_path, "--html": html_path}, {})
    if resume and out is None:
        raise InputError("--resume goes on with the study in a folder: give --out FOLDER")
    if out == "":
        raise InputError("--out needs the name of a folder")
    found = _find(artefact, preset)

    from interp_toolkit.cli.progress import progress
    from interp_toolkit.studies.jobs import Engine, Runner

    began = time.monotonic()
    with progress(quiet) as say:
        runner = Runner(
            None if out is None else Path(out),
            workers=workers,
            device=options.device_of(engine, device),
            resume=resume,
            say=say,
            engine=Engine(engine, address),
        )
        result = found.run(preset, seeds, runner)
    if not quiet:
        print(f"done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    show([result], json, json_path, html_path, quiet)


def _find(artefact: str, preset: str) -> Any:
    from interp_toolkit.registry import find

    found = find("artefacts", artefact)
    if preset not in found.presets:
        hint = suggestion(preset, found.presets)
        raise InputError(f"{artefact} has no preset {preset!r}{hint}")
    return found
