"""Files from anyone, within bounds: regular ones, no larger than what they are for may be.

A pipe keeps its reader waiting, a device never ends, a file with holes has a size and no bytes, and
a few packed bytes can stand for any amount of memory. What is read whole is looked at before it is
opened; what is packed is counted before it is unpacked. Whatever is refused is an OSError, as of a
file that cannot be opened, so that a reader's own words for those name it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from pathlib import Path

RECORD = 64 * 2**20  # bytes of a record, a configuration, a tokenizer; real ones have half at most
ALWAYS_FINE = 1 << 30  # bytes that any file may stand for
PACKED = 64  # what a file may stand for beyond that, in sizes of its own
COPIES = 3  # of what a file holds, that reading it makes
PARSED = 16  # what text takes when it is read as rows, in sizes of its own
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def read_whole(path: Path, most: int = RECORD) -> bytes:
    """All bytes of a file.

    Args:
        path: of a regular file; a link is followed.
        most: bytes that it may have.

    Raises:
        OSError: it cannot be opened, is not a regular file, or larger.
    """
    check_file(path, most)
    return path.read_bytes()


def check_file(path: Path, most: int | None = None) -> None:
    """Refuse what is there and is not a regular file, or is larger than so many bytes; OSError."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):  # opening says that
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if most is not None and found.st_size > most:
        raise OSError(errno.EFBIG, f"it is larger than {in_words(most)}", str(path))


def read_whole_text(path: Path, most: int = RECORD, encoding: str = "utf-8") -> str:
    """The text of a file, its line ends as Python reads them; as `read_whole`, or UnicodeError."""
    return io.StringIO(read_whole(path, most).decode(encoding), newline=None).read()


def most_text() -> int:
    """Bytes of text that may be read whole as rows."""
    memory = machine_memory()
    return ALWAYS_FINE if memory is None else max(RECORD, memory // PARSED)


def most_claimed(size: int) -> int:
    """Bytes that a file of so many may stand for."""
    return max(ALWAYS_FINE, PACKED * size)


def check_claim(claimed: int, size: int) -> None:
    """Refuse what would take far more memory than its file has bytes, or than the machine has.

    Args:
        claimed: bytes of what the file stands for.
        size: of the file, in bytes.

    Raises:
        OSError: too much.
    """
    if claimed > most_claimed(size):
        raise OSError(f"it claims to hold {in_words(claimed)}, the file has {size:,} bytes")
    memory = machine_memory()
    if memory is not None and COPIES * claimed > memory:
        raise OSError(
            f"it holds {in_words(claimed)}, too much for this machine's {in_words(memory)}"
        )


def in_words(n_bytes: int) -> str:
    """A size in the largest unit of which it has one.

    Examples:
        >>> in_words(64 * 2**20), in_words(3 * 2**29)
        ('64 MiB', '1.5 GiB')
    """
    unit, name = (2**30, "GiB") if n_bytes >= 2**30 else (2**20, "MiB")
    return f"{n_bytes / unit:.3g} {name}"


def machine_memory() -> int | None:
    """Bytes of memory that this process may use at most; None where the system does not say."""
    found = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min((n for n in found if n > 0), default=None)
