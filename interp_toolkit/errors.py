"""The exceptions that users meet, and the limits on their messages.

`InputError` is for the user to fix: its message is one line that names the problem and the
remedy. The command line prints it without a traceback and exits with code 2.
`InterventionError` reports that a model ignored an edit or cannot be edited, so that results would
be wrong.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

LONGEST = 300  # characters of a message
ECHO = 60  # characters of any one piece of the user's input that a message quotes
PATH_ECHO = 120  # characters of a path, enough to copy it
LISTED = 150  # characters of a list of known names
Function = TypeVar("Function", bound=Callable[..., Any])
PATH = (str, Path)
_SPELLED_WITH_AN = ("Unembed", "Unknown", "Untrained", "ndarray", "SAE", "MT5", "MLP", "LSTM")
_QUOTED = re.compile(
    rf"""(?<!\w)(?P<quote>['"])(?P<text>((?!(?P=quote))[^\\]|\\.){{{ECHO + 1},}})(?P=quote)"""
)
_WORD = re.compile(rf"\S{{{ECHO + 1},}}")
_NAMES = {"str": "text", "Path": "path", "Integral": "whole number", "Mapping": "mapping"}


class InputError(ValueError):
    """The user's input cannot be used; the message says why and what to do.

    The message is one line of at most 300 characters for any input: control characters are shown
    escaped, and quoted input is shortened.

    Examples:
        >>> import interp_toolkit as it
        >>> it.load("toy:xor-3head")
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: no toy is called 'xor-3head'; did you mean xor-2head?
    """

    def __init__(self, message: str):
        super().__init__(shortened(message))


class InterventionError(RuntimeError):
    """A model cannot be edited as requested, or an edit had no effect on its output.

    Examples:
        >>> issubclass(InterventionError, RuntimeError)  # the input is not at fault
        True
    """


def printable(text: str) -> str:
    """The text on one line, with control characters shown escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(message: str) -> str:
    """The message on one line, of at most `LONGEST` characters.

    Quoted texts and unbroken words of more than `ECHO` characters are echoed input (a name in a
    damaged file, say) and are shortened to that; a path keeps its last `PATH_ECHO` characters. Of
    a message that is still too long the middle is left out.
    """
    line = _WORD.sub(lambda word: _echo(word[0]), _QUOTED.sub(_echo_quoted, printable(message)))
    if len(line) <= LONGEST:
        return line
    end = LONGEST // 3
    return f"{line[: LONGEST - end - 5]} ... {line[-end:]}"


def _echo_quoted(match: re.Match[str]) -> str:
    return f"{match['quote']}{_echo(match['text'], ECHO - 2)}{match['quote']}"


def _echo(text: str, most: int = ECHO) -> str:
    """The beginning of a text, or the end of a path."""
    if "/" in text and len(text.split()) == 1:
        return text if len(text) <= PATH_ECHO else f"…{text[1 - PATH_ECHO :]}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(error: BaseException) -> str:
    """The first line of an error's message; its class if the message is empty or only a key."""
    if isinstance(error, KeyError):
        return f"{type(error).__name__} {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")


def reason_of(error: BaseException) -> str:
    """The system's reason for an error; `one_line` without one, as in NumPy's and gzip's errors."""
    return getattr(error, "strerror", None) or one_line(error)


def first_line(error: BaseException, most: int = 120) -> str:
    """`one_line`, with long echoed words shortened and of at most so many characters."""
    line = _WORD.sub(lambda word: _echo(word[0]), one_line(error))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def suggestion(name: str, names: Iterable[str]) -> str:
    """`'; did you mean X?'` for a near miss, else `'; known: A, B, C'`; for error messages.

    Names with a slash that start like the unknown name come first. A long list of known names
    ends with the number of names left out.
    """
    names = sorted(set(names))
    prefix, _, end = name.rpartition("/")
    alike = [one for one in names if one.startswith(f"{prefix or name}/")]
    if alike:
        near = _near_ends(end, alike) if prefix else []
    else:
        near = difflib.get_close_matches(name, names, n=1) or _near_ends(name, names)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; known: {some_of(alike or names)}" if names else ""


def some_of(names: Sequence[str]) -> str:
    """The names in one line, up to `LISTED` characters, and the number of names left out."""
    shown = list(names)
    while len(shown) > 1 and len(", ".join(shown)) > LISTED:
        shown.pop()
    if (more := len(names) - len(shown)) == 1:
        shown, more = list(names), 0
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _near_ends(end: str, names: Iterable[str]) -> list[str]:
    """Names with a slash whose last part is similar."""
    ends: dict[str, list[str]] = {}
    for one in names:
        if "/" in one:
            ends.setdefault(one.rpartition("/")[2], []).append(one)
    return [one for near in difflib.get_close_matches(end, ends, n=3) for one in ends[near]]


def takes(**kinds: Any) -> Callable[[Function], Function]:
    """Decorator that checks the arguments of a public function before it runs.

    Args:
        kinds: for each parameter its type, a tuple of types, or a function that raises InputError
            for values it refuses. A parameter's default is always accepted.

    Examples:
        >>> takes(name=str)(lambda name: name)(3)
        Traceback (most recent call last):
            ...
        interp_toolkit.errors.InputError: name is an int: give a text
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            arguments = signature.bind(*args, **options).arguments
            for name, kind in kinds.items():
                if name in arguments and arguments[name] is not signature.parameters[name].default:
                    _check_kind(name, arguments[name], kind)
            try:
                return function(*args, **options)
            except AttributeError as error:
                refuse_missing_part(error, arguments.get("model"))
                raise

        return cast("Function", checked)

    return decorate


def _check_kind(name: str, value: Any, kind: Any) -> None:
    if not isinstance(kind, type | tuple):
        kind(value)
    elif not isinstance(value, kind):
        kinds = [one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,))]
        expected = " or ".join(_NAMES.get(one, one) for one in kinds)
        raise InputError(f"{name} is {a_kind(value)}: give a {expected}")


def a_kind(value: Any) -> str:
    """The type of a value for a message, without its content: `a list`, `an int`, `None`."""
    if value is None:
        return "None"
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """`a list`, `an int`."""
    with_an = name[:1].lower() in tuple("aeio") or name.startswith(_SPELLED_WITH_AN)
    return f"{'an' if with_an else 'a'} {name}"


def refuse_missing_part(error: AttributeError, model: Any) -> None:
    """Raise InputError if the missing attribute is a part of the model or its configuration."""
    config = getattr(model, "cfg", None)
    if model is not None and (error.obj is model or (config is not None and error.obj is config)):
        where = "cfg of this " if error.obj is config else ""
        raise InputError(
            f"the {where}{type(model).__name__} has no {error.name}, which is needed here"
        ) from error


def check_texts(value: Any) -> None:
    """Raise InputError for a value that is neither a text nor a list of texts."""
    listed = isinstance(value, Iterable) and not isinstance(value, Mapping | bytes)
    if not isinstance(value, str) and not (listed and all(isinstance(one, str) for one in value)):
        raise InputError(f"{a_kind(value)} is neither a text nor a list of texts")
