"""The errors a user can meet, by whose fault they are.

`InputError` is the user's to mend: its message is one line that names what is wrong and what
to do. The command line prints it without a traceback and exits with code 2.
`InterventionError` says that a model ignored an edit: its results would have been wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 2_000  # characters of a message


class InputError(ValueError):
    """What the user gave cannot be used; the message says why and what to do.

    The message is one line whatever a file's names hold: control characters are shown escaped, and
    of a very long one the middle is left out.

    Examples:
        >>> import interp_toolkit as it
        >>> it.load("toy:xor-3head")
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: no toy is called 'xor-3head'; did you mean xor-2head?
    """

    def __init__(self, message: str):
        line = printable(message)
        if len(line) > LONGEST:
            line = f"{line[: LONGEST * 2 // 3]} ... {line[-LONGEST // 3 :]}"
        super().__init__(line)


class InterventionError(RuntimeError):
    """An edit at a hook point did not change the model's computation.

    Examples:
        >>> issubclass(InterventionError, RuntimeError)  # so it is no fault of the input
        True
    """


def printable(text: str) -> str:
    """The text on one line that changes nothing but itself: control characters shown escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its class where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def suggestion(name: str, known: Iterable[str]) -> str:
    """`'; did you mean X?'` for a near miss, else `'; known: A, B, C'`; for error messages.

    Of names with a slash, those that begin alike go before all others.
    """
    known = sorted(set(known))
    prefix, _, end = name.rpartition("/")
    alike = [one for one in known if one.startswith(f"{prefix or name}/")]
    if alike:
        near = _near_ends(end, alike) if prefix else []
    else:
        near = difflib.get_close_matches(name, known, n=1) or _near_ends(name, known)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; known: {', '.join(alike or known)}" if known else ""


def _near_ends(end: str, known: Iterable[str]) -> list[str]:
    """Of the names with a slash, those that end nearly so."""
    ends: dict[str, list[str]] = {}
    for one in known:
        if "/" in one:
            ends.setdefault(one.rpartition("/")[2], []).append(one)
    return [one for near in difflib.get_close_matches(end, ends, n=3) for one in ends[near]]
