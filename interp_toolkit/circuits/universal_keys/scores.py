"""Attention scores of sets of key features, and boolean functions that separate the scores.

*Prompts.* A prompt has keys and a query, and every token has features. For a model that records the
task "universal-keys", key token i is the i-th set of at most l of n features (`data.composites`),
and query tokens follow. Other models run on prompts of `--data` with `--features` of tokens: the
query is the token at the prompt's position, and all earlier tokens are keys. Prompts are split in
two parts: the first is used to find functions, the second to measure attention.

*Functions.* Scores of feature sets form two groups if the worst error of the scores as a readout of
high and low, after the best gain and bias, is below 1/4. No affine function of two bits attains
this for their AND (see `boolean_functions`). The function is the smallest set of features that
determines high and low, with its truth table; combinations that no key has are "?". The null is a
random assignment of the same values to the feature sets. For k given features, a function fits if
all sets with the same combination agree. The number of fitting assignments is therefore the number
of ways to choose combinations that together contain as many sets as are high. The sum over all
choices of k features, divided by the number of assignments, bounds the p-value.

*Attention.* One pass records two kinds of numbers. For the first part of the prompts, it records
the lowest, highest and mean score before the softmax for each head, query token and feature set.
For the second part, it records the attention pattern at the query. As many layers are read at a
time as fit in memory.

Attention follows a function (`is_attended`) if its excess over uniform attention, the fraction of
matching keys, is significantly above LEAST_GAIN of the largest possible excess (Student's interval
over new prompts). A small gap between scores does not show this, however exact it is.
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
from interp_toolkit.finding import Run
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

MOST_KEYS = 24  # keys per synthetic prompt
ROUNDS = 2  # how often every query meets every key, in each part
LEAST_ROWS = 10


@dataclass(frozen=True, eq=False)
class KeyRows:
    """Prompts of keys and a query, with features of tokens.

    Attributes:
        tokens: prompts, all of one length.
        positions: position of the query in each prompt; keys are before it.
        second: whether the prompt belongs to the second part.
        features: features of each token of the vocabulary.
        names: names of the features.
        source: description of prompts and features.
    """

    tokens: Int[np.ndarray, "row pos"]
    positions: Int[np.ndarray, " row"]
    second: Bool[np.ndarray, " row"]
    features: Bool[np.ndarray, "token feature"]
    names: tuple[str, ...]
    source: str


def made_rows(run: Run[Any], task: Mapping[str, Any]) -> KeyRows:
    """Synthetic prompts for a model that records universal keys, with keys in random order.

    Every query meets every key `ROUNDS` times in each part.

    Raises:
        InputError: the record does not fit the vocabulary.
    """
    n_features, most_on = int(task["key_features"]), int(task["features_on"])
    sets = all_composites(n_features, most_on)
    vocabulary, n_ctx = int(run.model.cfg.d_vocab), int(run.model.cfg.n_ctx)
    queries = range(len(sets), vocabulary)
    n_keys = min(MOST_KEYS, n_ctx - 1)
    if not len(queries) or n_keys < 1:
        raise InputError(
            f"the record's {len(sets)} sets of features leave no query token or no key"
        )
    rng = np.random.default_rng(run.seed)
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


def data_rows(run: Run[Any], data: FeatureData, features: FeatureSet) -> KeyRows:
    """Prompts from the user's data, with features of tokens.

    Raises:
        InputError: the features are not functions of tokens; prompts differ in length or are too
            few; the query's position is outside the prompts; or no query has keys before it.
    """
    if features.reads != TOKENS:
        raise InputError(f"{features.source}: universal keys need features of tokens")
    lengths = {len(row) for row in data.tokens}
    if len(lengths) > 1:
        raise InputError(f"{data.source}: prompts of one length are needed, got {sorted(lengths)}")
    [length] = lengths
    if len(data) < LEAST_ROWS:
        raise InputError(f"{data.source}: {len(data)} prompts; at least {LEAST_ROWS} are needed")
    if (position := run.options.position) is not None:
        if not -length <= position < length:
            raise InputError(f"--position {position} is outside prompts of {length} tokens")
        positions = np.full(len(data), position % length)
    else:
        positions = data.positions if data.positions is not None else np.full(len(data), length - 1)
    if not np.asarray(positions).any():
        raise InputError("the query is the first token of each prompt: there is no key before it")
    labels = features.label(torch.arange(int(run.model.cfg.d_vocab))).cpu().numpy()
    columns = np.flatnonzero(labels.any(axis=0))
    order = np.random.default_rng(run.seed).permutation(len(data))
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


MOST_FEATURES = 5  # features of a function
MOST_SETS = 20_000  # choices of features tried for each number of features


@dataclass(frozen=True, eq=False)
class TwoGroups:
    """Scores of feature sets, split into two groups.

    Attributes:
        high: whether each set's score is in the upper group.
        error: worst error of the scores as a readout of `high`, after the best gain and bias.
    """

    high: Bool[np.ndarray, " set"]
    error: float


@dataclass(frozen=True)
class KeyFunction:
    """A boolean function of key features.

    Attributes:
        features: indices of the features, the most significant digit of the table first.
        table: truth table of 0, 1, and "?" where no key shows the value.
        others: number of other choices of as many features that fit as well.
    """

    features: tuple[int, ...]
    table: str
    others: int

    def values(self, on: Bool[np.ndarray, "set feature"]) -> Bool[np.ndarray, " set"]:
        """Values of the function; false where undefined."""
        return np.asarray(np.array([bit == "1" for bit in self.table])[_codes(on, self.features)])

    def decides(self, on: Bool[np.ndarray, "set feature"]) -> Bool[np.ndarray, " set"]:
        """Feature sets for which the table is defined."""
        return np.asarray(np.array([bit != "?" for bit in self.table])[_codes(on, self.features)])


def split_scores(
    low: Float[np.ndarray, " set"],
    high: Float[np.ndarray, " set"],
    mean: Float[np.ndarray, " set"],
) -> TwoGroups | None:
    """Split sets at the widest gap between mean scores; None if all mean scores are equal."""
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
    """Function of the fewest features that fits these values; None if it needs too many.

    If several choices of as many features fit, the first is returned, with the number of others.
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
    """Upper bound of the probability that a function of `size` features fits shuffled values.

    The probability is exact for each choice of features, and summed over the choices.
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
NUMBERS = 6  # numbers of 8 bytes in memory per head, query and set


@dataclass(frozen=True, eq=False)
class KeyScores:
    """Scores and attention of some layers.

    Attributes:
        layers: the layers.
        queries: ids of the query tokens.
        sets: distinct sets of features among the keys.
        set_of: index of the set of each key; -1 at and after the query.
        query_of: index of the query token of each prompt.
        low, high, mean: lowest, highest and mean score in the first part; NaN if the query token
            never meets the set.
        attention: attention of each prompt's query to each position.
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
    run: Run[Any], rows: KeyRows, layers: Sequence[int] | None = None
) -> Iterator[KeyScores]:
    """Iterate over scores and attention, for as many layers at a time as fit in memory.

    Args:
        run: the run; its model has hooks for attention scores.
        rows: the prompts.
        layers: layers to read; None: all.

    Raises:
        InputError: scores or patterns cannot be read, or one layer's scores exceed the memory.
    """
    model, limit = run.model, parse_memory(run.memory)
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    chosen_layers = list(range(n_layers) if layers is None else layers)
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
            f"take {format_size(a_layer)} per layer, more than half of the {format_size(limit)} "
            "of memory allowed: raise --memory, or use fewer tokens or features"
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
    """Attention scores and patterns of these layers at the queries of some prompts."""
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


LEAST_GAIN = 0.1  # smallest excess over uniform attention, as a fraction of the largest possible


def attention_on(
    scores: KeyScores,
    rows: KeyRows,
    head: tuple[int, int],
    query: int,
    right: Bool[np.ndarray, " set"],
    coverage: float,
) -> dict[str, Any]:
    """Attention on right keys in prompts of the second part, and on keys in prompts without any."""
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
    """Whether the interval of the excess lies above LEAST_GAIN of the largest possible excess."""
    least, uniform = attention["excess_low"], attention["uniform"]
    return least is not None and uniform is not None and least > LEAST_GAIN * (1 - uniform)


def may_be_attended(attention: Mapping[str, Any]) -> bool:
    """Whether only part of the interval lies above that threshold; true without an interval."""
    most, uniform = attention["excess_high"], attention["uniform"]
    if most is None or uniform is None:
        return True
    return not is_attended(attention) and most > LEAST_GAIN * (1 - uniform)
