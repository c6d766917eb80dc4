"""Writing a file so that a reader finds the old one or the new one, never half of either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place if the block ends without an error.

    What was written is on the disk before it takes that place, and the place is before this
    returns, so that not even a loss of power leaves half a file. A link is followed. The file gets
    the mode that the user's umask gives. Raises OSError when it cannot be made there; nothing is
    left behind.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.touch()
        mode = partial.stat().st_mode
        yield partial
        partial.chmod(mode)
        _sync(partial)
        os.replace(partial, target)
        with suppress(OSError):  # not every system can open a folder, or sync one
            _sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
