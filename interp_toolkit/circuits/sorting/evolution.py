"""How a model came to sort: the numbers behind the verdict at checkpoints along training.

The source's evidence that a causal model takes the slow route is that the triangular pattern of
algorithm 1 comes early. At each checkpoint the metrics of `measure` are taken, without
re-initialised models or a verdict.
Source: "How do tiny transformers sort lists of small integers?" (Qi and Zhong 2023).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp_toolkit.circuits.sorting.fingerprint import find_layout, read_lists
from interp_toolkit.circuits.sorting.measures.measure import measure
from interp_toolkit.circuits.sorting.measures.weight_tables import weight_tables
from interp_toolkit.data.lists.layout import ListLayout
from interp_toolkit.errors import InputError
from interp_toolkit.models.about.record import record_of
from interp_toolkit.models.loading.loader import load

LISTS = 500
CHECKPOINT = re.compile(r"seed-(\d+)-step-(\d+)\.(safetensors|pt)")


@dataclass(frozen=True)
class EvolutionStep:
    """One checkpoint.

    Attributes:
        seed: of the training run.
        step: updates done.
        metrics: by name, as `measure` gives them; None where one cannot be told.
        qk: of head 0, scores from each value to each value, the mean over output items.
    """

    seed: int
    step: int
    metrics: Mapping[str, float | None]
    qk: Sequence[Sequence[float]] = ()


def sorting_evolution(
    checkpoints: str | Path | Iterable[tuple[int, Any]],
    layout: str | Sequence[str] | ListLayout | None = None,
    *,
    distinct: bool | None = None,
    lists: int = LISTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> list[EvolutionStep]:
    """The numbers behind the verdict at every checkpoint, by seed and step.

    Args:
        checkpoints: a folder of files named as in `seed-0-step-000100.safetensors`, or pairs of a
            step and a model (of one run).
        layout: of the rows; None: what the checkpoints' task record says.
        distinct: whether lists have distinct values; None: what the record says, else they repeat.
        lists: how many to measure on, the same at every checkpoint.
        seed: of the lists.
        progress: told what is being done.

    Raises:
        InputError: a folder without such files, models of several layers, no layout or another's.

    Examples:
        >>> import interp_toolkit as it
        >>> model = it.load("toy:sort-argmax")
        >>> [(step.seed, step.step) for step in sorting_evolution([(0, model)], lists=50)]
        [(0, 0)]
    """
    steps = []
    for run, step, model in _models(checkpoints):
        progress(f"checkpoint of step {step}, seed {run}")
        found = find_layout(model, layout)
        apart = bool(record_of(model).made_for.distinct) if distinct is None else distinct
        reading = read_lists(model, found, apart, lists, seed)
        tables = weight_tables(model, found, reading)
        metrics = measure(model, reading, tables, seed=seed).metrics
        qk = tables.average_qk(0)[:, : found.n_values]
        steps.append(EvolutionStep(run, step, metrics, qk.tolist()))
    return sorted(steps, key=lambda at: (at.seed, at.step))


def _models(
    checkpoints: str | Path | Iterable[tuple[int, Any]],
) -> Iterator[tuple[int, int, Any]]:
    """Seed, step and model, one at a time."""
    if not isinstance(checkpoints, str | Path):
        for step, model in checkpoints:
            yield 0, step, model
        return
    for run, step, path in checkpoint_files(checkpoints):
        yield run, step, load(path)


def checkpoint_files(folder: str | Path) -> list[tuple[int, int, Path]]:
    """Seed, step and file of every checkpoint in a folder.

    Raises InputError when it is none or has none.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise InputError(f"checkpoints: there is no folder {folder}")
    found = []
    for path in folder.iterdir():
        match = CHECKPOINT.fullmatch(path.name)
        if match is not None:
            found.append((int(match[1]), int(match[2]), path))
    if not found:
        raise InputError(
            f"checkpoints: {folder} has no files named as in seed-0-step-000100.safetensors"
        )
    return sorted(found)
