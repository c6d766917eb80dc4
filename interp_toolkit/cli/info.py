"""`interp list`, `interp info`, `interp show`: all names, a model's summary, an entry's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from interp_toolkit.cli import options
from interp_toolkit.cli.flags import ModelFlags
from interp_toolkit.cli.prompts import ColumnFlags
from interp_toolkit.errors import InputError, first_line, printable, suggestion
from interp_toolkit.registry import GROUPS, Group


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="A group: probes, detectors, toys, tasks, recipes or artefacts; default: all."
        ),
    ] = None,
) -> None:
    """List analyses, detectors, toys, tasks, recipes and artefacts, including those of plugins."""
    if kind is not None and kind not in GROUPS:
        raise InputError(f"there are no {kind!r} to list{suggestion(kind, GROUPS)}")
    from rich.console import Console
    from rich.table import Table

    from interp_toolkit.cli.descriptions import descriptions

    console = Console(highlight=False)
    for group in GROUPS if kind is None else (kind,):
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, entry in descriptions(group).items():
            table.add_row(f"  {'toy:' if group == 'toys' else ''}{name}", entry.summary)
        console.print(f"[bold]{group}[/bold]")
        console.print(table)


@dataclass(frozen=True)
class InfoFlags(ModelFlags):
    """Options of loading a model, on the CPU by default."""

    device: options.Device = "cpu"


def info(
    model: Annotated[str, typer.Argument(help="A model, as for interp analyze, or a data file.")],
    loading: InfoFlags,
    columns: ColumnFlags,
    tokenizer: Annotated[
        str | None,
        options.flag(
            "The model whose tokens a data file is shown in, or a tokenizer.json.",
            "--tokenizer",
            "--model",
            metavar="MODEL",
        ),
    ] = None,
    keys_template: Annotated[
        str | None,
        options.flag(
            "Write a mapping of a checkpoint's own tensor names, to edit and to give as --keys.",
            metavar="FILE.json",
        ),
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Describe a checkpoint: shape, task, and assumptions made while loading it.

    For a checkpoint that leaves settings open: the settings that it has, and those to give.
    For a data file: its columns, the role of each, three rows as the model will see them, what is
    left out, and what is ambiguous.
    """
    how = loading.load_options()
    if keys_template is not None:
        _write_template(model, keys_template, loading)
        return
    from interp_toolkit.data.files import is_data

    if is_data(model):
        _print_data(model, columns, tokenizer, how)
        return
    if tokenizer is not None or columns.is_used:
        raise InputError(f"{model}: the options of columns and --tokenizer are for data files")
    from interp_toolkit.cli.outputs import progress
    from interp_toolkit.models.about.info import describe
    from interp_toolkit.models.loading.loader import load
    from interp_toolkit.models.loading.parameters.infer import MissingSettingError

    try:
        with progress(quiet=False) as say:
            loaded = load(model, progress=say, **how)
    except MissingSettingError as open_:
        missing = [f"--set {n}={need.example}: {need.what}" for n, need in open_.needed.items()]
        _print_rows(
            {
                "name": model,
                "the file says": {n: _setting(value) for n, value in open_.shown.items()},
                "would be assumed": open_.assumptions,
                "has to be given": missing,
            }
        )
    else:
        _print_rows(vars(describe(loaded)))


def _write_template(model: str, path: str, loading: InfoFlags) -> None:
    """Write a mapping of the checkpoint's tensors, and print what is guessed and what is open."""
    target = options.writable(path, "--keys-template")
    options.check_apart({"--keys-template": target}, {"the model": model, **loading.files})
    if target is None or target.suffix != ".json":
        raise InputError(f"--keys-template {path} must end in .json, as --keys expects it")
    from interp_toolkit.files import replacing
    from interp_toolkit.models.loading.formats.from_file import keys_template

    template = keys_template(model, loading.ignore or ())
    with replacing(target) as temporary:
        temporary.write_text(template.to_json(), encoding="utf-8")
    _print_lines(
        f"{path}: {len(template.content['tensors'])} rules for {template.n_tensors} tensors",
        [
            *(f"fill in  {name}: {why}" for name, why in template.blanks.items()),
            *(f"check    {name}: {why}" for name, why in template.guesses.items()),
            f"then     interp info {model} --keys {path}",
        ],
    )


def _print_data(
    path: str, columns: ColumnFlags, tokenizer: str | None, how: Mapping[str, Any]
) -> None:
    """Print the columns of a data file and how they are read; raises InputError where it is not."""
    from interp_toolkit.data.files import preview, read_table
    from interp_toolkit.data.preview import columns_of

    schema = columns.columns()
    table = read_table(path, schema)
    if table is not None:
        _print_lines(f"{path}: {len(table):,} rows", columns_of(table))
    tokens, d_vocab = (None, None) if tokenizer is None else _tokenizer(tokenizer, how)
    _print_lines("read as", preview(path, tokens, d_vocab, columns.column or None, schema))


def _tokenizer(name: str, how: Mapping[str, Any]) -> tuple[Any, int | None]:
    """The tokenizer of a model or file, and the vocabulary's size where there is a model."""
    from pathlib import Path

    if Path(name).name == "tokenizer.json" and Path(name).is_file():
        from transformers import PreTrainedTokenizerFast

        try:
            return PreTrainedTokenizerFast(tokenizer_file=name), None
        except Exception as error:  # the library's own types
            raise InputError(f"{name}: not a tokenizer ({first_line(error)})") from error
    from interp_toolkit.models.loading.loader import load

    loaded = load(name, **how)
    return getattr(loaded, "tokenizer", None), loaded.cfg.d_vocab


def _print_lines(heading: str, lines: Sequence[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(printable(heading), style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)


def _setting(value: Any) -> Any:
    """A setting from a file as text: null as none, a dtype by its name."""
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
    """A value on one line; from a mapping, only numbers, strings and lists of strings."""
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


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A name from interp list, such as uand or toy:uand.", autocompletion=options.shown
        ),
    ],
    debug: options.Debug = False,
) -> None:
    """Describe a probe, detector, toy, task, recipe or artefact, with its options."""
    from rich.console import Console
    from rich.text import Text

    from interp_toolkit.cli.descriptions import description

    bare_name = name.removeprefix("toy:")
    console = Console(highlight=False)
    for group in groups_with(name):
        entry = description(group, bare_name)
        title = Text.assemble((f"{group[:-1]} {bare_name}", "bold"), f"  {entry.summary}")
        console.print(title, soft_wrap=True)
        if entry.source:
            console.print(Text(f"source: {entry.source}", style="dim"), soft_wrap=True)
        for line in _examples(group, bare_name):
            console.print(Text(f"  {line}"), soft_wrap=True)
        for heading, rows in entry.tables:
            _table(console, heading, rows)


def groups_with(name: str) -> list[Group]:
    """The groups that have an entry of this name; raises InputError if there is none."""
    from interp_toolkit.registry import names

    bare_name = name.removeprefix("toy:")
    groups: list[Group] = [
        group
        for group in GROUPS
        if bare_name in names(group) and (group == "toys" or not name.startswith("toy:"))
    ]
    if not groups:
        every = [one for group in GROUPS for one in names(group)]
        near = suggestion(bare_name, every)
        hint = near if "did you mean" in near else "; see interp list"
        raise InputError(f"nothing is called {name!r}{hint}")
    return groups


def _examples(group: Group, name: str) -> list[str]:
    """A command line that runs it, if there is one."""
    lines = {
        "probes": f"interp analyze MODEL --probe {name}",
        "detectors": f"interp analyze MODEL --probe heads --detector {name}",
        "toys": f"interp analyze toy:{name}",
        "tasks": f"interp analyze MODEL --task {name} --probe circuit",
        "recipes": f"interp train {name} --out model.pt",
        "artefacts": f"interp reproduce {name}",
    }
    return [lines[group]]


def _table(console: Any, heading: str, rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(Text(heading, style="bold"))
    console.print(table)
