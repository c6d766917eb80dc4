"""Documents of text from a local folder or a hub, through the `datasets` library, as data only.

A text is named by
- a folder that `save_to_disk` wrote;
- a folder (or one file) of `.txt`, `.jsonl`, `.json` or `.parquet` files. The paragraphs of a text
  file are documents; in the others the rows are, with a column `text` (and `label`). Files or
  folders whose names begin with test, valid or dev are held out;
- a hub's dataset, `owner/name` or `owner/name:configuration`, streamed. No code of it is ever run.

Documents are read one at a time, as often as they are asked for. Blank ones are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from interp_toolkit.errors import InputError

_FORMATS = {".txt": "text", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_HELD_OUT = ("test", "valid", "dev")
_HUB_NAME = re.compile(r"(?P<name>[\w.-]+(/[\w.-]+)?)(:(?P<configuration>[\w.-]+))?")
_PROBE_SECONDS = 10


class Document(NamedTuple):
    """A text, and its class where it has one."""

    text: str
    label: int | None = None


Reader = Callable[[], Iterator[Document]]


class Parts(NamedTuple):
    """Readers of the documents to learn from, and of those held out; None: no such part."""

    train: Reader
    test: Reader | None


@dataclass(frozen=True)
class Texts:
    """A text that has not been looked into yet.

    Attributes:
        name: what was asked for.
        version: JSON data that changes when local files do; a hub's are taken not to change.
        parts: opens it; raises InputError when it cannot be read or reached.
    """

    name: str
    version: Any
    parts: Callable[[], Parts]


def find_texts(name: str) -> Texts:
    """The text of that name; a local folder or file goes before a hub's dataset.

    Raises InputError when it is neither.
    """
    path = Path(name).expanduser()
    if path.exists():
        path = path.resolve()
        return Texts(str(path), _version(path), lambda: _local(path))
    named = _HUB_NAME.fullmatch(name)
    if named is None:
        raise InputError(f"there is no folder {name}: give --set text=FOLDER with files of text")
    return Texts(name, "hub", lambda: _hub(name, named["name"], named["configuration"]))


def split(texts: Texts, n_test: int) -> tuple[Iterator[Document], Reader]:
    """The documents to test on, and a reader of those to learn from.

    Args:
        texts: where they come from.
        n_test: how many to test on, at most; 0: all of the part held out. Where no part is, they
            are the first ones, and it must be said how many.

    Raises:
        InputError: it cannot be read; or nothing is held out, and it is not said how many to take.
    """
    parts = texts.parts()
    if parts.test is not None:
        return islice(parts.test(), n_test or None), parts.train
    if not n_test:
        raise InputError(
            f"{texts.name} holds nothing out: say how many documents to test on "
            "(--set test_documents=N)"
        )
    return islice(parts.train(), n_test), lambda: islice(parts.train(), n_test, None)


def _version(path: Path) -> Any:
    """Sizes and times of all files."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = {str(file): file.stat() for file in files if file.is_file()}
    return {file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()}


def _local(path: Path) -> Parts:
    saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        datasets = _saved(path) if saved else _files(path)
    except InputError:
        raise
    except Exception as error:  # of many kinds, pyarrow's among them
        raise _unreadable(str(path), error) from error
    return _parts(str(path), datasets)


def _saved(path: Path) -> Mapping[str, Any]:
    """What `save_to_disk` wrote."""
    from datasets import DatasetDict, load_from_disk

    found = load_from_disk(str(path))
    return dict(found) if isinstance(found, DatasetDict) else {"train": found}


def _files(path: Path) -> Mapping[str, Any]:
    """Files of one format, held out by their names."""
    from datasets import load_dataset

    root = path if path.is_dir() else path.parent
    there = sorted(root.rglob("*")) if path.is_dir() else [path]
    found = [file for file in there if file.suffix.lower() in _FORMATS and _visible(file, root)]
    formats = {_FORMATS[file.suffix.lower()] for file in found}
    if len(formats) != 1:
        held = f"files of {' and '.join(sorted(formats))}" if formats else "no such file"
        raise InputError(
            f"{path} holds {held}: give files of text of one format, {', '.join(_FORMATS)}"
        )
    parts: dict[str, list[str]] = {}
    for file in found:
        part = "test" if _names_held_out(file.relative_to(root)) else "train"
        parts.setdefault(part, []).append(str(file))
    kind = formats.pop()
    options = {"sample_by": "paragraph"} if kind == "text" else {}
    return dict(load_dataset(kind, data_files=parts, streaming=True, **options))


def _visible(file: Path, root: Path) -> bool:
    return file.is_file() and not any(p.startswith(".") for p in file.relative_to(root).parts)


def _names_held_out(file: Path) -> bool:
    return any(part.lower().startswith(_HELD_OUT) for part in file.parts)


def _hub(given: str, name: str, configuration: str | None) -> Parts:
    """A hub's dataset: streamed, or, when told to stay offline, from the library's own cache."""
    import huggingface_hub
    from datasets import load_dataset

    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    try:
        if not offline:  # one question, where loading would ask for half a minute
            huggingface_hub.HfApi().dataset_info(name, timeout=_PROBE_SECONDS)
        found = load_dataset(name, configuration, streaming=not offline, trust_remote_code=False)
    except Exception as error:  # the libraries below raise their own
        raise InputError(
            f"{given} is no folder here, and no hub gives it ({_first_line(error)}): "
            "give a local copy with --set text=FOLDER"
        ) from error
    return _parts(given, dict(found))


def _parts(name: str, datasets: Mapping[str, Any]) -> Parts:
    """The parts by what they are for; the first of test and validation is held out."""
    if "train" not in datasets:
        raise InputError(f"{name} has nothing to train on, only {', '.join(sorted(datasets))}")
    tested = next((part for part in ("test", "validation") if part in datasets), None)
    return Parts(
        lambda: _documents(name, datasets["train"]),
        None if tested is None else lambda: _documents(name, datasets[tested]),
    )


def _documents(name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Document]:
    try:
        for number, row in enumerate(rows):
            document = _document(name, number, row)
            if document.text.strip():
                yield document
    except InputError:
        raise
    except Exception as error:  # a file that is not what it says, a connection lost
        raise _unreadable(name, error) from error


def _document(name: str, number: int, row: Mapping[str, Any]) -> Document:
    text, label = row.get("text"), row.get("label")
    if not isinstance(text, str):
        said = "no column text" if "text" not in row else "no text"
        raise InputError(f"{name}: row {number} has {said}; it has {', '.join(row) or 'nothing'}")
    if label is not None and (isinstance(label, bool) or not isinstance(label, int)):
        raise InputError(f"{name}: row {number}: the label {label!r} is no whole number")
    return Document(text, label)


def _unreadable(name: str, error: Exception) -> InputError:
    return InputError(f"{name} cannot be read as text ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    cause = error.__cause__ if not str(error).strip() else error
    return str(cause or type(error).__name__).strip().partition("\n")[0][:200]
