"""What each head scores every set of key features, by query token; and where it attends.

One pass over the rows. Of the first part, the scores before the softmax: their lowest, highest and
sum for each head, query token and set of features (the distinct rows of the token's features). Of
the second, the attention itself, to be added up over right keys once functions are known.
Layers are looked at as many at a time as the memory allows; the pass ends at the last of them.

Also here:
- whether a query's attention goes to the keys where a function holds, in rows not used before.

By row: the attention on right keys less their share of the keys, which uniform attention does not
exceed. The mean over rows has Student's interval; what is shown is LEAST_GAIN of the way from that
share to all of it. A gap between scores that is small shows no such thing, however exact it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import stats

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

BATCH = 256
NUMBERS = 6  # of 8 bytes for a head, query and set: low, high, sum, mean and what they are made in


@dataclass(frozen=True, eq=False)
class KeyScores:
    """What was seen.

    Attributes:
        layers: looked at, one an entry.
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


@dataclass(frozen=True, eq=False)
class _Shown:
    """The sets and queries of the rows, as `KeyScores` has them, and which places are keys."""

    queries: Int[np.ndarray, " query"]
    sets: Bool[np.ndarray, "set feature"]
    set_of: Int[np.ndarray, "row pos"]
    query_of: Int[np.ndarray, " row"]
    before: Bool[np.ndarray, "row pos"]


def key_scores(
    model: Model, rows: KeyRows, memory: int | str | None, layers: Sequence[int] | None = None
) -> Iterator[KeyScores]:
    """Run the rows: the scores of as many layers at a time as the memory holds.

    Args:
        model: whose attention scores can be seen.
        rows: what it is shown.
        memory: bound on what is kept, and on each pass.
        layers: to look at; None: all.

    Raises:
        InputError: models whose scores or patterns cannot be seen; a layer's scores that are more
            than the memory.
    """
    wanted = list(range(int(model.cfg.n_layers)) if layers is None else layers)
    shown, room = _shown(rows), parse_memory(memory)
    n_rows, n_pos = rows.tokens.shape
    pairs = len(shown.queries) * len(shown.sets)
    a_layer = int(model.cfg.n_heads) * (8 * NUMBERS * pairs + 4 * n_rows * n_pos)
    if a_layer > room // 2:
        raise InputError(
            f"{len(shown.queries):,} query tokens and {len(shown.sets):,} sets of key features "
            f"take {format_size(a_layer)} a layer, more than half of the {format_size(room)} of "
            "memory allowed: raise --memory, or show fewer of them"
        )
    at_once = room // 2 // a_layer
    for start in range(0, len(wanted), at_once):
        chosen = tuple(wanted[start : start + at_once])
        kept = 2 * len(chosen) * int(model.cfg.n_heads) * n_pos
        a_row = bytes_per_row(model.cfg, n_pos, 4, logits=False, kept=kept)
        batch = min(BATCH, rows_that_fit(room // 2, a_row, n_pos))
        yield _scores_of(model, rows, shown, chosen, batch)


def _shown(rows: KeyRows) -> _Shown:
    n_rows, n_pos = rows.tokens.shape
    before = np.arange(n_pos) < rows.places[:, None]
    tokens = np.unique(rows.tokens[before])
    sets, numbers = np.unique(rows.features[tokens], axis=0, return_inverse=True)
    of_token = np.full(len(rows.features), -1)
    of_token[tokens] = numbers.reshape(-1)
    own = rows.tokens[np.arange(n_rows), rows.places]
    queries, query_of = np.unique(own, return_inverse=True)
    return _Shown(queries, sets, np.where(before, of_token[rows.tokens], -1), query_of, before)


def _scores_of(
    model: Model, rows: KeyRows, shown: _Shown, layers: tuple[int, ...], batch: int
) -> KeyScores:
    n_heads, (n_rows, n_pos) = int(model.cfg.n_heads), rows.tokens.shape
    query_of, set_of = shown.query_of, shown.set_of
    shape = len(layers), n_heads, len(shown.queries), len(shown.sets)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    total, count = np.zeros(shape), np.zeros(shape[2:])
    attention = np.zeros((len(layers), n_heads, n_rows, n_pos), dtype=np.float32)
    row, place = np.nonzero(shown.before & ~rows.second[:, None])
    np.add.at(count, (query_of[row], set_of[row, place]), 1)
    for start in range(0, n_rows, batch):
        part = slice(start, min(start + batch, n_rows))
        scores, pattern = _pass(model, rows, part, layers)
        attention[:, :, part] = pattern
        mine = (row >= part.start) & (row < part.stop)
        r, p = row[mine], place[mine]
        at: Any = (slice(None), slice(None), query_of[r], set_of[r, p])
        values = scores[:, :, r - start, p]
        np.minimum.at(low, at, values)
        np.maximum.at(high, at, values)
        np.add.at(total, at, values)
    never = count == 0
    low[:, :, never], high[:, :, never] = np.nan, np.nan
    mean = np.where(never, np.nan, total / np.maximum(count, 1))
    return KeyScores(
        layers, shown.queries, shown.sets, set_of, query_of, low, high, mean, attention
    )


def _pass(
    model: Model, rows: KeyRows, part: slice, layers: Sequence[int]
) -> tuple[Float[np.ndarray, "layer head row pos"], Float[np.ndarray, "layer head row pos"]]:
    """Scores and pattern of the rows' queries, of these layers."""
    places = torch.from_numpy(rows.places[part])
    kept: dict[tuple[str, int], np.ndarray] = {}
    points = hook_points(model)
    hooks: list[tuple[Any, Any]] = []
    for layer in layers:
        for kind in ("hook_attn_scores", "hook_pattern"):
            name = f"blocks.{layer}.attn.{kind}"
            if name not in points:
                raise InputError(f"layer {layer} has no {kind}, so its heads cannot be looked at")
            is_last = layer == max(layers) and kind == "hook_pattern"
            hooks.append((points[name], _keeping(kept, (kind, layer), places, is_last)))
    run(model, torch.from_numpy(rows.tokens[part]), hooks)
    if len(kept) < 2 * len(layers):
        raise InputError("fused attention hides the scores: load with interp_toolkit.load")
    both = [
        np.stack([kept[kind, layer] for layer in layers]).transpose(0, 2, 1, 3)
        for kind in ("hook_attn_scores", "hook_pattern")
    ]
    return both[0], both[1]


def _keeping(
    kept: dict[tuple[str, int], np.ndarray],
    key: tuple[str, int],
    places: torch.Tensor,
    is_last: bool,
) -> Any:
    def keep(value: Any, hook: Any) -> None:
        rows = torch.arange(len(value), device=value.device)
        kept[key] = value[rows, :, places.to(value.device)].detach().float().cpu().numpy()
        if is_last:
            raise StopForwardError

    return keep


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
    mine = np.flatnonzero((scores.query_of == query) & rows.second)
    sets = scores.set_of[mine]
    keys = sets >= 0
    is_right = keys & right[np.maximum(sets, 0)]
    pattern = scores.attention[head][mine]
    some = is_right.any(axis=1)
    on_right = (pattern * is_right).sum(axis=1)[some].astype(float)
    on_keys = (pattern * keys).sum(axis=1)[~some].astype(float)
    shares = is_right[some].sum(axis=1) / np.maximum(keys[some].sum(axis=1), 1)
    low, high = mean_interval(on_right - shares, coverage)
    return {
        "on_right": _mean(on_right),
        "on_right_least": float(on_right.min()) if len(on_right) else None,
        "uniform": _mean(shares),
        "excess_low": low,
        "excess_high": high,
        "on_wrong": _mean(on_keys),
    }


def mean_interval(
    values: Float[np.ndarray, " row"], coverage: float
) -> tuple[float | None, float | None]:
    """Student's interval of the mean; unknown of fewer than two values."""
    if len(values) < 2:
        return None, None
    half = stats.t.ppf((1 + coverage) / 2, len(values) - 1) * stats.sem(values)
    return float(values.mean() - half), float(values.mean() + half)


def _mean(values: Sequence[float] | np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def shown(attention: Mapping[str, Any]) -> bool:
    """Whether the whole interval is LEAST_GAIN or more of the way."""
    least, uniform = attention["excess_low"], attention["uniform"]
    return least is not None and uniform is not None and least > LEAST_GAIN * (1 - uniform)


def left_open(attention: Mapping[str, Any]) -> bool:
    """Whether it is not shown, and some of the interval is; so where nothing is known."""
    most, uniform = attention["excess_high"], attention["uniform"]
    if most is None or uniform is None:
        return True
    return not shown(attention) and most > LEAST_GAIN * (1 - uniform)
