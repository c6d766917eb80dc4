"""Writing a file so that a reader finds the old one or the new one, never half of either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place if the block ends without an error.

    A link is followed. The file gets the mode that the user's umask gives. Raises OSError when it
    cannot be made there; nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.touch()
        mode = partial.stat().st_mode
        yield partial
        partial.chmod(mode)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
