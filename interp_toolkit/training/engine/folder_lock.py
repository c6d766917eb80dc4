"""One process a folder: a lock that the system drops when its holder dies, however it dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interp_toolkit.errors import InputError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; it does nothing where the system cannot lock one (Windows, some networks').

    Raises InputError when another process holds it, or it cannot be opened.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process is training in {folder}: wait for it, or give another --out"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)
