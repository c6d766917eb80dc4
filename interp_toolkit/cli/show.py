"""`interp show NAME`: what a probe, detector, toy, task, recipe or artefact asks and takes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from interp_toolkit.cli import completion, options
from interp_toolkit.errors import InputError, suggestion
from interp_toolkit.registry import GROUPS, Group


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="As interp list has it, such as uand or toy:uand.", autocompletion=completion.shown
        ),
    ],
    debug: options.Debug = False,
) -> None:
    """Say what a probe, detector, toy, task, recipe or artefact is, and what options it takes."""
    from rich.console import Console
    from rich.text import Text

    from interp_toolkit.registry import find, names

    wanted = name.removeprefix("toy:")
    groups: list[Group] = [
        group
        for group in GROUPS
        if wanted in names(group) and (group == "toys" or not name.startswith("toy:"))
    ]
    if not groups:
        every = [one for group in GROUPS for one in names(group)]
        near = suggestion(wanted, every)
        hint = near if "did you mean" in near else "; interp list shows what there is"
        raise InputError(f"nothing is called {name!r}{hint}")
    console = Console(highlight=False)
    for group in groups:
        entry = find(group, wanted)
        title = Text.assemble((f"{group[:-1]} {wanted}", "bold"), f"  {entry.summary}")
        console.print(title, soft_wrap=True)
        if source := getattr(entry, "source", ""):
            console.print(Text(f"source: {source}", style="dim"), soft_wrap=True)
        for line in _examples(group, wanted):
            console.print(Text(f"  {line}"), soft_wrap=True)
        for heading, rows in _taken(group, entry):
            _table(console, heading, rows)


def _examples(group: Group, name: str) -> list[str]:
    """A line that runs it, where there is one."""
    lines = {
        "probes": f"interp analyze MODEL --probe {name}",
        "detectors": f"interp analyze MODEL --probe heads --detector {name}",
        "toys": f"interp analyze toy:{name}",
        "tasks": f"interp analyze MODEL --task {name} --probe circuit",
        "recipes": f"interp train {name} --out model.pt",
        "artefacts": f"interp reproduce {name}",
    }
    return [lines[group]]


def _taken(group: Group, entry: Any) -> list[tuple[str, list[list[str]]]]:
    """Tables of options of analyses, and of settings, variants and presets of the others."""
    if group == "probes":
        from interp_toolkit.options import flags

        return [("options", [[f.name, f.metavar or f.type, f.help] for f in flags(entry.options)])]
    found = []
    if group == "recipes":
        fields = entry.config.model_fields
        default = entry.config.model_construct()
        rows = [
            [f"--set {key}=", str(getattr(default, key, "")), field.description or ""]
            for key, field in fields.items()
        ]
        found = [("settings, with defaults", rows)]
        found.append(("variants", [[key, _said(given)] for key, given in entry.variants.items()]))
    if group in ("recipes", "artefacts"):
        found.append(("presets", [[key, _said(given)] for key, given in entry.presets.items()]))
    return [(heading, rows) for heading, rows in found if rows]


def _said(given: Any) -> str:
    if isinstance(given, str):
        return given
    return ", ".join(f"{key}={value}" for key, value in dict(given).items())


def _table(console: Any, heading: str, rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Text(heading, style="bold"))
    console.print(table)
