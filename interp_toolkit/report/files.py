"""Writing a report's text where the user asked for it."""

from __future__ import annotations

import os
from pathlib import Path

from interp_toolkit.atomic import replacing
from interp_toolkit.errors import InputError


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
