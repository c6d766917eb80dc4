"""Prompts that are nothing but text, and ask for no answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp_toolkit.data.encoding import Tokenizer, whole_text
from interp_toolkit.data.features import FeatureData
from interp_toolkit.errors import InputError


def data_from_texts(texts: Sequence[str], tokenizer: Tokenizer | None) -> FeatureData:
    """Texts as rows of tokens of one length, with what the tokenizer puts around every text.

    Args:
        texts: the prompts.
        tokenizer: text -> token ids.

    Raises:
        InputError: no tokenizer, a text without tokens, texts of different lengths in tokens.

    Examples:
        >>> data_from_texts(["ab", "cd"], lambda text: [ord(c) for c in text]).tokens[1]
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
    if len(set(lengths)) > 1:
        said = ", ".join(map(str, lengths))
        raise InputError(
            f"the prompts have {said} tokens; they must be equally long: change their words"
        )
    empty = np.zeros((len(rows), 0), dtype=bool)
    return FeatureData(np.array(rows), empty, (), source=f"{len(rows)} given prompts")
