"""Tokenizers, learned or read from files, and texts as prompts without answers.

A model's tokenizer may be any function or object that takes a text. Its ids are available with or
without the tokens that it adds around every text, such as BOS.

Tokenizers for training text are byte-level BPE learned from that text, or read from a file, through
the `tokenizers` library. The spelling of a special token in a document is encoded as ordinary text,
not as that token. The end of a document is the special token END, which is added to a vocabulary
that lacks it.

Prompts are several texts truncated to one length, or pieces of a single text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from interp_toolkit.data.features import FeatureData
from interp_toolkit.errors import InputError, a_kind, one_line, reason_of
from interp_toolkit.files import most_text, read_whole_text

Tokenizer = Callable[..., Any]


def check_tokenizer(tokenizer: Any) -> None:
    """Raise InputError for a tokenizer that is not callable, or is a class or a model."""
    if not callable(tokenizer) or isinstance(tokenizer, type) or hasattr(tokenizer, "parameters"):
        raise InputError(
            f"{a_kind(tokenizer)} is not a tokenizer: give a function from text to token ids"
        )


def whole_text(tokenizer: Tokenizer, text: str) -> list[Any]:
    """The ids of a text with the tokens that the tokenizer adds around every text, such as BOS.

    A text that begins with BOS gets no second one.
    """
    return whole_texts(tokenizer, [text])[0]


def bare_text(tokenizer: Tokenizer, text: str) -> list[Any]:
    """The ids of a text without the tokens that the tokenizer adds around every text."""
    return bare_texts(tokenizer, [text])[0]


def whole_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Any]]:
    """`whole_text` of each text, by one call where the tokenizer takes several."""
    encoded = _several(tokenizer, texts)
    if not texts or len(bare_text(tokenizer, texts[0])) == len(encoded[0]):
        return encoded  # nothing is added
    return [
        _with_one_bos(tokenizer, text, ids) if len(ids) > 1 and ids[0] == ids[1] else ids
        for text, ids in zip(texts, encoded, strict=True)
    ]


def bare_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Any]]:
    """`bare_text` of each text, by one call where the tokenizer takes several."""
    try:
        return _several(tokenizer, texts, add_special_tokens=False)
    except TypeError:  # a plain function has no such option, and adds nothing
        return _several(tokenizer, texts)


def _several(tokenizer: Tokenizer, texts: Sequence[str], **options: Any) -> list[list[Any]]:
    if getattr(tokenizer, "is_fast", False) is True and len(texts) > 1:
        encoded: list[list[Any]] = tokenizer(list(texts), **options)["input_ids"]
        return encoded
    return [
        ids if type(ids) is list and ids and type(ids[0]) is int else _ids(ids)
        for ids in (tokenizer(text, **options) for text in texts)
    ]


def _with_one_bos(tokenizer: Tokenizer, text: str, ids: list[Any]) -> list[Any]:
    """The ids without one of two equal first ones, if the tokenizer added the first."""
    bare = bare_text(tokenizer, text)
    is_added = len(bare) < len(ids) and ids[1 : len(bare) + 1] == bare
    return ids[1:] if is_added else ids


def added_behind(tokenizer: Tokenizer, text: str) -> int:
    """The number of ids that the tokenizer appends to every text, such as EOS or SEP."""
    whole, bare = whole_text(tokenizer, text), bare_text(tokenizer, text)
    ends = range(len(bare), len(whole) + 1)
    return next((len(whole) - end for end in ends if whole[end - len(bare) : end] == bare), 0)


def _ids(encoded: Any) -> list[Any]:
    """The ids in a tokenizer's result: a list, an array, a batch of one, or a mapping of these."""
    ids = encoded["input_ids"] if isinstance(encoded, Mapping) else encoded
    if not isinstance(ids, Iterable):
        raise InputError(f"the tokenizer returned {a_kind(ids)}: it must return a list of ids")
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    return ids[0] if len(ids) == 1 and isinstance(ids[0], list) else ids


END = "<|endoftext|>"
BYTES = 256  # the first tokens of a byte-level vocabulary
MOST_IDS = 2**20  # for more ids, at least half must be in use


class TextTokenizer:
    """A tokenizer with special tokens of its own.

    Attributes:
        n_tokens: the largest id plus 1.
        end: the id of the end of a document.
    """

    def __init__(self, tokenizer: Any, specials: Sequence[str] = ()):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.add_special_tokens([END, *specials])
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.n_tokens: int = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.end: int = tokenizer.token_to_id(END)

    def id_of(self, special: str) -> int:
        """The id of a special token."""
        token_id: int = self._tokenizer.token_to_id(special)
        return token_id

    def encode(self, texts: Sequence[str]) -> list[Int[np.ndarray, " _"]]:
        """The ids of each text, without any special token."""
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.array(each.ids, dtype=np.int64) for each in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; special tokens are spelled out."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def sha256(self) -> str:
        """A digest of the tokenizer."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()

    def as_json(self) -> str:
        """The tokenizer as the text of a `tokenizer.json`."""
        text: str = self._tokenizer.to_str()
        return text


def learn_tokenizer(
    texts: Iterable[str], vocabulary: int, specials: Sequence[str] = ()
) -> TextTokenizer:
    """Learn byte-level BPE with at most `vocabulary` tokens, special ones included.

    Raises InputError if the bytes and the special tokens do not fit.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    least = BYTES + 1 + len(specials)
    if vocabulary < least:
        raise InputError(f"a vocabulary of {vocabulary} is too small: give {least} or more")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, *specials],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_batches(texts), trainer=trainer)
    return TextTokenizer(tokenizer, specials)


def read_tokenizer(path: str | Path, specials: Sequence[str] = ()) -> TextTokenizer:
    """The tokenizer of a `tokenizer.json`, or of a folder that holds one.

    Raises InputError if there is none, or it cannot be read.
    """
    from tokenizers import Tokenizer

    path = Path(path).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_str(read_whole_text(file))
    except OSError as error:
        raise InputError(
            f"{file} cannot be read ({reason_of(error)}): give the path of a tokenizer.json, or "
            "--set tokenizer=train"
        ) from error
    except BaseException as error:  # the library's panics are not Exceptions
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise InputError(
            f"{file} is not a tokenizer that this library reads: {one_line(error)}"
        ) from error
    made = TextTokenizer(tokenizer, specials)
    tokens = tokenizer.get_vocab_size(with_added_tokens=True)
    if made.n_tokens > max(2 * tokens, MOST_IDS):
        raise InputError(
            f"{file} has {tokens:,} tokens and ids up to {made.n_tokens - 1:,}: most rows of its "
            "embedding would be unused; number the tokens from 0"
        )
    return made


def _batches(texts: Iterable[str], size: int = 1_000) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


MOST_PIECES = 1_000  # from one text


def data_from_texts(
    texts: Sequence[str], tokenizer: Tokenizer | None, source: str | None = None
) -> FeatureData:
    """Texts as rows of tokens of one length, with the tokenizer's tokens around every text.

    Longer texts are truncated to the length of the shortest, which `source` records.

    Args:
        texts: the prompts.
        tokenizer: text -> token ids.
        source: their file, if any.

    Raises:
        InputError: no tokenizer, a text without tokens.

    Examples:
        >>> data_from_texts(["ab", "cde"], lambda text: [ord(c) for c in text]).tokens[1]
        array([ 99, 100])
    """
    of = "" if source is None else f"{source}: "
    rows = [whole_text(_needed(tokenizer, of), text) for text in texts]
    lengths = [len(row) for row in rows]
    if not all(lengths):
        raise InputError(f"{of}prompt {lengths.index(0) + 1} has no tokens; give it some text")
    shortest, longest = min(lengths), max(lengths)
    cut = (
        f", cut to their first {shortest} tokens (of up to {longest})" if shortest < longest else ""
    )
    empty = np.zeros((len(rows), 0), dtype=bool)
    tokens = np.array([row[:shortest] for row in rows])
    description = f"{len(rows)} {'given prompts' if source is None else 'prompts'}{cut}"
    return FeatureData(tokens, empty, (), source=f"{of}{description}")


def data_from_prose(
    text: str, tokenizer: Tokenizer | None, length: int, source: str = "a text"
) -> FeatureData:
    """Split a text into pieces of `length` tokens.

    The `length` includes the tokenizer's leading tokens (such as BOS). The remainder at the end is
    not used, nor are pieces after the first `MOST_PIECES`. Pieces of one text are not independent:
    `source` records that they are pieces.

    Raises:
        InputError: no tokenizer, fewer tokens than in a piece, or no room in a piece besides the
            tokenizer's leading tokens.

    Examples:
        >>> data = data_from_prose("abcdefgh", lambda text: [ord(c) for c in text], 3)
        >>> ["".join(map(chr, row)) for row in data.tokens]
        ['abc', 'def']
    """
    encode = _needed(tokenizer, f"{source}: ")
    bare = bare_text(encode, text)
    front = _in_front(encode, next(iter(text.split()), text))
    bare = bare[len(front) :] if front and bare[: len(front)] == front else bare
    room = length - len(front)
    if room < 1:
        raise InputError(
            f"the tokenizer puts {len(front)} tokens in front of every text: pieces of {length} "
            "have no room (--text-length)"
        )
    n_pieces = min(len(bare) // room, MOST_PIECES)
    if not n_pieces:
        raise InputError(
            f"{source} has {len(bare)} tokens, too few for a piece of {length}; give more text, or "
            "shorter pieces (--text-length)"
        )
    pieces = [[*front, *bare[n * room : (n + 1) * room]] for n in range(n_pieces)]
    empty = np.zeros((n_pieces, 0), dtype=bool)
    first = "the first " if n_pieces == MOST_PIECES else ""
    description = f"{source} in {first}{n_pieces} pieces of {length} tokens"
    return FeatureData(np.array(pieces), empty, (), source=description)


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file; raises InputError if it is empty or cannot be read."""
    try:
        text = read_whole_text(Path(path), most_text(), "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is not UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason_of(error)}") from error
    if not text.strip():
        raise InputError(f"{path}: there is no text in it")
    return text


def _in_front(encode: Tokenizer, word: str) -> list[int]:
    """Tokens that the tokenizer adds before every text, such as BOS."""
    whole, bare = _several(encode, [word])[0], bare_text(encode, word)
    return whole[: len(whole) - len(bare) - added_behind(encode, word)]


def _needed(tokenizer: Tokenizer | None, of: str) -> Tokenizer:
    if tokenizer is None:
        raise InputError(
            f"{of}these prompts are text, and the model has no tokenizer; give rows of token ids "
            "(--data)"
        )
    return tokenizer
