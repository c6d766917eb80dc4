"""The errors a user can meet, by whose fault they are.

`InputError` is the user's to mend: its message is one line that names what is wrong and what
to do. The command line prints it without a traceback and exits with code 2.
`InterventionError` says that a model ignored an edit: its results would have been wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What the user gave cannot be used; the message says why and what to do.

    The message is one line whatever a file's names hold: control characters are shown escaped.
    """

    def __init__(self, message: str):
        super().__init__(printable(message))


class InterventionError(RuntimeError):
    """An edit at a hook point did not change the model's computation."""


def printable(text: str) -> str:
    """The text on one line that changes nothing but itself: control characters shown escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`'; did you mean X?'` for a near miss, else `'; known: A, B, C'`; for error messages."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(known)}" if known else ""
