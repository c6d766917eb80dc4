"""Formats of values and verdicts for terminal and HTML, and comparisons of several models.

Machine names get readable labels; a field without a label is shown as its name with spaces.

A float has four significant digits (three with an exponent), an integer all of its digits, a
missing value is a dash. The floats of one column share their number of decimals if their sizes
allow. Long lists are shortened, with the number of omitted entries; the JSON has all of them.

Several models in one report are compared in a table: their verdicts and evidence, one row per
model. It contains only numbers that every model's result has and that differ between models.
Models with numbers in their names, such as checkpoints of a training run, also get a figure of the
evidence over these numbers, with one line per run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from interp_toolkit import plots
from interp_toolkit.finding import headings_of
from interp_toolkit.plots import shade, translucent
from interp_toolkit.results import STATUS_TONES, Evidence, Figure, Result, Table, Tone, jsonable


def label_of(name: str, evidence: Evidence | type[Evidence] | None = None) -> str:
    """A field's label: its heading, such as "theorem on heads" for `heads_theorem`, or its name."""
    headings = {} if evidence is None else headings_of(evidence)
    return headings.get(name) or name.replace("_", " ")


SIGNIFICANT = 4
MISSING = "–"
#: signs, so that outcomes can be read on paper and without color vision
SIGNS: Mapping[Tone, str] = {"yes": "✓", "no": "✗", "none": "–", "open": "?", "against": "!"}
#: meaning of each sign, for a legend
LEGEND: Mapping[Tone, str] = {
    "yes": "found by a test against the null, an effect's CI or a hyperplane; or passed",
    "no": "shown not to hold",
    "none": "tested and not found, which does not prove absence",
    "open": "undecided, partly shown, not tested, or explained by the null",
    "against": "contradicts a claim, or failed",
}
PLAIN_SIGN = "•"
DESCRIBED = "described: no claim"  # meaning of the plain sign of a result that is described
BOUNDS = ("_low", "_high")  # suffixes of the names of an estimate's bounds
SHOWN_ITEMS = 6
_PATH = re.compile(r"\w[./:]\w")
FIXED_POINT = (1e-3, 1e6)  # numbers of other sizes are written with an exponent
ALIGNED = (1e-2, 1e4)  # range of sizes in which numbers can share their decimals


def tone_of(value: Any) -> Tone | None:
    """The tone of a status word; None for other words."""
    return STATUS_TONES.get(value) if isinstance(value, str) else None


def sign_of(result: Result) -> str:
    """The sign of a result's status."""
    return sign_of_status(result.status)


def sign_of_status(status: str | None) -> str:
    """The sign of a status word; a bullet if the word has no tone."""
    tone = tone_of(status)
    return SIGNS[tone] if tone else PLAIN_SIGN


def legend(results: Sequence[Result]) -> list[tuple[str, Tone | None, str]]:
    """The signs of these results' statuses, each with its tone and meaning.

    Of the words without a tone, only `described` is explained.
    """
    used = {tone_of(result.status) for result in results}
    signs: list[tuple[str, Tone | None, str]] = [
        (SIGNS[tone], tone, text) for tone, text in LEGEND.items() if tone in used
    ]
    if any(result.status == "described" for result in results):
        signs.append((PLAIN_SIGN, None, DESCRIBED))
    return signs


def words(name: str) -> str:
    """A machine name as words: `not_separable` as `not separable`; file and hook names stay."""
    return name if _PATH.search(name) else name.replace("_", " ")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a plain value is a number (not a boolean)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_number(value: float) -> str:
    """A float in four significant digits, three with an exponent; an integer in full.

    Examples: 0.2175 as `0.2175`, 1.0 as `1.000`, 3.14e-17 as `3.14e-17`, 12 as `12`.
    """
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    smallest, largest = FIXED_POINT
    if not smallest <= abs(value) < largest:
        return f"{value:.{SIGNIFICANT - 2}e}"
    return f"{value:.{max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))}f}"


def format_value(value: Any) -> str:
    """A plain value as text: number, status, boolean, missing, list or mapping, on one line."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return words(value) if value in STATUS_TONES else value
    if is_number(value):
        return format_number(value)
    if isinstance(value, Mapping):
        return _joined([f"{words(k)} {format_value(v)}" for k, v in value.items()])
    if all(item is None or is_number(item) for item in value):
        return f"[{_joined([format_value(item) for item in value])}]"
    if all(isinstance(item, str | bool) for item in value):
        return _joined([format_value(item) for item in value])
    return _joined([f"({format_value(item)})" for item in value])


def _joined(items: Sequence[str]) -> str:
    if len(items) > SHOWN_ITEMS:
        shown = SHOWN_ITEMS - 1
        items = [*items[:shown], f"… {len(items) - shown} more"]
    return ", ".join(items)


def format_column(cells: Sequence[Any]) -> list[str]:
    """A table's column as text; its floats have the same decimals if their sizes allow."""
    plain = [jsonable(cell) for cell in cells]
    sizes = [abs(cell) for cell in plain if isinstance(cell, float) and cell != 0]
    smallest, largest = ALIGNED
    if not sizes or min(sizes) < smallest or max(sizes) >= largest:
        return [format_value(cell) for cell in plain]
    decimals = SIGNIFICANT - 1 - math.floor(math.log10(min(sizes)))
    decimals = min(max(decimals, 1), SIGNIFICANT)
    return [f"{c:.{decimals}f}" if isinstance(c, float) else format_value(c) for c in plain]


def is_numeric(cells: Sequence[Any]) -> bool:
    """Whether a column is right-aligned: it has only numbers and missing values."""
    return all(cell is None or is_number(cell) for cell in map(jsonable, cells))


def deciding(columns: Sequence[Sequence[Any]]) -> int | None:
    """Index of the last column with outcomes, apart from the first column; None without one.

    In a table that is wider than its space, this column and the first take precedence.
    """
    outcomes = [at for at, column in enumerate(columns) if at and any(map(tone_of, column))]
    return outcomes[-1] if outcomes else None


def evidence_of(result: Result) -> dict[str, Any]:
    """A result's evidence by label, as plain data, then its notes.

    Missing and empty values, values in a table, and the status (shown by the verdict's sign) are
    left out.
    """
    evidence = jsonable(result.evidence)
    for key in ("status", *result.evidence.in_tables):
        evidence.pop(key, None)
    values = {
        label_of(k, result.evidence): v
        for k, v in evidence.items()
        if v is not None and v not in ({}, [])
    }
    return values | ({"notes": "; ".join(result.notes)} if result.notes else {})


def model_name(result: Result) -> str:
    """The name of the model that a result is about."""
    return str(result.provenance.model.get("name") or "model")


def model_names(results: Sequence[Result]) -> list[str]:
    """The name of each result's model, unique for models with different records.

    Equal names are distinguished by the folders of the models' files, or else by numbers. The
    record of a live model is its class and configuration, so two of one configuration share a name.
    """
    models = [jsonable(result.provenance.model) for result in results]
    different: list[Any] = []
    for model in models:
        if model not in different:
            different.append(model)
    names = [str(model.get("name") or "model") for model in different]
    paths = [Path(model.get("path") or name) for model, name in zip(different, names, strict=True)]
    for depth in (2, 3, 4):
        alike = [names.count(name) > 1 for name in names]
        longer = [str(Path(*path.parts[-depth:])) for path in paths]
        names = [new if two else old for old, new, two in zip(names, longer, alike, strict=True)]
    before = [names[:i].count(name) for i, name in enumerate(names)]
    names = [f"{name} ({n + 1})" if n else name for name, n in zip(names, before, strict=True)]
    return [names[different.index(model)] for model in models]


MOST_COLUMNS = 6
PANELS = 4
FEWEST_POINTS = 3


def tables(results: Sequence[Result], names: Sequence[str]) -> list[Table]:
    """A table for every analysis with results of several models; `names`: of the models."""
    return [_table(*shown) for shown in _of_several(results, names)]


def figures(results: Sequence[Result], names: Sequence[str]) -> list[Figure]:
    """A figure for every analysis whose models are numbered, over these numbers."""
    figures_shown = (_figure(*shown) for shown in _of_several(results, names))
    return [figure for figure in figures_shown if figure is not None]


def _of_several(
    results: Sequence[Result], names: Sequence[str]
) -> list[tuple[str, list[str], list[Result]]]:
    """Each analysis with at least two models: its name, the models' names and their results."""
    by_probe: dict[str, list[tuple[str, Result]]] = {}
    for name, result in zip(names, results, strict=True):
        by_probe.setdefault(result.probe, []).append((name, result))
    return [
        (probe, [name for name, _ in pairs], [result for _, result in pairs])
        for probe, pairs in by_probe.items()
        if len({name for name, _ in pairs}) > 1
    ]


def _numbers(results: Sequence[Result]) -> dict[str, list[float]]:
    """The numbers of the evidence that all results have and that (or whose bounds) differ.

    A number comes before its bounds, if all results have these.
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
        shown.pop()  # never show an estimate without its bounds
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
        "Numbers of the evidence against the number in the model's name"
        + ("; bands: the intervals of those that have one." if banded else "."),
        traces,
        layout,
    )


def numbered(names: Sequence[str]) -> dict[str, dict[int, int]] | None:
    """Runs of models: name without its last number -> that number -> index of the model.

    None if a name's last number is missing or a decimal such as 0.25, if two names are equal, or if
    a run is too short for a line.
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
