"""`--probe universal-keys`: which function of the key's features a head attends to, by query token.

For each head and query token: the scores of the keys' sets of features in two groups (`function`);
the boolean function of the fewest features that tells the groups; whether, found without a fifth of
the sets, it is right on that fifth; how often a function of as few features fits shuffled sets,
corrected for all heads and query tokens (Holm 1979); and whether attention, in rows not used
before, goes to keys where it holds: the excess over their share of the keys has an interval over
rows (Student's t, Bonferroni), and has to be LEAST_GAIN of what is left above that share.
Source: "Computation in superposition", section 1.6.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.circuits.universal_keys.function import (
    TwoGroups,
    chance_to_fit,
    least_function,
    split_scores,
)
from interp_toolkit.circuits.universal_keys.result import (
    Outcome,
    QueryFunction,
    UniversalKeysResult,
    attention_figure,
    evidence_of,
    score_figure,
    verdict,
)
from interp_toolkit.circuits.universal_keys.rows import KeyRows, given_rows, made_rows
from interp_toolkit.circuits.universal_keys.scores import KeyScores, attention_on, key_scores, shown
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import provenance, record_of
from interp_toolkit.models.features.options import FeatureOptions
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis
from interp_toolkit.stats import LEVEL, holm

SOURCE = "Computation in superposition, section 1.6"
TASK = "universal-keys"
LEFT_OUT = 5  # one set in so many is left out of the fit
RIGHT = 0.95  # of the sets left out, for a function to be said to select


class UniversalKeysOptions(FeatureOptions, Options):
    """Options of `--probe universal-keys`."""

    position: int | None = Field(
        None, description="Place of the query; default: the data's own, else the last."
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
        if options.position is not None:
            raise InputError("--position is of the rows of --data; the model's own have theirs")
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
    found: list[QueryFunction] = []
    for scores in key_scores(model, rows, options.memory):
        n_queries, n_sets = len(scores.queries), len(scores.sets)
        n_tests = int(model.cfg.n_layers) * int(model.cfg.n_heads) * n_queries
        for at, layer in enumerate(scores.layers):
            for head in range(int(model.cfg.n_heads)):
                progress(f"head {layer}.{head}: {n_queries} query tokens")
                found += [
                    _of_query(scores, rows, (at, head), q, options.seed, n_tests)
                    for q in range(n_queries)
                ]
        del scores  # before the next layers are
    found = corrected(found)
    evidence = evidence_of(found, n_queries, n_sets)
    plots = []
    if evidence.head is not None:
        [scores] = key_scores(model, rows, options.memory, [evidence.head[0]])
        plots = [score_figure(scores, found, evidence.head), attention_figure(found, evidence.head)]
    settings = options.settings(features=None if features is None else features.source)
    described = {"source": rows.source, "rows": len(rows.tokens), "sets": n_sets}
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
    seed: int,
    n_tests: int,
) -> QueryFunction:
    """One head (its layer by its place among those scored) and query token; see the module."""
    place = (*head, query)
    seen = ~np.isnan(scores.mean[place])
    on = scores.sets[seen]
    ends = (scores.low[place][seen], scores.high[place][seen], scores.mean[place][seen])
    split = split_scores(*ends)
    own = scores.layers[head[0]], head[1], int(scores.queries[query])
    base: dict[str, Any] = dict(zip(("layer", "head", "query_token"), own, strict=True))
    if split is None:
        return QueryFunction(**base, outcome="constant")
    base["error"] = split.error
    if split.error >= AFFINE:
        return QueryFunction(**base, outcome="no_split")
    function = least_function(on, split.high)
    if function is None:
        return QueryFunction(**base, outcome="no_function")
    foretold = _foretold(on, split, np.random.default_rng(seed))
    right = np.zeros(len(scores.sets), dtype=bool)
    right[seen] = function.values(on)
    attention = attention_on(scores, rows, head, query, right, 1 - LEVEL / n_tests)
    outcome: Outcome = "selects" if shown(attention) else "not_attended"
    return QueryFunction(
        **base,
        outcome=outcome if foretold >= RIGHT else "not_foretold",
        features=[rows.names[k] for k in function.features],
        table=function.table,
        others=function.others,
        foretold=foretold,
        right_sets=int(right.sum()),
        chance=chance_to_fit(on, split.high, len(function.features)),
        **attention,
    )


def corrected(found: Sequence[QueryFunction]) -> list[QueryFunction]:
    """With p-values corrected for all heads and query tokens; what may be chance does not select.

    Where no function fits, p is 1.
    """
    p = holm(np.array([1.0 if one.chance is None else one.chance for one in found]))
    return [
        one
        if one.chance is None
        else dataclasses.replace(
            one,
            p_value=float(corrected),
            outcome="by_chance" if one.outcome == "selects" and corrected > LEVEL else one.outcome,
        )
        for one, corrected in zip(found, p, strict=True)
    ]


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
