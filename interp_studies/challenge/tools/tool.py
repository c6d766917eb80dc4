"""The interface of a tool: an object with `score(model, question)`.

`score` returns a probability for each of the question's items, None for items that it abstains
from, or None to abstain from the whole question. A tool can be an object (with an optional `name`),
a function of (model, question), or a class or function without arguments that makes a tool. If a
tool raises, it has given no answer, and the reason is stored.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from interp_studies.challenge.question import Question
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model

Answer = Sequence[float | None] | None


@runtime_checkable
class Tool(Protocol):
    """The interface of a tool; a new tool is made for every model."""

    def score(self, model: Model, question: Question) -> Answer:
        """A probability for each item; None to abstain."""


MakeTool = Callable[[], Tool]
#: name -> module and class of the tools that come with the toolkit
TOOLS: Mapping[str, tuple[str, str]] = {
    "interp-toolkit": ("ours", "Ours"),
    "detect_head": ("detect_head", "DetectHead"),
    "attribution-patching": ("attribution", "AttributionPatching"),
}


def find_tool(name: str) -> MakeTool:
    """A tool by its name, or a user's tool given as `module:attribute`, which is imported.

    The module can be in the working directory. For the kinds of attribute see `as_tool`.

    Raises:
        InputError: the tool is unknown, its module cannot be imported, or the attribute is no tool.
    """
    if name in TOOLS:
        module, attribute = TOOLS[name]
        found = importlib.import_module(f"interp_studies.challenge.tools.{module}")
        made: MakeTool = getattr(found, attribute)
        return made
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InputError(
            f"no tool {name!r}: {', '.join(TOOLS)}, or your own as module:function, such as "
            "my_tools:score"
        )
    try:
        with _working_directory_on_path():
            given = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # another's code: it may raise anything
        raise InputError(f"the tool {name} cannot be imported: {reason(error)}") from error
    return as_tool(given, name)


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    """Add the working directory to the import path, as `python -m` does."""
    here = os.getcwd()
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def reason(error: BaseException) -> str:
    """The exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def as_tool(given: Any, name: str) -> MakeTool:
    """A function that makes the user's tool.

    Args:
        given: a class, an object with `score`, a function of (model, question) in place of `score`,
            or a function without arguments that makes a tool.
        name: name of the tool.

    Raises:
        InputError: `given` is none of these.
    """
    if isinstance(given, type):
        return given
    if hasattr(given, "score"):
        return lambda: given
    if callable(given) and _takes(given, 2):
        return lambda: _Function(given)
    if callable(given) and _takes(given, 0):
        made: MakeTool = given
        return made
    if callable(given):
        raise InputError(f"{name} is not a tool: it must take (model, question) or no arguments")
    raise InputError(f"{name} is not a tool: it needs a method score(model, question)")


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with `count` arguments.

    If its signature is unknown, two are assumed.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return count == 2
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def make_tool(make: MakeTool, name: str) -> Tool:
    """A tool; raises InputError if this raises an exception or the result has no `score`."""
    try:
        made = make()
    except Exception as error:  # another's code
        raise InputError(f"the tool {name} cannot be made: {reason(error)}") from error
    if not callable(getattr(made, "score", None)):
        kind = type(made).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        raise InputError(
            f"{name} makes {article} {kind}, which has no method score(model, question)"
        )
    return made


class _Function:
    """A tool made from a function."""

    def __init__(self, function: Callable[[Model, Question], Answer]):
        self.score = function


def checked(answer: Sequence[Any] | None, n_items: int) -> list[float | None]:
    """The probabilities; raises ValueError if they are invalid or their number is wrong."""
    if answer is None:
        return [None] * n_items
    found = [None if p is None else float(p) for p in answer]
    if len(found) != n_items:
        raise ValueError(f"{len(found)} answers to {n_items} items")
    wrong = [p for p in found if p is not None and not (math.isfinite(p) and 0 <= p <= 1)]
    if wrong:
        raise ValueError(f"{wrong[0]} is not a probability")
    return found
