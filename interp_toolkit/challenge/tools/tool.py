"""What a tool is: something with `score(model, question)`.

It gives a probability for each of the question's items, None for one that it will not answer, or
None for the whole question: then it abstains. It may be an object (`name` is optional), or a
function. A tool that raises has given no answer, and its reason is kept.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from interp_toolkit.challenge.question import Question
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model

Answer = Sequence[float | None] | None


@runtime_checkable
class Tool(Protocol):
    """What is asked; a new one is made for every model."""

    def score(self, model: Model, question: Question) -> Answer:
        """A probability for each item; None where it abstains."""


MakeTool = Callable[[], Tool]
#: name -> module and class of the tools that come with the toolkit
TOOLS: Mapping[str, tuple[str, str]] = {
    "interp-toolkit": ("ours", "Ours"),
    "detect_head": ("detect_head", "DetectHead"),
    "attribution-patching": ("attribution", "AttributionPatching"),
}


def find_tool(name: str) -> MakeTool:
    """A tool by its name, or a user's own as `module:attribute`, which is imported.

    The attribute may be a class or function that makes a tool, an object with `score`, or a
    function of model and question that takes the place of `score`.

    Raises:
        InputError: no such tool, or what is named is none.
    """
    if name in TOOLS:
        module, attribute = TOOLS[name]
        found = importlib.import_module(f"interp_toolkit.challenge.tools.{module}")
        made: MakeTool = getattr(found, attribute)
        return made
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InputError(
            f"no tool {name!r}: {', '.join(TOOLS)}, or your own as module:function, such as "
            "my_tools:score"
        )
    try:
        given = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the tool {name} cannot be imported: {error}") from error
    return as_tool(given, name)


def as_tool(given: Any, name: str) -> MakeTool:
    """What makes the tool that a user gives; raises InputError where it is none."""
    if isinstance(given, type):
        return given
    if hasattr(given, "score"):
        return lambda: given
    if callable(given):
        return lambda: _Function(given)
    raise InputError(f"{name} is no tool: it needs a method score(model, question)")


class _Function:
    """A tool of a function."""

    def __init__(self, function: Callable[[Model, Question], Answer]):
        self.score = function


def checked(answer: Sequence[Any] | None, n_items: int) -> list[float | None]:
    """The probabilities; raises ValueError where they are none or not as many as were asked for."""
    if answer is None:
        return [None] * n_items
    found = [None if p is None else float(p) for p in answer]
    if len(found) != n_items:
        raise ValueError(f"{len(found)} answers to {n_items} items")
    wrong = [p for p in found if p is not None and not (math.isfinite(p) and 0 <= p <= 1)]
    if wrong:
        raise ValueError(f"{wrong[0]} is no probability")
    return found
