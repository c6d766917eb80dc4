"""What the analysis of universal keys returns: each head's function for each query token.

Also here:
- the verdict of the analysis of universal keys in words;
- figures of universal keys: scores by query token and truth, attention on right keys.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from interp_toolkit import plots
from interp_toolkit.circuits.universal_keys.scores import KeyScores, left_open
from interp_toolkit.plots import CLASS_COLORS, CLASS_SYMBOLS, NEUTRAL
from interp_toolkit.results import Evidence, Figure, Result, Table

if TYPE_CHECKING:
    import pandas as pd


Outcome = Literal[
    "selects", "by_chance", "not_attended", "not_foretold", "no_function", "no_split", "constant"
]


@dataclass(frozen=True)
class QueryFunction:
    """What one head does for one query token.

    Attributes:
        layer, head, query_token: which.
        outcome: "selects": it attends where a function holds; "constant": the one score is no
            function of features; "no_split": the scores make no two groups; "no_function": no
            function of few features fits them; "not_foretold": one fits, and is wrong elsewhere;
            "not_attended": the scores tell where one holds, and attention is not shown to go
            there; "by_chance": it does, and as simple a function would fit shuffled sets too.
        features: of the function, by name, the first the most significant digit of the table.
        table: its truth table; "?" where no key says.
        others: other sets of as many features that would do too.
        error: the worst error of the scores as a readout of high and low, after the best gain and
            bias; None without two groups.
        foretold: the share of sets of features left out of the fit on which the function is right,
            of those with a combination that the fit knows.
        right_sets: on how many of the sets of features it holds.
        chance: of shuffled sets of features, the share that a function of as few features fits, at
            most.
        p_value: the same, corrected for all heads and query tokens.
        on_right: mean attention on keys where it holds, in rows of the second part that have some.
        on_right_least: the least of these.
        uniform: the share of such rows' keys that are right.
        excess_low, excess_high: interval of the mean of `on_right` less that share, over rows; all
            heads and query tokens together hold at 95 %. None of fewer than two rows.
        on_wrong: mean attention on keys in rows that have no right one; None without such rows.
    """

    layer: int
    head: int
    query_token: int
    outcome: Outcome
    features: Sequence[str] = ()
    table: str | None = None
    others: int = 0
    error: float | None = None
    foretold: float | None = None
    right_sets: int | None = None
    chance: float | None = None
    p_value: float | None = None
    on_right: float | None = None
    on_right_least: float | None = None
    uniform: float | None = None
    excess_low: float | None = None
    excess_high: float | None = None
    on_wrong: float | None = None


@dataclass(frozen=True)
class KeysEvidence(Evidence):
    """What the verdict on universal keys rests on.

    Attributes:
        head: layer and head that select by most queries; None where none does.
        selecting: for how many query tokens it does.
        queries: query tokens.
        functions: different functions among them.
        sets: different sets of features among the keys.
        on_right: mean attention on right keys over these queries, in rows not used to find them.
        p_value: the largest of the functions', corrected for all heads and query tokens.
    """

    head: tuple[int, int] | None
    selecting: int
    queries: int
    functions: int
    sets: int
    on_right: float | None
    p_value: float | None


@dataclass(frozen=True)
class UniversalKeysResult(Result):
    """Which boolean function of the key's features each query token attends to.

    Attributes:
        functions: of every head and query token.
        source: what was shown.
    """

    functions: Sequence[QueryFunction]
    source: str

    def to_frame(self) -> pd.DataFrame:
        """One row a head and query token."""
        import pandas as pd

        return pd.DataFrame([vars(one) for one in self.functions])

    def tables(self) -> list[Table]:
        """The functions of the heads that select; every head."""
        shown = [one for one in self.functions if one.outcome == "selects"]
        columns = ["head", "query", "features", "table", "holds on", "foretold", "p"]
        columns += ["on right", "uniform", "excess, low", "high", "least", "on wrong"]
        rows = [
            [
                f"{one.layer}.{one.head}",
                one.query_token,
                ", ".join(one.features),
                one.table,
                one.right_sets,
                *(one.foretold, one.p_value, one.on_right, one.uniform),
                *(one.excess_low, one.excess_high, one.on_right_least, one.on_wrong),
            ]
            for one in shown
        ]
        caption = (
            "Table: the first feature is the most significant digit; ? where no key says. Holds "
            "on: sets of features. Foretold: right on sets left out of the fit. p: a function of "
            "as few features fits shuffled sets, corrected for all heads and queries. On right: "
            "attention on keys where it holds; uniform: their share of keys; excess: the "
            "interval of the first less the second. Least: on right. On wrong: attention on keys "
            "where none is right."
        )
        return [Table("What each query attends to", columns, rows, caption), self._heads()]

    def _heads(self) -> Table:
        outcomes = get_args(Outcome)
        heads = sorted({(one.layer, one.head) for one in self.functions})
        rows = [
            [
                f"{layer}.{head}",
                *(
                    sum(
                        one.outcome == outcome and (one.layer, one.head) == (layer, head)
                        for one in self.functions
                    )
                    for outcome in outcomes
                ),
            ]
            for layer, head in heads
        ]
        caption = (
            "Query tokens by outcome. Not attended: the scores tell where a function holds, and "
            "attention is not shown to go there. No split: the scores make no two groups."
        )
        return Table("Heads", ["head", *(o.replace("_", " ") for o in outcomes)], rows, caption)


#: why no head selects, the outcome that comes nearest first
REASONS: dict[Outcome, str] = {
    "by_chance": "functions of as few features fit shuffled sets too",
    "not_attended": "the scores tell where functions hold, attention hardly follows",
    "not_foretold": "the functions that fit are wrong on sets of features left out",
    "no_function": "no function of few features fits the scores",
    "no_split": "the scores make no two groups",
    "constant": "no head tells keys apart",
}
UNSEEN = "the scores tell where functions hold, and too few rows show where attention goes"


def evidence_of(found: Sequence[QueryFunction], n_queries: int, n_sets: int) -> KeysEvidence:
    """The head that selects for most query tokens, and how surely."""
    by_head: dict[tuple[int, int], list[QueryFunction]] = {}
    for one in found:
        if one.outcome == "selects":
            by_head.setdefault((one.layer, one.head), []).append(one)
    if not by_head:
        nearest = next(why for why in REASONS if why in {one.outcome for one in found})
        unseen = nearest == "not_attended" and any(
            left_open(vars(one)) for one in found if one.outcome == "not_attended"
        )
        return KeysEvidence(
            status="undecided" if unseen or nearest == "by_chance" else "not_detected",
            head=None,
            selecting=0,
            queries=n_queries,
            functions=0,
            sets=n_sets,
            on_right=None,
            p_value=None,
            reason=UNSEEN if unseen else REASONS[nearest],
        )
    head = max(by_head, key=lambda h: len(by_head[h]))
    mine = by_head[head]
    return KeysEvidence(
        status="detected",
        head=head,
        selecting=len(mine),
        queries=n_queries,
        functions=_different(mine),
        sets=n_sets,
        on_right=statistics.fmean(one.on_right for one in mine if one.on_right is not None),
        p_value=max(one.p_value for one in mine if one.p_value is not None),
    )


def _different(mine: Sequence[QueryFunction]) -> int:
    """How many functions differ for certain: in features, or where both tables say something."""
    kept: list[QueryFunction] = []
    for one in mine:
        if not any(_may_be_one(one, other) for other in kept):
            kept.append(one)
    return len(kept)


def _may_be_one(one: QueryFunction, other: QueryFunction) -> bool:
    if list(one.features) != list(other.features):
        return False
    cells = zip(one.table or "", other.table or "", strict=True)
    return all(a == b or "?" in (a, b) for a, b in cells)


def verdict(found: Sequence[QueryFunction], evidence: KeysEvidence) -> str:
    """Which head attends to what, and how well."""
    if evidence.head is None:
        does = "attends" if evidence.status == "not_detected" else "is shown to attend"
        return (
            f"No head {does} by a boolean function of the key's features for any of the "
            f"{evidence.queries} query tokens: {evidence.reason}."
        )
    layer, head = evidence.head
    mine = [
        one for one in found if one.outcome == "selects" and (one.layer, one.head) == evidence.head
    ]
    largest = max(len(one.features) for one in mine)
    least = min(one.foretold for one in mine if one.foretold is not None)
    uniform = statistics.fmean(one.uniform for one in mine if one.uniform is not None)
    which = f"one function of {largest} features"
    if evidence.functions > 1:
        which = (
            f"the query token chooses which, {evidence.functions} different functions of up to "
            f"{largest} features"
        )
    return (
        f"Head {layer}.{head} attends where a boolean function of the key's features holds, for "
        f"{evidence.selecting} of {evidence.queries} query tokens: {which}, right on "
        f"{100 * least:.0f} % or more of the sets of features left out of their fit. In rows not "
        f"used for that, {_share(evidence.on_right)} of its attention is on keys where the "
        f"function holds, which are {100 * uniform:.0f} % of the keys there. Functions of as few "
        f"features fit shuffled sets with p = {evidence.p_value:.1g} at most, corrected for all "
        "heads and query tokens."
    )


def _share(value: float | None) -> str:
    """A share near 1 with as many digits as it takes to tell it from 1."""
    value = value or 0.0
    return f"{100 * value:.4f} %" if value > 0.999 else f"{100 * value:.1f} %"


def score_figure(
    scores: KeyScores, found: Sequence[QueryFunction], head: tuple[int, int]
) -> Figure:
    """A head's mean score of every set of features, by query token, high ones in their colour."""
    points: dict[bool, list[tuple[int, float]]] = {False: [], True: []}
    for one in _of(found, head):
        query = int(np.flatnonzero(scores.queries == one.query_token)[0])
        values = scores.mean[scores.layers.index(head[0]), head[1], query]
        values = np.sort(values[~np.isnan(values)])
        cut = len(values) - (one.right_sets or 0)
        for place, value in enumerate(values.tolist()):
            points[place >= cut].append((one.query_token, value))
    data = [
        plots.markers(
            [str(x) for x, _ in points[side]],
            [y for _, y in points[side]],
            CLASS_COLORS[int(side)],
            "holds" if side else "does not hold",
            symbol=CLASS_SYMBOLS[int(side)],
            size=6,
        )
        for side in (False, True)
    ]
    layout = plots.layout(plots.axis("query token", "category"), plots.axis("score of a key"))
    caption = (
        f"Head {head[0]}.{head[1]}: the score of every set of key features for each query token "
        "that selects, by whether the function found there holds."
    )
    return Figure("Scores by query token", caption, data, layout)


def attention_figure(found: Sequence[QueryFunction], head: tuple[int, int]) -> Figure:
    """Attention on right keys beside what uniform attention would put there."""
    mine = _of(found, head)
    names = [f"{one.query_token}: {', '.join(one.features)}" for one in mine]
    data = [
        plots.bars(names, [one.on_right or 0.0 for one in mine], CLASS_COLORS[1], "on right keys"),
        plots.bars(names, [one.uniform or 0.0 for one in mine], NEUTRAL, "their share of keys"),
    ]
    layout = plots.layout(plots.axis("query token: features"), plots.axis("share"))
    caption = "In rows that were not used to find the functions."
    return Figure("Attention on right keys", caption, data, layout)


def _of(found: Sequence[QueryFunction], head: tuple[int, int]) -> list[QueryFunction]:
    return [one for one in found if one.outcome == "selects" and (one.layer, one.head) == head]
