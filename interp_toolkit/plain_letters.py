"""Text for terminals that lack some characters: each is written in plain letters.

A sign has its `LIKENESS`, a letter with a mark loses the mark, a Greek letter has its name, and
anything else is a question mark. `lenient` has a stream do so for what its encoding lacks (a C
locale's ASCII, Latin-1, a code page); a stream in UTF-8 is left alone.
"""

from __future__ import annotations

import codecs
import io
import unicodedata
from typing import Any

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
