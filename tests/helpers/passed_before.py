"""Which tests passed on these very contents: what a test imports, hashed, beside its name.

`--unless-passed` leaves a test out if it passed with the same hash on this machine. `--one-in N`
runs one in N of what is left, drawn by that hash, so that each change draws others. A hash covers
the test's module and the `conftest.py` above it, every module of the project that these import,
directly or not, the data files beside them, and the versions of all packages. What is imported by
name counts too: names of lazy packages by their stubs, and of `registry` those that stand in the
tests. Modules of tests that start processes or look at files of the repository depend on all.

Records are kept for this user, not in the repository: `~/.cache/interp-toolkit/passed.json`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT, ROOT / "tests" / "helpers", ROOT / "benchmarks", ROOT / "tests")  # to import from
LOOKS_AROUND = re.compile(
    r"\bsubprocess\b|__file__|\bcall\(|multiprocessing|pytester|import_module|\bbenchmarks\b"
)
BY_NAME = re.compile(r"(interp_(?:toolkit|studies)(?:\.\w+)+)\.")
LOOKS_UP = re.compile(r"\bregistry\b|\bnames\(|CATALOGUE")
NOT_READ = {"CHANGELOG.md"}
#: what changes a test without a file: checks of every shape, and the kernels of a processor
VARIABLES = (
    *("INTERP_EVERY_SHAPE", "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "MKL_CBWR"),
    "ONEDNN_MAX_CPU_ISA",
)


def record_file() -> Path:
    """Where records are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "interp-toolkit" / "passed.json"


@functools.cache
def _module_file(name: str) -> Path | None:
    """The project's file of this name, if it is a module of the project."""
    for folder in FOLDERS:
        at = folder.joinpath(*name.split("."))
        for path in (at / "__init__.py", at.with_suffix(".py")):
            if path.is_file():
                return path
    return None


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _stub(package: str) -> dict[str, str]:
    """Name -> module of a package whose names load on first use."""
    init = _module_file(package)
    if init is None or not init.with_suffix(".pyi").is_file():
        return {}
    return {
        alias.asname or alias.name: f"{package}.{node.module}"
        for node in _parsed(init.with_suffix(".pyi")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only type checkers read."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield from _run(child)


def _by_text(text: str) -> set[str]:
    """The modules of a package from which modules are imported by name: `f"a.b.{module}"`."""
    package = BY_NAME.fullmatch(text)
    init = package and _module_file(package[1])
    if not init:
        return set()
    return {f"{package[1]}.{path.stem}" for path in init.parent.glob("*.py")}


@functools.cache
def _imported(path: Path) -> frozenset[Path]:
    """The project's files that this one imports, and the packages that these are in."""
    package = path.relative_to(ROOT).parent.as_posix().replace("/", ".")
    names: set[str] = set()
    lazy: dict[str, str] = {}  # "it" -> "interp_toolkit"
    for node in _run(_parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            lazy |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            start = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                names |= {start, _stub(start).get(alias.name, f"{start}.{alias.name}")}
                lazy[alias.asname or alias.name] = f"{start}.{alias.name}"
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(_stub(lazy.get(node.value.id, "")).get(node.attr, ""))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= _by_text(node.value)
    found = set()
    for name in names:
        parts = name.split(".")
        found |= {_module_file(".".join(parts[: n + 1])) for n in range(len(parts))}
    return frozenset(found - {None})  # type: ignore[arg-type]


def files_of(module: Path) -> set[Path]:
    """Every file of the project on which a module of tests depends, its golden texts too."""
    text = module.read_text(encoding="utf-8")
    if LOOKS_AROUND.search(text):
        return set(_all_files())
    golden = ROOT / "tests" / "texts" / module.relative_to(ROOT / "tests").with_suffix(".ambr")
    found: set[Path] = {golden} if golden.is_file() else set()
    looked_up = set(_looked_up(module, everything=bool(LOOKS_UP.search(text))))
    waiting = [
        module,
        *([ROOT / "interp_toolkit" / "analysis.py"] if "analyzed" in text else []),
        *(f / "conftest.py" for f in module.parents if ROOT in f.parents),
        *looked_up,
    ]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found |= {path, *(p for p in path.parent.iterdir() if p.is_file() and p.suffix != ".py")}
        waiting += _imported(path)
        if path.parent.name == "helpers":
            waiting += _looked_up(path, everything=False)
    return found


def _looked_up(path: Path, *, everything: bool) -> Iterator[Path]:
    """Modules of the registry whose names stand in a file, as `xor` or `toy:xor-2head`."""
    from interp_toolkit.registry import CATALOGUE

    texts = {
        node.value.removeprefix("toy:")
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for named in CATALOGUE.values():
        for name, target in named.items():
            at = _module_file(f"interp_toolkit.{target.split(':')[0]}")
            if at is not None and (everything or name in texts):
                yield at


@functools.cache
def _all_files() -> tuple[Path, ...]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in {*names.split("\0")} - {*NOT_READ, ""})
    return tuple(sorted(path for path in paths if path.is_file()))


@functools.cache
def _content(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def _versions() -> bytes:
    installed = sorted({f"{d.metadata['Name']}=={d.version}" for d in distributions()})
    given = [f"{name}={os.environ.get(name)}" for name in VARIABLES]
    return "\n".join([sys.version, *given, *installed]).encode()


@functools.cache
def digest(module: Path) -> str:
    """The hash of all that a module of tests depends on."""
    total = hashlib.sha256(_versions())
    for path in sorted(files_of(module)):
        total.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + _content(path))
    return total.hexdigest()


def _is_ours(module: Path) -> bool:
    return ROOT / "tests" in module.parents


def records() -> dict[str, str]:
    """Test -> the hash with which it last passed."""
    try:
        return dict(json.loads(record_file().read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def left(items: Iterable[pytest.Item], *, unless_passed: bool, one_in: int) -> list[pytest.Item]:
    """The items to run."""
    passed = records() if unless_passed else {}
    return [
        item
        for item in items
        if not _is_ours(item.path)
        or (
            passed.get(item.nodeid) != digest(item.path)
            and int.from_bytes(
                hashlib.sha256(f"{item.nodeid} {digest(item.path)}".encode()).digest()[:4], "big"
            )
            % one_in
            == 0
        )
    ]


class Recorder:
    """Keeps which long tests passed, in the process that the workers report to.

    A file that changes while the tests run is on neither side: such a test is not recorded.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[str, str]] = {}
        self._before: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of tests that take long, every phase counts: set-up, call, teardown."""
        if "long" in report.keywords or report.nodeid.startswith("tests/studies/"):
            module = report.nodeid.split("::")[0]
            if module not in self._before and _is_ours(ROOT / module):
                self._before[module] = digest(ROOT / module)
            self._outcomes.setdefault(report.nodeid, {})[report.when or ""] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """Add what passed to the records."""
        whole = dict.fromkeys(("setup", "call", "teardown"), "passed")
        passed = [nodeid for nodeid, phases in self._outcomes.items() if phases == whole]
        _content.cache_clear()
        digest.cache_clear()
        now = {module: digest(ROOT / module) for module in self._before}
        found = {
            nodeid: now[module]
            for nodeid in passed
            if (module := nodeid.split("::")[0]) in now and now[module] == self._before[module]
        }
        if not found:
            return
        path = record_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(records() | found, indent=0), encoding="utf-8")
        part.replace(path)
