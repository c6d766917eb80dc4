"""Which tokens are punctuation or line breaks, by the model's own tokenizer."""

from __future__ import annotations

import unicodedata

import numpy as np
from jaxtyping import Bool

from interp_toolkit.circuits.roles.asks import Asks
from interp_toolkit.models.model import Model


def delimiter_places(model: Model, asks: Asks) -> Bool[np.ndarray, "ask pos"] | None:
    """Earlier places of delimiters, but the first of a row; None without a tokenizer."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return None
    ids = np.unique(asks.tokens)
    try:
        texts = [str(tokenizer.decode([token])) for token in ids.tolist()]
    except Exception:  # strangers' tokenizers, ids beyond theirs
        return None
    marks = ids[[is_delimiter(text) for text in texts]]
    places: np.ndarray = asks.earlier & np.isin(asks.tokens, marks)
    places[:, 0] = False
    return places


def is_delimiter(text: str) -> bool:
    r"""Whether a token is nothing but punctuation, or a line break.

    Examples:
        >>> [is_delimiter(text) for text in (" ,", "\n", " a", " ")]
        [True, True, False, False]
    """
    bare = text.strip()
    if not bare:
        return "\n" in text
    return all(unicodedata.category(letter).startswith("P") for letter in bare)
