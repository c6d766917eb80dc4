"""Text for people: one-line `repr`s, ASCII fallbacks for terminals, progress with time left."""

from __future__ import annotations

import codecs
import dataclasses
import html
import io
import re
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp_toolkit.stats import Estimate, Share

LETTERS = 40
ITEMS = 4
SMALLEST_P = 1e-10


class OneRepr:
    """Base of dataclasses that keep the `repr` of their base."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep `dataclass` from generating a `repr` with every field."""
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


def shown_fields(value: Any) -> list[tuple[str, Any]]:
    """Names and values of the dataclass fields in its `repr`, without fields that have no value.

    Cached properties are not fields and are not evaluated.
    """
    fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr)
    return [(name, held) for name, held in fields if held is not None]


def short_repr(value: Any) -> str:
    """A short form of a value: numbers and short texts in full, arrays by type and shape."""
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
    """Make a text stream replace characters that its encoding lacks by ASCII."""
    if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream.encoding):
        codecs.register_error(HANDLER, _plainly)
        stream.reconfigure(errors=HANDLER)


def _is_unicode(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(plain, error.object[error.start : error.end])), error.end


SOON = 3.0  # seconds left below which no estimate is shown
ENOUGH = 2.0  # seconds of work before the time left is estimated


class ProgressEstimate:
    """Reports after every step the progress and the approximate time left.

    Args:
        say: called with each report.
        total: number of steps.
        what: the activity, such as "ablating edges".
        unit: name of the steps, as a plural.

    Examples:
        >>> reports = []
        >>> count = ProgressEstimate(reports.append, 3, "ablating edges")
        >>> count.step()
        >>> reports
        ['ablating edges: 1 of 3 passes']
    """

    def __init__(self, say: Callable[[str], None], total: int, what: str, unit: str = "passes"):
        self._say, self._total, self._what, self._unit = say, total, what, unit
        self._done, self._began = 0, time.monotonic()

    def step(self, steps: int = 1) -> None:
        """Advance by one or more steps."""
        self._done += steps
        self._say(f"{self._what}: {so_far(self._done, self._total, self._began, self._unit)}")


class Stages:
    """Reports the stage of a long analysis, and one estimate of the time left for all stages.

    Args:
        say: called with each report.
        costs: the stages in order, with what each costs at most, in any unit. The time left follows
            from the costs of what is done, so that it is corrected as stages end.

    Examples:
        >>> reports = []
        >>> stages = Stages(reports.append, {"attribution": 2, "ablation": 8})
        >>> stages.begin("ablation")("ablating edges: 1 of 3 passes")
        >>> reports
        ['[2/2] ablating edges: 1 of 3 passes']
    """

    def __init__(self, say: Callable[[str], None], costs: Mapping[str, float]):
        self._say, self._costs = say, dict(costs)
        self._began = time.monotonic()

    def begin(self, name: str) -> Callable[[str], None]:
        """The progress function of a stage; stages before it are over."""
        names = list(self._costs)
        at = names.index(name)
        before, own = sum(list(self._costs.values())[:at]), self._costs[name]
        total, done = sum(self._costs.values()), 0.0

        def say(step: str) -> None:
            nonlocal done
            if count := _COUNT.search(step):
                steps, of = (float(part.replace(",", "")) for part in count.groups())
                done = max(done, min(steps / of, 1.0) if of else 0.0)
            past = before + done * own
            left = time_left(time.monotonic() - self._began, past, total - past)
            step = _LEFT.sub("", step)
            in_all = f", {left} left in all" if left else ""
            self._say(f"[{at + 1}/{len(names)}] {step}{in_all}")

        return say


_COUNT = re.compile(r"(\d[\d,]*(?:\.\d+)?) of (?:at most )?(\d[\d,]*(?:\.\d+)?)")
_LEFT = re.compile(r", [\d.]+ (s|min|h) left")


def so_far(done: float, total: float, since: float, unit: str = "passes") -> str:
    """Progress such as "12 of 40", with the time left if it is known and worth mentioning.

    Args:
        done: steps completed, fractions included.
        total: steps in all, at most.
        since: start of the first step, from `time.monotonic`.
        unit: name of the steps, as a plural.
    """
    left = time_left(time.monotonic() - since, done, total - done)
    remaining = f", {left} left" if left else ""
    return f"{_number(done)} of {_number(total)} {unit}{remaining}"


def time_left(spent: float, done: float, rest: float) -> str | None:
    """Approximate time left, as text; None if it is not known yet, or nearly over.

    Args:
        spent: seconds taken by the completed steps.
        done: completed steps.
        rest: remaining steps.

    Examples:
        >>> time_left(10.0, 2, 8), time_left(1.0, 2, 8), time_left(10.0, 9, 1)
        ('40 s', None, None)
    """
    if done <= 0 or spent < ENOUGH:
        return None
    left = spent * rest / done
    return in_words(left) if left >= SOON else None


def in_words(seconds: float) -> str:
    """A rounded duration: `40 s`, `3 min`, `2.5 h`.

    Examples:
        >>> in_words(41.7), in_words(200), in_words(9000)
        ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _number(steps: float) -> str:
    return f"{steps:,.0f}" if float(steps).is_integer() else f"{steps:.1f}"


def percent(fraction: float, digits: int = 0) -> str:
    """A fraction as text, such as `43 %`."""
    return f"{fixed(100 * fraction, digits)} %"


def percent_ci(share: Share | Estimate, digits: int = 0) -> str:
    """A fraction with its confidence interval, such as `43 % [31, 55]`."""
    low, high = (fixed(100 * end, digits) for end in (share.low, share.high))
    return f"{percent(share.mean, digits)} [{low}, {high}]"


def with_ci(mean: float, low: float, high: float) -> str:
    """A number with its confidence interval, such as `0.43 [0.31, 0.55]`."""
    return f"{fixed(mean)} [{fixed(low)}, {fixed(high)}]"


def fixed(number: float, digits: int = 2) -> str:
    """A number with a fixed number of digits, without the sign of a rounded -0."""
    return f"{round(number, digits) + 0.0:.{digits}f}"


def equals_p(p: float, name: str = "p") -> str:
    """`p = 0.012`, or `p < 1e-10`: smaller values depend on the form of a fitted tail."""
    return f"{name} < {SMALLEST_P:g}" if p < SMALLEST_P else f"{name} = {p:.2g}"


def p_cell(p: float | None) -> float | str | None:
    """A p-value in a table, with the bound of `equals_p`."""
    return f"< {SMALLEST_P:g}" if p is not None and p < SMALLEST_P else p


def capital(text: str) -> str:
    """The text with its first letter capitalized and the others unchanged."""
    return text[:1].upper() + text[1:]


def counted(number: int, what: str) -> str:
    """`1 pair`, `1,225 pairs`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def prefixed(progress: Callable[[str], None], what: str) -> Callable[[str], None]:
    """A progress function that tells what each step belongs to, such as an analysis."""
    return lambda step: progress(f"{what}: {step}")


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, and the number of the others; never 1, since a name is no longer than that.

    Examples:
        >>> listed(["a", "b", "c", "d"]), listed(["a", "b", "c", "d", "e"])
        ('a, b, c, d', 'a, b, c and 2 more')
    """
    more = len(names) - most
    return ", ".join(names if more == 1 else names[:most]) + (
        f" and {more} more" if more > 1 else ""
    )
