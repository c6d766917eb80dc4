"""Text for people: one-line `repr`s, terminals that lack some characters, how far a long run is."""

from __future__ import annotations

import codecs
import dataclasses
import html
import io
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

LETTERS = 40
ITEMS = 4


class OneRepr:
    """Base of dataclasses that keep the `repr` of their base."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep `dataclass` from writing one with every field."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]


class ShortRepr(OneRepr):
    """Base of dataclasses that hold arrays."""

    def __repr__(self) -> str:
        fields = (f"{name}={short_repr(value)}" for name, value in shown_fields(self))
        return f"{type(self).__name__}({', '.join(fields)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align: left">{html.escape(name)}</th>'
            f'<td style="text-align: left">{html.escape(short_repr(value))}</td></tr>'
            for name, value in shown_fields(self)
        )
        return f"<strong>{type(self).__name__}</strong><table>{rows}</table>"


Brief = ShortRepr  # deprecated: the former name


def shown_fields(value: Any) -> list[tuple[str, Any]]:
    """Name and value of a dataclass' fields that its `repr` shows, those without a value left out.

    An attribute that is computed on first use is not a field, and not asked for.
    """
    fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr)
    return [(name, held) for name, held in fields if held is not None]


def short_repr(value: Any) -> str:
    """A value in a few letters: numbers and short texts as they are, arrays by type and shape."""
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        return repr(value if len(value) <= LETTERS else f"{value[: LETTERS - 1]}…")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if isinstance(value, Mapping):
        return f"{{{len(value)} entries}}"
    if isinstance(value, list | tuple | Set):
        plain = len(value) <= ITEMS and all(isinstance(v, bool | int | float | str) for v in value)
        return f"[{', '.join(map(short_repr, value))}]" if plain else f"[{len(value)} items]"
    return getattr(value, "__name__", None) or type(value).__name__


def _array(value: Any) -> str:
    shape = tuple(value.shape)
    if not shape:
        return short_repr(value.item())
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind}[{', '.join(map(str, shape))}]"


HANDLER = "interp_toolkit.plain"
LIKENESS = {
    "✓": "+",
    "✗": "x",
    "•": "*",
    "·": ";",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "×": "x",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~",
    "±": "+-",
    "√": "sqrt ",
    "∧": " and ",
    "∨": " or ",
    "¬": "not ",
    "⊕": " xor ",
    "∞": "inf",
    "Σ": "sum ",
    "’": "'",
    **dict.fromkeys("━─╸╺╴╶", "-"),
    **dict.fromkeys("│┃", "|"),
    **dict.fromkeys("“”", '"'),
}


def plain(character: str) -> str:
    """One character in ASCII.

    Examples:
        >>> [plain(c) for c in "×é²ε語"]
        ['x', 'e', '2', 'epsilon', '?']
    """
    if character in LIKENESS:
        return LIKENESS[character]
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if bare:
        return bare
    name = unicodedata.name(character, "")
    return name.rpartition(" ")[2].lower() if name.startswith("GREEK ") else "?"


def lenient(stream: Any) -> None:
    """Have a text stream write plainly what its encoding lacks."""
    if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream.encoding):
        codecs.register_error(HANDLER, _plainly)
        stream.reconfigure(errors=HANDLER)


def _is_unicode(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(plain, error.object[error.start : error.end])), error.end


SOON = 3.0  # seconds below which nothing is said of the time left
ENOUGH = 2.0  # seconds that must be spent before they say how long the rest will take


class ProgressEstimate:
    """Says after every step what is done and about what time is left.

    Args:
        say: is told, in words.
        total: steps.
        what: is being done.
        unit: what a step is, in the plural.

    Examples:
        >>> said = []
        >>> count = ProgressEstimate(said.append, 3, "cutting edges")
        >>> count.step()
        >>> said
        ['cutting edges: 1 of 3 passes']
    """

    def __init__(self, say: Callable[[str], None], total: int, what: str, unit: str = "passes"):
        self._say, self._total, self._what, self._unit = say, total, what, unit
        self._done, self._began = 0, time.monotonic()

    def step(self, steps: int = 1) -> None:
        """Advance by one step, or several."""
        self._done += steps
        self._say(f"{self._what}: {so_far(self._done, self._total, self._began, self._unit)}")


Countdown = ProgressEstimate  # deprecated: the former name


def so_far(done: float, total: float, since: float, unit: str = "passes") -> str:
    """Progress such as "12 of 40", with the time left if it is known and worth mentioning.

    Args:
        done: steps that were made; parts count.
        total: of how many, at most.
        since: when the first began, of `time.monotonic`.
        unit: what a step is, in the plural.
    """
    left = time_left(time.monotonic() - since, done, total - done)
    remaining = f", {left} left" if left else ""
    return f"{_number(done)} of {_number(total)} {unit}{remaining}"


def time_left(spent: float, done: float, rest: float) -> str | None:
    """About how long the rest takes, in words; None where that is not known yet, or nearly over.

    Args:
        spent: seconds, on the steps that were made.
        done: these steps.
        rest: the steps to be made.

    Examples:
        >>> time_left(10.0, 2, 8), time_left(1.0, 2, 8), time_left(10.0, 9, 1)
        ('40 s', None, None)
    """
    if done <= 0 or spent < ENOUGH:
        return None
    left = spent * rest / done
    return in_words(left) if left >= SOON else None


def in_words(seconds: float) -> str:
    """About how long, as people say it: `40 s`, `3 min`, `2.5 h`.

    Examples:
        >>> in_words(41.7), in_words(200), in_words(9000)
        ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _number(steps: float) -> str:
    return f"{steps:,.0f}" if float(steps).is_integer() else f"{steps:.1f}"


def capital(text: str) -> str:
    """The text with a capital first letter, the others as they are."""
    return text[:1].upper() + text[1:]


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
