"""A study's result: claims with intervals, and the paper's values beside ours."""

from __future__ import annotations

import math
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from interp_studies.claims import JudgedClaim, claims_table
from interp_toolkit.formatting import percent
from interp_toolkit.models.about.record import versions
from interp_toolkit.results import Evidence, Provenance, Result, Status, Table

if TYPE_CHECKING:
    import pandas as pd

#: of a study whose figures are described, and held against nothing
DESCRIBED = Evidence("described", reason="the source gives no figures")
Better = Literal["higher", "lower"]
Unit = Literal["share", "nats", "per million", ""]
FRESH = 3_000  # claims of open questions were made on seeds below, and are judged on others
NAMED = 3  # figures that a verdict names as not reached
REACHED = {True: "reached", False: "not_reached", None: None}


@dataclass(frozen=True)
class Quantity:
    """A value of the paper and its reproduction.

    Attributes:
        of: name of the experiment.
        name: name of the quantity.
        unit: unit of the values; a "share" is between 0 and 1.
        theirs: the paper's value; None if it gives none, or a range.
        median, lowest, highest: our values, over seeds.
        seeds: number of seeds.
        seeds_reaching: number of seeds at least as good as the paper's value, or within its range.
        reached: whether the median is.
        remark: further notes.
        expected: the paper's range (low, high), if it gives one.
        tolerance: distance from the range that still counts as within.
    """

    of: str
    name: str
    unit: Unit
    theirs: float | None
    median: float
    lowest: float
    highest: float
    seeds: int
    seeds_reaching: int | None
    reached: bool | None
    remark: str = ""
    expected: tuple[float, float] | None = None
    tolerance: float = 0.0


def compare(
    of: str,
    name: str,
    ours: Sequence[float],
    theirs: float | None = None,
    *,
    better: Better = "higher",
    unit: Unit = "share",
    remark: str = "",
) -> Quantity:
    """A quantity from its values over seeds.

    Args:
        of: name of the experiment.
        name: name of the quantity.
        ours: one value per seed.
        theirs: the paper's value, treated as exact; None if it gives none.
        better: direction that is better.
        unit: unit of the values.
        remark: further notes.

    Raises:
        ValueError: there are no seeds, or a value is not a number.
    """
    sign = 1 if better == "higher" else -1
    reached = None if theirs is None else (lambda x: sign * (x - theirs) >= 0)
    return _quantity(of, name, ours, unit, remark, reached, theirs=theirs)


def compare_range(
    of: str,
    name: str,
    ours: Sequence[float],
    expected: tuple[float, float],
    *,
    tolerance: float = 0.0,
    unit: Unit = "",
    remark: str = "",
) -> Quantity:
    """A quantity from its values over seeds, compared with a range of the paper.

    Args:
        of: name of the experiment.
        name: name of the quantity.
        ours: one value per seed.
        expected: the paper's range (low, high).
        tolerance: distance from the range that still counts as within.
        unit: unit of the values.
        remark: further notes.

    Raises:
        ValueError: there are no seeds, or a value is not a number.
    """
    low, high = expected[0] - tolerance, expected[1] + tolerance
    return _quantity(
        of,
        name,
        ours,
        unit,
        remark,
        lambda x: low <= x <= high,
        expected=expected,
        tolerance=tolerance,
    )


def _quantity(
    of: str,
    name: str,
    ours: Sequence[float],
    unit: Unit,
    remark: str,
    reached: Callable[[float], bool] | None,
    *,
    theirs: float | None = None,
    expected: tuple[float, float] | None = None,
    tolerance: float = 0.0,
) -> Quantity:
    if not ours or not all(map(math.isfinite, ours)):
        raise ValueError(f"{of}, {name}: needs finite values of one seed or more, got {ours}")
    median = statistics.median(ours)
    return Quantity(
        of=of,
        name=name,
        unit=unit,
        theirs=theirs,
        median=median,
        lowest=min(ours),
        highest=max(ours),
        seeds=len(ours),
        seeds_reaching=sum(map(reached, ours)) if reached else None,
        reached=reached(median) if reached else None,
        remark=remark,
        expected=expected,
        tolerance=tolerance,
    )


def shown(value: float | None, unit: Unit) -> str | None:
    """A value with its unit, for a table or a sentence."""
    if value is None:
        return None
    if unit == "share":
        return percent(value, 2)
    if unit == "per million":
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:.5f}" if unit == "nats" else f"{value:.4g}"


@dataclass(frozen=True)
class StudyResult(Result):
    """The result of a study; made by `study.StudyRun.result`.

    Attributes:
        jobs: values of every job, by name.
        quantities: the paper's values and ours; None if the study compares none.
        whose: name of the compared values: "theirs" if they are the paper's.
        question: open question of the paper, in one sentence; None if the study reproduces values.
        claims: claims stated beforehand, with their judgments; None if there are none.
        first: tables shown before all others.
        details: tables shown after claims and quantities.
    """

    jobs: Mapping[str, Mapping[str, Any]]
    quantities: Sequence[Quantity] | None = None
    whose: str = "theirs"
    question: str | None = None
    claims: Sequence[JudgedClaim] | None = None
    first: Sequence[Table] = ()
    details: Sequence[Table] = ()

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"first", "details"})

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data, without keys that do not apply."""
        missing = {
            name for name in ("quantities", "question", "claims") if vars(self)[name] is None
        }
        if self.quantities is None:
            missing.add("whose")
        return {name: value for name, value in super().to_dict().items() if name not in missing}

    def to_frame(self) -> pd.DataFrame:
        """One row per quantity; one row per claim if the study compares no quantities."""
        import pandas as pd

        if self.quantities is None:
            claims = self.claims or ()
            return pd.DataFrame([vars(c) | {"judgement": c.judgement} for c in claims])
        return pd.DataFrame([vars(quantity) for quantity in self.quantities])

    def tables(self) -> list[Table]:
        """First tables, claims, the paper's values and ours, details."""
        claims = [claims_table(self.claims)] if self.claims else []
        quantities = [] if self.quantities is None else [_comparison(self.quantities, self.whose)]
        return [*self.first, *claims, *quantities, *self.details]


@dataclass(frozen=True)
class ClaimsEvidence(Evidence):
    """The evidence of an answer.

    Attributes:
        judgements: judgment of every claim, by its text.
    """

    judgements: Mapping[str, str]

    in_tables = frozenset({"judgements"})


def claims_evidence(findings: Sequence[JudgedClaim], seeds: Iterable[int] = ()) -> ClaimsEvidence:
    """`answered` if every claim is confirmed or refuted, `partly_answered` if some are.

    `undecided` if none is, or if the claims were formed on the same seeds.

    Args:
        findings: judgments of the claims; checks are not counted.
        seeds: seeds of the judgment; claims were formed on seeds below `FRESH`.
    """
    judgements = {f.claim: f.judgement for f in findings}
    if any(seed < FRESH for seed in seeds):
        why = "the claims were found on such seeds: these are no test of them"
        return ClaimsEvidence("undecided", judgements, reason=why)
    claims = [f for f in findings if not f.check]
    undecided = sum(f.judgement == "undecided" for f in claims)
    status: Status = "partly_answered"
    if not undecided:
        status = "answered"
    elif undecided == len(claims):
        status = "undecided"
    reason = f"{undecided} of {len(claims)} claims are undecided" if undecided else None
    return ClaimsEvidence(status, judgements, reason=reason)


def tally(quantities: Sequence[Quantity], whose: str = "theirs") -> str:
    """What was reached and what was not, in a sentence; `whose` as in `StudyResult`."""
    compared = [q for q in quantities if q.reached is not None]
    missed = [q for q in compared if not q.reached]
    text = f"the median seed reaches {len(compared) - len(missed)} of {len(compared)} numbers"
    if not missed:
        return f"{text}."
    against = [
        f"{q.of}: {q.name} {shown(q.median, q.unit)}, {whose} {_theirs(q)} "
        f"({q.seeds_reaching} of {q.seeds} seeds reach it)"
        for q in missed[:NAMED]
    ]
    more = f"; and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
    return f"{text}; not reached: {'; '.join(against)}{more}."


def overall(quantities: Sequence[Quantity]) -> Status:
    """The status: whether all, some or none of the comparable quantities are reached."""
    compared = [bool(q.reached) for q in quantities if q.reached is not None]
    if all(compared):
        return "reached"
    return "partly_reached" if any(compared) else "not_reached"


def missed(quantities: Sequence[Quantity]) -> str | None:
    """Why not all quantities are reached, in a phrase; None if they are."""
    compared = [q for q in quantities if q.reached is not None]
    left = sum(not q.reached for q in compared)
    return f"{left} of {len(compared)} numbers are not reached" if left else None


def study_provenance(
    artefact: str, source: str, settings: Mapping[str, Any], seed: int | None
) -> Provenance:
    """The provenance of a study, which makes its own models and data."""
    return Provenance(
        model={"name": artefact, "kind": "study", "source": source},
        data={},
        settings=settings,
        seed=seed,
        versions=versions() | commit(),
    )


def commit() -> dict[str, str]:
    """The commit of a checkout of this package, with `-dirty` for changed files; else nothing."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return {}
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": described.stdout.strip()}


def _comparison(quantities: Sequence[Quantity], whose: str) -> Table:
    columns = ["experiment", "quantity", whose, "ours", "range", "seeds", "outcome", "remark"]
    rows = [
        [
            q.of,
            f"{q.name}, {q.unit}" if q.unit in ("nats", "per million") else q.name,
            _theirs(q),
            shown(q.median, q.unit),
            _range(q),
            q.seeds,
            REACHED[q.reached],
            q.remark or None,
        ]
        for q in quantities
    ]
    caption = f"Ours is the median over seeds; reached: it is at least as good as {whose}."
    if any(q.expected for q in quantities):
        caption = "Ours is the median over seeds; reached: it is within the range."
    title = f"{whose.capitalize()} beside ours"
    if all(q.theirs is None and q.expected is None for q in quantities):
        title = "What was measured"
        caption = "Ours is the median over seeds; it is not held against a figure of the source's."
    return Table(title, columns, rows, caption)


def _theirs(quantity: Quantity) -> str | None:
    """The paper's value or range, with the tolerance of a range."""
    if quantity.expected is None:
        return shown(quantity.theirs, quantity.unit)
    low, high = (shown(x, quantity.unit) for x in quantity.expected)
    if math.isinf(quantity.expected[1]):
        return f"at least {low}"
    allowed = f" (± {quantity.tolerance:g})" if quantity.tolerance else ""
    return f"{low if low == high else f'{low} to {high}'}{allowed}"


def _range(quantity: Quantity) -> str | None:
    """The range over seeds, if they differ."""
    low, high = (shown(x, quantity.unit) for x in (quantity.lowest, quantity.highest))
    return None if low == high else f"{low} to {high}"
