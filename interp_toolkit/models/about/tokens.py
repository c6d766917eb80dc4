"""Tokens as text."""

from __future__ import annotations

from collections.abc import Callable

from interp_toolkit.models.model import Model


def token_words(model: Model) -> Callable[[int], str]:
    """What writes a token's id as text: in quotes, as the model's tokenizer has it.

    The id itself where the model has no tokenizer, or one that does not know the id.
    """
    tokenizer = getattr(model, "tokenizer", None)

    def word(token: int) -> str:
        try:
            return str(token) if tokenizer is None else repr(str(tokenizer.decode([token])))
        except Exception:  # strangers' tokenizers, ids beyond theirs
            return str(token)

    return word
