"""Names in the package."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import interp_toolkit

ROOT = Path(interp_toolkit.__file__).parent


def test_no_two_public_classes_share_a_name():
    homes = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


#: words of no field, which say how a value came about and not what it is
BANNED = frozenset(
    (
        *("found", "said", "told", "mine", "theirs", "place", "places", "given", "known", "kept"),
        *("seen", "drawn", "wanted", "looks", "foretold", "home", "anew", "material", "doubtful"),
        *("kin", "price", "worth", "readoff", "quietly", "brief", "countdown", "deed"),
        *("whence", "wherein", "thereof", "sheet"),
    )
)
PHRASES = ("at_home", "stand_in")
#: identifiers of a module, by its path, that keep such a word
ALLOWED = {
    # an English verb phrase
    "models/loading/source_names.py": {"looks_like_path"},
}


def identifiers(path):
    """The names that a module gives to things, its own included."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias | ast.ExceptHandler | ast.MatchAs):
            yield (node.asname if isinstance(node, ast.alias) else node.name) or ""


def is_banned(name):
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return not BANNED.isdisjoint(snake.split("_")) or any(one in snake for one in PHRASES)


def test_banned_words_are_recognized():
    assert all(map(is_banned, ("found", "_Kept", "n_seen", "CheckedHome", "by_place", "stand_ins")))
    assert not any(map(is_banned, ("founder", "replace", "placement", "unknown", "scores")))


def test_identifiers_say_what_they_hold():
    banned = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        banned[path.relative_to(ROOT).as_posix()] |= set(filter(is_banned, identifiers(path)))
    assert {module: names for module, names in banned.items() if names} == ALLOWED


#: openings without the noun that they depend on, and inversions
OPENING = re.compile(r"(Of|As|So|Those|Both|Beside)\b")
ARCHAIC = re.compile(r"\b(anew|hence|lest|thereof|whence|wherein)\b", re.IGNORECASE)


def test_docstrings_begin_with_a_noun_or_a_verb():
    lacking = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
                text = ast.get_docstring(node) or ""
                if OPENING.match(text) or ARCHAIC.search(text):
                    where = f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}"
                    lacking[where] = text.splitlines()[0]
    assert lacking == {}
