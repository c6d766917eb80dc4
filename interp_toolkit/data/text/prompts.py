"""Prompts that are nothing but text, and ask for no answers: a few, or one text in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from interp_toolkit.data.features import FeatureData
from interp_toolkit.data.text.tokenization import (
    Tokenizer,
    added_behind,
    bare_text,
    whole_text,
)
from interp_toolkit.errors import InputError
from interp_toolkit.files import most_text, read_whole_text

MOST_PIECES = 1_000  # of one text


def data_from_texts(
    texts: Sequence[str], tokenizer: Tokenizer | None, source: str | None = None
) -> FeatureData:
    """Texts as rows of tokens of one length, with what the tokenizer puts around every text.

    Longer texts are cut to the first tokens, as many as the shortest has; `source` says so.

    Args:
        texts: the prompts.
        tokenizer: text -> token ids.
        source: the file they come from, if they do.

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
    """One text in pieces of `length` tokens, each with what the tokenizer puts in front of a text.

    What is left at the end is not used, nor what is behind the first `MOST_PIECES`. Pieces of one
    text are no independent rows: `source` says that they are pieces.

    Raises:
        InputError: no tokenizer, fewer tokens than a piece has, or no room in a piece beside what
            the tokenizer puts in front.

    Examples:
        >>> data = data_from_prose("abcdefgh", lambda text: [ord(c) for c in text], 3)
        >>> ["".join(map(chr, row)) for row in data.tokens]
        ['abc', 'def']
    """
    encode = _needed(tokenizer, f"{source}: ")
    bare = bare_text(encode, text)
    front = _in_front(encode, next(iter(text.split()), text))
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
    """The text of a UTF-8 file; raises InputError where there is none."""
    try:
        text = read_whole_text(Path(path), most_text(), "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is no UTF-8 text; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not text.strip():
        raise InputError(f"{path}: there is no text in it")
    return text


def _in_front(encode: Tokenizer, word: str) -> list[int]:
    """Tokens that the tokenizer puts in front of every text, such as BOS."""
    whole, bare = whole_text(encode, word), bare_text(encode, word)
    return whole[: len(whole) - len(bare) - added_behind(encode, word)]


def _needed(tokenizer: Tokenizer | None, of: str) -> Tokenizer:
    if tokenizer is None:
        raise InputError(
            f"{of}these prompts are text, and the model has no tokenizer; give rows of token ids "
            "(--data)"
        )
    return tokenizer
