"""What `reproduce`, `litmus` and `sweep` share: where a study is kept and how its jobs are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.errors import InputError


@dataclass(frozen=True)
class JobFlags:
    """Where and how jobs run, and where they are kept."""

    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes; default: one per processor, or one on a GPU.",
            min=1,
            max=10_000,
        ),
    ] = None
    engine: Annotated[
        str,
        typer.Option("--engine", help="local: processes on this machine; dask: a Dask cluster."),
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            help="Address of a Dask scheduler; default: a temporary local cluster.",
        ),
    ] = None
    device: options.Device = "auto"
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Store the results and models of all jobs in this folder."
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the unfinished jobs of the --out folder.")
    ] = False

    def folder(self, default: Path | None = None) -> Path | None:
        """The folder of the jobs; raises InputError where there is none to resume from."""
        if self.out == "":
            raise InputError("--out needs the name of a folder")
        folder = default if self.out is None else Path(self.out)
        if self.resume and folder is None:
            raise InputError("--resume continues a study in its folder: give --out FOLDER")
        return folder

    def runner(
        self,
        folder: Path | None,
        say: Callable[[str], None],
        *,
        resume: bool | None = None,
        given: Mapping[str, Mapping[str, Any]] | None = None,
        first_seed: int = 0,
    ) -> Any:
        """Where and how the jobs run (see `interp_studies.jobs.runner.Runner`).

        Args:
            folder: where jobs are kept.
            say: reports progress.
            resume: in place of --resume.
            given: settings by recipe.
            first_seed: first seed of the study.
        """
        from interp_studies.jobs.engines import JobEngine
        from interp_studies.jobs.runner import Runner
        from interp_toolkit.models.about.info import find_device

        # other machines' devices cannot be looked for from here
        here = self.engine == "local" or self.device == "auto"
        return Runner(
            folder,
            workers=self.workers,
            device=str(find_device(self.device)) if here else self.device,
            resume=self.resume if resume is None else resume,
            say=say,
            engine=JobEngine(self.engine, self.address),
            given=given,
            first_seed=first_seed,
        )
