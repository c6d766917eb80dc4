"""One process a folder: a lock that the system drops when its holder dies, however it dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from interp_toolkit.errors import InputError

LOCK = ".lock"  # the file in the folder; a killed process leaves it there, unlocked


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder.

    Raises InputError when another process holds it, or it cannot be written.
    """
    path = folder / LOCK
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another process is training in {folder}: wait for it, or give another --out"
        ) from None
    except OSError as error:
        raise InputError(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no file that is open
            path.unlink()
        lock.release()
