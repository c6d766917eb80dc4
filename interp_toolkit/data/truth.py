"""The truth table of a task: every combination of its features, once, as prompts."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp_toolkit.data.features import FeatureData
from interp_toolkit.errors import InputError, suggestion, takes
from interp_toolkit.registry import TaskRecord

DEFAULT_LAYOUT = ("a", "b", "query")
MAX_FEATURES = 16
MAX_TOKEN = 2**31 - 1


@takes(task=Mapping)
def truth_table(task: Mapping[str, Any], d_vocab: int | None = None) -> FeatureData:
    """One prompt for each combination of the features, counting up, the first most significant.

    Args:
        task: a task record (see `models.about.record`): `tokens` gives token ids by name, among
            them "0" and "1"; `layout` lists the words of a prompt: "a", "b", "c", ... for the
            features, other words for names in `tokens`. Default layout: a, b, query.
        d_vocab: the model's vocabulary size, to check ids; None: not checked.

    Returns:
        The prompts; their positions are those of the word "query", or the last.

    Raises:
        InputError: names, ids or layout that do not fit together.

    Examples:
        >>> data = truth_table({"tokens": {"0": 5, "1": 7, "query": 9}})
        >>> data.tokens[1].tolist(), data.features[1].tolist()
        ([5, 7, 9], [False, True])
    """
    record = TaskRecord.from_json(task)
    tokens = _token_ids(record.tokens)
    layout = _words(DEFAULT_LAYOUT if record.layout is None else record.layout)
    names = _features(layout, tokens)
    bits = np.array(list(itertools.product((False, True), repeat=len(names))))
    rows = np.empty((len(bits), len(layout)), dtype=np.int64)
    for i, word in enumerate(layout):
        if word in names:
            rows[:, i] = np.where(bits[:, names.index(word)], tokens["1"], tokens["0"])
        else:
            rows[:, i] = tokens[word]
    query = layout.index("query") if "query" in layout else len(layout) - 1
    data = FeatureData(
        rows,
        bits,
        tuple(names),
        positions=np.full(len(rows), query),
        source=f"truth table of {len(names)} features",
    )
    return data if d_vocab is None else data.check_vocabulary(d_vocab)


@takes(text=str)
def parse_tokens(text: str) -> dict[str, int]:
    """Token ids by name from "0=5,1=7,query=9".

    Raises InputError for anything that is not name=number, and for duplicate names.

    Examples:
        >>> parse_tokens("0=5,1=7,query=9")
        {'0': 5, '1': 7, 'query': 9}
    """
    tokens: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not (equals and name and number.isascii() and number.isdigit()):
            raise InputError(f"tokens: {part.strip()!r} is not name=id; write 0=5,1=7,query=9")
        if name in tokens:
            raise InputError(f"tokens: {name!r} is given twice")
        tokens[name] = int(number)
    return tokens


def _token_ids(tokens: Any) -> dict[str, int]:
    if not isinstance(tokens, Mapping):
        raise InputError(
            "the model's recorded task does not say which tokens are the bits 0 and 1 and the "
            "query; give their ids (--tokens 0=0,1=1,query=2) or labeled prompts (--data)"
        )
    ids = {str(name): value for name, value in tokens.items()}
    for name, value in ids.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise InputError(f"tokens: {name!r} is {value!r}, which is not a token id")
        if value > MAX_TOKEN:
            raise InputError(f"tokens: {name!r} is {value}, which is far too large")
    for name in ("0", "1"):
        if name not in ids:
            raise InputError(f"tokens: {name!r} is missing; the truth table needs 0 and 1")
    if ids["0"] == ids["1"]:
        raise InputError(f"tokens: 0 and 1 are both token {ids['0']}")
    return {name: int(value) for name, value in ids.items()}


def _words(layout: Any) -> list[str]:
    words = layout.split() if isinstance(layout, str) else layout
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InputError(f"layout {layout!r} is not a list of words")
    return list(words)


def _features(layout: list[str], tokens: Mapping[str, int]) -> list[str]:
    free = {word for word in layout if word not in tokens}
    names = list(string.ascii_lowercase[: len(free)])
    for word in sorted(free - set(names)):
        if len(word) == 1 and word in string.ascii_lowercase:
            raise InputError(
                f"layout: feature {word!r} needs all features before it in the alphabet"
            )
        if word == "query":
            raise InputError("tokens: 'query' is missing; write 0=5,1=7,query=9")
        raise InputError(
            f"layout: {word!r} is neither a feature nor a token{suggestion(word, tokens)}"
        )
    if not names:
        raise InputError("layout: there is no feature (a, b, ...) in it")
    if len(names) > MAX_FEATURES:
        raise InputError(f"layout: {len(names)} features are too many; the limit is {MAX_FEATURES}")
    return names
