"""What the sorting analysis returns, as tables, figures and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.circuits.sorting.criteria import MIN_GREATER, Algorithm, Criterion, State
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy, SortedList
from interp_toolkit.circuits.sorting.evolution import EvolutionStep
from interp_toolkit.circuits.sorting.fingerprint import Lines
from interp_toolkit.circuits.sorting.measures.head_parts import HeadFingerprint
from interp_toolkit.circuits.sorting.measures.measure import Region
from interp_toolkit.circuits.sorting.measures.positions import PositionShares
from interp_toolkit.circuits.sorting.measures.weight_tables import WeightTables
from interp_toolkit.results import Result, Table, head_name

if TYPE_CHECKING:
    import pandas as pd


HEAD_STATES: tuple[State, ...] = ("strong", "weak", "undecided", "absent")


@dataclass(frozen=True)
class SortingResult(Result):
    """How a model sorts.

    Attributes:
        algorithm: that the marks name: "min_greater_than_previous", "argmax_piecewise_linear",
            "mixed" or "neither"; the evidence's status says whether that is informative.
        metrics: the numbers by name (see `measures.measure`); None where one cannot be told.
        null: mean and extreme of each over re-initialised models.
        marks: the evidence for either algorithm.
        heads: each head's part.
        accuracy: by set of test lists (see `sorting.kinds`).
        distinct: whether the lists were of distinct values.
        layout: of the rows, in words.
        lines: what is drawn against the output item.
        evolution: the metrics at checkpoints along training, if there were any.
        regions: attention and swaps by halves of the previous values.
        positions: how much positions matter to each head's weights.
        hardest: the test lists with the greatest loss.
        given: the list that was asked for, and what the model makes of it.
        weights: the tables of weights; not in the JSON.
    """

    algorithm: Algorithm
    metrics: Mapping[str, float | None]
    null: Mapping[str, tuple[float, float]]
    marks: Sequence[Criterion]
    heads: Sequence[HeadFingerprint]
    accuracy: Mapping[str, ListAccuracy]
    distinct: bool
    layout: str
    lines: Lines
    evolution: Sequence[EvolutionStep]
    regions: Sequence[Region]
    positions: Sequence[PositionShares]
    hardest: Sequence[SortedList]
    given: SortedList | None
    weights: WeightTables = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"weights"})

    def to_frame(self) -> pd.DataFrame:
        """One row a mark, of the model (head empty) and of each of several heads."""
        import dataclasses

        import pandas as pd

        rows: list[dict[str, Any]] = [
            {"head": None, **dataclasses.asdict(mark)} for mark in self.marks
        ]
        for head in self.heads if len(self.heads) > 1 else ():
            rows += [{"head": head.head, **dataclasses.asdict(mark)} for mark in head.marks]
        return pd.DataFrame(rows)

    def tables(self) -> list[Table]:
        """The marks, the accuracy, the heads where there are several, and all numbers."""
        tables = [mark_table(self.marks), accuracy_table(self.accuracy)]
        if self.given is not None:
            tables.append(list_table("The list", [self.given]))
        if len(self.heads) > 1:
            tables.append(head_table(self.heads))
        if self.regions:
            tables.append(region_table(self.regions))
        tables.append(position_table(self.positions))
        tables.append(list_table("Lists with the greatest loss", self.hardest))
        return [*tables, metric_table(self.metrics, self.null)]


def mark_table(marks: Sequence[Criterion]) -> Table:
    """Every mark with its thresholds and its null."""
    rows = [
        [
            "1" if mark.algorithm == MIN_GREATER else "2",
            mark.says,
            mark.value,
            mark.low,
            mark.high,
            mark.null,
            mark.weak,
            mark.strong,
            mark.state,
        ]
        for mark in marks
    ]
    return Table(
        "Marks of the two algorithms",
        ["algorithm", "mark", "value", "low", "high", "null", "weak", "strong", "state"],
        rows,
        "Algorithm 1: the least value above the previous one. Algorithm 2: the largest of "
        "f(x) + (k + 0.5) x. Null: the re-initialised model that comes nearest to the strong "
        "threshold (the same weights, each tensor's shuffled). Where strong is below weak, small "
        "values are the mark; low and high: the 95% interval of shares of swaps, both of whose "
        "ends a strong or absent mark takes. γ/β being a line of slope 1 is no evidence without "
        "the other marks.",
        highlight=[i for i, mark in enumerate(marks) if mark.state == "strong"],
    )


def accuracy_table(accuracy: Mapping[str, ListAccuracy]) -> Table:
    """How well the model sorts each set of lists."""
    rows = [
        [name, found.n, found.lists_right, found.low, found.high, found.items_right, found.loss]
        for name, found in accuracy.items()
    ]
    return Table(
        "Accuracy",
        ["lists", "number", "whole list right", "low", "high", "items right", "loss"],
        rows,
        "Low and high: the 95% interval of whole lists right. Loss: nats an item.",
    )


def list_table(title: str, lists: Sequence[SortedList]) -> Table:
    """Lists, what the model makes of them, and their loss."""
    rows = [
        [*(" ".join(map(str, ids)) for ids in (x.given, x.output, x.correct)), x.right, x.loss]
        for x in lists
    ]
    columns = ["list", "output", "sorted", "right", "loss"]
    return Table(title, columns, rows, "Token ids; loss: nats an item, on the right prefix.")


def region_table(regions: Sequence[Region]) -> Table:
    """Attention and swaps where the previous value is small, and where it is large."""
    rows = []
    for region in regions:
        values = f"{region.lowest} to {region.highest}"
        swaps = region.swaps
        cells: list[float | None] = [None] * 7
        if swaps is not None:
            token, position = swaps.intervals.values()
            cells = [swaps.n, swaps.token, *token, swaps.position, *position]
        rows.append([values, region.above_lift, *cells])
    columns = ["previous value", "above, lift", "swaps"]
    columns += ["follow token", "low", "high", "follow position", "low ", "high "]
    caption = (
        "The lower and the upper half of the values apart. Above, lift: attention to values above "
        "the previous one, 0 as uniform attention, 1 all of it. Swaps: of the previous token, to a "
        "value of this half; the shares that follow it or the position, with 95% intervals."
    )
    return Table("By previous value", columns, rows, caption)


def position_table(positions: Sequence[PositionShares]) -> Table:
    """How much of the scores and of what is written depends on tokens and on places."""
    rows = [
        [
            head_name(0, p.head),
            *(100 * x for x in (p.qk_key, p.qk_query, p.qk_query_place, p.qk_key_place)),
            100 * p.order_kept,
            *(100 * x for x in (p.ov_token, p.ov_place)),
        ]
        for p in positions
    ]
    columns = ["head", "QK: key %", "+ query %", "+ query's place %", "+ key's place %"]
    columns += ["order kept %", "OV: token %", "place %"]
    caption = (
        "From the weights: shares of the variance of attention scores (what all keys share is no "
        "part) and of what values write to the logits. Order kept: of two keys' order for a query, "
        "how often it is that of the average over the places where the query stands."
    )
    return Table("What tokens and positions matter", columns, rows, caption)


def head_table(heads: Sequence[HeadFingerprint]) -> Table:
    """Each head's algorithm, and what the model does without it."""
    rows = []
    for head in heads:
        states = [mark.state for mark in head.marks]
        counts = [states.count(state) for state in HEAD_STATES]
        rows.append([head_name(0, head.head), head.algorithm, head.lists_right_without, *counts])
    return Table(
        "Heads",
        ["head", "algorithm", "lists right without it", "strong marks", *HEAD_STATES[1:]],
        rows,
        "Each head by its own attention and what it alone adds to the logits; without it: its "
        'output replaced by its mean. "neither" also of a head without which the model sorts as '
        "well: its marks say what it does.",
    )


def metric_table(
    metrics: Mapping[str, float | None], null: Mapping[str, tuple[float, float]]
) -> Table:
    """All numbers, with those of re-initialised models."""
    rows = [[name, value, *null.get(name, (None, None))] for name, value in metrics.items()]
    return Table(
        "All numbers",
        ["metric", "value", "null, mean", "null, extreme"],
        rows,
        "Null: the same of the model re-initialised, its mean and its largest size.",
    )
