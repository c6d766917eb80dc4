"""Prompts that are nothing but text, and ask for no answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp_toolkit.data.encoding import Tokenizer, whole_text
from interp_toolkit.data.features import FeatureData
from interp_toolkit.errors import InputError


def data_from_texts(texts: Sequence[str], tokenizer: Tokenizer | None) -> FeatureData:
    """Texts as rows of tokens of one length, with what the tokenizer puts around every text.

    Longer texts are cut to the first tokens, as many as the shortest has; `source` says so.

    Args:
        texts: the prompts.
        tokenizer: text -> token ids.

    Raises:
        InputError: no tokenizer, a text without tokens.

    Examples:
        >>> data_from_texts(["ab", "cde"], lambda text: [ord(c) for c in text]).tokens[1]
        array([ 99, 100])
    """
    if tokenizer is None:
        raise InputError(
            "these prompts are text, and the model has no tokenizer; give rows of token ids "
            "(--data)"
        )
    rows = [whole_text(tokenizer, text) for text in texts]
    lengths = [len(row) for row in rows]
    if not all(lengths):
        raise InputError(f"prompt {lengths.index(0) + 1} has no tokens; give it some text")
    shortest, longest = min(lengths), max(lengths)
    cut = (
        f", cut to their first {shortest} tokens (of up to {longest})" if shortest < longest else ""
    )
    empty = np.zeros((len(rows), 0), dtype=bool)
    tokens = np.array([row[:shortest] for row in rows])
    return FeatureData(tokens, empty, (), source=f"{len(rows)} given prompts{cut}")
