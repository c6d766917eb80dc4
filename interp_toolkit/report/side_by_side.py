"""Several models in one report: their verdicts and what these rest on, a row a model.

Of the evidence, only numbers are shown that every model's result has and that differ between them.
Models whose names end in numbers that grow, such as checkpoints along a training, get a figure
over these numbers too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit import plots
from interp_toolkit.palette import CLASS_COLORS, translucent
from interp_toolkit.report.format import is_number, model_names
from interp_toolkit.report.labels import label_of
from interp_toolkit.results import Figure, Result, Table, jsonable

MOST_COLUMNS = 6
PANELS = 4
FEWEST_POINTS = 3
BOUNDS = ("_low", "_high")


def tables(results: Sequence[Result]) -> list[Table]:
    """A table for every analysis that has results of several models."""
    return [_table(probe, names, shown) for probe, names, shown in _of_several(results)]


def figures(results: Sequence[Result]) -> list[Figure]:
    """A figure for every analysis whose models are numbered, over their numbers."""
    drawn = (_figure(probe, names, shown) for probe, names, shown in _of_several(results))
    return [figure for figure in drawn if figure is not None]


def _of_several(results: Sequence[Result]) -> list[tuple[str, list[str], list[Result]]]:
    """By analysis: the models' names and their results, where there are at least two."""
    by_probe: dict[str, list[tuple[str, Result]]] = {}
    for name, result in zip(model_names(results), results, strict=True):
        by_probe.setdefault(result.probe, []).append((name, result))
    return [
        (probe, [name for name, _ in pairs], [result for _, result in pairs])
        for probe, pairs in by_probe.items()
        if len({name for name, _ in pairs}) > 1
    ]


def _numbers(results: Sequence[Result]) -> dict[str, list[float]]:
    """The numbers of the evidence that all have and that are not all the same."""
    evidence = [jsonable(result.evidence) for result in results]
    shared = [key for key in evidence[0] if all(is_number(each.get(key)) for each in evidence)]
    found = {key: [each[key] for each in evidence] for key in shared}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def _table(probe: str, names: Sequence[str], results: Sequence[Result]) -> Table:
    numbers = _numbers(results)
    shown = list(numbers)[:MOST_COLUMNS]
    rows = [
        [name, result.status, *(numbers[key][at] for key in shown)]
        for at, (name, result) in enumerate(zip(names, results, strict=True))
    ]
    more = len(numbers) - len(shown)
    return Table(
        f"{probe}, side by side",
        ["model", "status", *map(label_of, shown)],
        rows,
        f"Further numbers of the evidence that differ: {more}, in the JSON." if more else "",
    )


def _figure(probe: str, names: Sequence[str], results: Sequence[Result]) -> Figure | None:
    steps = numbered(names)
    numbers = _numbers(results)
    keys = [key for key in numbers if not key.endswith(BOUNDS)][:PANELS]
    if steps is None or not keys:
        return None
    panels = plots.beside(len(keys), 2)
    traces: list[Mapping[str, Any]] = []
    layout: dict[str, Any] = {"showlegend": False, "height": 300 * -(-len(keys) // 2) + 60}
    for panel, key in zip(panels, keys, strict=True):
        low, high = (numbers.get(key + bound) for bound in BOUNDS)
        if low is not None and high is not None:
            traces.append(plots.band(steps, low, high, translucent(CLASS_COLORS[0])) | panel.trace)
        drawn = plots.line(steps, numbers[key], CLASS_COLORS[0], label_of(key))
        traces.append(drawn | plots.marked() | panel.trace)
        layout |= panel.layout(plots.axis("number in the name"), plots.axis(label_of(key)))
    return Figure(
        f"{probe} along the models",
        "Numbers of the evidence by the number in the model's name; bands: their intervals.",
        traces,
        layout,
    )


def numbered(names: Sequence[str]) -> list[int] | None:
    """The last number in each name, where they grow and the names differ in nothing else."""
    found = [re.fullmatch(r"(.*?)(\d+)(\D*)", name) for name in names]
    if len(names) < FEWEST_POINTS or not all(found):
        return None
    matches = [match for match in found if match is not None]
    if len({(match[1], match[3]) for match in matches}) > 1:
        return None
    steps = [int(match[2]) for match in matches]
    return steps if steps == sorted(set(steps)) else None
