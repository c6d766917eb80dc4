"""`interp litmus TASK`: does a task need in-context reasoning?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.show import show
from interp_toolkit.errors import InputError


def litmus(
    task: Annotated[
        str, typer.Argument(help="A recipe with the variants standard and mixit (interp list).")
    ],
    setting: Annotated[
        list[str],
        options.repeated("--set", metavar="KEY=VALUE", help="A setting of the recipe."),
    ],
    preset: Annotated[str, typer.Option(help="small, or paper where the recipe has it.")] = "small",
    seeds: Annotated[int, typer.Option(help="How many of each variant.", min=1, max=100_000)] = 3,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What counts as a gap; default: 0.05 of a share, 0.1 nats."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes at once; default: one a processor, one on a GPU.", min=1, max=10_000
        ),
    ] = None,
    device: options.Device = "auto",
    engine: Annotated[
        str, typer.Option(help="local, dask, or another joblib backend's name.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="A Dask scheduler's, such as tcp://host:8786.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Keep every seed's numbers and model here."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the test in the --out folder.")
    ] = False,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON; '-': to standard output.")
    ] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Train a task's standard and MixiT variants and say whether it needs in-context reasoning.

    The answer is 'needs', 'does not need' or 'undecided', from several seeds with an interval.
    With --out, a test that is killed goes on with --resume, and one that is undecided is extended
    by --resume with more --seeds.
    """
    json_path = None if json == "-" else options.writable(json, "--json")
    html_path = options.writable(html, "--html")
    options.check_apart({"--json": json_path, "--html": html_path}, {})
    if resume and out is None:
        raise InputError("--resume goes on with the test in a folder: give --out FOLDER")
    if out == "":
        raise InputError("--out needs the name of a folder")
    given: dict[str, Any] = dict(options.key_values(setting))
    if steps is not None:
        if "steps" in given:
            raise InputError("steps is given twice, by --steps and by --set")
        given["steps"] = steps

    from interp_toolkit.cli.progress import progress
    from interp_toolkit.models.device import find_device
    from interp_toolkit.studies.jobs import Engine, Runner
    from interp_toolkit.studies.litmus import litmus as run

    began = time.monotonic()
    with progress(quiet) as say:
        runner = Runner(
            None if out is None else Path(out),
            workers=workers,
            device=str(find_device(device)),
            resume=resume,
            say=say,
            engine=Engine(engine, address),
        )
        result = run(task, preset, seeds, settings=given, margin=margin, runner=runner)
    if not quiet:
        print(f"done in {time.monotonic() - began:.0f} s", file=sys.stderr)
    show([result], json, json_path, html_path, quiet)
