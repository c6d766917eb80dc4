"""Attention scores of sets of key features, and the boolean functions that they select.

*Prompts.* Rows of keys and a query, with the features of every token. A model that records the task
"universal-keys" defines them itself: key token i is the i-th set of at most l of n features
(`data.composites`), and query tokens follow. Any other model is run on rows of `--data` with
`--features` of tokens: the query is the token at the row's position, and all earlier tokens are
keys. Rows are split in two: the first part to find functions, the second to measure attention.

*Functions.* Scores of feature sets form two groups if the largest gap between them is wider than
either group, so that the worst error after the best gain and bias is below 1/4, which no affine
function of two bits attains for their AND (see `boolean_functions`). The function is the smallest
set of features that determines high and low, with its truth table; combinations that no key has are
"?". The null counts assignments of the same values to the sets: for k given features a function
fits if all sets of a combination agree, so the number of fits is the number of ways to choose
combinations that together contain as many sets as are high. The sum over all choices of k features,
divided by the number of assignments, bounds the p-value.

*Attention.* One pass over the prompts records, for the first part, the lowest, highest and mean
score before the softmax for each head, query token and feature set (distinct rows of the tokens'
features), and for the second part, the attention itself, to be summed over matching keys once
functions are known. As many layers are read at a time as the memory allows; the pass ends at the
last of them.

Attention follows a function (`is_attended`) if its excess over the fraction of matching keys, which
uniform attention has, is significantly at least LEAST_GAIN of the way from that fraction to 1
(Student's interval over prompts not used before). A small gap between scores does not show this,
however exact it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.boolean_functions import after_offset
from interp_toolkit.data import FeatureData
from interp_toolkit.data.composites import all_composites
from interp_toolkit.errors import InputError
from interp_toolkit.models.features.feature_sets import TOKENS, FeatureSet
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import StopForwardError, run
from interp_toolkit.models.running.hooks import hook_points
from interp_toolkit.models.running.memory import (
    bytes_per_row,
    format_size,
    parse_memory,
    rows_that_fit,
)
from interp_toolkit.stats import mean_interval

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


MOST_FEATURES = 5  # of a function
MOST_SETS = 20_000  # sets of features that are tried at each size


@dataclass(frozen=True, eq=False)
class TwoGroups:
    """Scores in two groups.

    Attributes:
        high: whether each set's score is in the upper one.
        error: the worst error after the best gain and bias, as a readout of `high`.
    """

    high: Bool[np.ndarray, " set"]
    error: float


@dataclass(frozen=True)
class KeyFunction:
    """A boolean function of key features.

    Attributes:
        features: by number, the first the most significant digit of the table.
        table: 0, 1, and ? where no key says.
        others: other sets of as many features that would do too.
    """

    features: tuple[int, ...]
    table: str
    others: int

    def values(self, on: Bool[np.ndarray, "set feature"]) -> Bool[np.ndarray, " set"]:
        """The function's values; false where it is undefined."""
        return np.asarray(np.array([bit == "1" for bit in self.table])[_codes(on, self.features)])

    def decides(self, on: Bool[np.ndarray, "set feature"]) -> Bool[np.ndarray, " set"]:
        """The rows on which the table is defined."""
        return np.asarray(np.array([bit != "?" for bit in self.table])[_codes(on, self.features)])


def split_scores(
    low: Float[np.ndarray, " set"],
    high: Float[np.ndarray, " set"],
    mean: Float[np.ndarray, " set"],
) -> TwoGroups | None:
    """The two groups about the widest gap between means; None without two different ones."""
    order = np.argsort(mean, kind="stable")
    gaps = np.diff(mean[order])
    if not len(gaps) or gaps.max() <= 0:
        return None
    upper = np.zeros(len(mean), dtype=bool)
    upper[order[int(np.argmax(gaps)) + 1 :]] = True
    ends = [
        np.array([end(values[side])])
        for side in (upper, ~upper)
        for end, values in ((np.min, low), (np.max, high))
    ]
    return TwoGroups(upper, float(after_offset(*ends)[0]))


def least_function(
    on: Bool[np.ndarray, "set feature"], value: Bool[np.ndarray, " set"]
) -> KeyFunction | None:
    """The function of the fewest features that has these values; None where it takes too many.

    Of several sets of as many features the first is named, and how many others there are.
    """
    n_features = on.shape[1]
    for size in range(min(MOST_FEATURES, n_features) + 1):
        if comb(n_features, size) > MOST_SETS:
            return None
        fitting = [
            chosen for chosen in combinations(range(n_features), size) if _fits(on, value, chosen)
        ]
        if fitting:
            codes = _codes(on, fitting[0])
            ones = np.bincount(codes, value, 2**size)
            observed = np.bincount(codes, minlength=2**size)
            table = "".join(
                "?" if not n else "01"[int(k > 0)] for n, k in zip(observed, ones, strict=True)
            )
            return KeyFunction(fitting[0], table, len(fitting) - 1)
    return None


def chance_to_fit(
    on: Bool[np.ndarray, "set feature"], value: Bool[np.ndarray, " set"], size: int
) -> float:
    """Upper bound of the chance that a function of `size` features fits shuffled values.

    Exact for each choice of features, summed over the choices (see the module); 1 at most.
    """
    n_high = min(int(value.sum()), len(value) - int(value.sum()))
    ways = 0.0
    for chosen in combinations(range(on.shape[1]), size):
        cells = np.bincount(_codes(on, chosen))
        reached = np.zeros(n_high + 1)
        reached[0] = 1
        for cell in cells[(cells > 0) & (cells <= n_high)].tolist():
            reached[cell:] = reached[cell:] + reached[:-cell]
        ways += float(reached[n_high])
    return min(1.0, int(ways) / comb(len(value), n_high))


def _fits(
    on: Bool[np.ndarray, "set feature"], value: Bool[np.ndarray, " set"], chosen: tuple[int, ...]
) -> bool:
    codes = _codes(on, chosen)
    ones = np.bincount(codes, value, 2 ** len(chosen))
    return bool(((ones == 0) | (ones == np.bincount(codes, minlength=2 ** len(chosen)))).all())


def _codes(on: Bool[np.ndarray, "set feature"], chosen: tuple[int, ...]) -> np.ndarray:
    powers = 1 << np.arange(len(chosen) - 1, -1, -1)
    return np.asarray(on[:, list(chosen)] @ powers, dtype=np.int64)


BATCH = 256
NUMBERS = 6  # of 8 bytes for a head, query and set: low, high, sum, mean and what they are made in


@dataclass(frozen=True, eq=False)
class KeyScores:
    """Scores and attention of some layers.

    Attributes:
        layers: one an entry.
        queries: query tokens, one an entry.
        sets: the distinct sets of features among the keys.
        set_of: the number of each row's keys' sets; -1 at and after the query.
        query_of: the number of each row's query.
        low, high, mean: of the scores in the first part; NaN where the two never met.
        attention: of each query to each place, in all rows.
    """

    layers: tuple[int, ...]
    queries: Int[np.ndarray, " query"]
    sets: Bool[np.ndarray, "set feature"]
    set_of: Int[np.ndarray, "row pos"]
    query_of: Int[np.ndarray, " row"]
    low: Float[np.ndarray, "layer head query set"]
    high: Float[np.ndarray, "layer head query set"]
    mean: Float[np.ndarray, "layer head query set"]
    attention: Float[np.ndarray, "layer head row pos"]


def key_scores(
    model: Model, rows: KeyRows, memory: int | str | None, layers: Sequence[int] | None = None
) -> Iterator[KeyScores]:
    """Run the prompts: the scores of as many layers at a time as the memory holds.

    Args:
        model: whose attention scores can be seen.
        rows: the prompts.
        memory: bound on what is kept, and on each pass.
        layers: to look at; None: all.

    Raises:
        InputError: models whose scores or patterns cannot be seen; a layer's scores that are more
            than the memory.
    """
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    chosen_layers, limit = list(range(n_layers) if layers is None else layers), parse_memory(memory)
    n_rows, n_pos = rows.tokens.shape
    is_key = np.arange(n_pos) < rows.positions[:, None]
    tokens = np.unique(rows.tokens[is_key])
    sets, numbers = np.unique(rows.features[tokens], axis=0, return_inverse=True)
    set_of_token = np.full(len(rows.features), -1)
    set_of_token[tokens] = numbers.reshape(-1)
    set_of = np.where(is_key, set_of_token[rows.tokens], -1)
    query_tokens = rows.tokens[np.arange(n_rows), rows.positions]
    queries, query_of = np.unique(query_tokens, return_inverse=True)
    a_layer = n_heads * (8 * NUMBERS * len(queries) * len(sets) + 4 * n_rows * n_pos)
    if a_layer > limit // 2:
        raise InputError(
            f"{len(queries):,} query tokens and {len(sets):,} sets of key features "
            f"take {format_size(a_layer)} a layer, more than half of the {format_size(limit)} of "
            "memory allowed: raise --memory, or show fewer of them"
        )
    row, pos = np.nonzero(is_key & ~rows.second[:, None])
    count = np.zeros((len(queries), len(sets)))
    np.add.at(count, (query_of[row], set_of[row, pos]), 1)
    at_once = limit // 2 // a_layer
    for first in range(0, len(chosen_layers), at_once):
        chosen = tuple(chosen_layers[first : first + at_once])
        n_stored = 2 * len(chosen) * n_heads * n_pos
        a_row = bytes_per_row(model.cfg, n_pos, 4, logits=False, n_stored=n_stored)
        batch = min(BATCH, rows_that_fit(limit // 2, a_row, n_pos))
        shape = len(chosen), n_heads, *count.shape
        low, high, total = np.full(shape, np.inf), np.full(shape, -np.inf), np.zeros(shape)
        attention = np.zeros((len(chosen), n_heads, n_rows, n_pos), dtype=np.float32)
        for start in range(0, n_rows, batch):
            part = slice(start, min(start + batch, n_rows))
            scores, attention[:, :, part] = scores_and_patterns(model, rows, part, chosen)
            in_part = (row >= part.start) & (row < part.stop)
            r, p = row[in_part], pos[in_part]
            at: Any = (slice(None), slice(None), query_of[r], set_of[r, p])
            values = scores[:, :, r - start, p]
            np.minimum.at(low, at, values)
            np.maximum.at(high, at, values)
            np.add.at(total, at, values)
        low[:, :, count == 0] = high[:, :, count == 0] = np.nan
        mean = np.where(count == 0, np.nan, total / np.maximum(count, 1))
        yield KeyScores(chosen, queries, sets, set_of, query_of, low, high, mean, attention)


def scores_and_patterns(
    model: Model, rows: KeyRows, part: slice, layers: Sequence[int]
) -> list[Float[np.ndarray, "layer head row pos"]]:
    """Attention scores and patterns of the prompts' queries in these layers."""
    positions = torch.from_numpy(rows.positions[part])
    points, recorded, hooks = hook_points(model), dict[str, np.ndarray](), list[tuple[Any, Any]]()
    kinds = ("hook_attn_scores", "hook_pattern")
    names = [[f"blocks.{layer}.attn.{kind}" for layer in layers] for kind in kinds]
    last = f"blocks.{max(layers)}.attn.hook_pattern"

    def keeping(name: str) -> Any:
        def keep(value: torch.Tensor, hook: Any) -> None:
            index = torch.arange(len(value), device=value.device)
            of_query = value[index, :, positions.to(value.device)]
            recorded[name] = of_query.detach().float().cpu().numpy()
            if name == last:
                raise StopForwardError

        return keep

    for layer in layers:
        for kind in kinds:
            name = f"blocks.{layer}.attn.{kind}"
            if name not in points:
                raise InputError(f"layer {layer} has no {kind}, so its heads cannot be analyzed")
            hooks.append((points[name], keeping(name)))
    run(model, torch.from_numpy(rows.tokens[part]), hooks)
    if len(recorded) < len(hooks):
        raise InputError("fused attention hides the scores: load with interp_toolkit.load")
    return [np.stack([recorded[n] for n in of_kind]).transpose(0, 2, 1, 3) for of_kind in names]


LEAST_GAIN = 0.1  # of the way from uniform attention to all of it on keys where a function holds


def attention_on(
    scores: KeyScores,
    rows: KeyRows,
    head: tuple[int, int],
    query: int,
    right: Bool[np.ndarray, " set"],
    coverage: float,
) -> dict[str, Any]:
    """Attention on right keys in the second part's rows, and on keys where none is right."""
    of_query = np.flatnonzero((scores.query_of == query) & rows.second)
    sets = scores.set_of[of_query]
    keys = sets >= 0
    is_right = keys & right[np.maximum(sets, 0)]
    pattern = scores.attention[head][of_query]
    some = is_right.any(axis=1)
    on_right = (pattern * is_right).sum(axis=1)[some].astype(float)
    on_keys = (pattern * keys).sum(axis=1)[~some].astype(float)
    shares = is_right[some].sum(axis=1) / np.maximum(keys[some].sum(axis=1), 1)
    _, *ends = mean_interval(on_right - shares, coverage)
    low, high = (None if np.isnan(end) else float(end) for end in ends)
    return {
        "on_right": _mean(on_right),
        "on_right_least": float(on_right.min()) if len(on_right) else None,
        "uniform": _mean(shares),
        "excess_low": low,
        "excess_high": high,
        "on_wrong": _mean(on_keys),
    }


def _mean(values: Sequence[float] | np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def is_attended(attention: Mapping[str, Any]) -> bool:
    """Whether the whole interval of the excess is above LEAST_GAIN of the way to all of it."""
    least, uniform = attention["excess_low"], attention["uniform"]
    return least is not None and uniform is not None and least > LEAST_GAIN * (1 - uniform)


def may_be_attended(attention: Mapping[str, Any]) -> bool:
    """Whether only a part of the interval is; true where nothing is known."""
    most, uniform = attention["excess_high"], attention["uniform"]
    if most is None or uniform is None:
        return True
    return not is_attended(attention) and most > LEAST_GAIN * (1 - uniform)
