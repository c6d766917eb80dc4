"""Attention scores of every set of key features, by head and query token; attention on some sets.

One pass over the prompts. Of the first part, the scores before the softmax: their lowest, highest
and sum for each head, query token and set of features (the distinct rows of the token's features).
Of the second, the attention itself, to be added up over right keys once functions are known.
Layers are looked at as many at a time as the memory allows; the pass ends at the last of them.

Attention goes to keys where a function holds (`is_attended`) where its excess over their share of
the keys, which uniform attention has, is certainly LEAST_GAIN of the way from that share to all of
it: Student's interval of the mean over prompts not used before. A small gap between scores shows no
such thing, however exact it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.circuits.universal_keys.rows import KeyRows
from interp_toolkit.errors import InputError
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
                raise InputError(f"layer {layer} has no {kind}, so its heads cannot be looked at")
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
