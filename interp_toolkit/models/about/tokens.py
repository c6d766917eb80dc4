"""Tokens as text, by a model's own tokenizer where it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def token_words(model: Any) -> Callable[[int], str]:
    """A function from a token's id to its text, quoted; its number where the tokenizer has none."""
    tokenizer = getattr(model, "tokenizer", None)

    def word(token: int) -> str:
        try:
            return str(token) if tokenizer is None else repr(str(tokenizer.decode([token])))
        except Exception:  # strangers' tokenizers, ids beyond theirs
            return str(token)

    return word
