"""JSON from anyone: read whole, or refused in one line that names where it comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interp_toolkit.bounded import read_whole
from interp_toolkit.errors import InputError

MOST_DIGITS = 300  # of a whole number, beyond which no float holds it


def read_json(path: Path, source: str) -> Any:
    """What a UTF-8 file of JSON holds.

    Args:
        path: of the file.
        source: what errors call it, such as `--config cfg.json`.

    Raises:
        InputError: it cannot be read, is too large, or is no JSON.
    """
    try:
        text = read_whole(path)
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}") from error
    return parsed(text, source)


def parsed(text: bytes | str, source: str) -> Any:
    """What JSON says, in UTF-8; raises InputError where it is none, or a number has no size."""
    try:
        said = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(said, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON: {error}") from error


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)
