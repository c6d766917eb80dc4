"""`interp train RECIPE`: train a documented toy model and save it as a checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.errors import InputError


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe (interp list recipes).", autocompletion=options.of("recipes")
        ),
    ],
    setting: Annotated[
        list[str],
        options.repeated("--set", metavar="KEY=VALUE", help="A setting of the recipe."),
    ],
    variant: Annotated[str | None, typer.Option(help="Name of a set of settings.")] = None,
    preset: Annotated[
        str, typer.Option(help="small, or paper if the recipe has that preset.")
    ] = "small",
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds; the model of the best seed is saved.")
    ] = None,
    device: options.Device = "auto",
    out: Annotated[
        str | None, typer.Option(metavar="model.pt", help="Checkpoint: .pt or .safetensors.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the unfinished run that writes to --out.")
    ] = False,
    log: options.Log = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Train a documented toy model; the best seed's checkpoint records the task and the losses.

    The folder model.pt.training next to model.pt holds the metrics of every seed, the checkpoints
    of selected steps (--set checkpoints=0,100,1000) and, during training, the state for --resume.
    """
    path = options.writable(out, "--out")
    if path is not None and path.suffix not in (".pt", ".safetensors"):
        raise InputError(f"--out {path} must end in .pt or .safetensors")
    settings: dict[str, Any] = dict(options.key_values(setting))
    named = {"steps": steps, "seeds": seeds, "device": None if device == "auto" else device}
    for key, value in named.items():
        if value is not None and key in settings:
            raise InputError(f"{key} is given twice, by --{key} and by --set")
        if value is not None:
            settings[key] = value

    if resume and path is None:
        raise InputError("--resume needs --out, the model file of the run to continue")

    from interp_toolkit.cli.outputs import training_progress
    from interp_toolkit.registry import Session, find
    from interp_toolkit.training.engine.acceleration import named_ranks
    from interp_toolkit.training.engine.metrics import check_log, tracked
    from interp_toolkit.training.engine.settings import configure

    check_log(log, out)
    entry = find("recipes", recipe)
    config = configure(entry, variant, preset, settings)
    folder = None if path is None else path.with_name(f"{path.name}.training")
    first = named_ranks().writes  # only one of torchrun's processes writes
    try:
        with (
            training_progress(quiet or not first) as (report, say),
            tracked(log if first else None, folder, recipe, restart=not resume) as send,
        ):
            run = entry.train(config, Session(folder, resume, report, say, send))
    except KeyboardInterrupt:
        _say_how_to_go_on(folder)
        raise
    if not first:
        return
    _show(run, recipe, quiet)
    if path is not None and folder is not None:
        _save(run, path, folder)
    elif not quiet:
        print("not saved: give --out model.pt to keep the best seed's model", file=sys.stderr)


def _save(run: Any, path: Path, folder: Path) -> None:
    """Write the model, then delete the state for resuming."""
    from interp_toolkit.models.loading.formats.checkpoint import save
    from interp_toolkit.training.engine.run_files import end_run

    save(run.model, path, task=run.task, training=run.training)
    end_run(folder)
    print(f"saved: {path}", file=sys.stderr)


def _say_how_to_go_on(folder: Path | None) -> None:
    from interp_toolkit.training.engine.run_files import has_unfinished

    if folder is not None and has_unfinished(folder):
        print("the same command with --resume continues from the last saved state", file=sys.stderr)


def _show(run: Any, recipe: str, quiet: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from interp_toolkit.report.format import format_column

    console = Console(highlight=False)
    if not quiet:
        table = Table(title=f"{recipe}: seeds", title_justify="left")
        for column in run.columns:
            table.add_column(column, justify="right")
        columns = [format_column([row[i] for row in run.rows]) for i in range(len(run.columns))]
        for cells in zip(*columns, strict=True):
            table.add_row(*cells)
        console.print(table)
    console.print(run.verdict, style="bold", soft_wrap=True)
