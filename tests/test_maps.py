"""Maps of the tree: package docstrings, README, CONTRIBUTING and cross-references are true."""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from interp_toolkit.registry import Group

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PACKAGES = ("interp_toolkit", "interp_studies")
MOST_MODULES = 16  # with __init__
FEWEST_MODULES = 3
#: folders with fewer Python files, and the reason
SMALL = {
    "interp_toolkit/probes": "holds packages only",
    "interp_toolkit/models": "holds packages, and the protocol that all of them share",
}
INITS = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py"))
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ENTRY = re.compile(r"^- (`\w+`(?:(?:, | and )`\w+`)*):", re.M)  # "- `a`, `b` and `c`: ..."


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def docstring(path: Path) -> str:
    return ast.get_docstring(tree_of(path)) or ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def members(folder: Path) -> set[str]:
    """Names of the modules and packages in a package's folder."""
    modules = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


def listed(text: str) -> list[str]:
    """The names at the start of the entries of a docstring's list."""
    return [name for names in ENTRY.findall(text) for name in re.findall(r"`(\w+)`", names)]


def in_table(text: str, heading: str) -> list[list[str]]:
    """The rows of the first Markdown table behind a heading, cell by cell."""
    assert heading in text, f"no {heading!r}"
    table = re.search(r"(?:^\|.*\|\n)+", text.split(heading, 1)[1], re.M)
    assert table, f"no table behind {heading!r}"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


# Packages.


@pytest.mark.parametrize("init", INITS, ids=relative)
def test_a_package_docstring_lists_what_is_in_the_package_and_nothing_else(init: Path) -> None:
    names = listed(docstring(init))
    assert len(names) == len(set(names))
    assert set(names) == members(init.parent)


@pytest.mark.parametrize("init", INITS, ids=relative)
def test_a_package_docstring_begins_with_a_summary_line(init: Path) -> None:
    first, *rest = docstring(init).splitlines()
    assert first.endswith((".", "?"))
    assert len(first.split()) >= 3
    assert rest
    assert not rest[0]


def test_folders_have_a_sensible_number_of_modules() -> None:
    numbers = {relative(init.parent): len(list(init.parent.glob("*.py"))) for init in INITS}
    assert {name: n for name, n in numbers.items() if n > MOST_MODULES} == {}
    assert {name for name, n in numbers.items() if n < FEWEST_MODULES} == set(SMALL)


def test_python_files_lie_in_packages_only() -> None:
    assert [relative(p) for p in FILES if not (p.parent / "__init__.py").exists()] == []


# README and CONTRIBUTING.


def test_the_readme_names_every_top_level_module_and_package_and_none_that_is_not_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = in_table(text, "## Where things are")
    named = [path.rstrip("/") for row in rows for path in re.findall(r"`([\w./]+)`", row[0])]
    known = {f"interp_toolkit/{name}" for name in members(ROOT / "interp_toolkit")}
    known |= {"interp_studies", "tests", "benchmarks", "examples", "docs"}
    tops = {path.removesuffix(".py") for path in named if path.count("/") < 2}
    assert tops == known
    assert len(named) == len(set(named))
    for path in re.findall(r"`([\w.]+/[\w./]*)`", "\n".join(" ".join(row) for row in rows)):
        assert (ROOT / path).exists(), path


def test_the_readme_answers_the_first_questions_of_a_maintainer() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = in_table(text, "## Where things are")
    for path in (
        "interp_toolkit/probes/estimators/separability.py",
        "interp_toolkit/circuits/heads/detectors.py",
        "interp_toolkit/models/loading/parameters/",
        "interp_toolkit/report/console.py",
    ):
        assert any(f"`{path}`" in cell for row in rows for cell in row), path


def contracts() -> list[dict[str, object]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, object]] = project["tool"]["importlinter"]["contracts"]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_layers_of_contributing_are_those_that_import_linter_checks(package: str) -> None:
    [contract] = [c for c in contracts() if c["type"] == "layers" and c["containers"] == [package]]
    layers = [re.split(r" [|:] ", layer) for layer in contract["layers"]]  # type: ignore[attr-defined]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = in_table(text, f"| layers of `{package}`".split("|")[1].strip())
    assert [re.findall(r"`(\w+)`", row[0]) for row in rows] == layers


def test_the_groups_of_entry_points_in_contributing_are_those_of_the_registry() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for group in get_args(Group):
        assert f"`interp_toolkit.{group}`" in text or f"`.{group}`" in text, group


# Cross-references in docstrings and comments.

NAME = r"[A-Za-z_]\w*"
SEE = re.compile(rf"\b[Ss]ee (?:also )?((?:`{NAME}(?:\.{NAME})*`(?:, | and | or )?)+)")
DOTTED = re.compile(rf"`({NAME}(?:\.{NAME})+)(?:\(\))?`")
PLACEHOLDER = re.compile(r"[A-Z_.]+|a\d+\.h\d+")  # VARIANT.KEY; a head as EAP-IG names it
SNAKE = re.compile(r"`([a-z]\w*_\w+)`")
#: endings of file names, which are no attributes
ENDINGS = {"css", "gguf", "html", "js", "json", "jsonl", "md", "npy", "npz", "pt", "py"}
ENDINGS |= {"safetensors", "toml", "txt", "yaml", "yml"}
#: names that occur in prose alone
ELSEWHERE = {
    "fold_ln": "an option of TransformerLens",
    "center_writing_weights": "an option of TransformerLens",
    "save_to_disk": "a method of the library datasets",
    "element_at_pos": "a function of a source document",
    "Graph": "a class of EAP-IG",
    "HookedTransformer": "a class of TransformerLens",
    "HookedTransformerConfig": "a class of TransformerLens",
}


@cache
def words_of(path: Path) -> frozenset[str]:
    """Every identifier and every word of a string in a module's code, without docstrings."""
    words: set[str] = set()
    for node in ast.walk(tree_of(path)):
        for field in ("name", "id", "arg", "attr", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                words.update(value.split("."))
        docs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for child in () if docs else ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                words.update(re.findall(NAME, child.value))
    return frozenset(words)


@cache
def prose(path: Path) -> list[tuple[int, str]]:
    """Docstrings (of attributes too) and comments, each with its line."""
    found = []
    for node in ast.walk(tree_of(path)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.append((value.lineno, " ".join(value.value.split())))
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            found.append((token.start[0], token.string))
    return found


def module(parts: list[str], folder: Path) -> tuple[Path, list[str]] | None:
    """The module or package that the first parts name in a folder, and the parts behind it."""
    at: Path | None = None
    while parts:
        if (folder / parts[0] / "__init__.py").exists():
            folder = folder / parts[0]
            at, parts = folder / "__init__.py", parts[1:]
        elif (folder / f"{parts[0]}.py").exists():
            return folder / f"{parts[0]}.py", parts[1:]
        else:
            break
    return None if at is None else (at, parts)


@cache
def definitions() -> dict[str, frozenset[str]]:
    """Functions and classes of all modules, each with the words of the modules that define it."""
    found: dict[str, frozenset[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name] = found.get(node.name, frozenset()) | words_of(path)
    return found


def resolves(reference: str, path: Path) -> bool:
    """Whether a name in a module's prose is a module, something in one, or a name in its code."""
    parts = reference.split(".")
    places = [*path.parents[: len(path.relative_to(ROOT).parts)], ROOT / "interp_toolkit"]
    for folder in places:
        target = module(parts, folder)
        if target is not None:
            home, rest = target
            stub = home.with_suffix(".pyi")
            stubbed = stub.read_text(encoding="utf-8") if stub.exists() else ""
            known = words_of(home)
            if all(name in known or re.search(rf"\b{name}\b", stubbed) for name in rest):
                return True
    first, *rest = parts
    if first in definitions() and set(rest) <= definitions()[first]:
        return True
    return first in words_of(path)


def is_external(reference: str) -> bool:
    """Whether it is a library's, a builtin, a hook point, an entry-point group or a placeholder."""
    package, _, last = reference.rpartition(".")
    if package == "interp_toolkit" and last in get_args(Group):
        return True
    if last.startswith("hook_") or PLACEHOLDER.fullmatch(reference):
        return True
    first = reference.split(".")[0]
    return first in imported() or hasattr(builtins, first)


@cache
def imported() -> frozenset[str]:
    """Libraries that our modules import, and what they import from these."""
    names: set[str] = set()
    for node in (node for path in FILES for node in ast.walk(tree_of(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            library = node.module.split(".")[0]
            if library not in PACKAGES:
                names |= {library, *(alias.name for alias in node.names)}
    return frozenset(names - set(PACKAGES))


def broken(path: Path) -> Iterator[str]:
    for line, text in prose(path):
        seen = [name for names in SEE.findall(text) for name in re.findall(r"`([\w.]+)`", names)]
        dotted = [name for name in DOTTED.findall(text) if name.split(".")[-1] not in ENDINGS]
        for name in dict.fromkeys([*seen, *dotted]):
            if not (resolves(name, path) or is_external(name) or name.split(".")[0] in ELSEWHERE):
                yield f"{relative(path)}:{line}: `{name}`"


def test_references_in_docstrings_and_comments_resolve() -> None:
    assert [reference for path in FILES for reference in broken(path)] == []


def test_names_with_an_underscore_in_docstrings_and_comments_are_still_there() -> None:
    known = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} | set(ELSEWHERE)
    known |= {path.parent.name if path.stem == "__init__" else path.stem for path in FILES}
    known |= {word for path in FILES for word in words_of(path)}
    gone = [
        f"{relative(path)}:{line}: `{name}`"
        for path in FILES
        for line, text in prose(path)
        for name in SNAKE.findall(text)
        if name not in known
    ]
    assert gone == []


def test_names_in_prose_that_are_excepted_are_in_use() -> None:
    text = "\n".join(text for path in FILES for _, text in prose(path))
    assert [name for name in ELSEWHERE if f"`{name}" not in text] == []
