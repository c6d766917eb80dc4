"""Options that commands share, and their text turned into data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from interp_toolkit.errors import InputError

Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")
]
Quiet = Annotated[bool, typer.Option(help="Print verdicts only, and no progress.")]
Debug = Annotated[bool, typer.Option(help="Show the traceback of an error.")]


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dictionary; raises InputError where a pair is none, or comes twice."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair!r} is not KEY=VALUE, such as --set act_fn=relu")
        if key in found:
            raise InputError(f"--set {key} is given twice")
        found[key] = value
    return found


def read_config(path: Path | None) -> dict[str, Any]:
    """Settings from a JSON file of one object."""
    if path is None:
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"--config {path} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise InputError(f"--config {path} must hold one JSON object of settings")
    return settings


def position(text: str | None) -> int | Literal["all"] | None:
    """A position or "all"."""
    if text is None or text == "all":
        return None if text is None else "all"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--position {text!r} is neither a number nor 'all'") from None


def writable(path: str | None, option: str) -> Path | None:
    """Where to write a file; its folder must be there *before* the work starts."""
    if path is None or path == "-":
        return None
    if Path(path).is_dir():
        raise InputError(f"{option} {path} is a folder; give a file name")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {Path(path).absolute().parent}")
    return Path(path)
