"""Texts as token ids on disk, written once and then memory-mapped.

A store is a folder with the ids of the training and of the held-out documents (each document
followed by the end token), the ends of documents, their labels if any, the tokenizer, and
`about.json`. It is written to a temporary folder and then moved, so a reader never sees an
incomplete one. If several processes need the same store, one writes it and the others wait. Memory
does not grow with the text, except for a few numbers per document.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
from jaxtyping import Int
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from interp_toolkit.data.text.texts import Document
from interp_toolkit.data.text.tokenization import TextTokenizer, read_tokenizer
from interp_toolkit.errors import InputError, reason_of
from interp_toolkit.files import check_file, read_whole

FORMAT: Literal[1] = 1
PARTS = ("train", "test")
_AT_ONCE = 1_000  # documents


@dataclass(frozen=True, eq=False)
class TokenPart:
    """The documents of one part, concatenated.

    Attributes:
        tokens: ids, memory-mapped; int16 if the vocabulary allows it.
        ends: number of tokens up to each document's end, inclusive.
        labels: labels of the documents; empty if they have none.
    """

    tokens: Int[Tensor, " token"]
    ends: Int[Tensor, " document"]
    labels: Int[Tensor, " labelled"]


@dataclass(frozen=True, eq=False)
class TokenStore:
    """A text as token ids.

    Attributes:
        train, test: its parts.
        tokenizer: tokenizer of the ids.
        unigram: mean surprisal (nats) of the test tokens under the frequencies of the training
            tokens, with add-one smoothing.
        repeated: number of documents left out of training because the test part has them.
    """

    train: TokenPart
    test: TokenPart
    tokenizer: TextTokenizer
    unigram: float
    repeated: int


def open_store(folder: Path, specials: Sequence[str] = ()) -> TokenStore | None:
    """The store in a folder, or None if there is none; every id is checked once.

    Raises InputError if it is damaged, for example by an id that its tokenizer does not have.
    """
    try:
        text = read_whole(folder / "about.json")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {reason_of(error)}") from error
    try:
        about = _About.model_validate_json(text)
    except ValidationError as error:
        raise _damaged(folder) from error
    tokenizer = read_tokenizer(folder, specials)
    kind = getattr(torch, about.dtype)
    train, test = (_open_part(folder / name, kind, getattr(about, name)) for name in PARTS)
    for name, part in zip(PARTS, (train, test), strict=True):
        low, high = (int(each) for each in torch.aminmax(part.tokens))
        if low < 0 or high >= tokenizer.n_tokens:
            raise _damaged(folder / f"{name}.tokens")
    return TokenStore(train, test, tokenizer, about.unigram, about.repeated)


class _About(BaseModel):
    """The content of `about.json`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1] = FORMAT
    dtype: Literal["int16", "int32"]
    unigram: float = Field(ge=0, allow_inf_nan=False)
    repeated: int = Field(ge=0)
    train: int = Field(ge=1)
    test: int = Field(ge=1)


def _damaged(path: Path) -> InputError:
    folder = path if path.is_dir() else path.parent
    return InputError(f"{path} is damaged: remove {folder} to build it again")


def write_store(
    folder: Path,
    tokenizer: TextTokenizer,
    train: Iterable[Document],
    test: Iterable[Document],
    specials: Sequence[str] = (),
) -> TokenStore:
    """Write a store and open it; documents in the test part are left out of training.

    Raises InputError if a part has no document, or the folder cannot be written.
    """
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        partial.mkdir(parents=True)
        written = _Parts(partial, tokenizer)
        written.add("test", test)
        written.add("train", train)
        (partial / "tokenizer.json").write_text(tokenizer.as_json(), encoding="utf-8")
        (partial / "about.json").write_text(written.about().model_dump_json(), encoding="utf-8")
        partial.rename(folder)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {reason_of(error)}; choose another folder with "
            "--set cache=FOLDER"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    store = open_store(folder, specials)
    assert store is not None
    return store


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, after waiting for other processes (if the system has locks).

    Raises InputError if the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = None if sys.platform == "win32" else os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made: {reason_of(error)}; choose another folder with "
            "--set cache=FOLDER"
        ) from error
    if descriptor is None:
        yield
        return
    import fcntl

    try:
        with suppress(OSError):  # some network folders cannot be locked
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_part(stem: Path, kind: torch.dtype, n_tokens: int) -> TokenPart:
    file = stem.with_suffix(".tokens")
    if not file.is_file() or file.stat().st_size != n_tokens * kind.itemsize:
        raise _damaged(file)
    ends, labels = (_numbers(stem.with_suffix(f".{name}.npy")) for name in ("ends", "labels"))
    rising = len(ends) > 0 and ends[0] > 0 and bool((np.diff(ends) > 0).all())
    if not rising or ends[-1] != n_tokens or len(labels) not in (0, len(ends)):
        raise _damaged(stem.with_suffix(".ends.npy"))
    return TokenPart(
        torch.from_file(str(file), shared=False, size=n_tokens, dtype=kind),
        torch.from_numpy(ends),
        torch.from_numpy(labels),
    )


def _numbers(path: Path) -> Int[np.ndarray, " document"]:
    """A one-dimensional array of integers; the file's size is checked before it is read."""
    try:
        check_file(path)
        mapped = np.load(path, mmap_mode="r")
        if isinstance(mapped, np.ndarray) and mapped.ndim == 1 and mapped.dtype == np.int64:
            return np.array(mapped)
    except Exception as error:  # NumPy parses headers as Python, which raises many types
        raise _damaged(path) from error
    raise _damaged(path)


@dataclass
class _Parts:
    """The parts of a store while they are written, test first."""

    folder: Path
    tokenizer: TextTokenizer
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    tested: set[bytes] = field(default_factory=set)
    repeated: int = 0

    def __post_init__(self) -> None:
        self.kind = np.int16 if self.tokenizer.n_tokens <= 2**15 else np.int32

    def add(self, part: str, documents: Iterable[Document]) -> None:
        counts = np.zeros(self.tokenizer.n_tokens, dtype=np.int64)
        lengths, labels = list[np.ndarray](), list[int]()
        with (self.folder / f"{part}.tokens").open("wb") as file:
            for batch in _batches(self._missing(part, documents)):
                lengths.append(self._write(file, batch, counts))
                labels += [d.label for d in batch if d.label is not None]
        if not lengths:
            again = ": all of them are among those to test on" if self.repeated else ""
            raise InputError(
                f"there is no document to {'test' if part == 'test' else 'train'} on{again}"
            )
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        if labels and len(labels) != len(ends):
            raise InputError(f"{len(ends) - len(labels)} documents have no label, others have one")
        np.save(self.folder / f"{part}.ends.npy", ends)
        np.save(self.folder / f"{part}.labels.npy", np.array(labels, dtype=np.int64))
        self.counts[part] = counts

    def _missing(self, part: str, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            digest = blake2b(_utf8(document.text), digest_size=16).digest()
            if part == "test":
                self.tested.add(digest)
            elif digest in self.tested:
                self.repeated += 1
                continue
            yield document

    def _write(
        self, file: BinaryIO, batch: Sequence[Document], counts: np.ndarray
    ) -> Int[np.ndarray, " document"]:
        """Write a few documents and return their lengths."""
        end = np.array([self.tokenizer.end])
        encoded = self.tokenizer.encode([document.text for document in batch])
        ids = np.concatenate([part for each in encoded for part in (each, end)])
        counts += np.bincount(ids, minlength=len(counts))
        file.write(ids.astype(self.kind).tobytes())
        return np.array([len(each) + 1 for each in encoded])

    def about(self) -> _About:
        train, test = self.counts["train"] + 1, self.counts["test"]
        nats = math.log(train.sum()) - np.log(train)
        return _About(
            dtype="int16" if self.kind is np.int16 else "int32",
            unigram=float((test * nats).sum() / test.sum()),
            repeated=self.repeated,
            train=int(self.counts["train"].sum()),
            test=int(self.counts["test"].sum()),
        )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"a document is not valid text ({error.reason}): {text[:40]!r}") from error


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
