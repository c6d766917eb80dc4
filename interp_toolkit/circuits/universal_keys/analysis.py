"""`--probe universal-keys`: the boolean function of the key's features that heads attend by.

For each head and query token: the scores of the keys' feature sets in two groups (`function`); the
boolean function of the fewest features that separates the groups; its accuracy on held-out feature
sets, a fifth each time; how often a function of as few features fits shuffled sets, corrected for
all heads and query tokens (Holm 1979); and whether attention, on prompts not used before, goes to
keys where it holds (`scores`): the excess over their share of the keys has an interval over prompts
(Student's t, Bonferroni), and has to be LEAST_GAIN of what is left above that share.

Source: "Computation in superposition", section 1.6.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from interp_toolkit import plots
from interp_toolkit.boolean_functions import AFFINE
from interp_toolkit.circuits.universal_keys.scores import (
    KeyRows,
    KeyScores,
    TwoGroups,
    attention_on,
    chance_to_fit,
    data_rows,
    is_attended,
    key_scores,
    least_function,
    made_rows,
    may_be_attended,
    split_scores,
)
from interp_toolkit.data import FeatureData
from interp_toolkit.errors import InputError
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.feature_sets import FeatureOptions
from interp_toolkit.options import Options
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, head_name
from interp_toolkit.stats import LEVEL, holm

SOURCE = "Computation in superposition, section 1.6"
TASK = "universal-keys"
FOLDS = 5  # of the feature sets, each held out once
RIGHT = 0.95  # of held-out feature sets, for a function to be said to select

Outcome = Literal[
    "selects", "by_chance", "not_attended", "fails_held_out", "no_function", "no_split", "constant"
]
#: why no head selects, the outcome that comes nearest first
REASONS: dict[Outcome, str] = {
    "by_chance": "functions of as few features fit shuffled sets too",
    "not_attended": "the scores separate, but attention hardly follows them",
    "fails_held_out": "the functions that fit are wrong on sets of features left out",
    "no_function": "no function of few features fits the scores",
    "no_split": "the scores do not form two groups",
    "constant": "no head distinguishes keys",
}
UNSEEN = "the scores separate, but too few prompts show where attention goes"


class UniversalKeysOptions(FeatureOptions, Options):
    """Options of `--probe universal-keys`."""

    position: int | None = Field(
        None, description="Position of the query; default: the data's, else the last."
    )


@dataclass(frozen=True)
class QueryFunction:
    """The function of one head for one query token.

    Attributes:
        outcome: "selects": it attends where a function holds; "constant": the one score is no
            function of features; "no_split": the scores do not form two groups; "no_function": no
            function of few features fits them; "fails_held_out": one fits, and is wrong on held-out
            sets; "not_attended": the scores separate, and attention is not shown to go where the
            function holds; "by_chance": it does, and as simple a function fits shuffled sets too.
        features: of the function, by name, the first the most significant digit of the table.
        table: its truth table; "?" where no key shows the value.
        others: other choices of as many features that fit as well.
        error: the worst error of the scores as a readout of high and low, after the best gain and
            bias; None without two groups.
        held_out_accuracy: accuracy on held-out feature sets whose combination occurs in the fit.
        right_sets: on how many feature sets it holds.
        chance: of shuffled feature sets, the share that a function of as few features fits, at
            most.
        p_value: the same, corrected for all heads and query tokens.
        on_right: mean attention on keys where it holds, on prompts of the second part that have
            some; `on_right_least` is the least of these.
        uniform: the share of such prompts' keys that are right.
        excess_low, excess_high: interval of the mean of `on_right` less that share, over prompts;
            all heads and query tokens together hold at 95 %. None of fewer than two prompts.
        on_wrong: mean attention on keys in prompts that have no right one; None without such.
    """

    name: str = column("head")
    layer: int = column()
    head: int = column()
    query_token: int = column("query")
    outcome: Outcome = column()
    features: Sequence[str] = column("features", format=", ".join, default=())
    table: str | None = column("table", default=None)
    others: int = column(default=0)
    error: float | None = column(default=None)
    right_sets: int | None = column("holds on", default=None)
    held_out_accuracy: float | None = column("held-out accuracy", default=None)
    chance: float | None = column(default=None)
    p_value: float | None = column("p", default=None)
    on_right: float | None = column("on right", default=None)
    uniform: float | None = column("uniform", default=None)
    excess_low: float | None = column("excess, low", default=None)
    excess_high: float | None = column("high", default=None)
    on_right_least: float | None = column("least", default=None)
    on_wrong: float | None = column("on wrong", default=None)

    @property
    def selects(self) -> bool:
        """Whether the head attends where the function holds."""
        return self.outcome == "selects"


@dataclass(frozen=True)
class HeadOutcomes:
    """The numbers of query tokens of one head by outcome."""

    name: str = column("head")
    selects: int = column("selects")
    by_chance: int = column("by chance")
    not_attended: int = column("not attended")
    fails_held_out: int = column("wrong on held-out sets")
    no_function: int = column("no function")
    no_split: int = column("no split")
    constant: int = column("constant")


@dataclass(frozen=True)
class KeysEvidence(Evidence):
    """The head that selects for most query tokens, and how surely.

    Attributes:
        head: layer and head; None where none selects.
        functions: different functions among its query tokens.
        sets: different feature sets among the keys.
        on_right: mean attention on right keys over these queries, on prompts not used before.
        p_value: the largest of the functions', corrected for all heads and query tokens.
    """

    head: tuple[int, int] | None = column("head")
    selecting: int = column("query tokens that select")
    queries: int = column("of query tokens")
    functions: int = column("different functions")
    sets: int = column("feature sets of keys")
    on_right: float | None = column("attention on right keys")
    p_value: float | None = column("largest p, Holm")


@dataclass(frozen=True, kw_only=True)
class UniversalKeysFinding(Finding):
    """The boolean function of key features that each query token attends to.

    Attributes:
        functions: of every head and query token.
        heads: their outcomes, counted.
        source: of the prompts and the features.
    """

    evidence: KeysEvidence
    functions: Sequence[QueryFunction] = records(
        QueryFunction,
        "What each query attends to",
        "Table: the first feature is the most significant digit; ? where no key shows the value. "
        "Holds on: feature sets. p: a function of as few features fits shuffled sets, corrected "
        "for all heads and queries. On right: attention on keys where it holds; uniform: their "
        "share of keys; excess: the interval of the first less the second. Least: on right. On "
        "wrong: attention on keys where none is right.",
        select=lambda functions: [one for one in functions if one.selects],
    )
    heads: Sequence[HeadOutcomes] = records(
        HeadOutcomes,
        "Heads",
        "Query tokens by outcome. Not attended: the scores separate, and attention is not shown to "
        "go where the function holds. No split: the scores do not form two groups.",
    )
    source: str


def analyze(run: Run[UniversalKeysOptions]) -> UniversalKeysFinding:
    """Find every head's function for every query token.

    Without data the prompts are those of the task that the model records.

    Raises:
        InputError: no data and no record of universal keys, or what `rows` and `scores` refuse.
    """
    model, data, options = run.model, run.data, run.options
    features = options.read(options.features, model)
    vocabulary, n_heads = int(model.cfg.d_vocab), int(model.cfg.n_heads)
    task = dict(record_of(model).task or {})
    if data is None:
        if options.position is not None:
            raise InputError("--position needs --data; the model's own rows have their position")
        if task.get("function") != TASK:
            raise InputError(
                "no data: this model records no universal keys, so give rows of tokens (--data "
                "FILE) and features of tokens (--features FILE)"
            )
        rows = made_rows(task, int(model.cfg.n_ctx), vocabulary, run.seed)
    elif features is None:
        raise InputError("universal keys are about features of tokens: give --features FILE")
    else:
        rows = data_rows(data, features, vocabulary, options.position, run.seed)
    run.progress(f"attention of {len(rows.tokens):,} rows")
    fitted: list[QueryFunction] = []
    for scores in key_scores(model, rows, run.memory):
        n_queries, n_sets = len(scores.queries), len(scores.sets)
        n_tests = int(model.cfg.n_layers) * n_heads * n_queries
        for at, layer in enumerate(scores.layers):
            for head in range(n_heads):
                run.progress(f"head {layer}.{head}: {n_queries} query tokens")
                fitted += [
                    function_of_query(scores, rows, (at, head), query, run.seed, n_tests)
                    for query in range(n_queries)
                ]
        del scores  # before the next layers are
    functions = corrected(fitted)
    evidence = evidence_of(functions, n_queries, n_sets)
    figures = []
    if evidence.head is not None:
        of_head = selecting(functions, evidence.head)
        [scores] = key_scores(model, rows, run.memory, [evidence.head[0]])
        figures = [score_figure(scores, of_head), attention_figure(of_head)]
    settings = options.settings(features=None if features is None else features.source)
    about = run.provenance(source=rows.source, rows=len(rows.tokens), sets=n_sets)
    by_head: dict[str, Counter[str]] = {}
    for one in functions:
        by_head.setdefault(one.name, Counter()).update([one.outcome])
    outcomes = [name for name in HeadOutcomes.__dataclass_fields__ if name != "name"]
    return UniversalKeysFinding(
        headline=headline(evidence),
        findings=sentences(functions, evidence),
        evidence=evidence,
        provenance=dataclasses.replace(about, settings=settings),
        functions=functions,
        heads=[HeadOutcomes(name, *(n[o] for o in outcomes)) for name, n in by_head.items()],
        source=rows.source,
        plots=figures,
    )


def function_of_query(
    scores: KeyScores, rows: KeyRows, head: tuple[int, int], query: int, seed: int, n_tests: int
) -> QueryFunction:
    """The function of one head and query token, not yet corrected for the others.

    Args:
        scores: of some layers.
        rows: the prompts.
        head: index of its layer among those of `scores`, and the head.
        query: index of the query token.
        seed: of the folds.
        n_tests: heads times query tokens of the model.
    """
    at = (*head, query)
    observed = ~np.isnan(scores.mean[at])
    on = scores.sets[observed]
    split = split_scores(
        scores.low[at][observed], scores.high[at][observed], scores.mean[at][observed]
    )
    layer, number = scores.layers[head[0]], head[1]
    whose = head_name(layer, number), layer, number, int(scores.queries[query])
    if split is None:
        return QueryFunction(*whose, "constant")
    if split.error >= AFFINE:
        return QueryFunction(*whose, "no_split", error=split.error)
    function = least_function(on, split.high)
    if function is None:
        return QueryFunction(*whose, "no_function", error=split.error)
    accuracy = held_out_accuracy(on, split, np.random.default_rng(seed))
    right = np.zeros(len(scores.sets), dtype=bool)
    right[observed] = function.values(on)
    attention = attention_on(scores, rows, head, query, right, 1 - LEVEL / n_tests)
    outcome: Outcome = "selects" if is_attended(attention) else "not_attended"
    return QueryFunction(
        *whose,
        outcome if accuracy >= RIGHT else "fails_held_out",
        features=[rows.names[k] for k in function.features],
        table=function.table,
        others=function.others,
        error=split.error,
        held_out_accuracy=accuracy,
        right_sets=int(right.sum()),
        chance=chance_to_fit(on, split.high, len(function.features)),
        **attention,
    )


def held_out_accuracy(
    on: Bool[np.ndarray, "set feature"], split: TwoGroups, rng: np.random.Generator
) -> float:
    """Accuracy on held-out feature sets, a fifth each time, of the function fitted to the others.

    Counted are sets whose combination of the function's features the others have; 0 without any.
    """
    order = rng.permutation(len(on))
    right = n_predicted = 0
    for fold in range(min(FOLDS, len(on))):
        held_out = order[fold::FOLDS]
        rest = np.setdiff1d(order, held_out)
        function = least_function(on[rest], split.high[rest])
        if function is not None:
            predicted = function.decides(on[held_out])
            n_predicted += int(predicted.sum())
            is_right = function.values(on[held_out]) == split.high[held_out]
            right += int(is_right[predicted].sum())
    return right / n_predicted if n_predicted else 0.0


def corrected(functions: Sequence[QueryFunction]) -> list[QueryFunction]:
    """Correct p-values for all heads and query tokens; functions that may be chance are dropped.

    Where no function fits, p is 1.
    """
    p_values = holm(np.array([1.0 if one.chance is None else one.chance for one in functions]))
    results = []
    for one, p in zip(functions, p_values.tolist(), strict=True):
        outcome = "by_chance" if one.selects and p > LEVEL else one.outcome
        p_value = None if one.chance is None else p
        results.append(dataclasses.replace(one, p_value=p_value, outcome=outcome))
    return results


def selecting(functions: Sequence[QueryFunction], head: tuple[int, int]) -> list[QueryFunction]:
    """The functions by which a head attends."""
    return [one for one in functions if one.selects and (one.layer, one.head) == head]


def evidence_of(functions: Sequence[QueryFunction], n_queries: int, n_sets: int) -> KeysEvidence:
    """The head that selects for most query tokens, and how surely; or why none does."""
    counts = Counter((one.layer, one.head) for one in functions if one.selects)
    if not counts:
        nearest = next(why for why in REASONS if why in {one.outcome for one in functions})
        unseen = any(may_be_attended(vars(o)) for o in functions if o.outcome == "not_attended")
        unseen = unseen and nearest == "not_attended"
        return KeysEvidence(
            "undecided" if unseen or nearest == "by_chance" else "not_detected",
            *(None, 0, n_queries, 0, n_sets, None, None),
            reason=UNSEEN if unseen else REASONS[nearest],
        )
    head = counts.most_common(1)[0][0]
    of_head = selecting(functions, head)
    different: list[QueryFunction] = []
    for one in of_head:
        if not any(may_be_equal(one, other) for other in different):
            different.append(one)
    return KeysEvidence(
        "detected",
        head=head,
        selecting=len(of_head),
        queries=n_queries,
        functions=len(different),
        sets=n_sets,
        on_right=statistics.fmean(o.on_right for o in of_head if o.on_right is not None),
        p_value=max(one.p_value for one in of_head if one.p_value is not None),
    )


def may_be_equal(one: QueryFunction, other: QueryFunction) -> bool:
    """Whether two functions are of the same features, and their tables nowhere differ."""
    if list(one.features) != list(other.features):
        return False
    cells = zip(one.table or "", other.table or "", strict=True)
    return all(a == b or "?" in (a, b) for a, b in cells)


def headline(evidence: KeysEvidence) -> str:
    """The headline: the head that attends by functions of the key's features."""
    if evidence.head is None:
        return "No head is shown to attend by a boolean function of the key's features."
    name = head_name(*evidence.head)
    if evidence.functions == 1:
        return f"{name} attends to keys where one boolean function of their features holds."
    return (
        f"{name} attends to keys by a boolean function of their features, which the query token "
        "selects."
    )


def sentences(functions: Sequence[QueryFunction], evidence: KeysEvidence) -> list[str]:
    """The functions and their accuracy, the attention they get, chance; or why there are none."""
    if evidence.head is None:
        reason = evidence.reason or ""
        heads = len({one.name for one in functions})
        first = "Undecided: " + reason if evidence.status == "undecided" else reason.capitalize()
        return [
            f"{first}.",
            f"Compared: {evidence.queries} query tokens of each of {heads} heads.",
        ]
    of_head = selecting(functions, evidence.head)
    largest = max(len(one.features) for one in of_head)
    least = min(one.held_out_accuracy for one in of_head if one.held_out_accuracy is not None)
    uniform = statistics.fmean(one.uniform for one in of_head if one.uniform is not None)
    which = f"one function of {largest} features"
    if evidence.functions > 1:
        which = f"{evidence.functions} different functions of up to {largest} features"
    on_right = evidence.on_right or 0.0  # near 1 with the digits that tell it from 1
    attention = f"{100 * on_right:.4f}" if on_right > 0.999 else f"{100 * on_right:.1f}"
    excess = min((one.excess_low for one in of_head if one.excess_low is not None), default=None)
    above = (
        "" if excess is None else f", an excess of {100 * excess:.0f} % or more in every 95 % CI"
    )
    return [
        f"{evidence.selecting} of {evidence.queries} query tokens select keys by {which}, right on "
        f"{100 * least:.0f} % or more of held-out feature sets.",
        f"On prompts not used to find them, {attention} % of its attention is on keys where the "
        f"function holds, {100 * uniform:.0f} % of the keys there{above}.",
        f"Functions of as few features fit shuffled feature sets with p ≤ {evidence.p_value:.1g} "
        "(Holm over heads and query tokens).",
    ]


def score_figure(scores: KeyScores, of_head: Sequence[QueryFunction]) -> Figure:
    """A head's mean score of every feature set, by query token, colored by its function."""
    layer, head = of_head[0].layer, of_head[0].head
    points: dict[bool, list[tuple[int, float]]] = {False: [], True: []}
    for one in of_head:
        query = int(np.flatnonzero(scores.queries == one.query_token)[0])
        values = scores.mean[scores.layers.index(layer), head, query]
        values = np.sort(values[~np.isnan(values)])
        cut = len(values) - (one.right_sets or 0)
        for rank, value in enumerate(values.tolist()):
            points[rank >= cut].append((one.query_token, value))
    data = [
        plots.markers(
            [str(x) for x, _ in points[holds]],
            [y for _, y in points[holds]],
            CLASS_COLORS[int(holds)],
            "holds" if holds else "does not hold",
            symbol=CLASS_SYMBOLS[int(holds)],
            size=6,
        )
        for holds in (False, True)
    ]
    layout = plots.layout(plots.axis("query token", "category"), plots.axis("score of a key"))
    caption = (
        f"{head_name(layer, head)}: the score of every set of key features for each query token "
        "that selects, by whether the function found there holds."
    )
    return Figure("Scores by query token", caption, data, layout)


def attention_figure(of_head: Sequence[QueryFunction]) -> Figure:
    """Attention on right keys beside what uniform attention would put there."""
    names = [f"{one.query_token}: {', '.join(one.features)}" for one in of_head]
    on_right = [one.on_right or 0.0 for one in of_head]
    uniform = [one.uniform or 0.0 for one in of_head]
    data = [
        plots.bars(names, on_right, CLASS_COLORS[1], "on right keys"),
        plots.bars(names, uniform, NEUTRAL, "their share of keys"),
    ]
    layout = plots.layout(plots.axis("query token: features"), plots.axis("share"))
    caption = "On prompts that were not used to find the functions."
    return Figure("Attention on right keys", caption, data, layout)


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Why the analysis does not run unless it is named; None where it does."""
    if data is None and (record_of(model).task or {}).get("function") != TASK:
        return "needs --data and --features of tokens"
    return None if data is None else "needs --features of tokens: ask for it by name"


UNIVERSAL_KEYS = analysis(
    "universal-keys",
    "which boolean function of the key's features a head attends to, by query token",
    UniversalKeysOptions,
    analyze,
    unfit,
    source=SOURCE,
)
