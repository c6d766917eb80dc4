"""jaxtyping's checks of shapes at a bearable price: of every function's first calls in each test.

A checked call of a small function costs ten times the function itself (arguments are bound, and
checked twice), and some are called a million times: half of the suite's time. So in each test the
first FIRST calls of a function are checked, and one in EVERY after that; with INTERP_EVERY_SHAPE
in the environment all are, as `make test-long` has it. A function that is defined inside another
counts with all others of its `def`: to make its check takes a millisecond.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import jaxtyping

FIRST, EVERY = (1, 1) if os.environ.get("INTERP_EVERY_SHAPE") else (5, 30)
WITH_ARRAYS = (
    *("auditing", "boolean_functions", "circuits", "data", "diagnosis", "models", "probes"),
    *("stats", "tasks", "toys", "training"),
)
_in_full = jaxtyping.jaxtyped
_test = 0


@dataclass
class Count:
    """How often a function was called in a test."""

    test: int = -1
    calls: int = 0


_counts: dict[CodeType, Count] = defaultdict(Count)


def begin_test() -> None:
    """From here on every function's next calls are its first ones."""
    global _test
    _test += 1


def install() -> None:
    """Check the functions of the packages with arrays, as they are imported, by beartype."""
    jaxtyping.jaxtyped = sampled  # by this name the hook decorates what it imports
    packages = [f"interp_toolkit.{name}" for name in WITH_ARRAYS]
    jaxtyping.install_import_hook([*packages, "interp_studies"], "beartype.beartype")


def sampled(function: Any = None, *, typechecker: Any) -> Any:
    """`jaxtyping.jaxtyped`, which checks the first calls and some of the others."""
    if function is None:
        return functools.partial(sampled, typechecker=typechecker)
    if inspect.isclass(function):
        return _in_full(function, typechecker=typechecker)
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(sampled(function.__func__, typechecker=typechecker))
    if isinstance(function, property):
        parts = (function.fget, function.fset, function.fdel)
        return property(*(part and sampled(part, typechecker=typechecker) for part in parts))
    return _sometimes(function, typechecker)


def _sometimes(plain: Callable[..., Any], typechecker: Any) -> Callable[..., Any]:
    """One count for all functions of one `def`, which are checked from the call that needs it."""
    count = _counts[plain.__code__]
    checked: Callable[..., Any] | None = None

    @functools.wraps(plain)
    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if count.test != _test:
            count.test, count.calls = _test, 0
        count.calls += 1
        if count.calls > FIRST and count.calls % EVERY:
            return plain(*args, **kwargs)
        checked = checked or _in_full(plain, typechecker=typechecker)
        return checked(*args, **kwargs)

    return called
