"""Several models in one report: their verdicts and what these rest on, a row a model.

Of the evidence, only numbers are shown that every model's result has and that differ between them.
Models with numbers in their names, such as checkpoints along a training, get a figure over these
numbers too, a line for each run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit import plots
from interp_toolkit.plots import shade, translucent
from interp_toolkit.report.format import BOUNDS, is_number, label_of
from interp_toolkit.results import Figure, Result, Table, jsonable

MOST_COLUMNS = 6
PANELS = 4
FEWEST_POINTS = 3


def tables(results: Sequence[Result], names: Sequence[str]) -> list[Table]:
    """A table for every analysis that has results of several models; `names`: of the models."""
    return [_table(*shown) for shown in _of_several(results, names)]


def figures(results: Sequence[Result], names: Sequence[str]) -> list[Figure]:
    """A figure for every analysis whose models are numbered, over their numbers."""
    figures_shown = (_figure(*shown) for shown in _of_several(results, names))
    return [figure for figure in figures_shown if figure is not None]


def _of_several(
    results: Sequence[Result], names: Sequence[str]
) -> list[tuple[str, list[str], list[Result]]]:
    """By analysis: the models' names and their results, where there are at least two."""
    by_probe: dict[str, list[tuple[str, Result]]] = {}
    for name, result in zip(names, results, strict=True):
        by_probe.setdefault(result.probe, []).append((name, result))
    return [
        (probe, [name for name, _ in pairs], [result for _, result in pairs])
        for probe, pairs in by_probe.items()
        if len({name for name, _ in pairs}) > 1
    ]


def _numbers(results: Sequence[Result]) -> dict[str, list[float]]:
    """The numbers of the evidence that all have, where they or their bounds are not all the same.

    A number comes before its bounds, if all have these.
    """
    evidence = [jsonable(result.evidence) for result in results]
    shared = {
        key: [each[key] for each in evidence]
        for key in evidence[0]
        if all(is_number(each.get(key)) for each in evidence)
    }
    by_key: dict[str, list[float]] = {}
    for key, values in shared.items():
        bounds = [key + bound for bound in BOUNDS]
        if key.endswith(BOUNDS) and key.rsplit("_", 1)[0] in shared:
            continue
        held = {name: shared[name] for name in bounds} if set(bounds) <= set(shared) else {}
        if any(len(set(each)) > 1 for each in (values, *held.values())):
            by_key |= {key: values, **held}
    return by_key


def _table(probe: str, names: Sequence[str], results: Sequence[Result]) -> Table:
    numbers = _numbers(results)
    shown = list(numbers)[:MOST_COLUMNS]
    while shown and set(numbers) & {shown[-1] + bound for bound in BOUNDS}:
        shown.pop()  # an estimate without its bounds
    rows = [
        [name, result.status, *(numbers[key][at] for key in shown)]
        for at, (name, result) in enumerate(zip(names, results, strict=True))
    ]
    more = len(numbers) - len(shown)
    return Table(
        f"{probe}, side by side",
        ["model", "status", *(label_of(key, results[0].evidence) for key in shown)],
        rows,
        f"Further numbers of the evidence that differ: {more}, in the JSON." if more else "",
    )


def _figure(probe: str, names: Sequence[str], results: Sequence[Result]) -> Figure | None:
    runs = numbered(names)
    numbers = _numbers(results)
    keys = [key for key in numbers if not key.endswith(BOUNDS)][:PANELS]
    if runs is None or not keys:
        return None
    panels = plots.beside(len(keys), 2)
    traces: list[Mapping[str, Any]] = []
    layout: dict[str, Any] = {
        "showlegend": len(runs) > 1,
        "height": 300 * -(-len(keys) // 2) + 60,
    }
    banded = False
    for panel, key in zip(panels, keys, strict=True):
        low, high = (numbers.get(key + bound) for bound in BOUNDS)
        for run, (name, indices) in enumerate(runs.items()):
            steps, at = list(indices), list(indices.values())
            color = shade(run, len(runs))
            if low is not None and high is not None:
                banded = True
                below, above = ([values[n] for n in at] for values in (low, high))
                traces.append(plots.band(steps, below, above, translucent(color)) | panel.trace)
            curve = plots.line(steps, [numbers[key][n] for n in at], color, name)
            listed = plots.grouped(name, listed=panel.number == 0)
            traces.append(curve | plots.marked() | listed | panel.trace)
        layout |= panel.layout(
            plots.axis("number in the name"), plots.axis(label_of(key, results[0].evidence))
        )
    return Figure(
        f"{probe} along the models",
        "Numbers of the evidence by the number in the model's name"
        + ("; bands: the intervals of those that have one." if banded else "."),
        traces,
        layout,
    )


def numbered(names: Sequence[str]) -> dict[str, dict[int, int]] | None:
    """Runs of models: what their names begin with -> the last number -> the model's place.

    None where a name has no number (the digits behind a dot, as in 0.25, are none), where two are
    the same, or where a run has too few for a line.
    """
    runs: dict[str, dict[int, int]] = {}
    for i, name in enumerate(names):
        match = re.fullmatch(r"(.*?)(?<![\d.])(\d+)(?!\.\d)(\D*)", name)
        if match is None:
            return None
        steps = runs.setdefault(f"{match[1]}…{match[3]}", {})
        if int(match[2]) in steps:
            return None
        steps[int(match[2])] = i
    if not runs or min(map(len, runs.values())) < FEWEST_POINTS:
        return None
    return {name: dict(sorted(steps.items())) for name, steps in runs.items()}
