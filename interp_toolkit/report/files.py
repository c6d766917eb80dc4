"""Writing a report's text where the user asked for it.

Also here:
- results as one JSON document, for other programs.

    {"schema": "interp-toolkit/3", "version": "0.1.0", "model": {...}, "results": [...]}

`model` is the one model that all results are about, and null where they are about several (or
there are none): each result's provenance names its own in every case. Numbers are numbers, what
is missing or not finite is null; there is never a NaN. The schema is `docs/results.schema.json`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interp_toolkit._version import __version__
from interp_toolkit.errors import InputError, takes
from interp_toolkit.files import replacing
from interp_toolkit.results import SCHEMA, Result, check_results, jsonable


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text through a temporary file in the same folder; returns the path written.

    A link is followed, and what is no regular file (`/dev/null`, a pipe) is written in place.
    Raises InputError when the file cannot be written there.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give a file name in it")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {target.parent}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8", newline="\n")
        else:
            with replacing(target) as partial:
                partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    return target


STDOUT = "-"
_SPREAD_OUT_NUMBERS = re.compile(r'\[\n\s+([^\[\]{}"]+?)\n\s+\]')


def to_json(results: Sequence[Result]) -> dict[str, Any]:
    """The document as plain data; raises TypeError where a result holds what JSON cannot.

    Examples:
        >>> import interp_toolkit as it
        >>> to_json([it.analyze("toy:xor-2head", "xor")])["model"]["name"]
        'toy:xor-2head'
    """
    models = [jsonable(result.provenance.model) for result in results]
    shared = bool(models) and all(model == models[0] for model in models)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "model": models[0] if shared else None,
        "results": [result.to_dict() for result in results],
    }


def dumps(results: Sequence[Result]) -> str:
    """The document as indented text, in ASCII, with each list of numbers on one line."""
    text = json.dumps(to_json(results), allow_nan=False, indent=2)
    return _SPREAD_OUT_NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", text)


@takes(results=check_results)
def write_json(results: Sequence[Result], path: str | os.PathLike[str]) -> None:
    """Write the document to a file, all or nothing, or to standard output where path is `-`.

    Raises InputError when the file cannot be written.

    Examples:
        >>> import interp_toolkit as it
        >>> it.write_json([it.analyze("toy:xor-2head", "xor")], "results.json")
    """
    text = dumps(results) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text(path, text)
