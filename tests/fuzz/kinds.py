"""Inputs that are pipes, or files with holes, which have a size and no bytes."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from inputs import Input

HOLES = 5 * 2**28  # bytes, above the memory that a reader may take


def pipe(path: Path) -> None:
    """Into which nobody writes."""
    path.unlink()
    os.mkfifo(path)


def longer(path: Path) -> None:
    """What it was, and zeros without end."""
    os.truncate(path, HOLES)


def empty(path: Path) -> None:
    """Zeros without end."""
    os.truncate(path, 0)
    os.truncate(path, HOLES)


KINDS: tuple[Callable[[Path], None], ...] = (pipe, longer, empty)


def cases_of(given: Input) -> tuple[Input, int]:
    """The same input with each of its files of each kind in turn, and how many that are."""
    with tempfile.TemporaryDirectory() as folder:
        names = [str(p.relative_to(folder)) for p in _files(given.sound(Path(folder)))]
    cases = product(names, KINDS)

    def worse(folder: Path, rng: random.Random) -> Path:
        path = given.sound(folder)
        name, change = next(cases)
        change(folder / name)
        return path

    return Input(given.sound, worse), len(names) * len(KINDS)


def _files(path: Path) -> Iterator[Path]:
    yield from sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
