"""What `reproduce`, `litmus` and `sweep` share: where a study is kept and how its jobs are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

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
    """Where and how the jobs run (see `interp_studies.jobs.runner.Runner`)."""
    from interp_studies.jobs.engines import JobEngine
    from interp_studies.jobs.runner import Runner

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
    from interp_toolkit.models.about.info import find_device

    return str(find_device(device))
