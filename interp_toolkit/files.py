"""Files: written completely or not at all, and read safely from untrusted sources.

`replacing` writes a file so that a reader sees either the old or the new one. `check_file` and
`read_whole` accept only regular files up to a size limit. JSON, NPZ and YAML are read as plain data
(no tags, no pickles, no duplicate keys) or refused with a one-line message that names the source.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp_toolkit.errors import InputError, first_line, reason_of

if TYPE_CHECKING:
    import numpy as np
    import yaml


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file that replaces `path` if the block ends without an error.

    The content is on disk before it replaces `path`, so `path` is never partial, also after a power
    failure; the temporary file may then remain. Links are followed. The file gets the mode of
    the user's umask. Raises OSError if the file cannot be created; nothing is left behind.
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
        with suppress(OSError):  # not every system can open or sync a folder
            _sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


RECORD = 64 * 2**20  # bytes of a record, configuration or tokenizer; real ones have at most half
ALWAYS_FINE = 1 << 30  # bytes of content that any file may claim
PACKED = 64  # content that a file may claim beyond that, in multiples of its size
COPIES = 3  # of a file's content that reading it makes
PARSED = 16  # memory of text parsed as rows, in multiples of its size
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def read_whole(path: Path, most: int = RECORD) -> bytes:
    """All bytes of a file.

    Args:
        path: a regular file; links are followed.
        most: largest size, in bytes.

    Raises:
        OSError: the file cannot be opened, is not regular, or is too large.
    """
    check_file(path, most)
    return path.read_bytes()


def check_file(path: Path, most: int | None = None) -> None:
    """Raise OSError for a missing or special file (a pipe, a device), or one of over `most` bytes.

    A folder passes: opening it raises the error.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):  # open() reports it
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"it is larger than {in_words(most)}", str(path))


def read_whole_text(path: Path, most: int = RECORD, encoding: str = "utf-8") -> str:
    """The text of a file with universal newlines; raises as `read_whole`, or UnicodeError."""
    return io.StringIO(read_whole(path, most).decode(encoding), newline=None).read()


def most_text() -> int:
    """Largest text, in bytes, that may be read as a whole and parsed."""
    memory = machine_memory()
    return ALWAYS_FINE if memory is None else max(RECORD, memory // PARSED)


def most_claimed(size: int) -> int:
    """Bytes of content that a file of `size` bytes may claim to hold."""
    return max(ALWAYS_FINE, PACKED * size)


def check_claim(claimed: int, size: int) -> None:
    """Raise OSError if a file's content needs far more memory than its size, or than the machine.

    Args:
        claimed: bytes of memory that the content needs.
        size: size of the file, in bytes.
    """
    if claimed > most_claimed(size):
        raise OSError(f"it claims to hold {in_words(claimed)}, the file has {size:,} bytes")
    memory = machine_memory()
    if memory is not None and COPIES * claimed > memory:
        raise OSError(
            f"it holds {in_words(claimed)}, too much for this machine's {in_words(memory)}"
        )


def in_words(n_bytes: int) -> str:
    """A size in MiB, or in GiB from 1 GiB on.

    Examples:
        >>> in_words(64 * 2**20), in_words(3 * 2**29)
        ('64 MiB', '1.5 GiB')
    """
    unit, name = (2**30, "GiB") if n_bytes >= 2**30 else (2**20, "MiB")
    return f"{n_bytes / unit:.3g} {name}"


def machine_memory() -> int | None:
    """Bytes of memory that this process may use; None if the system does not report it."""
    limits = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        try:
            limits.append(int(path.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min((n for n in limits if n > 0), default=None)


MOST_DIGITS = 300  # of an integer; larger ones exceed the range of floats


def read_json(path: Path, source: str) -> Any:
    """Parse a JSON file in UTF-8.

    Args:
        path: path of the file.
        source: the file's name in error messages, such as `--config cfg.json`.

    Raises:
        InputError: it cannot be read, is too large, or is not JSON.
    """
    try:
        text = read_whole(path)
    except OSError as error:
        raise InputError(f"{source}: {reason_of(error)}") from error
    return parsed(text, source)


def parsed(text: bytes | str, source: str, *, nan: bool = True) -> Any:
    """Parse JSON in UTF-8; raises InputError if it is invalid.

    Args:
        text: the file's content.
        source: its name, for messages.
        nan: whether to accept NaN, which some model configurations contain although it is not
            valid JSON. Infinity is accepted in any case.
    """
    try:
        content = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(content, parse_int=_whole, parse_constant=None if nan else _not_nan)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON: {error}") from error


def _not_nan(constant: str) -> float:
    if constant == "NaN":
        raise ValueError("NaN is not a JSON number; write null")
    return float(constant)


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive, by name.

    Raises:
        InputError: it is damaged, holds pickled objects, or exceeds the available memory.
    """
    import zipfile

    import numpy as np

    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not an archive of arrays; save it with numpy.savez")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:  # arrays are read on access
                claimed = sum(entry.file_size for entry in archive.zip.infolist())
                check_claim(claimed, path.stat().st_size)
                return {name: archive[name] for name in archive.files}
    except Exception as error:
        raise _unreadable(path, error) from error


def read_npy(path: Path) -> np.ndarray:
    """The single array of a file; raises InputError as `read_npz`."""
    import numpy as np

    try:
        size = path.stat().st_size
        check_claim(size, size)
        with path.open("rb") as file:
            array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except Exception as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    """A one-line InputError for the many errors that numpy raises on a broken file."""
    if "Object arrays" in str(error):
        return InputError(
            f"{path}: it holds pickled objects, which could run code; save plain arrays"
        )
    reason = first_line(error)
    return InputError(f"{path}: this cannot be read as a {path.suffix} file ({reason})")


LARGEST = 2**20  # bytes of YAML; reading that many takes ten seconds


def read_yaml(path: Path) -> Any:
    """The content of a file of YAML (or JSON, which YAML includes).

    Raises:
        InputError: it cannot be read, is too large, is not YAML in UTF-8, or has an alias or a
            duplicate key.
    """
    import yaml

    try:
        return yaml.load(read_whole_text(path, LARGEST), _plain_loader())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}: {getattr(error, 'problem', '')})"
        raise InputError(f"{path} is not YAML{where}") from error


@cache
def _plain_loader() -> type[yaml.SafeLoader]:
    """The loader class, defined on first use so that PyYAML is imported only then."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """YAML's safe subset, without aliases and duplicate keys."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
                raise InputError(f"aliases are not read (line {line}): write the value out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys: set[str] = set()
            for key_node, _ in node.value:
                key = repr(self.construct_object(key_node, deep=True))
                if key in keys:
                    line = key_node.start_mark.line + 1
                    raise InputError(f"the key {key} occurs twice (line {line})")
                keys.add(key)
            return super().construct_mapping(node, deep)

    return PlainLoader
