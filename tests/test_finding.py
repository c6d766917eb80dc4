"""A new-style analysis: what the run gives, and what the records make of tables, JSON and pages."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import plotly.graph_objects as go
import pytest
from pydantic import Field
from rich.console import Console
from shown import page

import interp_toolkit as it
from interp_toolkit import registry
from interp_toolkit.data import FeatureData
from interp_toolkit.finding import (
    HEADLINE_WORDS,
    MOST_FINDINGS,
    Finding,
    Run,
    analysis,
    column,
    records,
)
from interp_toolkit.formatting import SMALLEST_P
from interp_toolkit.options import Options
from interp_toolkit.report.console import render
from interp_toolkit.report.html import dumps, to_html
from interp_toolkit.report.notebook import html_of
from interp_toolkit.results import Evidence, Figure, Provenance, Table, jsonable


class CountOptions(Options):
    least: int = Field(2, ge=1, description="Of a token, to be frequent.")


@dataclass(frozen=True)
class TokenCount:
    token: int = column("token")
    count: int = column("count", unit="times")
    share: float = column("share", format=lambda share: f"{share:.0%}")
    prompts: Sequence[int] = column()


@dataclass(frozen=True)
class CountEvidence(Evidence):
    most: int = column("largest count")
    tokens: int = column()


@dataclass(frozen=True, kw_only=True)
class CountFinding(Finding):
    evidence: CountEvidence
    tokens: Sequence[TokenCount] = records(
        TokenCount, "Tokens", "How often each is there.", highlight=lambda token: token.count > 2
    )


def analyze(run: Run[CountOptions]) -> CountFinding:
    run.progress("counting")
    counted = []
    if run.data is not None:
        tokens = run.data.token_matrix()
        for token, count in zip(*np.unique(tokens, return_counts=True), strict=True):
            where = np.flatnonzero((tokens == token).any(1)).tolist()
            counted.append(TokenCount(int(token), int(count), count / tokens.size, where))
    most = max((token.count for token in counted), default=0)
    return CountFinding(
        headline=f"The most frequent token occurs {most} times.",
        findings=[f"There are {len(counted)} tokens.", f"{run.options.least} is frequent."],
        evidence=CountEvidence("described", most, len(counted)),
        provenance=run.provenance(run.data, distinct=len(counted)),
        tokens=counted,
        notes=["a note"],
        plots=[Figure("Counts", "By token.", [{"type": "bar", "y": [most]}])],
    )


COUNT = analysis("count", "how often tokens occur", CountOptions, analyze)


@pytest.fixture(scope="module")
def finding() -> CountFinding:
    tokens = np.array([[0, 1, 1], [2, 1, 0]])
    data = FeatureData(tokens, np.zeros((2, 0), bool), (), source="two prompts")
    return COUNT(it.load("toy:induction"), data=data, seed=3, least=4)


def shown(result: Finding, **options: bool) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    render([result], console, **options)
    return console.export_text()


def test_the_run_makes_the_provenance_and_the_registration_the_name(finding) -> None:
    assert finding.probe == "count"
    about = finding.provenance
    assert about.seed == 3
    assert about.settings == {"least": 4}
    assert about.data["source"] == "two prompts"
    assert (about.data["rows"], about.data["distinct"]) == (2, 3)
    assert COUNT(it.load("toy:induction")).provenance.data == {"distinct": 0}


def test_records_fill_tables_frames_and_json(finding, texts) -> None:
    [table] = finding.tables()
    texts([table.title, table.caption])
    assert list(table.columns) == ["token", "count (times)", "share"]
    assert table.rows[1] == [1, 3, "50%"]
    assert list(table.highlight) == [1]
    frame = finding.to_frame()
    assert list(frame.columns) == ["token", "count", "share", "prompts"]
    assert frame["share"].tolist() == pytest.approx([1 / 3, 1 / 2, 1 / 6])
    [plain] = json.loads(dumps([finding]))["results"]
    assert list(plain)[:4] == ["probe", "status", "headline", "findings"]
    assert plain["verdict"] == " ".join([plain["headline"], *plain["findings"]])
    assert plain["tokens"][1] == {"token": 1, "count": 3, "share": 0.5, "prompts": [0, 1]}
    assert plain["evidence"] == {"status": "described", "reason": None, "most": 3, "tokens": 3}
    none = COUNT(it.load("toy:induction"))
    assert list(none.to_frame().columns) == list(frame.columns)
    assert none.tables()[0].rows == []


@dataclass(frozen=True, kw_only=True)
class NamedFinding(CountFinding):
    named: dict[str, TokenCount | None] = records(TokenCount, "By name", key="prompt")
    doubled: Sequence[TokenCount] = records(
        TokenCount, "Doubled", cells={"token": lambda t: t.token, "twice": lambda t: 2 * t.count}
    )
    one: TokenCount | None = records(TokenCount, "One", least=1)
    largest: dict[str, list[TokenCount]] = records(
        TokenCount, "Largest", least=1, select=lambda by: by["largest"], sparse=True,
        cells={"token": lambda t: t.token, "never": lambda t: None},
    )  # fmt: skip
    several: Sequence[TokenCount] = records(TokenCount, "Several", least=2)


def test_records_may_be_named_computed_one_or_too_few_to_show(finding) -> None:
    first, second = finding.tokens[:2]
    fields = {name: getattr(finding, name) for name in ("headline", "findings", "evidence")}
    more = NamedFinding(
        **fields, provenance=finding.provenance, tokens=[], several=[first], one=first,
        named={"a": first, "-": None, "b": second}, doubled=[first, second],
        largest={"largest": [second], "other": []},
    )  # fmt: skip
    _, named, doubled, one, largest = more.tables()
    assert (largest.columns, largest.rows) == (["token"], [[1]])
    assert list(named.columns) == ["prompt", "token", "count (times)", "share"]
    assert [row[:3] for row in named.rows] == [["a", 0, 2], ["b", 1, 3]]
    assert (doubled.columns, doubled.rows) == (["token", "twice"], [[0, 4], [1, 6]])
    assert one.rows == [[0, 2, "33%"]]
    assert more.to_dict()["named"]["b"]["count"] == 3
    titles = [table.title for table in dataclasses.replace(more, one=None).tables()]
    assert titles[2:] == ["Doubled", "Largest"]


def test_the_terminal_shows_headline_findings_notes_tables(finding, texts) -> None:
    text = shown(finding)
    parts = [
        "• The most frequent token occurs 3 times.",
        "• There are 3 tokens.",
        "• 4 is frequent",
    ]
    parts += ["Note: a note", "Tokens", "(times)", "seed 3"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "largest count" not in text
    texts(shown(finding, quiet=True))


def test_pages_show_headline_picture_findings_evidence(finding) -> None:
    text = to_html([finding]).partition("<main>")[2]
    parts = ['class="verdict headline', "<figure", "<li>There are 3 tokens.", "largest count"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    cell = html_of(finding)
    assert cell.index("occurs 3 times") < cell.index("<li>There are 3 tokens.") < cell.index("50%")


def test_two_models_side_by_side_have_the_fields_headings(finding) -> None:
    other = COUNT(it.load("toy:xor-2head"))
    console = Console(width=80, record=True, file=io.StringIO())
    render([finding, other], console)
    assert "largest" in console.export_text().partition("side by side")[2]


def test_records_by_name_and_the_first_of_many() -> None:
    @dataclass(frozen=True, kw_only=True)
    class ByKind(Finding):
        kinds: Mapping[str, TokenCount] = records(TokenCount, "Kinds", key="kind")
        most: Sequence[TokenCount] = records(
            TokenCount, "Most", select=lambda ones: [t for t in ones if t.token > 4][:1]
        )

    ones = [TokenCount(token, 3, 0.5, ()) for token in (5, 6)]
    about = Provenance({}, {}, {}, None, {})
    finding = ByKind(
        headline="Two.",
        findings=[],
        evidence=Evidence("described"),
        provenance=about,
        kinds={"a": ones[0], "b": ones[1]},
        most=[TokenCount(4, 3, 0.5, ()), *ones],
    )
    kinds, most = finding.tables()
    assert list(kinds.columns) == ["kind", "token", "count (times)", "share"]
    assert kinds.rows == [["a", 5, 3, "50%"], ["b", 6, 3, "50%"]]
    assert finding.to_frame()["kind"].tolist() == ["a", "b"]
    assert most.rows == [[5, 3, "50%"]]
    plain = finding.to_dict()
    assert plain["kinds"]["b"]["token"] == 6
    assert len(plain["most"]) == 3


def returned(analysis: registry.Analysis) -> type:
    """The class that an analysis says it returns."""
    run = getattr(analysis.run, "func", analysis.run)
    return eval(run.__annotations__["return"], vars(sys.modules[run.__module__]))


def ported() -> list[str]:
    ours = {name: registry.find("probes", name) for name in registry.CATALOGUE["probes"]}
    return [name for name, found in ours.items() if issubclass(returned(found), Finding)]


P_VALUES = re.compile(r"^p$|^p,|\bp$")  # columns of p-values: "p", "p, Holm", "adjusted p"


def columns_of(table: Table) -> Iterator[tuple[str, list[Any]]]:
    """The columns of a table with their headings."""
    for number, heading in enumerate(table.columns):
        yield heading, [row[number] for row in table.rows]


TOYS = ("toy:induction", "toy:xor-2head", "toy:uand-trained")
ON_ITS_OWN_TOY = [
    ("sorting", "toy:sort-distinct-trained"),
    ("skip-bigrams", "toy:skip-bigrams"),
    ("logit-attribution", "toy:decoy"),  # without task performance
    ("patching", "toy:decoy"),
    ("heads", "toy:decoy"),
]


@pytest.mark.parametrize(("name", "toy"), [*product(ported(), TOYS), *ON_ITS_OWN_TOY])
def test_every_finding_is_short_and_whole(name: str, toy: str, texts, analyzed) -> None:
    reason = registry.find("probes", name).unfit(it.load(toy), None)
    if reason and "--probe" not in reason:  # those that run only where they are named
        pytest.skip(reason)
    finding = analyzed(toy, name)
    assert type(finding) is returned(registry.find("probes", name))
    assert finding.probe == name
    assert len(finding.headline.split()) <= HEADLINE_WORDS
    assert len(finding.findings) <= MOST_FINDINGS
    for sentence in (finding.headline, *finding.findings):
        assert sentence[0] == sentence[0].upper()
        assert sentence.endswith(".")
        assert not {"nan", "inf", "None"} & set(sentence.split())
    for table in finding.tables():
        assert all(len(row) == len(table.columns) for row in table.rows)
        for p_values in (cells for name, cells in columns_of(table) if P_VALUES.search(name)):
            assert not any(isinstance(p, float) and p < SMALLEST_P for p in p_values)
    if type(finding).to_frame is Finding.to_frame:
        assert all(len(finding.to_frame()) >= len(table.rows) for table in finding.tables()[:1])
    json.loads(dumps([finding]))
    for figure in finding.figures():
        plain = json.loads(json.dumps(jsonable(figure), allow_nan=False))
        drawn = go.Figure(data=plain["data"], layout=plain["layout"])  # plotly knows all names
        assert len(drawn.data) == len(figure.data)
    texts(map(str.rstrip, page(finding)), numbers="trained" not in toy)
