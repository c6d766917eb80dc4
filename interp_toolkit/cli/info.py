"""`interp list` and `interp info`: what there is, and what a model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.flags import ModelFlags
from interp_toolkit.errors import InputError, printable, suggestion
from interp_toolkit.registry import GROUPS


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(help="probes, detectors, toys, tasks, recipes or artefacts; default: all."),
    ] = None,
) -> None:
    """List analyses, detectors, toys, tasks, recipes and artefacts, those of plugins among them."""
    if kind is not None and kind not in GROUPS:
        raise InputError(f"there are no {kind!r} to list{suggestion(kind, GROUPS)}")
    from rich.console import Console
    from rich.table import Table

    from interp_toolkit.registry import load_all

    console = Console(highlight=False)
    for group in GROUPS if kind is None else (kind,):
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, entry in load_all(group).items():
            table.add_row(f"  {'toy:' if group == 'toys' else ''}{name}", entry.summary)
        console.print(f"[bold]{group}[/bold]")
        console.print(table)


@dataclass(frozen=True)
class InfoFlags(ModelFlags):
    """Options of loading a model, on the CPU by default."""

    device: options.Device = "cpu"


def info(
    model: Annotated[str, typer.Argument(help="As `interp analyze` takes it.")],
    loading: InfoFlags,
    debug: options.Debug = False,
) -> None:
    """Say what a checkpoint holds: shape, task, and what was assumed while loading it.

    Of a checkpoint that leaves settings open: what it does say, and what has to be given.
    """
    how = loading.load_options()
    from interp_toolkit.cli.progress import progress
    from interp_toolkit.models.about.info import describe
    from interp_toolkit.models.loading.loader import load
    from interp_toolkit.models.loading.parameters.infer import MissingSettingError

    try:
        with progress(quiet=False) as say:
            loaded = load(model, progress=say, **how)
    except MissingSettingError as open_:
        asked = [f"--set {n}={need.example}: {need.what}" for n, need in open_.needed.items()]
        _print_rows(
            {
                "name": model,
                "the file says": {n: _said(value) for n, value in open_.shown.items()},
                "would be assumed": open_.assumptions,
                "has to be given": asked,
            }
        )
    else:
        _print_rows(vars(describe(loaded)))


def _said(value: Any) -> Any:
    """A setting from a file as a word: null as none, a dtype by its name."""
    return "none" if value is None else str(value).removeprefix("torch.")


def _print_rows(rows: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from interp_toolkit.report.format import words

    table = Table.grid(padding=(0, 2, 0, 0))
    for key, value in rows.items():
        text = _in_words(value)
        if text:
            table.add_row(Text(words(key), style="dim"), Text(text))
    Console(highlight=False).print(table)


def _in_words(value: Any) -> str:
    """A value on one line; of a nested one, what is a number, a string or a list of strings."""
    if isinstance(value, Mapping):
        parts = {
            key: f"({text})" if isinstance(item, Mapping) else text
            for key, item in value.items()
            if (text := _in_words(item))
        }
        return printable(", ".join(f"{key} {text}" for key, text in parts.items()))
    if isinstance(value, list | tuple):
        return printable("; ".join(value)) if all(isinstance(v, str) for v in value) else ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else printable(str(value))
