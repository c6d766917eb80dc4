"""The words of a sorting task's layout, read and checked among themselves (see `list_layout`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from interp_toolkit.errors import InputError

_WORD = re.compile(r"(list|sorted|pad)?([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
MAX_LENGTH = 4096  # of a list: beyond it, a slip of the hand rather than a task


class LayoutParts(NamedTuple):
    """What the words say; the fields are those of `ListLayout`."""

    shortest: int
    longest: int
    autoregressive: bool
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    pad: int | None


class _Part(NamedTuple):
    word: str
    kind: str  # separator, list, sorted or pad
    low: int  # the id, or the shortest length
    high: int


def read_words(words: Sequence[str]) -> LayoutParts:
    """What the words say. Raises InputError when they do not make a layout."""
    parts = [_part(word) for word in words]
    pad = _pad(parts)
    listed = _only(parts, "list")
    if listed is None:
        raise InputError(f"layout: there is no list in {' '.join(words)!r}; add one, as list10")
    ordered = _only(parts, "sorted")
    first = second = parts.index(listed)
    if ordered is not None:
        second = parts.index(ordered)
        if second < first:
            raise InputError(f"layout: {ordered.word!r} must come after {listed.word!r}")
        if ordered[2:] != listed[2:]:
            raise InputError(f"layout: {listed.word!r} and {ordered.word!r} differ in length")
    if listed.low < listed.high and pad is None:
        raise InputError("layout: lists of several lengths need padding; end with its id, as pad12")
    return LayoutParts(
        shortest=listed.low,
        longest=listed.high,
        autoregressive=ordered is not None,
        before=_separators(parts[:first]),
        between=_separators(parts[first:second]),
        after=_separators(parts[second:]),
        pad=pad,
    )


def _part(word: str) -> _Part:
    match = _WORD.fullmatch(word)
    if match is None or (match[3] and match[1] not in ("list", "sorted")):
        raise InputError(
            f"layout: {word!r} is no part of one; write token ids, list10 (or list1-10), sorted10, "
            "pad12, as in '10 list10 11 sorted10'"
        )
    kind = match[1] or "separator"
    low, high = int(match[2]), int(match[3] or match[2])
    if kind in ("list", "sorted") and not 1 <= low <= high <= MAX_LENGTH:
        raise InputError(f"layout: {word!r}: lengths are 1 to {MAX_LENGTH}, the shorter one first")
    return _Part(word, kind, low, high)


def _pad(parts: Sequence[_Part]) -> int | None:
    """The padding's id, if there is padding."""
    for part in parts[:-1]:
        if part.kind == "pad":
            raise InputError(f"layout: {part.word!r} must be the last word, and the only padding")
    if not parts or parts[-1].kind != "pad":
        return None
    pad = parts[-1].low
    if pad in _separators(parts):
        raise InputError(f"layout: {pad} cannot be both a separator and the padding")
    return pad


def _only(parts: Sequence[_Part], kind: str) -> _Part | None:
    found = [part for part in parts if part.kind == kind]
    if len(found) > 1:
        raise InputError(f"layout: there are {len(found)} words {kind}N; write one")
    return found[0] if found else None


def _separators(parts: Sequence[_Part]) -> tuple[int, ...]:
    return tuple(part.low for part in parts if part.kind == "separator")
