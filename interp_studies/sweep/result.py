"""The result of a sweep: the mean over seeds at each point of the grid, and the best point.

Points are ranked by the mean over seeds of the figure by which the recipe's runs are compared. With
k other points, a point is called the best only if its difference from each of them is above 0 by an
interval of level 1 - 0.05 / k (see `seed_interval`). The chance of a wrong "best" is then at most
5 %, however many points there are. Otherwise, and always with one seed per point, the choice is
undecided.

The best point is selected by the figure that is then reported, so this figure is biased upward: the
more points are about as good, the larger the bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from interp_studies.result import Unit, shown, study_provenance
from interp_studies.seed_interval import Interval, difference, over_seeds
from interp_studies.sweep.figures import MOST, Mean, sweep_figures
from interp_studies.sweep.file import (
    VARIANT,
    Point,
    SweepFile,
    said,
)
from interp_toolkit.evidence import left_open
from interp_toolkit.formatting import counted
from interp_toolkit.results import Evidence, Figure, Result, Table
from interp_toolkit.stats import COVERAGE
from interp_toolkit.training.engine.metrics import KEY

if TYPE_CHECKING:
    import pandas as pd

_SELECTED = (
    "The best was chosen by this same figure, which is therefore likely too good: train that point "
    "again, with new seeds, to estimate it."
)

Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]
Missing = Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class PointResult:
    """The result at one point of the grid.

    Attributes:
        at: the grid's settings at this point.
        values: the figure of each finished seed, by seed.
        mean, lowest, highest: mean and range of the values; None if no seed finished.
        low, high: the 95 % interval of the mean; None if it is unknown.
        seconds: total seconds of the point's runs.
        missing: why each other seed did not finish, by seed.
    """

    at: Mapping[str, Any]
    values: Mapping[int, float]
    mean: float | None
    lowest: float | None
    highest: float | None
    low: float | None
    high: float | None
    seconds: float
    missing: Mapping[int, str]

    @property
    def complete(self) -> bool:
        """Whether every seed finished; otherwise the mean is over a selection of seeds."""
        return bool(self.values) and not self.missing

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean over seeds; None with one seed."""
        if self.low is None or self.high is None or len(self.values) < 2:
            return None
        return self.low, self.high


@dataclass(frozen=True)
class Measure:
    """The figure by which points are compared; see `training.engine.metrics`."""

    name: str
    better: str
    unit: Unit
    examples: int | None

    def interval(self, values: Sequence[float], level: float = COVERAGE) -> Interval:
        """The interval of the mean over seeds."""
        return over_seeds(values, self.examples if self.unit == "share" else None, level)

    def ahead(self, first: Interval, second: Interval) -> Interval:
        """By how much the first interval's mean is better than the second's, as an interval."""
        pair = (first, second) if self.better == "higher" else (second, first)
        return difference(*pair)


@dataclass(frozen=True)
class SweepEvidence(Evidence):
    """The evidence behind the verdict on a sweep.

    Attributes:
        points: number of points of the grid.
        complete: number of points whose runs all finished.
        runs_missing: number of missing runs, over all points.
        best, second: settings and mean of the two best points; None if there are none.
        choice: "decided" if the best point is better than all others, else "undecided".
        not_told_from_the_best: number of other points that may be as good as the best.
    """

    points: int
    complete: int
    runs_missing: int
    best: Mapping[str, Any] | None = None
    second: Mapping[str, Any] | None = None
    choice: str | None = None
    not_told_from_the_best: int | None = None


@dataclass(frozen=True)
class SweepResult(Result):
    """The result of a sweep, or of the part that is finished.

    Attributes:
        figure: the compared figure: its name, direction and unit; None before the first run.
        points: results in the order of the grid.
    """

    evidence: SweepEvidence
    figure: Measure | None
    points: Sequence[PointResult]

    omit_from_json: ClassVar[frozenset[str]] = frozenset()

    def to_frame(self) -> pd.DataFrame:
        """One row per point."""
        import pandas as pd

        rows = [[*point.at.values(), *_reached(point)] for point in self.ranked()]
        return pd.DataFrame(rows, columns=self._columns())

    def tables(self) -> list[Table]:
        """Tables of the points (best first), each variant's best, missing runs, and seconds."""
        ranked = self.ranked()
        tables = [self._points(ranked)]
        if len({point.at.get(VARIANT) for point in ranked}) > 1:
            tables.append(self._by_variant(ranked))
        missing = [
            [said(point.at), seed, why]
            for point in self.points
            for seed, why in point.missing.items()
        ]
        if missing:
            tables.append(Table("Missing runs", ["point", "seed", "why"], missing))
        seconds = [[said(point.at), len(point.values), point.seconds] for point in ranked]
        return [*tables, Table("Time", ["point", "runs", "seconds"], seconds)]

    def figures(self) -> list[Figure]:
        """The compared figure against each setting of the grid."""
        if self.figure is None:
            return []
        return sweep_figures(
            self.figure.name,
            self.figure.unit,
            self.figure.better,
            [
                Mean(point.at, point.mean, point.interval)
                for point in self.points
                if point.mean is not None
            ],
        )

    @property
    def choice_is_made(self) -> bool:
        """Whether one point is better than all others by the intervals of all runs."""
        return self.evidence.choice == "decided"

    def ranked(self) -> list[PointResult]:
        """The points with the best first; points with missing runs come after all others."""
        return _ranked(self.points, self.figure)

    def _points(self, ranked: Sequence[PointResult]) -> Table:
        rows = [[*map(_setting, point.at.values()), *_reached(point)] for point in ranked]
        caption = (
            f"Mean over seeds and its {100 * COVERAGE:g} % interval, each by itself; lowest and "
            "highest: of the seeds. A point with runs missing is ranked behind all others."
        )
        best = [0] if self.choice_is_made else []
        return Table("Points, the best first", self._columns(), rows, caption, highlight=best)

    def _columns(self) -> list[str]:
        name, keys = self.figure.name if self.figure else "figure", self.points[0].at
        return [*keys, "seeds", f"mean {name}", "low", "high", "lowest", "highest", "missing"]

    def _by_variant(self, ranked: Sequence[PointResult]) -> Table:
        best: dict[str, PointResult] = {}
        for point in ranked:
            if point.complete:
                best.setdefault(point.at[VARIANT], point)
        table = self._points(list(best.values()))
        return Table("The best point of each variant", table.columns, table.rows)


def _setting(value: Any) -> Any:
    """A setting as the sweep's file writes it: 0.003, without the decimals of its column."""
    return f"{value:g}" if isinstance(value, float) else value


def _reached(point: PointResult) -> list[Any]:
    values = [point.mean, point.low, point.high, point.lowest, point.highest]
    return [len(point.values), *values, len(point.missing)]


def sweep_result(
    file: SweepFile, points: Sequence[Point], runs: Runs, missing: Missing, device: str
) -> SweepResult:
    """The result of the finished runs.

    Args:
        file: file of the sweep.
        points: points of its grid.
        runs: values of each finished run, by point and seed.
        missing: why each other run did not finish, by point and seed.
        device: device of the training.
    """
    known = [values for of_point in runs.values() for values in of_point.values()]
    measure = None
    if known:
        first = known[0][KEY]
        measure = Measure(first["name"], first["better"], first["unit"], first["examples"])
    results = [_point_result(p, runs[p.name], missing[p.name], measure) for p in points]
    evidence = _evidence(results, measure)
    settings = {**file.model_dump(mode="json"), "device": device}
    return SweepResult(
        probe="sweep",
        verdict=_verdict(results, measure, evidence),
        evidence=evidence,
        provenance=study_provenance(file.name, "a grid of settings", settings, 0),
        figure=measure,
        points=results,
    )


def _point_result(
    point: Point,
    runs: Mapping[int, Mapping[str, Any]],
    missing: Mapping[int, str],
    measure: Measure | None,
) -> PointResult:
    values = {seed: float(found[KEY]["value"]) for seed, found in runs.items()}
    seconds = math.fsum(found["seconds"] for found in runs.values())
    if not values or measure is None:
        return PointResult(point.at, {}, None, None, None, None, None, seconds, missing)
    over = list(values.values())
    interval = measure.interval(over)
    low, high = (x if math.isfinite(x) else None for x in (interval.low, interval.high))
    return PointResult(
        point.at, values, interval.value, min(over), max(over), low, high, seconds, missing
    )


def _ranked(points: Sequence[PointResult], measure: Measure | None) -> list[PointResult]:
    sign = -1 if measure is not None and measure.better == "higher" else 1
    return sorted(points, key=lambda p: (not p.complete, p.mean is None, sign * (p.mean or 0.0)))


def _evidence(points: Sequence[PointResult], measure: Measure | None) -> SweepEvidence:
    """The evidence behind the verdict."""
    complete = [point for point in _ranked(points, measure) if point.complete]
    finished = len(complete) == len(points)
    found = SweepEvidence(
        status="finished" if finished else "unfinished",
        reason=None if finished else "some runs are missing",
        points=len(points),
        complete=len(complete),
        runs_missing=sum(len(point.missing) for point in points),
    )
    if measure is None or not complete:
        return found
    best, others = complete[0], complete[1:]
    found = replace(found, best={**best.at, measure.name: best.mean})
    if not others:
        return found
    rivals = _rivals(best, others, measure)
    if rivals and finished:
        status, reason = left_open(f"{counted(rivals, 'other point')} may be as good as the best")
        found = replace(found, status=status, reason=reason)
    return replace(
        found,
        second={**others[0].at, measure.name: others[0].mean},
        choice="undecided" if rivals else "decided",
        not_told_from_the_best=rivals,
    )


def _rivals(best: PointResult, others: Sequence[PointResult], measure: Measure) -> int:
    """The number of other points that may be as good as the best, by the intervals."""
    level = 1 - (1 - COVERAGE) / len(others)
    top = measure.interval(list(best.values.values()), level)
    gaps = (measure.ahead(top, measure.interval(list(o.values.values()), level)) for o in others)
    return sum(gap.low <= 0 for gap in gaps)


def _verdict(
    points: Sequence[PointResult], measure: Measure | None, evidence: SweepEvidence
) -> str:
    complete = [point for point in _ranked(points, measure) if point.complete]
    unfinished = f"Unfinished, {len(complete)} of {len(points)} points: "
    start = unfinished if evidence.status == "unfinished" else ""
    if measure is None or not complete:
        return f"{start}nothing to compare yet."
    best, others = complete[0], complete[1:]
    if not others:
        return f"{start}{said(best.at)} has {_with_interval(best, measure)}."
    text = f"{_with_interval(best, measure)}, {_lead(best, others[0], measure)}"
    rivals, which = evidence.not_told_from_the_best, said(best.at)
    if rivals:
        alone = (
            ": one seed each does not show how much seeds differ" if len(best.values) < 2 else ""
        )
        share = f"all {rivals}" if rivals == len(others) else f"{rivals} of the {len(others)}"
        share = "the other" if len(others) == 1 else f"{share} others"
        most = f"the {MOST[measure.better]} mean"
        text = (
            f"undecided which of {len(complete)} points is best: {which} has {most} {text}, "
            f"and {share} may be as good, by {100 * COVERAGE:g} % intervals for all of them "
            f"together{alone}"
        )
    else:
        text = (
            f"{which} is the best of {len(complete)} points: {text}; none of the others is as "
            f"good, by {100 * COVERAGE:g} % intervals for all of them together"
        )
    text = text if start or not rivals else text[0].upper() + text[1:]
    return f"{start}{text}. {_SELECTED}"


def _lead(best: PointResult, second: PointResult, measure: Measure) -> str:
    """The difference between the best and the second point, as text."""
    lead = abs((best.mean or 0.0) - (second.mean or 0.0))
    text = f"{100 * lead:.2f} points" if measure.unit == "share" else shown(lead, measure.unit)
    return f"{text} ahead of the second ({said(second.at)})"


def _with_interval(point: PointResult, measure: Measure) -> str:
    text = f"{measure.name} {shown(point.mean, measure.unit)}"
    if point.interval is None:
        return text
    low, high = (shown(end, measure.unit) for end in point.interval)
    return f"{text} ({100 * COVERAGE:g} % interval {low} to {high})"
