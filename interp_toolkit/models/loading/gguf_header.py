"""What a GGUF file says of itself, read in one pass that a lying header cannot make long or large.

The libraries that read such files trust their counts: a few changed bytes have them build millions
of objects. So every count, length and offset is checked here first, against the file's size and
against each other, and no weight is read.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NoReturn

from interp_toolkit.errors import InputError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
#: struct's letter of a value, by GGUF's number of its type
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_MOST_ENTRIES = 4_000_000  # of all arrays: readers make an object of each; vocabularies have 1e6
_MOST_AXES = 8
#: settings that say how many parts a model has, and how many are fine without a tensor for each
_COUNTS = {"block_count": 0, "decoder_block_count": 0, "expert_count": 1024}
_BLOCK = re.compile(r"blk\.(\d{1,9})\.")
_ALIGNMENT = 32  # the format's default
_PLAIN = ("F32", "F16", "BF16", "F64")  # kinds of numbers that are not quantised


@dataclass(frozen=True)
class GGUFHeader:
    """Sizes and kinds of what a GGUF file holds.

    Attributes:
        architecture: the family's name, as the format has it.
        n_params: how many numbers the weights hold.
        kinds: how many of them there are by kind of number ("F32", "Q4_1").
        settings: the metadata that are single numbers, by name.
        has_tokenizer: whether there is a vocabulary.
    """

    architecture: str
    n_params: int
    kinds: Mapping[str, int]
    settings: Mapping[str, int | float]
    has_tokenizer: bool

    @property
    def quantisation(self) -> tuple[str, ...]:
        """The kinds of quantised weights, the most frequent first; empty where there are none."""
        quantised = {kind: n for kind, n in self.kinds.items() if kind not in _PLAIN}
        return tuple(sorted(quantised, key=lambda kind: (-quantised[kind], kind)))


def is_gguf(path: Path) -> bool:
    """Whether a file is one by its name or its first bytes; raises nothing."""
    if path.suffix.lower() == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> GGUFHeader:
    """The header of a GGUF file, every count in it checked.

    Raises InputError when the file cannot be read, is no GGUF, is cut off, or claims more than it
    has. Needs the package `gguf` for the sizes of quantised blocks.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InputError(f"{path} is no GGUF file: it does not begin with {MAGIC.decode()}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).header()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


class _Reader:
    """One pass over a file's header.

    Args:
        path: for messages.
        data: the file's bytes.
    """

    def __init__(self, path: Path, data: mmap.mmap):
        self._path, self._data, self._at = path, data, len(MAGIC)
        self._entries = self._n_blocks = 0
        self._settings: dict[str, int | float] = {}
        self._architecture = ""

    def header(self) -> GGUFHeader:
        version = int(self._number("I"))
        if version not in _VERSIONS:
            self._refuse(f"it is of version {version}, and only {_VERSIONS} can be read")
        n_tensors, n_settings = int(self._number("Q")), int(self._number("Q"))
        names: set[str] = set()
        for _ in range(n_settings):  # each takes bytes, so a count too large ends with the file
            self._setting(names)
        if not self._architecture:
            self._refuse("it names no architecture")
        kinds = self._tensors(n_tensors)
        self._check_counts(n_tensors)
        return GGUFHeader(
            architecture=self._architecture,
            n_params=sum(kinds.values()),
            kinds=kinds,
            settings=self._settings,
            has_tokenizer="tokenizer.ggml.tokens" in names,
        )

    def _setting(self, names: set[str]) -> None:
        name = self._text()
        if name in names:
            self._refuse(f"it has {name} twice")
        names.add(name)
        kind = int(self._number("I"))
        if name == "general.architecture":
            if kind != _STRING:
                self._refuse("its architecture is no text")
            self._architecture = self._text()
        elif kind in _SCALARS:
            self._settings[name] = self._number(_SCALARS[kind])
        else:
            self._skip(kind)

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._pass(int(self._number("Q")))
        elif kind == _ARRAY:
            of, length = int(self._number("I")), int(self._number("Q"))
            self._entries += length
            if self._entries > _MOST_ENTRIES:
                self._refuse(f"its lists claim more than {_MOST_ENTRIES:,} entries")
            if of in _SCALARS:
                self._pass(length * struct.calcsize(_SCALARS[of]))
            elif of == _STRING:
                for _ in range(length):
                    self._skip(of)
            else:
                self._refuse(f"it has a list of type {of}")
        else:
            self._refuse(f"it has a value of type {kind}")

    def _tensors(self, count: int) -> Counter[str]:
        """Numbers by kind; every tensor is within the file, and together no more than it."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        kinds: Counter[str] = Counter()
        names: set[str] = set()
        end = claimed = 0
        for _ in range(count):
            name, n_axes = self._text(), int(self._number("I"))
            if name in names or n_axes > _MOST_AXES:
                self._refuse(f"its tensor {name} is there twice or has {n_axes} axes")
            names.add(name)
            if block := _BLOCK.match(name):
                self._n_blocks = max(self._n_blocks, int(block[1]) + 1)
            n_numbers = prod(int(self._number("Q")) for _ in range(n_axes))
            number, offset = int(self._number("I")), int(self._number("Q"))
            try:
                kind = GGMLQuantizationType(number)
            except ValueError:
                self._refuse(f"its tensor {name} is of a kind unknown here ({number})")
            per_block, n_bytes = GGML_QUANT_SIZES[kind]
            size = n_numbers * n_bytes // per_block
            claimed, end = claimed + size, max(end, offset + size)
            kinds[kind.name] += n_numbers
        start = -(-self._at // self._alignment()) * self._alignment()
        if start + end > len(self._data) or claimed > len(self._data):
            self._refuse(
                f"its tensors take {max(claimed, end):,} bytes, and the file has "
                f"{max(0, len(self._data) - start):,} for them (cut off?)"
            )
        return kinds

    def _alignment(self) -> int:
        value = self._settings.get("general.alignment", _ALIGNMENT)
        if not isinstance(value, int) or value < 1:
            self._refuse(f"its alignment is {value}")
        return value

    def _check_counts(self, n_tensors: int) -> None:
        """A layer has tensors of its own; without this a number makes a model without end."""
        for name, most in _COUNTS.items():
            value = self._settings.get(f"{self._architecture}.{name}", 0)
            if value > max(n_tensors, most):
                self._refuse(f"its {name} is {value}, with {n_tensors} tensors")
        n_blocks = self._settings.get(f"{self._architecture}.block_count", self._n_blocks)
        if n_blocks < self._n_blocks:
            self._refuse(f"its block_count is {n_blocks}, and it has {self._n_blocks} blocks")

    def _number(self, letter: str) -> int | float:
        try:
            (value,) = struct.unpack_from(f"<{letter}", self._data, self._at)
        except struct.error:
            self._cut_off()
        self._at += struct.calcsize(letter)
        return value  # type: ignore[no-any-return]

    def _text(self) -> str:
        length, start = int(self._number("Q")), self._at
        self._pass(length)
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError:
            self._refuse("a name in it is no text")

    def _pass(self, n_bytes: int) -> None:
        if n_bytes > len(self._data) - self._at:
            self._cut_off()
        self._at += n_bytes

    def _cut_off(self) -> NoReturn:
        self._refuse("its header goes on beyond its end (cut off?)")

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self._path} is a GGUF file that is damaged or not supported: {why}")
