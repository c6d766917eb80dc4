"""Which algorithm a one-layer model sorts by: `sorting_fingerprint`.

Steps: find out which lists the model sorts (`kinds`, `evaluation`); read its logits and attention
on lists (`reading`); measure the marks of both algorithms on it, on each head, and on models with
new weights (`measure`); decide (`criteria`).
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from interp_toolkit.circuits.sorting.criteria import (
    Algorithm,
    Criterion,
    criteria_of,
    decide,
    sorts,
)
from interp_toolkit.circuits.sorting.evaluation import ListAccuracy, SortedList, hardest
from interp_toolkit.circuits.sorting.kinds import accuracies, hard_lists
from interp_toolkit.circuits.sorting.measures.head_parts import HeadFingerprint, head_parts
from interp_toolkit.circuits.sorting.measures.measure import Measures, Region, measure
from interp_toolkit.circuits.sorting.measures.positions import PositionShares, position_shares
from interp_toolkit.circuits.sorting.measures.reading import ListReading, read, require_one_layer
from interp_toolkit.circuits.sorting.measures.weight_tables import WeightTables, weight_tables
from interp_toolkit.circuits.sorting.verdict import Alike, sentence
from interp_toolkit.data.lists.draws import ListSource
from interp_toolkit.data.lists.layout import ListLayout, fresh_generator, parse_layout
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.interventions import reinitialised

LISTS = 2_000
MOST_NUMBERS = 20_000_000  # attention weights held at once: fewer lists where they are long
NULLS = 20
EXAMPLES = 4  # lists kept for pictures


@dataclass(frozen=True, eq=False)
class Lines:
    """What is drawn against the output item.

    Attributes:
        gamma_over_beta: of the logits; algorithm 2 has k + 0.5.
        fit_r2: of the logits' regression.
        separator_ratio: each head's attention to the first separator over that to values; None
            without a separator before the list.
    """

    gamma_over_beta: Float[np.ndarray, " item"]
    fit_r2: Float[np.ndarray, " item"]
    separator_ratio: Float[np.ndarray, "head item"] | None


@dataclass(frozen=True, eq=False)
class SortingFingerprint:
    """How a model sorts.

    Attributes:
        algorithm: that the marks name.
        verdict: in a sentence.
        metrics: the numbers, by name (see `measure`).
        null: mean and extreme of each over re-initialised models.
        marks: the evidence.
        sorting: whether the model sorts at all.
        alike: re-initialised models whose marks name the same algorithm.
        heads: each head's part.
        accuracy: on the test lists.
        distinct: whether the lists are of distinct values.
        layout: of the rows.
        lines: by output item.
        weights: what the weights say.
        regions: attention and swaps by halves of the previous values.
        positions: how much positions matter to each head's weights.
        hardest: the test lists with the greatest loss, of the sets or of lists of two values.
        example: a few lists, for pictures.
        notes: what a reader must know.
    """

    algorithm: Algorithm
    verdict: str
    metrics: Mapping[str, float | None]
    null: Mapping[str, tuple[float, float]]
    marks: Sequence[Criterion]
    sorting: bool
    alike: Alike
    heads: Sequence[HeadFingerprint]
    accuracy: Mapping[str, ListAccuracy]
    distinct: bool
    layout: ListLayout
    lines: Lines
    weights: WeightTables
    regions: Sequence[Region]
    positions: Sequence[PositionShares]
    hardest: Sequence[SortedList]
    example: ListReading
    notes: tuple[str, ...]


def sorting_fingerprint(
    model: Model,
    layout: str | Sequence[str] | ListLayout | None = None,
    *,
    distinct: bool | None = None,
    lists: int = LISTS,
    nulls: int = NULLS,
    seed: int = 0,
    memory: int | str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> SortingFingerprint:
    """Which of the two algorithms a one-layer model sorts by, or a mix, or neither.

    Args:
        model: any one-layer TransformerLens model.
        layout: its rows, as `data.lists.layout` reads them; None: what its task record says.
        distinct: whether lists have distinct values; None: what the record says, or else what the
            model sorts.
        lists: how many lists to measure on; fewer where they are long.
        nulls: re-initialised models to compare with.
        seed: of lists, swaps and re-initialised models.
        memory: bound for batches of the accuracy, such as "4GiB".
        progress: told what is being done.

    Raises:
        InputError: a model of several layers, no layout, or one that does not fit the model.

    Examples:
        >>> import interp_toolkit as it
        >>> sorting_fingerprint(it.load("toy:sort-argmax"), lists=200, nulls=2).algorithm
        'argmax_piecewise_linear'
    """
    require_one_layer(model)
    task = record_of(model).made_for
    layout = find_layout(model, layout)
    if distinct is None and str(task.layout) == str(layout):
        distinct = task.distinct
    progress("accuracy on test lists")
    distinct, accuracy = accuracies(model, layout, distinct, memory)
    progress("logits and attention on lists")
    reading = read_lists(model, layout, distinct, lists, seed)
    tables = weight_tables(model, layout, reading)
    measured = measure(model, reading, tables, seed=seed)
    others = _re_initialised(model, reading, nulls, seed, progress)
    null = {
        name: [value for m in others if (value := m.metrics[name]) is not None]
        for name in measured.metrics
    }
    marks = _marks(layout, measured, null)
    guess = guessed(reading)
    sorting = sorts(measured.metrics["items_right"] or 0.0, guess)
    algorithm = decide(marks, sorting)
    named = [decide(_marks(layout, other, {}), sorts=True) for other in others]
    alike = Alike(named.count(algorithm) if algorithm != "neither" else 0, len(named))
    heads, per_head = head_parts(
        model, reading, tables, (algorithm, marks, measured, sorting), seed, progress
    )
    return SortingFingerprint(
        algorithm=algorithm,
        verdict=sentence(
            algorithm,
            marks,
            accuracy,
            sorting,
            distinct=distinct,
            swaps=measured.swaps,
            alike=alike,
        ),
        metrics={**measured.metrics, "items_guessed": guess, **_accuracy_metrics(accuracy)},
        null={
            name: (float(np.mean(found)), float(max(found, key=abs)))
            for name, found in null.items()
            if found
        },
        marks=marks,
        sorting=sorting,
        alike=alike,
        heads=heads,
        accuracy=accuracy,
        distinct=distinct,
        layout=layout,
        lines=Lines(measured.line.ratio, measured.line.r2, _separator_ratios(per_head)),
        weights=tables,
        regions=measured.regions,
        positions=position_shares(model, layout),
        hardest=hardest(model, layout, hard_lists(layout, distinct), memory=memory),
        example=_first(reading, EXAMPLES),
        notes=_notes(tables, measured, reading),
    )


def find_layout(model: Model, layout: str | Sequence[str] | ListLayout | None) -> ListLayout:
    """The layout that is given, or else what the model's task record says.

    Raises:
        InputError: there is neither, or it does not fit the model.
    """
    if isinstance(layout, ListLayout):
        return layout
    if layout is None:
        task = record_of(model).made_for
        layout = task.layout if task.name == "sorting" else None
    if layout is None:
        raise InputError(
            "how the lists stand in a row is not known: give --layout, such as "
            '"10 list10 11 sorted10"'
        )
    cfg = model.cfg
    return parse_layout(
        layout, d_vocab=int(cfg.d_vocab), d_vocab_out=int(cfg.d_vocab_out), n_ctx=int(cfg.n_ctx)
    )


def read_lists(
    model: Model, layout: ListLayout, distinct: bool, lists: int, seed: int
) -> ListReading:
    """A reading of random lists, of the kind that the model was made for."""
    size = int(model.cfg.n_heads) * layout.longest * layout.n_positions
    n = max(min(lists, MOST_NUMBERS // size), 1)
    source = ListSource(
        "distinct" if distinct else "hard", layout.n_values, layout.shortest, layout.longest
    )
    return read(model, layout, source.draw(n, fresh_generator(seed)))


def guessed(reading: ListReading) -> float:
    """Share of items that the better guess gets: each place's most frequent value, or the last."""
    answer, present = reading.rows.answer, reading.rows.present
    counts = torch.stack([((answer == v) & present).sum(0) for v in range(reading.layout.n_values)])
    guesses = [int(counts.amax(0).sum())]
    if reading.layout.autoregressive:
        guesses.append(int(((answer[:, 1:] == answer[:, :-1]) & present[:, 1:]).sum()))
    return max(guesses) / int(present.sum())


def _re_initialised(
    model: Model, reading: ListReading, nulls: int, seed: int, progress: Callable[[str], None]
) -> list[Measures]:
    found = []
    for i in range(nulls):
        progress(f"re-initialised model {i + 1} of {nulls}")
        with reinitialised(model, seed=seed + i):
            other = read(model, reading.layout, reading.lists)
            found.append(measure(model, other, seed=seed))
    return found


def _marks(
    layout: ListLayout, measured: Measures, null: Mapping[str, Sequence[float]]
) -> list[Criterion]:
    return criteria_of(
        measured.metrics,
        null,
        autoregressive=layout.autoregressive,
        intervals=measured.intervals,
    )


def _separator_ratios(measures: Sequence[Measures]) -> Float[np.ndarray, "head item"] | None:
    lines = [m.separator.ratio for m in measures if m.separator is not None]
    return np.stack(lines) if lines else None


def _first(reading: ListReading, n: int) -> ListReading:
    return dataclasses.replace(
        reading,
        lists=reading.lists.take(slice(n)),
        rows=type(reading.rows)(*(part[:n] for part in reading.rows)),
        logits=reading.logits[:n],
        undivided=reading.undivided[:n],
        scale=reading.scale[:n],
        pattern=reading.pattern[:n],
        outside=None if reading.outside is None else reading.outside[:n],
    )


def _accuracy_metrics(accuracy: Mapping[str, ListAccuracy]) -> dict[str, float | None]:
    return {f"lists_right_{name}": found.lists_right for name, found in accuracy.items()}


def _notes(tables: WeightTables, measured: Measures, reading: ListReading) -> tuple[str, ...]:
    notes = []
    if tables.note:
        notes.append(tables.note)
    if reading.layout.autoregressive and measured.swaps is None:
        notes.append("too few swaps of the previous token tell the algorithms apart")
    return tuple(notes)
