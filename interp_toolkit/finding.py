"""One shape for every analysis: a `Run` goes in, a `Finding` comes out, records fill its tables.

    class SinkOptions(Options):
        level: float = Field(0.05, gt=0, lt=1, description="Of significance.")

    @dataclass(frozen=True)
    class Sink:
        head: str = column("head")
        ratio: float = column("attention to the first token, relative to uniform")

    @dataclass(frozen=True, kw_only=True)
    class SinkFinding(Finding):
        heads: Sequence[Sink] = records(Sink, "Attention sinks")

    def analyze(run: Run[SinkOptions]) -> SinkFinding: ...

    SINKS = analysis("sinks", "heads that attend to the first token", SinkOptions, analyze)

With one line in `registry.CATALOGUE` (or one entry point of a plugin) it is `--probe sinks`. Tables
of the terminal and the page, `to_frame` and JSON are all made here, from the records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Provenance, Result, Table

if TYPE_CHECKING:
    import pandas as pd

    from interp_toolkit.data import FeatureData

HEADLINE_WORDS = 20  # at most; what each analysis writes is tested for it
MOST_FINDINGS = 5

Chosen = TypeVar("Chosen", bound=Options)
FindingT = TypeVar("FindingT", bound="Finding")


class InterruptedAnalysis(KeyboardInterrupt):
    """Ctrl-C after an analysis' first stage.

    Attributes:
        finding: what that stage says.
    """

    def __init__(self, finding: Finding):
        super().__init__()
        self.finding = finding


_SHOW_EARLY: ContextVar[Callable[[Finding], object]] = ContextVar(
    "show_early", default=lambda finding: None
)


@contextmanager
def shown_early(show: Callable[[Finding], object]) -> Iterator[None]:
    """Inside, `show` is called with what the first stage of a long analysis says."""
    before = _SHOW_EARLY.set(show)
    try:
        yield
    finally:
        _SHOW_EARLY.reset(before)


@dataclass(frozen=True)
class Run(Generic[Chosen]):
    """The inputs of an analysis.

    Attributes:
        model: any TransformerLens model.
        data: prompts, with answers or features where they have some; None: none were given.
        options: checked; the seed and the bound on memory among them.
        progress: called with a description of each step.
        name: of the analysis.
    """

    model: Any
    data: FeatureData | None
    options: Chosen
    progress: Callable[[str], None]
    name: str = ""

    @contextmanager
    def early(self, finding: Finding) -> Iterator[None]:
        """Show what a first stage says before a long one begins; see `shown_early`.

        Raises InterruptedAnalysis, with this finding, for a KeyboardInterrupt inside.
        """
        finding = dataclasses.replace(finding, probe=self.name)
        _SHOW_EARLY.get()(finding)
        try:
            yield
        except KeyboardInterrupt as stopped:
            raise InterruptedAnalysis(finding) from stopped

    @property
    def seed(self) -> int:
        """Seed of every random draw."""
        return self.options.seed

    @property
    def memory(self) -> int | str | None:
        """Bound on what is held at once beside the weights, which sets the size of batches."""
        return self.options.memory

    def provenance(self, data: FeatureData | None = None, **more: Any) -> Provenance:
        """The provenance of the numbers.

        Args:
            data: the prompts that were run; None: the weights alone.
            more: counts, such as `positions=96`, listed beside the data.
        """
        from interp_toolkit.models.about.record import provenance  # without torch until it runs

        described: dict[str, Any] = {}
        if data is not None:
            described = {"source": data.source, "rows": len(data), "sha256": data.digest()}
        return provenance(self.model, described | more, self.options.settings(), self.seed)


def column(
    heading: str | None = None,
    *,
    unit: str = "",
    format: Callable[[Any], Any] | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """A field of a record, or of evidence, that people see under this heading.

    Args:
        heading: of the table's column; None: in the JSON and in `to_frame` only.
        unit: written behind the heading.
        format: makes the table's cell of the value; None: the value itself.
        default: of the field.
    """
    heading = f"{heading} ({unit})" if heading and unit else heading
    return field(default=default, metadata={"heading": heading, "format": format})


def records(
    record: type[Any],
    title: str,
    caption: str = "",
    highlight: Callable[[Any], bool] = lambda record: False,
    *,
    key: str = "",
    least: int = 0,
    cells: Mapping[str, Callable[[Any], Any]] | None = None,
    select: Callable[[Any], Any] = lambda value: value,
    sparse: bool = False,
) -> Any:
    """A finding's field that holds records of one class, and is shown as a table.

    The field is a sequence of records, a mapping to them whose keys are the first column (None:
    not there), one record, or None.

    Args:
        record: the records' class, a dataclass whose fields are `column`s.
        title: of the table.
        caption: below the title.
        highlight: which records the headline speaks of.
        key: heading of a mapping's keys.
        least: number of records below which the table is left out.
        cells: headings, and what makes a record's cell below each, where cells are no fields of the
            record; None: the record's columns.
        select: gives the records that the table shows; JSON and `to_frame` have the whole field.
        sparse: leave out columns in which every record has None.
    """
    table = _Records(record, title, caption, highlight, key, least, cells, select, sparse)
    return field(metadata={"table": table})


@dataclass(frozen=True)
class _Records:
    record: type[Any]
    title: str
    caption: str
    highlight: Callable[[Any], bool]
    key: str
    least: int
    cells: Mapping[str, Callable[[Any], Any]] | None
    select: Callable[[Any], Any]
    sparse: bool

    def table(self, values: Any) -> Table:
        values = self.select(values)
        shown = self.keyed(values)
        columns = list((self.cells or {}).items()) or [
            (heading, partial(_cell, f))
            for f in dataclasses.fields(self.record)
            if (heading := f.metadata.get("heading"))
        ]
        if self.sparse:
            columns = [
                (heading, cell)
                for heading, cell in columns
                if any(cell(value) is not None for _, value in shown)
            ]
        headings = [heading for heading, _ in columns]
        rows = [[cell(value) for _, cell in columns] for _, value in shown]
        if isinstance(values, Mapping):
            headings = [self.key, *headings]
            rows = [[key, *row] for (key, _), row in zip(shown, rows, strict=True)]
        bold = [n for n, (_, value) in enumerate(shown) if self.highlight(value)]
        return Table(self.title, headings, rows, self.caption, bold)

    def frame(self, values: Any) -> pd.DataFrame:
        import pandas as pd

        names = [f.name for f in dataclasses.fields(self.record)]
        keyed = self.keyed(values)
        rows = [[getattr(value, name) for name in names] for _, value in keyed]
        frame = pd.DataFrame(rows, columns=names)
        if isinstance(values, Mapping):
            frame.insert(0, self.key, [key for key, _ in keyed])
        return frame

    def keyed(self, values: Any) -> list[tuple[Any, Any]]:
        """Key, or number, and record."""
        if isinstance(values, Mapping):
            return [(key, value) for key, value in values.items() if value is not None]
        several = values if isinstance(values, Sequence) else [values]
        return list(enumerate(value for value in several if value is not None))


def table_of(
    record: type[Any],
    title: str,
    values: Sequence[Any],
    caption: str = "",
    highlight: Callable[[Any], bool] = lambda record: False,
    *,
    sparse: bool = False,
) -> Table:
    """A table of records whose title, caption or choice depends on the finding; see `records`."""
    about = records(record, title, caption, highlight, sparse=sparse).metadata["table"]
    table: Table = about.table(values)
    return table


def _cell(of: dataclasses.Field[Any], value: Any) -> Any:
    number = getattr(value, of.name)
    make = of.metadata["format"]
    return number if make is None else make(number)


@dataclass(frozen=True, kw_only=True)
class Finding(Result):
    """Base of what analyses return; an analysis' own adds fields, those with records as tables.

    Attributes:
        headline, findings, verdict: see `Result`; the most important finding first.
    """

    probe: str = ""  # `analysis` fills it in
    verdict: str = field(init=False)
    headline: str
    findings: Sequence[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", " ".join([self.headline, *self.findings]))

    def tables(self) -> list[Table]:
        """Every field of records as a table, in their order."""
        tabled = self._records()
        return [
            of.table(values)
            for of, values in tabled
            if len(of.keyed(of.select(values))) >= of.least
        ]

    def to_frame(self) -> pd.DataFrame:
        """The records of the first table, one row each."""
        of, values = self._records()[0]
        return of.frame(values)

    def _records(self) -> list[tuple[_Records, Any]]:
        tabled = [f for f in dataclasses.fields(self) if "table" in f.metadata]
        return [(f.metadata["table"], getattr(self, f.name)) for f in tabled]


def headings_of(record: Any) -> Mapping[str, str]:
    """The headings of a dataclass' fields, by name; those that have one."""
    fields = dataclasses.fields(record)
    return {f.name: f.metadata["heading"] for f in fields if f.metadata.get("heading")}


def analysis(
    name: str,
    summary: str,
    options: type[Chosen],
    analyze: Callable[[Run[Chosen]], FindingT],
    unfit: Callable[[Any, FeatureData | None], str | None] = lambda model, data: None,
    *,
    source: str = "",
    graph_formats: tuple[str, ...] = (),
) -> Analysis:
    """An analysis to register, from `analyze(run) -> Finding`; see `registry.Analysis`."""

    @wraps(getattr(analyze, "func", analyze))  # of a partial, what it calls
    def run(
        model: Any, data: FeatureData | None, chosen: Chosen, progress: Callable[[str], None]
    ) -> FindingT:
        finding = analyze(Run(model, data, chosen, progress, name))
        return dataclasses.replace(finding, probe=name)

    return Analysis(name, summary, options, run, unfit, source, graph_formats)
