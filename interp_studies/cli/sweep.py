"""`interp sweep FILE.yaml`: a recipe at all points of a grid, over seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_studies.cli.study import JobFlags
from interp_toolkit.cli import options
from interp_toolkit.cli.flags import OutputFlags

RESULT = "sweep.json"


@dataclass(frozen=True)
class SweepJobs(JobFlags):
    """Where and how the runs are done; they are always kept."""

    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for results and models; default: FILE.sweep."),
    ] = None


def sweep(
    file: Annotated[
        str, typer.Argument(metavar="FILE.yaml", help="A file with recipe, settings and grid.")
    ],
    log: options.Log = None,
    *,
    jobs: SweepJobs,
    output: OutputFlags,
) -> None:
    """Train a recipe at every point of a grid, and test which point is best.

    sweep.json in the folder is rewritten after every run and lists the missing runs. A run whose
    process is killed is started once more. A run that fails, or is killed twice, is missing; other
    runs continue. --resume continues the missing runs.
    """
    outputs = output.open({"the sweep's file": file})
    folder = jobs.folder(default=Path(file).with_suffix(".sweep"))
    assert folder is not None

    from interp_studies.sweep.file import grid_points, read_sweep
    from interp_toolkit.report.html import write_json

    read = read_sweep(Path(file))
    grid_points(read)  # all are checked before there is any progress to show

    def work(say: Callable[[str], None]) -> Any:
        from interp_studies.sweep.study import sweep as run

        runner = jobs.runner(folder, say)
        found = run(read, runner, keep=lambda found: write_json([found], folder / RESULT), log=log)
        missing.append(found.evidence.runs_missing)
        return found

    missing: list[int] = []
    try:
        outputs.run(work)
    except KeyboardInterrupt:
        print("the same command with --resume goes on", file=sys.stderr)
        raise
    if any(missing) and not output.quiet:
        runs = "1 run is" if missing == [1] else f"{missing[0]} runs are"
        print(f"{runs} missing: the same command with --resume tries again", file=sys.stderr)
