"""What a study returns: claims with intervals, and the document's figures beside ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from interp_studies.claims import JudgedClaim, claims_table
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
    """A number of the document and what it is here.

    Attributes:
        of: which experiment.
        name: what is measured.
        unit: in what; a "share" is between 0 and 1.
        theirs: the document's figure; None where it gives none, or a range.
        median, lowest, highest: ours, over seeds.
        seeds: how many.
        seeds_reaching: how many of them are at least as good as theirs, or within their range.
        reached: whether the median is.
        remark: what else must be known.
        expected: the document's range, from low to high, where it gives one.
        tolerance: how far outside it still counts as within.
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
        of: which experiment.
        name: what is measured.
        ours: one value a seed.
        theirs: the document's figure, taken as exact; None where it gives none.
        better: which way is better.
        unit: in what.
        remark: what else must be known.

    Raises:
        ValueError: no seeds, or a value that is no number.
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
    """A quantity from its values over seeds, where the document gives a range.

    Args:
        of: which experiment.
        name: what is measured.
        ours: one value a seed.
        expected: the document's range, from low to high.
        tolerance: how far outside it still counts as within.
        unit: in what.
        remark: what else must be known.

    Raises:
        ValueError: no seeds, or a value that is no number.
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
        return f"{100 * value:.2f} %"
    if unit == "per million":
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:.5f}" if unit == "nats" else f"{value:.4g}"


@dataclass(frozen=True)
class StudyResult(Result):
    """What a study found; see `study.StudyRun.result`, which makes it.

    Attributes:
        jobs: what each job found, by its name: every seed's numbers.
        quantities: the document's figures beside ours; None: the study compares none.
        whose: what the figures held against are called: "theirs", where they are the document's.
        question: that the source leaves open, in one sentence; None: the study is of its figures.
        claims: stated before the numbers were seen, and what came of them; None: there are none.
        first: tables to show before all others.
        details: tables to show behind claims and quantities.
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
        """As JSON data, without the keys of what the study does not have."""
        missing = {
            name for name in ("quantities", "question", "claims") if vars(self)[name] is None
        }
        if self.quantities is None:
            missing.add("whose")
        return {name: value for name, value in super().to_dict().items() if name not in missing}

    def to_frame(self) -> pd.DataFrame:
        """One row a quantity; of a study that compares none, one row a claim."""
        import pandas as pd

        if self.quantities is None:
            claims = self.claims or ()
            return pd.DataFrame([vars(c) | {"judgement": c.judgement} for c in claims])
        return pd.DataFrame([vars(quantity) for quantity in self.quantities])

    def tables(self) -> list[Table]:
        """The first ones, the claims, theirs beside ours, the details."""
        claims = [claims_table(self.claims)] if self.claims else []
        quantities = [] if self.quantities is None else [_comparison(self.quantities, self.whose)]
        return [*self.first, *claims, *quantities, *self.details]


@dataclass(frozen=True)
class ClaimsEvidence(Evidence):
    """What an answer rests on.

    Attributes:
        judgements: the outcome of every claim, by its words.
    """

    judgements: Mapping[str, str]

    in_tables = frozenset({"judgements"})


def claims_evidence(findings: Sequence[JudgedClaim], seeds: Iterable[int] = ()) -> ClaimsEvidence:
    """`answered` where every claim is confirmed or refuted, `partly_answered` where some are.

    `undecided` where none is, or where the seeds are of those that the claims were made on.

    Args:
        findings: what came of the claims, and of checks, which do not count.
        seeds: that they are judged on; below `FRESH` lie those that claims were made on.
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
    """The machine word: whether all that can be compared is reached, or some, or nothing."""
    compared = [bool(q.reached) for q in quantities if q.reached is not None]
    if all(compared):
        return "reached"
    return "partly_reached" if any(compared) else "not_reached"


def missed(quantities: Sequence[Quantity]) -> str | None:
    """Why not all is reached, in a phrase; None where it is."""
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
        versions=versions(),
    )


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
    """The document's figure or range, and what is allowed beside a range."""
    if quantity.expected is None:
        return shown(quantity.theirs, quantity.unit)
    low, high = (shown(x, quantity.unit) for x in quantity.expected)
    if math.isinf(quantity.expected[1]):
        return f"at least {low}"
    allowed = f" (± {quantity.tolerance:g})" if quantity.tolerance else ""
    return f"{low if low == high else f'{low} to {high}'}{allowed}"


def _range(quantity: Quantity) -> str | None:
    """From the lowest seed to the highest, where they differ."""
    low, high = (shown(x, quantity.unit) for x in (quantity.lowest, quantity.highest))
    return None if low == high else f"{low} to {high}"
