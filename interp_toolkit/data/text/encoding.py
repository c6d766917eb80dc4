"""Text to token ids, by whatever tokenizer a model comes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Tokenizer = Callable[..., Any]


def whole_text(tokenizer: Tokenizer, text: str) -> list[Any]:
    """The ids of a text with what the tokenizer puts around every text, such as BOS."""
    return _ids(tokenizer(text))


def bare_text(tokenizer: Tokenizer, text: str) -> list[Any]:
    """The ids of a text without those that a tokenizer puts around every text."""
    try:
        return _ids(tokenizer(text, add_special_tokens=False))
    except TypeError:  # a plain function of the text adds nothing
        return _ids(tokenizer(text))


def added_behind(tokenizer: Tokenizer, text: str) -> int:
    """How many ids the tokenizer puts behind every text, such as EOS or SEP."""
    whole, bare = whole_text(tokenizer, text), bare_text(tokenizer, text)
    ends = range(len(bare), len(whole) + 1)
    return next((len(whole) - end for end in ends if whole[end - len(bare) : end] == bare), 0)


def _ids(encoded: Any) -> list[Any]:
    """The ids in what a tokenizer gives: a list, an array, a batch of one, a mapping of these."""
    ids = encoded["input_ids"] if isinstance(encoded, Mapping) else encoded
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    return ids[0] if len(ids) == 1 and isinstance(ids[0], list) else ids
