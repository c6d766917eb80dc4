"""What each head scores every set of key features, by query token; and where it attends.

One pass over the rows. Of the first part, the scores before the softmax: their lowest, highest and
sum for each head, query token and set of features (the distinct rows of the token's features). Of
the second, the attention itself, to be added up over right keys once functions are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp_toolkit.circuits.universal_keys.rows import KeyRows
from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import run
from interp_toolkit.models.running.hooks import hook_points

BATCH = 256


@dataclass(frozen=True, eq=False)
class KeyScores:
    """What was seen.

    Attributes:
        queries: query tokens, one an entry.
        sets: the distinct sets of features among the keys.
        set_of: the number of each row's keys' sets; -1 at and after the query.
        query_of: the number of each row's query.
        low, high, mean: of the scores in the first part; NaN where the two never met.
        attention: of each query to each place, in all rows.
    """

    queries: Int[np.ndarray, " query"]
    sets: Bool[np.ndarray, "set feature"]
    set_of: Int[np.ndarray, "row pos"]
    query_of: Int[np.ndarray, " row"]
    low: Float[np.ndarray, "layer head query set"]
    high: Float[np.ndarray, "layer head query set"]
    mean: Float[np.ndarray, "layer head query set"]
    attention: Float[np.ndarray, "layer head row pos"]


def key_scores(model: Model, rows: KeyRows) -> KeyScores:
    """Run the rows.

    Raises InputError for models whose scores or patterns cannot be seen.
    """
    cfg = model.cfg
    n_layers, n_heads = int(cfg.n_layers), int(cfg.n_heads)
    n_rows, n_pos = rows.tokens.shape
    before = np.arange(n_pos) < rows.places[:, None]
    shown = np.unique(rows.tokens[before])
    sets, numbers = np.unique(rows.features[shown], axis=0, return_inverse=True)
    of_token = np.full(len(rows.features), -1)
    of_token[shown] = numbers.reshape(-1)
    set_of = np.where(before, of_token[rows.tokens], -1)
    own = rows.tokens[np.arange(n_rows), rows.places]
    queries, query_of = np.unique(own, return_inverse=True)
    shape = n_layers, n_heads, len(queries), len(sets)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    total, count = np.zeros(shape), np.zeros(shape[2:])
    attention = np.zeros((n_layers, n_heads, n_rows, n_pos), dtype=np.float32)
    row, place = np.nonzero(before & ~rows.second[:, None])
    np.add.at(count, (query_of[row], set_of[row, place]), 1)
    for start in range(0, n_rows, BATCH):
        part = slice(start, min(start + BATCH, n_rows))
        scores, pattern = _pass(model, rows, part)
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
    return KeyScores(queries, sets, set_of, query_of, low, high, mean, attention)


def _pass(
    model: Model, rows: KeyRows, part: slice
) -> tuple[Float[np.ndarray, "layer head row pos"], Float[np.ndarray, "layer head row pos"]]:
    """Scores and pattern of the rows' queries, of all layers."""
    n_layers = int(model.cfg.n_layers)
    places = torch.from_numpy(rows.places[part])
    kept: dict[tuple[str, int], np.ndarray] = {}
    points = hook_points(model)
    hooks: list[tuple[Any, Any]] = []
    for layer in range(n_layers):
        for kind in ("hook_attn_scores", "hook_pattern"):
            name = f"blocks.{layer}.attn.{kind}"
            if name not in points:
                raise InputError(f"layer {layer} has no {kind}, so its heads cannot be looked at")

            hooks.append((points[name], _keeping(kept, (kind, layer), places)))
    run(model, torch.from_numpy(rows.tokens[part]), hooks)
    if len(kept) < 2 * n_layers:
        raise InputError("fused attention hides the scores: load with interp_toolkit.load")
    both = [
        np.stack([kept[kind, layer] for layer in range(n_layers)]).transpose(0, 2, 1, 3)
        for kind in ("hook_attn_scores", "hook_pattern")
    ]
    return both[0], both[1]


def _keeping(
    kept: dict[tuple[str, int], np.ndarray], key: tuple[str, int], places: torch.Tensor
) -> Any:
    def keep(value: Any, hook: Any) -> None:
        rows = torch.arange(len(value), device=value.device)
        kept[key] = value[rows, :, places.to(value.device)].detach().float().cpu().numpy()

    return keep
