"""Complete texts in golden files: `tests/texts`, one file for every module of tests that has some.

`make texts` writes them anew; what a change does to words is then one diff to read. Places, times,
hashes and rounding errors are left out, and with `numbers=False` every number: of a training run
they differ with the processor's kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from shown import steady
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.amber import AmberSnapshotExtension
from syrupy.location import PyTestLocation

TESTS = Path(__file__).resolve().parents[1]
FOLDER = TESTS / "texts"
MOST = 20_000  # characters of a text: an HTML page with its scripts is none

NUMBER = re.compile(r"[-−]?\b\d[\d,]*\.?\d*")


class Golden(AmberSnapshotExtension):
    """One folder for all: `tests/texts`, laid out as `tests` is."""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        folder = Path(test_location.filepath).resolve().parent
        return str(FOLDER / folder.relative_to(TESTS))


def plain(text: Any, numbers: bool = True, here: Path | None = None) -> str:
    """A text, an error's message, or a line for each of several, without what changes by itself.

    Args:
        text: what is said.
        numbers: whether numbers are kept.
        here: the folder of a test's own files.
    """
    if isinstance(text, pytest.ExceptionInfo):
        text = text.value
    if isinstance(text, Iterable) and not isinstance(text, str):
        text = "\n".join(map(str, text))
    masked = str(text)
    if here is not None:
        masked = re.sub(re.escape(str(here)) + r"/[^/\s]*?\d+\b/?", "…/", masked)
    masked = steady(masked)
    return masked if numbers else NUMBER.sub("#", masked)


def comparison(snapshot: SnapshotAssertion, here: Path) -> Callable[..., bool]:
    """A function that asserts that a text is the golden one: at its n-th call, the n-th."""
    golden = snapshot.use_extension(Golden)

    def same(text: Any, *, numbers: bool = True) -> bool:
        masked = plain(text, numbers, here)
        assert len(masked) <= MOST
        assert masked == golden
        return True

    return same
