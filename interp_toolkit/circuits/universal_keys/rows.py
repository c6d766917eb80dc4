"""Rows of keys and a query, and which features every token stands for.

A model that records the task "universal-keys" says it itself: key token i is the i-th set of at
most l of n features (`data.composites`), query tokens follow. Any other model is shown rows of
`--data` with `--features` of tokens: the query is the token at the row's place, keys are all before
it. Rows are split in two: the first part to find functions, the second to see where heads attend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import TOKENS, FeatureSet

MOST_KEYS = 24  # of a row that is made
ROUNDS = 2  # how often every query is shown every key, in each part
LEAST_ROWS = 10


@dataclass(frozen=True, eq=False)
class KeyRows:
    """Rows to show.

    Attributes:
        tokens: one row each, of one length.
        positions: of the query in each row; keys are before it.
        second: whether the row is of the second part.
        features: which features each token of the vocabulary stands for.
        names: of the features.
        source: in words.
    """

    tokens: Int[np.ndarray, "row pos"]
    positions: Int[np.ndarray, " row"]
    second: Bool[np.ndarray, " row"]
    features: Bool[np.ndarray, "token feature"]
    names: tuple[str, ...]
    source: str


def made_rows(task: Mapping[str, Any], n_ctx: int, vocabulary: int, seed: int) -> KeyRows:
    """Rows of a model that records universal keys: every query with every key, in random order.

    Raises InputError for a record that does not fit the vocabulary.
    """
    n_features, most_on = int(task["key_features"]), int(task["features_on"])
    sets = all_composites(n_features, most_on)
    queries = range(len(sets), vocabulary)
    n_keys = min(MOST_KEYS, n_ctx - 1)
    if not len(queries) or n_keys < 1:
        raise InputError(
            f"the record's {len(sets)} sets of features leave no query token or no key"
        )
    rng = np.random.default_rng(seed)
    rows, second = [], []
    for query in queries:
        for turn in range(2 * ROUNDS):
            order = rng.permutation(len(sets))
            order = np.concatenate([order, order[: -len(order) % n_keys]])
            for keys in order.reshape(-1, n_keys):
                rows.append([*keys.tolist(), query])
                second.append(turn >= ROUNDS)
    features = np.zeros((vocabulary, n_features), dtype=bool)
    features[: len(sets)] = sets
    return KeyRows(
        np.array(rows),
        np.full(len(rows), n_keys),
        np.array(second),
        features,
        tuple(f"f{i}" for i in range(n_features)),
        f"sets of up to {most_on} of {n_features} features as keys, {len(queries)} query tokens",
    )


def data_rows(
    data: FeatureData, features: FeatureSet, vocabulary: int, position: int | None, seed: int
) -> KeyRows:
    """Rows of a user, with features of tokens.

    Raises InputError for features that tokens do not tell, rows of several lengths, too few of
    them, and a query that is outside them or has nothing before it.
    """
    if features.reads != TOKENS:
        raise InputError(f"{features.source}: universal keys need features of tokens")
    lengths = {len(row) for row in data.tokens}
    if len(lengths) > 1:
        raise InputError(f"{data.source}: rows of one length are needed, got {sorted(lengths)}")
    [length] = lengths
    if len(data) < LEAST_ROWS:
        raise InputError(f"{data.source}: {len(data)} rows; at least {LEAST_ROWS} are needed")
    if position is not None:
        if not -length <= position < length:
            raise InputError(f"--position {position} is outside rows of {length} tokens")
        positions = np.full(len(data), position % length)
    else:
        positions = data.positions if data.positions is not None else np.full(len(data), length - 1)
    if not np.asarray(positions).any():
        raise InputError("the query is each row's first token: there is no key before it")
    labels = features.label(torch.arange(vocabulary)).cpu().numpy()
    columns = np.flatnonzero(labels.any(axis=0))
    order = np.random.default_rng(seed).permutation(len(data))
    second = np.zeros(len(data), dtype=bool)
    second[order[len(data) // 2 :]] = True
    return KeyRows(
        data.token_matrix(),
        np.asarray(positions),
        second,
        labels[:, columns],
        tuple(features.names[k] for k in columns.tolist()),
        f"{features.source}, on {data.source}",
    )
