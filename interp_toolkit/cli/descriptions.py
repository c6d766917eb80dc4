"""Descriptions of registered objects, read without importing them.

`interp list` and `interp show` need a summary, a source and the tables of options, not the
analysis itself, whose import takes seconds. A package may therefore hold a `descriptions.json` of
the objects that it registers, as the two packages of this distribution do:

    python -m interp_toolkit.cli.descriptions          # write both files

A test compares them with the objects. An object that no file describes is imported, such as a
plugin's.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interp_toolkit.errors import InputError
from interp_toolkit.registry import GROUPS, Group, entry_value, find, names

FILE = "descriptions.json"
PACKAGES = ("interp_toolkit", "interp_studies")


@dataclass(frozen=True)
class Description:
    """A registered object as `interp show` prints it.

    Attributes:
        summary: one line for `interp list`.
        source: document and section that it follows, or empty.
        tables: heading and rows: options of an analysis; settings, variants and presets of others.
    """

    summary: str
    source: str
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]]


def description(group: Group, name: str) -> Description:
    """The description of a registered object; it is imported only where no file describes it.

    Raises InputError for an unknown name, or a package that fails to import.
    """
    value = entry_value(group, name)
    written = _of_package(value.partition(":")[0].partition(".")[0]).get(group, {}).get(value)
    if written is None:
        return describe(group, find(group, name))
    tables = [(heading, rows) for heading, rows in written["tables"]]
    return Description(written["summary"], written["source"], tables)


def descriptions(group: Group) -> dict[str, Description]:
    """Descriptions by name; an object that fails to import is left out with a warning."""
    described = {}
    for name in names(group):
        try:
            described[name] = description(group, name)
        except InputError as error:
            warnings.warn(str(error), stacklevel=2)
    return described


@cache
def _of_package(package: str) -> Mapping[str, Mapping[str, Any]]:
    """The package's descriptions by group and entry point; empty if it has no file."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / FILE
        if path.is_file():
            by_group: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
            return by_group
    return {}


def describe(group: Group, entry: Any) -> Description:
    """The description of an object of the registry, from the object itself."""
    return Description(entry.summary, getattr(entry, "source", ""), _tables(group, entry))


def _tables(group: Group, entry: Any) -> list[tuple[str, list[list[str]]]]:
    if group == "probes":
        from interp_toolkit.options import flags

        return [("options", [[f.name, f.metavar or f.type, f.help] for f in flags(entry.options)])]
    tables = []
    if group == "recipes":
        described = setting_descriptions(entry.config)
        default = entry.config.model_construct()
        rows = [
            [f"--set {key}=", str(getattr(default, key, "")), described.get(key, "")]
            for key in entry.config.model_fields
        ]
        tables = [("settings, with defaults", rows)]
        tables.append(
            ("variants", [[key, _pairs(values)] for key, values in entry.variants.items()])
        )
    if group in ("recipes", "artefacts"):
        tables.append(("presets", [[key, _pairs(values)] for key, values in entry.presets.items()]))
    return [(heading, rows) for heading, rows in tables if rows]


def setting_descriptions(config: type[Any]) -> dict[str, str]:
    """Descriptions from the Attributes sections of a class' docstring and those of its bases."""
    described: dict[str, str] = {}
    for cls in reversed(config.__mro__):
        section = inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
        for attributes, text in re.findall(
            r"^ {4}(\w[\w, ]*): (.+(?:\n {8}.*)*)", section, re.MULTILINE
        ):
            described |= dict.fromkeys(attributes.split(", "), " ".join(text.split()))
    return described


def _pairs(values: Any) -> str:
    if isinstance(values, str):
        return values
    return ", ".join(f"{key}={value}" for key, value in dict(values).items())


def as_json(package: str) -> dict[str, dict[str, Any]]:
    """The content of a package's file, from the objects that it registers."""
    by_group: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        for name in names(group):
            value = entry_value(group, name)
            if value.startswith(f"{package}."):
                described = describe(group, find(group, name))
                tables = [[heading, rows] for heading, rows in described.tables]
                written = {
                    "summary": described.summary,
                    "source": described.source,
                    "tables": tables,
                }
                by_group.setdefault(group, {})[value] = written
    return by_group


def write() -> None:
    """Write the files of this distribution's packages."""
    from interp_toolkit.files import replacing

    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        path = Path(spec.submodule_search_locations[0]) / FILE
        text = json.dumps(as_json(package), indent=1, ensure_ascii=False)
        with replacing(path) as file:
            file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
