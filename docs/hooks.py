"""The page `reference.md`, generated while the site is built: public names and analyses.

A name's entry comes from its docstring, a probe's options from its options class.
"""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from interp_toolkit.options import flags
from interp_toolkit.registry import load_all

PACKAGES = ("", "probes", "circuits", "models", "data", "report")
#: modules for plugins, which no package's `__all__` names
BASES = ("interp_toolkit.options", "interp_toolkit.registry", "interp_toolkit.results")
_IMPORT = re.compile(r"from (\.\S+) import (\w+) as (\w+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page `reference.md`."""
    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def reference() -> str:
    """The page as Markdown."""
    return "\n".join(["# Python reference", *_packages(), *_analyses(), *_bases()]) + "\n"


def _packages() -> Iterator[str]:
    shown: dict[str, str] = {}
    for subpackage in PACKAGES:
        package = f"interp_toolkit.{subpackage}".rstrip(".")
        module = importlib.import_module(package)
        yield f"## {package}\n{_first_line(module)}\n"
        homes = _homes(module)
        for name in module.__all__:
            if name == "__version__":
                continue
            home = homes[name]
            if home in shown:
                yield f"`{package}.{name}` is [`{shown[home]}.{name}`][{home}].\n"
                continue
            shown[home] = package
            yield f"::: {home}\n    options:\n      heading: {package}.{name}\n"


def _homes(module: Any) -> dict[str, str]:
    """The module that defines each name of a package, from its stub."""
    stub = (importlib.resources.files(module) / "__init__.pyi").read_text(encoding="utf-8")
    return {name: f"{module.__name__}{where}.{own}" for where, own, name in _IMPORT.findall(stub)}


def _analyses() -> Iterator[str]:
    yield "## Analyses\n`analyze(model, NAME)` and `interp analyze MODEL --probe NAME` run one.\n"
    results: dict[str, None] = {}
    for name, analysis in load_all("probes").items():
        result = _result_of(analysis)
        results[result] = None
        options = f"{analysis.options.__module__}.{analysis.options.__qualname__}"
        yield f"### {name}\n{analysis.summary}. Options: `{options}`; result: [`{result}`][].\n"
        yield "| option | flag | type | |\n|---|---|---|---|"
        for flag in flags(analysis.options):
            cells = (f"`{flag.field}`", f"`{flag.name}`", flag.type, flag.help)
            yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
        yield ""
    yield "## Results of analyses\n"
    yield from (f"::: {result}\n" for result in results)


def _result_of(analysis: Any) -> str:
    """The class that an analysis returns, from its annotation."""
    function = analysis.run
    while isinstance(function, functools.partial):
        function = function.func
    result = typing.get_type_hints(inspect.unwrap(function))["return"]
    return f"{result.__module__}.{result.__qualname__}"


def _bases() -> Iterator[str]:
    yield "## For plugins\nSee [Write a probe](write-a-probe.md).\n"
    yield from (f"::: {module}\n" for module in BASES)
    yield "::: interp_toolkit.testing.plugin\n"


def _first_line(module: Any) -> str:
    return (inspect.getdoc(module) or "").splitlines()[0]
