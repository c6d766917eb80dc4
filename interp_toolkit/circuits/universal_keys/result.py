"""What the analysis of universal keys returns: each head's function for each query token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from interp_toolkit.results import Evidence, Result, Table

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
