"""Words stand in one place: no test but the golden files of `tests/texts` holds a sentence.

What a test compares is a status, a number, a name or an option. A phrase of WORDS words belongs to
`texts(...)` (`helpers/golden.py`), so that a change of wording is `make texts` and nothing else.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
WORDS = 4
_WORD = r"[A-Za-z][A-Za-z'’-]*[,;:]?"
PHRASE = re.compile(rf"(?:{_WORD}(?:\\? |\\s\+)){{{WORDS - 1}}}[A-Za-z]+")
TEXT_METHODS = {"startswith", "endswith", "count", "index", "find"}
SEARCHES = {"search", "match", "fullmatch", "findall"}


def phrases(source: str) -> list[str]:
    """Each place of a module of tests where a phrase is compared: "line: phrase"."""
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    constants = _assigned(tree.body)
    found = set(_in(tree, constants))
    for function in functions:
        found |= set(
            _in(function, constants | _assigned(ast.walk(function)) | _parameters(function))
        )
    return [f"{line}: {text}" for line, text in sorted(found)]


def _in(tree: ast.AST, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        compared: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            within = isinstance(node.ops[0], (ast.In, ast.NotIn)) and len(node.ops) == 1
            compared = [node.left, *([] if within else node.comparators)]
        elif isinstance(node, ast.Call):
            compared = [word.value for word in node.keywords if word.arg == "match"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in TEXT_METHODS | SEARCHES:
                compared += node.args[:1]
        for one in compared:
            for part in _texts(one):
                text = names.get(part.id, "") if isinstance(part, ast.Name) else str(part.value)
                if PHRASE.search(text):
                    yield node.lineno, text


def _texts(node: ast.expr) -> Iterator[ast.Constant | ast.Name]:
    """Strings, and names, of a compared expression: also in lists, f-strings and `re.escape`."""
    if isinstance(node, ast.Name) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        yield node
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _texts(part)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        for part in node.elts:
            yield from _texts(part)
    elif isinstance(node, ast.FormattedValue):
        yield from _texts(node.value)
    elif isinstance(node, ast.BinOp):
        yield from _texts(node.left)
        yield from _texts(node.right)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "re.escape":
        yield from _texts(node.args[0])


def _assigned(body: Iterable[ast.AST]) -> dict[str, str]:
    """Names that are bound to a text."""
    return {
        target.id: node.value.value
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _parameters(function: ast.FunctionDef) -> dict[str, str]:
    """Arguments to which `parametrize` gives texts, with the first phrase among these."""
    found: dict[str, str] = {}
    for mark in function.decorator_list:
        if not (isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("parametrize")):
            continue
        names = ast.literal_eval(mark.args[0])
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        rows = mark.args[1].elts if isinstance(mark.args[1], (ast.List, ast.Tuple)) else []
        for row in rows:
            if isinstance(row, ast.Call):
                row = ast.Tuple(row.args)
            parts = row.elts if isinstance(row, ast.Tuple) else [row]
            for name, part in zip(names, parts, strict=False):
                for text in _texts(part):
                    if isinstance(text, ast.Constant) and PHRASE.search(text.value):
                        found[name] = text.value
    return found


MODULES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_no_phrase_is_compared_outside_the_golden_files(module):
    assert phrases((TESTS / module).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        'assert "one two three four" in text',
        'assert text == f"{n} one two three four"',
        'assert text.startswith("one two three, four")',
        'pytest.raises(ValueError, match="one two three four")',
        r'pytest.raises(ValueError, match=r"one\ two\ three\ four")',
        'pytest.raises(ValueError, match=re.escape("one two three four"))',
        'assert re.search("one two three four", text)',
        'assert [x] == ["one two three four"]',
        'LINE = "one two three four"\nassert LINE in text',
        '@pytest.mark.parametrize("n, said", [(1, "one two three four")])\n'
        "def test(n, said):\n    assert said in text",
    ],
)
def test_the_check_finds_a_phrase(line):
    assert len(phrases(line)) == 1


@pytest.mark.parametrize(
    "line",
    ['assert "one two three" in text', 'texts("one two three four")', 'f("one two three four")'],
)
def test_the_check_leaves_names_and_other_texts(line):
    assert phrases(line) == []
