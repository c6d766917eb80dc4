"""Results as one JSON document, for other programs.

    {"schema": "interp-toolkit/2", "version": "0.1.0", "model": {...}, "results": [...]}

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
from typing import Any

from interp_toolkit._version import __version__
from interp_toolkit.report.files import write_text
from interp_toolkit.results import SCHEMA, Result, jsonable

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
