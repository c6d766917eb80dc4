"""Parsing of option texts, and shell completion of names without importing the named objects.

`interp --install-completion` installs it for bash, zsh, fish or PowerShell. If no name fits, the
shell completes files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import read_json

if TYPE_CHECKING:
    from interp_toolkit.registry import Group

Completer = Callable[[str], list[str]]


def of(*groups: Group, more: Sequence[str] = ()) -> Completer:
    """Completions: the names of these groups, and `more`, that match the typed prefix."""

    def complete(incomplete: str) -> list[str]:
        from interp_toolkit.registry import names

        candidates = [*more, *(name for group in groups for name in names(group))]
        return [name for name in candidates if name.startswith(incomplete)]

    return complete


def models(incomplete: str) -> list[str]:
    """Completions of toy names, for prefixes that begin with `to`; others more likely name files.

    bash splits `toy:xor-1` into three words, and completes only the last.
    """
    words = os.environ.get("COMP_WORDS", "").split()
    before = words[: int(os.environ.get("COMP_CWORD") or 0)]
    if before[-2:] == ["toy", ":"]:
        return of("toys")(incomplete)
    if not incomplete.startswith("to"):
        return []
    toys = (f"toy:{toy}" for toy in of("toys")(""))
    return [name for name in toys if name.startswith(incomplete)]


def shown(incomplete: str) -> list[str]:
    """All names that `interp show` can describe."""
    return sorted({*of("probes", "detectors", "tasks", "recipes", "artefacts")(incomplete)}) + (
        models(incomplete)
    )


Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]
Log = Annotated[
    str | None,
    typer.Option(
        metavar="wandb|tensorboard",
        help="Stream metrics to this tracker (requires the extra of the same name); default: none.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print headlines only, and no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
_OPTIONS_OF_LOAD = (
    "source",
    "device",
    "trust_remote_code",
    "keys",
    "ignore",
)  # arguments of `load` that are not settings


def flag(help: str, *names: str, **more: Any) -> Any:
    """An option whose help hides the default; other arguments are typer's."""
    return typer.Option(*names, help=help, show_default=False, **more)


def repeated(
    *names: str, metavar: str, help: str, autocompletion: Callable[[str], list[str]] | None = None
) -> Any:
    """A repeatable option, for a parameter without a default."""
    return typer.Option(
        *names,
        metavar=metavar,
        help=help,
        default_factory=list,
        show_default=False,
        autocompletion=autocompletion,
    )


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dictionary; raises InputError for other forms or duplicates."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set {pair!r} is not KEY=VALUE, such as --set act_fn=relu")
        if key in settings:
            raise InputError(f"--set {key} is given twice")
        settings[key] = value
    return settings


def load_options(
    config: str | None,
    pairs: Iterable[str],
    keys: str | None,
    ignore: list[str] | None,
    device: str,
    trust_remote_code: bool,
) -> dict[str, Any]:
    """Arguments of `load` except the model's name; --set takes precedence over --config.

    Raises InputError if they cannot be read, or if a setting is actually an option.
    """
    settings = {**read_config(config), **key_values(pairs)}
    for name in _OPTIONS_OF_LOAD:
        if name in settings:
            raise InputError(f"{name} is not a setting of the model; see interp analyze --help")
    how = {"device": device, "trust_remote_code": trust_remote_code}
    return {**how, **settings, "keys": keys, "ignore": ignore or ()}


def read_config(path: str | None) -> dict[str, Any]:
    """Settings from a JSON file of one object."""
    if path is None:
        return {}
    settings = read_json(Path(path), f"--config {path}")
    if not isinstance(settings, dict):
        raise InputError(f"--config {path} must hold one JSON object of settings")
    return settings


def writable(path: str | None, option: str) -> Path | None:
    """The path of an output file, checked to be writable *before* the work starts."""
    if path is None:
        return None
    if not path or path == "-":
        raise InputError(f"{option} needs the name of a file to write")
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"{option} {path} is a folder; give a file name")
        folder = Path(os.path.realpath(target)).parent
        if not folder.is_dir():
            raise InputError(f"{option} {path}: there is no folder {folder}")
        if not os.access(target if target.exists() else folder, os.W_OK):
            raise InputError(f"{option} {path}: no permission to write there")
    except OSError as error:
        raise InputError(f"{option} {path}: {reason_of(error)}") from error
    return target


def files_among(values: Mapping[str, Any]) -> dict[str, str]:
    """The options of analyses that name an existing file or folder, by flag."""
    return {
        f"--{name.replace('_', '-')}": value
        for name, value in values.items()
        if isinstance(value, str) and os.path.exists(value)
    }


def check_apart(written: Mapping[str, Path | None], read: Mapping[str, str | None]) -> None:
    """Raise InputError if an output file, by option, is also an input, or is written twice."""
    used_paths = {what: os.path.realpath(name) for what, name in read.items() if name}
    for option, path in written.items():
        if path is None or (path.exists() and not path.is_file()):  # /dev/null may serve twice
            continue
        real_path = os.path.realpath(path)
        for what, other in used_paths.items():
            if real_path == other:
                raise InputError(f"{option} {path} would overwrite {what}; give another file")
            if os.path.isfile(real_path) and os.path.dirname(real_path) == other:
                raise InputError(
                    f"{option} {path} is a file in the folder of {what}; give another file"
                )
        used_paths[f"what {option} writes"] = real_path
