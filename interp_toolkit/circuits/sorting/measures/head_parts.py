"""What each head has to do with the sorting: its own marks, and what its absence costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp_toolkit.circuits.sorting.criteria import Algorithm, Criterion, criteria_of, decide
from interp_toolkit.circuits.sorting.measures.measure import Measures, measure
from interp_toolkit.circuits.sorting.measures.reading import ListReading
from interp_toolkit.circuits.sorting.measures.weight_tables import WeightTables
from interp_toolkit.models.model import Model
from interp_toolkit.models.running.forward import device_of
from interp_toolkit.models.running.interventions import ablate
from interp_toolkit.models.transformer.collapsed import read_logits


@dataclass(frozen=True, eq=False)
class HeadFingerprint:
    """One head's part.

    Attributes:
        head: which.
        algorithm: by the head's own marks; "neither" for a head whose absence costs nothing.
        metrics, marks: of the head alone.
        lists_right_without: share of lists sorted when the head is replaced by its mean.
    """

    head: int
    algorithm: Algorithm
    metrics: Mapping[str, float | None]
    marks: Sequence[Criterion]
    lists_right_without: float


def head_parts(
    model: Model,
    reading: ListReading,
    tables: WeightTables,
    found: tuple[Algorithm, Sequence[Criterion], Measures, bool],
    seed: int,
    progress: Callable[[str], None],
) -> tuple[list[HeadFingerprint], list[Measures]]:
    """Each head's part; a single head's is the model's: verdict, marks, numbers."""
    algorithm, marks, whole, sorting = found
    n_heads = int(model.cfg.n_heads)
    right = _lists_right(reading, reading.answers)
    heads, measures = [], []
    for head in range(n_heads):
        if n_heads > 1:
            progress(f"head {head + 1} of {n_heads}")
        with ablate(model, [(0, head)], how="mean", reference=reading.rows.tokens):
            without = _lists_right(reading, _answers(model, reading))
        alone = whole if n_heads == 1 else measure(model, reading, tables, head=head, seed=seed)
        own = (
            list(marks)
            if n_heads == 1
            else criteria_of(
                alone.metrics,
                {},
                autoregressive=reading.layout.autoregressive,
                intervals=alone.intervals,
            )
        )
        part = decide(own, sorting and without < right)
        heads.append(
            HeadFingerprint(head, algorithm if n_heads == 1 else part, alone.metrics, own, without)
        )
        measures.append(alone)
    return heads, measures


def _answers(model: Model, reading: ListReading) -> Int[Tensor, "row item"]:
    """The values that the model, as it now is, answers to a reading's rows; -1: none."""
    tokens, read = (part.to(device_of(model)) for part in (reading.rows.tokens, reading.rows.read))
    answers = read_logits(model, tokens, read).argmax(-1).cpu()
    is_value = answers[..., None] == torch.tensor(reading.layout.values)
    return torch.where(is_value.any(-1), is_value.int().argmax(-1), -1)


def _lists_right(reading: ListReading, answers: Int[Tensor, "row item"]) -> float:
    right = (answers == reading.rows.answer) | ~reading.rows.present
    return float(right.all(1).double().mean())
