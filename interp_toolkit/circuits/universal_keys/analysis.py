"""`--probe universal-keys`: the boolean function of the key's features that heads attend by.

Steps for each head and query token (`scores`):

1. Split the scores of the keys' feature sets into two groups.
2. Find the boolean function of the fewest features that separates the groups.
3. Measure its accuracy on held-out feature sets (5-fold cross-validation).
4. Compute how often a function of as few features fits shuffled sets, corrected for all heads and
   query tokens (Holm 1979).
5. Test on new prompts whether attention goes to keys where the function holds. The excess over the
   fraction of such keys has an interval over prompts (Student's t, Bonferroni). It must be at least
   LEAST_GAIN of the largest possible excess.

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
from interp_toolkit.evidence import control_of_p, effect_status
from interp_toolkit.finding import Finding, Run, analysis, column, records
from interp_toolkit.formatting import p_cell, percent
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.features.feature_sets import FeatureOptions
from interp_toolkit.options import Options
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, head_name
from interp_toolkit.stats import LEVEL, holm

SOURCE = "Computation in superposition, section 1.6"
TASK = "universal-keys"
FOLDS = 5  # folds of the feature sets
RIGHT = 0.95  # smallest held-out accuracy of a function that selects keys

Outcome = Literal[
    "selects", "by_chance", "not_attended", "fails_held_out", "no_function", "no_split", "constant"
]
#: reasons why no head selects, in the order in which one is reported
REASONS: dict[Outcome, str] = {
    "by_chance": "functions of as few features fit shuffled sets too",
    "not_attended": "the scores separate, but attention hardly follows the scores",
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
    """Boolean function of one head for one query token.

    A key is *right* if the function holds for its features.

    Attributes:
        outcome: "selects": attention goes to right keys; "constant": all keys have the same score;
            "no_split": the scores do not form two groups; "no_function": no function of few
            features fits them; "fails_held_out": a function fits, but is wrong on held-out sets;
            "not_attended": a function fits, but attention does not follow it measurably;
            "by_chance": attention follows a function, but as simple a function fits shuffled sets.
        features: names of the function's features, the most significant digit of the table first.
        table: truth table of the function; "?" where no key shows the value.
        others: number of other choices of as many features that fit as well.
        error: worst error of the scores as a readout of high and low, after the best gain and
            bias; None without two groups.
        held_out_accuracy: accuracy on held-out feature sets whose combination occurs in the fit.
        right_sets: number of feature sets on which the function holds.
        chance: upper bound of the fraction of shuffles that a function of as few features fits.
        p_value: `chance` corrected for all heads and query tokens.
        on_right: mean attention on right keys, over prompts of the second part that have any;
            `on_right_least` is the smallest over these prompts.
        uniform: fraction of right keys in such prompts.
        excess_low, excess_high: interval of the mean of `on_right` minus that fraction, over
            prompts, simultaneous at 95 % over all heads and query tokens. None for fewer than two
            prompts.
        on_wrong: mean attention on keys in prompts without right keys; None if there are none.
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
    p_value: float | None = column("p", format=p_cell, default=None)
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
    """Numbers of query tokens of one head by outcome."""

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
    """Evidence for the head that selects keys for most query tokens.

    Attributes:
        head: layer and head; None if no head selects.
        functions: number of different functions over its query tokens.
        sets: number of different feature sets among the keys.
        on_right: mean attention on right keys over these queries, on new prompts.
        p_value: largest p-value of the functions, corrected for all heads and query tokens.
    """

    head: tuple[int, int] | None = column("head")
    selecting: int = column("query tokens that select")
    queries: int = column("of query tokens")
    functions: int = column("different functions")
    sets: int = column("feature sets of keys")
    on_right: float | None = column("attention on right keys")
    p_value: float | None = column("largest p, Holm", format=p_cell)


@dataclass(frozen=True, kw_only=True)
class UniversalKeysFinding(Finding):
    """Boolean functions of key features by which heads attend, for each query token.

    Attributes:
        functions: the function of every head and query token.
        heads: numbers of outcomes by head.
        source: description of the prompts and the features.
    """

    evidence: KeysEvidence
    functions: Sequence[QueryFunction] = records(
        QueryFunction,
        "What each query attends to",
        "Table: the first feature is the most significant digit; ? where no key shows the value. "
        "Holds on: number of feature sets. p: a function of as few features fits shuffled sets, "
        "corrected for all heads and queries. On right: attention on keys where the function "
        "holds (right keys); uniform: fraction of such keys; excess: interval of the difference; "
        "least: smallest on right. On wrong: attention on keys in prompts without right keys.",
        select=lambda functions: [one for one in functions if one.selects],
    )
    heads: Sequence[HeadOutcomes] = records(
        HeadOutcomes,
        "Heads",
        "Query tokens by outcome. Not attended: a function fits the scores, but attention does not "
        "follow it measurably. No split: the scores do not form two groups.",
    )
    source: str


def analyze(run: Run[UniversalKeysOptions]) -> UniversalKeysFinding:
    """Find every head's function for every query token.

    Without data, the prompts are synthetic, made from the model's task record.

    Raises:
        InputError: there are neither data nor a task record of universal keys; there are data
            without features, or a position without data; the record, the data or the features do
            not fit (see `made_rows` and `data_rows`); or scores cannot be read or exceed the
            memory (see `key_scores`).
    """
    model, data, options = run.model, run.data, run.options
    features = options.read(options.features, model)
    n_heads, task = int(model.cfg.n_heads), dict(record_of(model).task or {})
    if data is None:
        if options.position is not None:
            raise InputError("--position needs --data; synthetic prompts have a fixed position")
        if task.get("function") != TASK:
            raise InputError(
                "no data: this model does not record the task universal-keys, so give prompts "
                "(--data FILE) and features of tokens (--features FILE)"
            )
        rows = made_rows(run, task)
    elif features is None:
        raise InputError("universal keys are about features of tokens: give --features FILE")
    else:
        rows = data_rows(run, data, features)
    run.progress(f"attention on {len(rows.tokens):,} prompts")
    fitted: list[QueryFunction] = []
    for scores in key_scores(run, rows):
        n_queries, n_sets = len(scores.queries), len(scores.sets)
        n_tests = int(model.cfg.n_layers) * n_heads * n_queries
        for at, layer in enumerate(scores.layers):
            for head in range(n_heads):
                run.progress(f"head {layer}.{head}: {n_queries} query tokens")
                fitted += [
                    function_of_query(scores, rows, (at, head), query, run.seed, n_tests)
                    for query in range(n_queries)
                ]
        del scores  # frees memory for the next layers
    functions = corrected(fitted)
    evidence = evidence_of(functions, n_queries, n_sets)
    figures = []
    if evidence.head is not None:
        of_head = selecting(functions, evidence.head)
        [scores] = key_scores(run, rows, [evidence.head[0]])
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
    """Function of one head and query token, without correction for multiple comparisons.

    Args:
        scores: scores and attention of some layers.
        rows: the prompts.
        head: index of the layer in `scores`, and the head.
        query: index of the query token.
        seed: seed of the folds.
        n_tests: number of heads times query tokens of the model.
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
    """Cross-validated accuracy of the least function on held-out feature sets.

    Only sets count whose combination of the function's features occurs in the fit; 0 without any.
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
    """Correct p-values for all heads and query tokens, and set the outcome "by_chance".

    Query tokens without a function count as p = 1.
    """
    p_values = holm(np.array([1.0 if one.chance is None else one.chance for one in functions]))
    results = []
    for one, p in zip(functions, p_values.tolist(), strict=True):
        outcome = "by_chance" if one.selects and p > LEVEL else one.outcome
        p_value = None if one.chance is None else p
        results.append(dataclasses.replace(one, p_value=p_value, outcome=outcome))
    return results


def selecting(functions: Sequence[QueryFunction], head: tuple[int, int]) -> list[QueryFunction]:
    """Functions of a head whose outcome is "selects"."""
    return [one for one in functions if one.selects and (one.layer, one.head) == head]


def evidence_of(functions: Sequence[QueryFunction], n_queries: int, n_sets: int) -> KeysEvidence:
    """Evidence for the head that selects for most query tokens, or the reason if none does."""
    counts = Counter((one.layer, one.head) for one in functions if one.selects)
    unseen = [o for o in functions if o.outcome == "not_attended" and may_be_attended(vars(o))]
    may = len(unseen) + sum(one.outcome == "by_chance" for one in functions)
    p_value = min(1.0 if one.p_value is None else one.p_value for one in functions)
    status, _ = effect_status(
        *(counts.total(), counts.total() + may, 1),
        [control_of_p("other functions", p_value, LEVEL)],
        effect="number of query tokens whose keys are selected",
    )
    if not counts:
        nearest = next(why for why in REASONS if why in {one.outcome for one in functions})
        reason = UNSEEN if unseen and nearest == "not_attended" else REASONS[nearest]
        return KeysEvidence(status, *(None, 0, n_queries, 0, n_sets, None, None), reason=reason)
    head = counts.most_common(1)[0][0]
    of_head = selecting(functions, head)
    different: list[QueryFunction] = []
    for one in of_head:
        if not any(may_be_equal(one, other) for other in different):
            different.append(one)
    return KeysEvidence(
        status,
        head=head,
        selecting=len(of_head),
        queries=n_queries,
        functions=len(different),
        sets=n_sets,
        on_right=statistics.fmean(o.on_right for o in of_head if o.on_right is not None),
        p_value=max(one.p_value for one in of_head if one.p_value is not None),
    )


def may_be_equal(one: QueryFunction, other: QueryFunction) -> bool:
    """Whether two functions have the same features and compatible truth tables."""
    if list(one.features) != list(other.features):
        return False
    cells = zip(one.table or "", other.table or "", strict=True)
    return all(a == b or "?" in (a, b) for a, b in cells)


def headline(evidence: KeysEvidence) -> str:
    """Headline that names the head that attends by functions of the key's features."""
    if evidence.head is None:
        return "No head is shown to attend by a boolean function of the key's features."
    name = head_name(*evidence.head)
    if evidence.functions == 1:
        return f"{name} attends to keys where one boolean function of their features holds."
    return (
        f"{name} attends to keys whose features satisfy a boolean function; the query token "
        "selects the function."
    )


def sentences(functions: Sequence[QueryFunction], evidence: KeysEvidence) -> list[str]:
    """Findings: functions and their accuracy, attention, and the null; or the reason for none."""
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
    on_right = evidence.on_right or 0.0  # more digits near 1
    attention = f"{100 * on_right:.4f}" if on_right > 0.999 else f"{100 * on_right:.1f}"
    excess = min((one.excess_low for one in of_head if one.excess_low is not None), default=None)
    above = (
        ""
        if excess is None
        else "; for every query token, this attention exceeds uniform attention by at least "
        f"{100 * excess:.0f} percentage points (lower end of the 95 % CI)"
    )
    return [
        f"{evidence.selecting} of {evidence.queries} query tokens select keys by {which}, right on "
        f"{percent(least)} or more of held-out feature sets.",
        f"On new prompts, {attention} % of the head's attention is on keys where the function "
        f"holds, which are {percent(uniform)} of the keys on average{above}.",
        "The probability that a function of so few features fits randomly shuffled feature sets is "
        f"at most {evidence.p_value:.1g} for each query token (p adjusted by Holm over heads and "
        "query tokens).",
    ]


def score_figure(scores: KeyScores, of_head: Sequence[QueryFunction]) -> Figure:
    """Plot a head's mean score of every feature set by query token, colored by the function."""
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
        f"{head_name(layer, head)}: mean score of every set of key features for each query token "
        "that selects, by whether the query token's function holds."
    )
    return Figure("Scores by query token", caption, data, layout)


def attention_figure(of_head: Sequence[QueryFunction]) -> Figure:
    """Plot attention on right keys beside uniform attention."""
    names = [f"{one.query_token}: {', '.join(one.features)}" for one in of_head]
    on_right = [one.on_right or 0.0 for one in of_head]
    uniform = [one.uniform or 0.0 for one in of_head]
    data = [
        plots.bars(names, on_right, CLASS_COLORS[1], "on right keys"),
        plots.bars(names, uniform, NEUTRAL, "their fraction of the keys"),
    ]
    layout = plots.layout(plots.axis("query token: features"), plots.axis("fraction"))
    caption = "Attention on new prompts, which were not used to find the functions."
    return Figure("Attention on right keys", caption, data, layout)


def unfit(model: Any, data: FeatureData | None) -> str | None:
    """Reason why the analysis runs only by name; None if it runs by default."""
    if data is None and (record_of(model).task or {}).get("function") != TASK:
        return "needs --data and --features of tokens"
    return (
        None if data is None else "needs --features of tokens: run it with --probe universal-keys"
    )


UNIVERSAL_KEYS = analysis(
    "universal-keys",
    "which boolean function of the key's features each head attends to, by query token",
    UniversalKeysOptions,
    analyze,
    unfit,
    source=SOURCE,
    reads_stream=True,
)
