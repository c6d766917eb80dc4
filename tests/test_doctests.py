"""Every public function and class has an example, and the examples run as they stand."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

ROOMS = ("", ".circuits", ".probes", ".models", ".data", ".report")


def public_names() -> dict[str, tuple[str, str]]:
    """Room and name of everything public, once, by where it is defined."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(f"interp_toolkit{room}")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                found.setdefault(f"{thing.__module__}.{name}", (module.__name__, name))
    return found


@pytest.mark.parametrize(("room", "name"), public_names().values(), ids=lambda part: part)
def test_the_example_of(
    room: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thing = getattr(importlib.import_module(room), name)
    known = {
        "np": np,
        "torch": torch,
        name: thing,
        thing.__name__: thing,
    }  # anything else an example imports itself
    [test] = doctest.DocTestFinder(recurse=False).find(inspect.unwrap(thing), name, globs=known)
    assert test.examples, f"{room}.{name} has no example in its docstring"
    monkeypatch.chdir(tmp_path)  # examples may write files
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)
