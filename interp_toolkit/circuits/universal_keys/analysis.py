"""`--probe universal-keys`: which function of the key's features a head attends to, by query token.

For each head and query token: the scores of the keys' sets of features in two groups (`function`);
the boolean function of the fewest features that tells the groups; whether, found without a fifth of
the sets, it is right on that fifth; how often a function of as few features fits when the sets are
shuffled; and how much of the attention, in rows not used before, goes to keys where it holds.
Source: "Computation in superposition", section 1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from interp_toolkit.circuits.universal_keys.figures import attention_figure, score_figure
from interp_toolkit.circuits.universal_keys.function import (
    KeyFunction,
    TwoGroups,
    least_function,
    split_scores,
)
from interp_toolkit.circuits.universal_keys.result import QueryFunction, UniversalKeysResult
from interp_toolkit.circuits.universal_keys.rows import KeyRows, given_rows, made_rows
from interp_toolkit.circuits.universal_keys.scores import KeyScores, key_scores
from interp_toolkit.circuits.universal_keys.verdict import evidence_of, verdict
from interp_toolkit.data import FeatureData
from interp_toolkit.epsilon import AFFINE
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.provenance import provenance
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.options import FeatureOptions
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis

SOURCE = "Computation in superposition, section 1.6"
TASK = "universal-keys"
LEFT_OUT = 5  # one set in so many is left out of the fit
SHUFFLES = 19
RIGHT = 0.95  # of the sets left out, for a function to be said to select


class UniversalKeysOptions(FeatureOptions, Options):
    """Options of `--probe universal-keys`."""

    position: int | None = Field(
        None, description="Place of the query; default: the data's own, else the last."
    )
    shuffles: int = Field(
        SHUFFLES, ge=0, description="Shuffled sets of features to hold each function against."
    )


def run(
    model: Any,
    data: FeatureData | None,
    options: UniversalKeysOptions,
    progress: Callable[[str], None],
) -> UniversalKeysResult:
    """Find every head's function for every query token.

    Args:
        model: any TransformerLens model whose attention scores can be seen.
        data: rows of tokens, with `features` of tokens; None: rows of the model's own task.
        options: see `UniversalKeysOptions`.
        progress: told what is being done.

    Raises:
        InputError: no data and no record of universal keys, or what `rows` and `scores` refuse.
    """
    features = options.read(options.features, model)
    vocabulary = int(model.cfg.d_vocab)
    task = dict(record_of(model).task or {})
    if data is None:
        if task.get("function") != TASK:
            raise InputError(
                "no data: this model records no universal keys, so give rows of tokens (--data "
                "FILE) and features of tokens (--features FILE)"
            )
        rows = made_rows(task, int(model.cfg.n_ctx), vocabulary, options.seed)
    elif features is None:
        raise InputError("universal keys are about features of tokens: give --features FILE")
    else:
        rows = given_rows(data, features, vocabulary, options.position, options.seed)
    progress(f"attention of {len(rows.tokens):,} rows")
    scores = key_scores(model, rows)
    n_layers, n_heads = scores.low.shape[:2]
    found: list[QueryFunction] = []
    for layer in range(n_layers):
        for head in range(n_heads):
            progress(f"head {layer}.{head}: {len(scores.queries)} query tokens")
            found += [
                _of_query(scores, rows, (layer, head), q, options)
                for q in range(len(scores.queries))
            ]
    evidence = evidence_of(found, len(scores.queries), len(scores.sets))
    plots = []
    if evidence.head is not None:
        plots = [score_figure(scores, found, evidence.head), attention_figure(found, evidence.head)]
    settings = options.settings(features=None if features is None else features.source)
    described = {"source": rows.source, "rows": len(rows.tokens), "sets": len(scores.sets)}
    return UniversalKeysResult(
        probe="universal-keys",
        verdict=verdict(found, evidence),
        evidence=evidence,
        provenance=provenance(model, described, settings, options.seed),
        functions=found,
        source=rows.source,
        plots=plots,
    )


def _of_query(
    scores: KeyScores,
    rows: KeyRows,
    head: tuple[int, int],
    query: int,
    options: UniversalKeysOptions,
) -> QueryFunction:
    """One head and query token; see the module."""
    place = (*head, query)
    seen = ~np.isnan(scores.mean[place])
    on = scores.sets[seen]
    ends = (scores.low[place][seen], scores.high[place][seen], scores.mean[place][seen])
    split = split_scores(*ends)
    base: dict[str, Any] = dict(
        zip(("layer", "head", "query_token"), (*head, int(scores.queries[query])), strict=True)
    )
    if split is None:
        return QueryFunction(**base, outcome="constant")
    base["error"] = split.error
    if split.error >= AFFINE:
        return QueryFunction(**base, outcome="no_split")
    function = least_function(on, split.high)
    if function is None:
        return QueryFunction(**base, outcome="no_function")
    rng = np.random.default_rng(options.seed)
    foretold = _foretold(on, split, rng)
    shuffled = [
        _as_few(least_function(on, rng.permutation(split.high)), function)
        for _ in range(options.shuffles)
    ]
    right = np.zeros(len(scores.sets), dtype=bool)
    right[seen] = function.values(on)
    return QueryFunction(
        **base,
        outcome="selects" if foretold >= RIGHT else "not_foretold",
        features=[rows.names[k] for k in function.features],
        table=function.table,
        others=function.others,
        foretold=foretold,
        right_sets=int(right.sum()),
        chance=float(np.mean(shuffled)) if shuffled else None,
        **_attention(scores, rows, head, query, right),
    )


def _as_few(found: KeyFunction | None, function: KeyFunction) -> bool:
    return found is not None and len(found.features) <= len(function.features)


def _foretold(
    on: Bool[np.ndarray, "set feature"], split: TwoGroups, rng: np.random.Generator
) -> float:
    """The share of the sets left out, a fifth each time, that the others' function is right on.

    Of those whose combination of the function's features the others have; 0 where none has.
    """
    order = rng.permutation(len(on))
    right = known = 0
    for part in range(min(LEFT_OUT, len(on))):
        out = order[part::LEFT_OUT]
        kept = np.setdiff1d(order, out)
        function = least_function(on[kept], split.high[kept])
        if function is not None:
            said = function.known(on[out])
            known += int(said.sum())
            right += int((function.values(on[out]) == split.high[out])[said].sum())
    return right / known if known else 0.0


def _attention(
    scores: KeyScores,
    rows: KeyRows,
    head: tuple[int, int],
    query: int,
    right: Bool[np.ndarray, " set"],
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
    return {
        "on_right": _mean(on_right),
        "on_right_least": float(on_right.min()) if len(on_right) else None,
        "uniform": _mean(shares),
        "on_wrong": _mean(on_keys),
    }


def _mean(values: Sequence[float] | np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _unfit(model: Any, data: FeatureData | None) -> str | None:
    if data is None and (record_of(model).task or {}).get("function") != TASK:
        return "needs --data and --features of tokens"
    return None if data is None else "needs --features of tokens: ask for it by name"


UNIVERSAL_KEYS = Analysis(
    "universal-keys",
    "which boolean function of the key's features a head attends to, by query token",
    UniversalKeysOptions,
    run,
    _unfit,
    SOURCE,
)
