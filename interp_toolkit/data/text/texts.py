"""Documents of text from a local folder or a hub, through the `datasets` library, as data only.

A text is one of:
- a folder written by `save_to_disk`;
- a folder (or one file) of `.txt`, `.tokens`, `.raw`, `.jsonl`, `.json` or `.parquet` files. The
  documents are the paragraphs of a text file (the first three suffixes), and the rows of the
  others, with a column `text` (and `label`). Files and folders with test, valid, validation, dev or
  eval as a word of their names (`wiki.valid.txt`, but not `testimony.txt`) are held out;
- a hub's dataset, `owner/name` or `owner/name:configuration`, streamed. Its code is never run.

Documents are read one at a time, and read again for every iteration. Blank ones are left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from interp_toolkit.errors import InputError, first_line
from interp_toolkit.formatting import listed

_FORMATS = {
    ".txt": "text",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".tokens": "text",
    ".raw": "text",
}
_FORMAT_NAMES = {"text": "text", "json": "JSON Lines", "parquet": "Parquet"}
_HELD_OUT = {"test", "valid", "validation", "dev", "eval"}
_LOOK = 4096  # bytes checked at either end of a file
_NAMED = 5  # files listed in a message
_HUB_NAME = re.compile(r"(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<configuration>[\w.-]+))?")
_PROBE_SECONDS = 10


class Document(NamedTuple):
    """A text, with its class label if it has one."""

    text: str
    label: int | None = None


Reader = Callable[[], Iterator[Document]]
Explain = Callable[[Exception], InputError]


class Parts(NamedTuple):
    """Readers of the training and the held-out documents; None if there is no such part.

    `held_out` lists the held-out files if they were recognized by name.
    """

    train: Reader
    test: Reader | None
    held_out: Sequence[str] = ()


@dataclass(frozen=True)
class Texts:
    """A text that has not been opened yet.

    Attributes:
        name: the requested name.
        version: JSON data that changes when local files do; a hub's are assumed constant.
        parts: opens it; raises InputError if it cannot be read or reached.
    """

    name: str
    version: Any
    parts: Callable[[], Parts]


def find_texts(name: str) -> Texts:
    """The text of that name; local folders and files take precedence over the hub.

    Raises InputError if there is neither.
    """
    path = Path(name).expanduser()
    if path.exists():
        path = path.resolve()
        return Texts(str(path), _version(path), lambda: _local(path))
    named = _HUB_NAME.fullmatch(name)
    if named is None:
        raise InputError(f"there is no folder {name}: give --set text=FOLDER with files of text")
    return Texts(name, "hub", lambda: _hub(name, named["name"], named["configuration"]))


def _ignore(ignored: object) -> None:
    """Discard a report of progress."""


def split(
    texts: Texts, n_test: int, say: Callable[[str], None] = _ignore
) -> tuple[Iterator[Document], Reader]:
    """The documents to test on, and a reader of the training documents.

    Args:
        texts: their source.
        n_test: largest number of test documents; 0: the whole held-out part. If no part is held
            out, the first documents are, and their number is required.
        say: called with the files that are held out.

    Raises:
        InputError: the text cannot be read, a part has no document, or nothing is held out and
            `n_test` is 0.
    """
    parts = texts.parts()
    if parts.held_out:
        say(f"held out by name: {listed(parts.held_out, _NAMED)}")
    if next(parts.train(), None) is None:
        raise InputError(f"{texts.name} has no training text, only blank documents: give more text")
    if parts.test is not None:
        if next(parts.test(), None) is None:
            raise InputError(f"all held-out documents of {texts.name} are blank: give more text")
        return islice(parts.test(), n_test or None), parts.train
    if not n_test:
        raise InputError(
            f"{texts.name} has no test documents: say how many to hold out (--set test_documents=N)"
        )

    def train() -> Iterator[Document]:
        return islice(parts.train(), n_test, None)

    if next(train(), None) is None:
        n_documents = sum(1 for _ in parts.train())
        raise InputError(
            f"{texts.name} has too few documents ({n_documents} without blank ones): "
            f"test_documents={n_test} leaves none to train on; give more text, or a smaller "
            "number"
        )
    return islice(parts.train(), n_test), train


def _version(path: Path) -> Any:
    """Sizes and modification times of all files."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = {str(file): file.stat() for file in files if file.is_file()}
    return {file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()}


def _local(path: Path) -> Parts:
    saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
    files = {} if saved else _files(path)

    def explain(error: Exception) -> InputError:
        return _broken(str(path), [file for part in files.values() for file in part], error)

    try:
        with _unlogged():
            datasets = _saved(path) if saved else _opened(files)
    except Exception as error:  # many types, pyarrow's among them
        raise explain(error) from error
    root = path if path.is_dir() else path.parent
    held_out = [str(file.relative_to(root)) for file in files.get("test", [])]
    return _parts(str(path), datasets, explain)._replace(held_out=held_out)


def _saved(path: Path) -> Mapping[str, Any]:
    """Load a dataset written by `save_to_disk`."""
    from datasets import DatasetDict, load_from_disk

    dataset = load_from_disk(str(path))
    return dict(dataset) if isinstance(dataset, DatasetDict) else {"train": dataset}


def _files(path: Path) -> Mapping[str, Sequence[Path]]:
    """Files of one format by part; held-out files are recognized by name."""
    root = path if path.is_dir() else path.parent
    there = sorted(root.rglob("*")) if path.is_dir() else [path]
    there = [file for file in there if _visible(file, root)]
    matching = [file for file in there if file.suffix.lower() in _FORMATS]
    formats = {_format(file) for file in matching}
    if not formats:
        raise InputError(_no_text(path, [str(file.relative_to(root)) for file in there]))
    if len(formats) > 1:
        raise InputError(
            f"{path} holds files of {' and '.join(sorted(formats))}: give files of text of one "
            f"format, {', '.join(_FORMATS)}"
        )
    parts: dict[str, list[Path]] = {}
    for file in matching:
        _check_ends(file)
        part = "test" if _names_held_out(file.relative_to(root)) else "train"
        parts.setdefault(part, []).append(file)
    return parts


def _check_ends(file: Path) -> None:
    """Raise InputError for a file that begins or ends as no text does.

    An end of zeros shows an incomplete file, and could be one line of any length. JSON that begins
    with null makes pyarrow end the process.
    """
    kind = _format(file)
    if kind == "parquet":
        return
    with file.open("rb") as opened:
        begins = opened.read(_LOOK)
        opened.seek(max(0, file.stat().st_size - _LOOK))
        ends = opened.read(_LOOK)
    if len(ends) == _LOOK and not ends.strip(b"\0"):
        raise InputError(
            f"{file} ends in zero bytes, as if writing was cut short: give an intact text file"
        )
    if kind == "json" and begins.lstrip().startswith(b"null"):
        raise InputError(
            f"{file} is not readable JSON Lines: it begins with null instead of an object"
        )


def _no_text(path: Path, there: Sequence[str]) -> str:
    *most, last = _FORMATS
    formats = f"{', '.join(most)} or {last} file"
    if path.is_file():
        return f"{path} is not a {formats}"
    return (
        f"{path} holds no {formats}; it has {listed(there, _NAMED)}"
        if there
        else f"{path} is empty"
    )


def _opened(parts: Mapping[str, Sequence[Path]]) -> Mapping[str, Any]:
    """Open files of one format as streams."""
    from datasets import load_dataset

    kind = _format(next(iter(parts.values()))[0])
    options = {"sample_by": "paragraph"} if kind == "text" else {}
    files = {part: list(map(str, paths)) for part, paths in parts.items()}
    return dict(load_dataset(kind, data_files=files, streaming=True, **options))


def _format(file: Path) -> str:
    return _FORMATS[file.suffix.lower()]


def _visible(file: Path, root: Path) -> bool:
    return file.is_file() and not any(p.startswith(".") for p in file.relative_to(root).parts)


def _names_held_out(file: Path) -> bool:
    return any(not _HELD_OUT.isdisjoint(re.split("[._-]", part.lower())) for part in file.parts)


def _broken(name: str, files: Sequence[Path], error: Exception) -> InputError:
    """An error with advice, which names the unreadable file after reading each by itself."""
    for file in files:
        try:
            with _unlogged():
                for _ in _opened({"train": [file]})["train"]:
                    pass
        except Exception as problem:  # many types, pyarrow's among them
            return InputError(_mended(file, problem))
    return _unreadable(name, error)


def _mended(file: Path, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"{file} is not UTF-8: convert it, for example with iconv"
    if not file.stat().st_size:
        return f"{file} is empty: leave it out"
    return (
        f"{file} cannot be read as {_FORMAT_NAMES[_format(file)]} ({_first_line(error)}): fix it, "
        "or leave it out"
    )


@contextmanager
def _unlogged() -> Iterator[None]:
    """Suppress the library's log lines, which repeat the errors that it raises."""
    import datasets  # gives the logger its handler

    logger = logging.getLogger(datasets.__name__)
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [logging.NullHandler()], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before


def _hub(source: str, name: str, configuration: str | None) -> Parts:
    """A hub's dataset: streamed, or in offline mode from the library's own cache."""
    import huggingface_hub
    from datasets import load_dataset

    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    try:
        if not offline:  # a single request, where loading would retry for half a minute
            huggingface_hub.HfApi().dataset_info(name, timeout=_PROBE_SECONDS)
        dataset = load_dataset(name, configuration, streaming=not offline, trust_remote_code=False)
    except Exception as error:  # types of the underlying libraries
        raise InputError(
            f"{source} is not a folder here and could not be read from the Hugging Face hub "
            f"({_first_line(error)}): give a local copy with --set text=FOLDER"
        ) from error
    return _parts(source, dict(dataset), lambda error: _unreadable(source, error))


def _parts(name: str, datasets: Mapping[str, Any], explain: Explain) -> Parts:
    """Assign parts to training and testing; the first of test and validation is held out."""
    if "train" not in datasets:
        raise InputError(f"{name} has nothing to train on, only {', '.join(sorted(datasets))}")
    tested = next((part for part in ("test", "validation") if part in datasets), None)
    return Parts(
        lambda: _documents(name, datasets["train"], explain),
        None if tested is None else lambda: _documents(name, datasets[tested], explain),
    )


def _documents(
    name: str, rows: Iterable[Mapping[str, Any]], explain: Explain
) -> Iterator[Document]:
    for number, row in enumerate(_rows(rows, explain)):
        document = _document(name, number, row)
        if document.text.strip():
            yield document


def _rows(rows: Iterable[Mapping[str, Any]], explain: Explain) -> Iterator[Mapping[str, Any]]:
    stream, end = iter(rows), object()
    while True:
        try:
            with _unlogged():
                row: Any = next(stream, end)
        except Exception as error:  # a file of another format, a lost connection
            raise explain(error) from error
        if row is end:
            return
        yield row


def _document(name: str, number: int, row: Mapping[str, Any]) -> Document:
    text, label = row.get("text"), row.get("label")
    if not isinstance(text, str):
        problem = "no column text" if "text" not in row else "no text"
        raise InputError(
            f"{name}: row {number} has {problem}; it has {', '.join(row) or 'nothing'}"
        )
    if label is not None and (isinstance(label, bool) or not isinstance(label, int)):
        raise InputError(f"{name}: row {number}: the label {repr(label)[:60]} is not an integer")
    return Document(text, label)


def _unreadable(name: str, error: Exception) -> InputError:
    return InputError(f"{name} cannot be read as text ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    cause = error.__cause__ if not str(error).strip() else error
    return first_line(cause or error)
