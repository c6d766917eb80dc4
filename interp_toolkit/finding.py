"""The shape of every analysis: it takes a `Run`, returns a `Finding`, and fills tables by records.

    class SinkOptions(Options):
        level: float = Field(0.05, gt=0, lt=1, description="Significance level.")

    @dataclass(frozen=True)
    class Sink:
        head: str = column("head")
        ratio: float = column("attention to the first token, relative to uniform")

    @dataclass(frozen=True, kw_only=True)
    class SinkFinding(Finding):
        heads: Sequence[Sink] = records(Sink, "Attention sinks")

    def analyze(run: Run[SinkOptions]) -> SinkFinding: ...

    SINKS = analysis("sinks", "heads that attend to the first token", SinkOptions, analyze)

One line in `registry.CATALOGUE` (or one entry point of a plugin) makes it `--probe sinks`. The
tables of the terminal and the HTML page, `to_frame` and JSON are all made from the records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interp_toolkit.errors import InputError
from interp_toolkit.models.running.stages import Store, about_data, checked_tokens, store_of
from interp_toolkit.options import Options
from interp_toolkit.registry import Analysis
from interp_toolkit.results import Provenance, Result, Table

if TYPE_CHECKING:
    import pandas as pd

    from interp_toolkit.data import FeatureData

HEADLINE_WORDS = 20  # maximum; tests check every analysis
MOST_FINDINGS = 5

Chosen = TypeVar("Chosen", bound=Options)
FindingT = TypeVar("FindingT", bound="Finding")


class InterruptedAnalysis(KeyboardInterrupt):
    """Ctrl-C after an analysis' first stage.

    Attributes:
        finding: the result of that stage.
    """

    def __init__(self, finding: Finding):
        super().__init__()
        self.finding = finding


@contextmanager
def partly(finding: Callable[[], Finding | None]) -> Iterator[None]:
    """A KeyboardInterrupt inside the block becomes InterruptedAnalysis with this finding.

    None: nothing is finished yet, and the interrupt stays one.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if isinstance(stopped, InterruptedAnalysis) or (part := finding()) is None:
            raise
        raise InterruptedAnalysis(part) from stopped


_SHOW_EARLY: ContextVar[Callable[[Finding], object]] = ContextVar(
    "show_early", default=lambda finding: None
)


@contextmanager
def shown_early(show: Callable[[Finding], object]) -> Iterator[None]:
    """Inside the block, `show` is called with the first-stage finding of a long analysis."""
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
        data: prompts, with answers or features if they have any; None if there are none.
        options: checked options, including the seed and the memory bound.
        progress: called with a description of each step.
        name: the analysis' name.
    """

    model: Any
    data: FeatureData | None
    options: Chosen
    progress: Callable[[str], None]
    name: str = ""

    @contextmanager
    def early(self, finding: Finding) -> Iterator[None]:
        """Show the finding of a first stage before a long second one; see `shown_early`.

        A KeyboardInterrupt inside the block becomes InterruptedAnalysis with this finding.
        """
        finding = dataclasses.replace(finding, probe=self.name)
        _SHOW_EARLY.get()(finding)
        with partly(lambda: finding):
            yield

    @contextmanager
    def partly(self, finding: Callable[[], Finding | None]) -> Iterator[None]:
        """The same as the function `partly`, with a finding that does not name its analysis yet."""

        def named() -> Finding | None:
            part = finding()
            return part and dataclasses.replace(part, probe=self.name)

        with partly(named):
            yield

    @cached_property
    def store(self) -> Store:
        """Keeps what a stage measured, where the user asked for it; see `models.running.stages`."""
        return store_of(self.model, self._depends_on, self._checked_tokens)

    def _depends_on(self) -> Any:
        from interp_toolkit.models.about.record import versions

        try:
            options = self.options.model_dump(mode="json", exclude={"memory", "keep_circuit"})
        except ValueError as error:  # a function, say a detector of one's own
            raise InputError(
                "--resume: an option holds a function, which cannot be compared with that of "
                "another run; run without it"
            ) from error
        return [self.name, options, about_data(self.data), versions()]

    def _checked_tokens(self) -> Any:
        return checked_tokens(self.model, self.data)

    @property
    def seed(self) -> int:
        """Seed of every random draw."""
        return self.options.seed

    @property
    def memory(self) -> int | str | None:
        """Bound on memory used at once in addition to the weights; it sets the batch size."""
        return self.options.memory

    def provenance(self, data: FeatureData | None = None, **more: Any) -> Provenance:
        """The provenance of the numbers.

        Args:
            data: the prompts that were run; None if only the weights were read.
            more: counts, such as `positions=96`, listed with the data.
        """
        from interp_toolkit.models.about.record import provenance  # imports torch: only when run

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
    """A field of a record, or of evidence, that tables show under this heading.

    Args:
        heading: heading of the table's column; None: only in the JSON and in `to_frame`.
        unit: appended to the heading.
        format: makes the table's cell from the value; None: the value itself.
        default: default of the field.
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
    """A finding's field that holds records of one class and is shown as a table.

    The field is a sequence of records, a mapping whose keys become the first column (None for a
    missing record), one record, or None.

    Args:
        record: the records' class, a dataclass with `column` fields.
        title: title of the table.
        caption: below the title.
        highlight: selects the records that the headline is about.
        key: heading of a mapping's keys.
        least: fewest records for which the table is shown.
        cells: headings and functions that make the cells from a record, for cells that are not
            fields; None: the record's columns.
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
        """Pairs of key (or number) and record."""
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
    """Base of the results of analyses; subclasses add fields, and records become tables.

    Attributes:
        headline, findings, verdict: see `Result`; the most important finding comes first.
    """

    probe: str = ""  # set by `analysis`
    verdict: str = field(init=False)
    headline: str
    findings: Sequence[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", " ".join([self.headline, *self.findings]))

    def tables(self) -> list[Table]:
        """The fields of records as tables, in field order, without those of too few records."""
        tabled = self._records()
        return [
            of.table(values)
            for of, values in tabled
            if len(of.keyed(of.select(values))) >= of.least
        ]

    def to_frame(self) -> pd.DataFrame:
        """The first field of records, one row per record."""
        of, values = self._records()[0]
        return of.frame(values)

    def _records(self) -> list[tuple[_Records, Any]]:
        tabled = [f for f in dataclasses.fields(self) if "table" in f.metadata]
        return [(f.metadata["table"], getattr(self, f.name)) for f in tabled]


def headings_of(record: Any) -> Mapping[str, str]:
    """The headings of a dataclass' fields, by field name, without fields that have none."""
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
    reads_stream: bool = False,
    reads_answers: bool = False,
) -> Analysis:
    """An analysis to register, from `analyze(run) -> Finding`; see `registry.Analysis`.

    Those that read the residual stream, or the weights behind it, refuse a circuit's model, which
    has none: unless the user names other hook points (`hooks`).
    """

    def of_circuit(model: Any) -> str | None:
        from interp_toolkit.models.transformer.circuit import refusal

        return refusal(model) if reads_stream else None

    @wraps(getattr(analyze, "func", analyze))  # for a partial: its function
    def run(
        model: Any, data: FeatureData | None, chosen: Chosen, progress: Callable[[str], None]
    ) -> FindingT:
        if (why := of_circuit(model)) and not getattr(chosen, "hooks", None):
            raise InputError(why)
        finding = analyze(Run(model, data, chosen, progress, name))
        if data is not None and data.reading:
            described = {**finding.provenance.data, "reading": list(data.reading)}
            about = dataclasses.replace(finding.provenance, data=described)
            finding = dataclasses.replace(finding, provenance=about)
        return dataclasses.replace(finding, probe=name)

    def of_whole_models(model: Any, data: FeatureData | None) -> str | None:
        return of_circuit(model) or unfit(model, data)

    return Analysis(
        name, summary, options, run, of_whole_models, source, graph_formats, reads_answers
    )
