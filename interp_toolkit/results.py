"""Results of analyses: headline and findings, numbers, evidence, provenance.

A `Result` is a frozen dataclass. It provides its tables and figures as plain data; `report/` turns
a list of results into a terminal table, JSON or one HTML page without knowing any analysis.
Figures are plotly's JSON (`data`, `layout`), made without importing plotly.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from interp_toolkit.errors import InputError, a_kind, printable
from interp_toolkit.formatting import OneRepr
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SCHEMA = "interp-toolkit/3"
#: module that displays results, by name, because results do not import reports
NOTEBOOK = "interp_toolkit.report.notebook"
SHOWN = 90  # characters of a headline in a `repr`
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
TITLE_HEIGHT = 44  # pixels

Tone = Literal["yes", "no", "none", "open", "against"]
Status = Literal[
    "separable",
    "not_separable",
    "detected",
    "not_detected",
    "partial",
    "described",
    "computed",
    "before",
    "absent",
    "unseen",
    "confirmed",
    "refuted",
    "reached",
    "not_reached",
    "partly_reached",
    "answered",
    "partly_answered",
    "needs",
    "does_not_need",
    "uninformative",
    "undecided",
    "not_tested",
    "not_testable",
    "sound",
    "faults_found",
    "passed",
    "failed",
    "differs",
    "not_applicable",
    "finished",
    "unfinished",
]
#: machine words for an outcome, in `evidence.status` or in a table's cell, with the strength of
#: each claim; the report gives these words a sign and a color, and other words neither
STATUS_TONES: Mapping[str, Tone] = {
    "separable": "yes",
    "detected": "yes",
    "computed": "yes",
    "confirmed": "yes",
    "reached": "yes",
    "sound": "yes",
    "passed": "yes",
    "not_separable": "no",
    "before": "no",
    "absent": "no",
    "not_detected": "none",
    "undecided": "open",
    "not_tested": "open",
    "not_testable": "open",
    "uninformative": "open",
    "partial": "open",
    "partly_reached": "open",
    "partly_answered": "open",
    "refuted": "against",
    "not_reached": "against",
    "faults_found": "against",
    "failed": "against",
}


@dataclass(frozen=True)
class Figure:
    """A plot as data: plotly traces and layout, with a sentence that says what to see in it.

    Traces have the class colors of `plots`; paper, font and axis colors are left to the
    report's theme. WebGL's 2-D traces (`scattergl`) and maps are not drawn; 3-D ones are.
    `shows` names the items in the figure, such as L1H0, as the result's tables do: a report's
    tables link these names to the figure.
    """

    title: str
    caption: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)
    shows: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"Figure({self.title!r}: {len(self.data)} traces)"

    def to_plotly(self) -> go.Figure:
        """A plotly figure with the traces, the layout, and the title above them.

        Examples:
            >>> import interp_toolkit as it
            >>> figure = it.analyze("toy:xor-2head", "xor").figures()[0].to_plotly()
            >>> figure.update_layout(width=800).layout.width
            800
        """
        import plotly.graph_objects as go

        plain: dict[str, Any] = jsonable(self.layout)
        margin = {"t": 48, **plain.get("margin", {})}
        title = {"text": self.title, "x": 0.01, "y": 0.98, "yref": "container", "yanchor": "top"}
        above = {"title": title, "margin": margin | {"t": margin["t"] + TITLE_HEIGHT}}
        if "height" in plain:
            above["height"] = plain["height"] + TITLE_HEIGHT
        theme = {
            "colorway": [*CLASS_COLORS, NEUTRAL],
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        }
        template = {"layout": theme, "data": {"heatmap": [{"colorscale": "Cividis"}]}}
        return go.Figure(jsonable(self.data), plain | above | {"template": template})


@dataclass(frozen=True)
class Table:
    """A small table as data; cells are strings, numbers, booleans or None.

    `highlight` holds the indices of the rows that the verdict is about, shown in bold.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    highlight: Collection[int] = ()

    def __repr__(self) -> str:
        return f"Table({self.title!r}: {len(self.rows)} rows × {len(self.columns)} columns)"

    def to_frame(self) -> pd.DataFrame:
        """The table as a frame, without caption and highlight."""
        import pandas as pd

        return pd.DataFrame([list(row) for row in self.rows], columns=list(self.columns))


@dataclass(frozen=True)
class Provenance:
    """The origin of a result: enough to reproduce it.

    Attributes:
        model: name, kind, file and its SHA-256, shape, assumptions made while loading, and settings
            of the model or of PyTorch overridden by the analysis (see `state.preserve_state`).
        data: source, number of rows, hash of tokens and labels.
        settings: the analysis' own options, as run.
        seed: seed of every random draw in the analysis.
        versions: versions of this package, torch, transformer_lens, numpy, Python.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    seed: int | None
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Evidence:
    """The evidence for a verdict; analyses add fields, with numbers as numbers.

    Attributes:
        status: the verdict in one machine word (see `STATUS_TONES`).
        reason: why an effect was not detected, or is undecided, as a phrase; else None.
    """

    status: Status
    reason: str | None = field(default=None, kw_only=True)

    #: fields that a table of the result already shows, which a report need not repeat
    in_tables: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Result(OneRepr, ABC):
    """Base of every analysis' result.

    Attributes:
        probe: the analysis' registered name.
        verdict: headline and findings joined.
        headline: answers the question of the analysis, in at most 20 words.
        findings: at most five sentences, each a fact with its number, 95 % CI and n. For a result
            made from a verdict alone, the headline is its first sentence and these are the others.
        evidence: the numbers behind the verdict: status, witness, null, causal effect.
        provenance: see `Provenance`.
        notes: caveats: what was left out or is approximate.
        plots: the figures; the first one explains the verdict.
    """

    probe: str
    verdict: str
    evidence: Evidence
    provenance: Provenance
    headline: str = field(init=False)
    findings: Sequence[str] = field(init=False)
    notes: Sequence[str] = field(default=(), kw_only=True)
    plots: Sequence[Figure] = field(default=(), kw_only=True, repr=False)

    #: fields that `to_dict` leaves out (arrays too large for a file)
    omit_from_json: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        headline, *findings = _SENTENCES.split(self.verdict)
        object.__setattr__(self, "headline", headline)
        object.__setattr__(self, "findings", findings)

    def __repr__(self) -> str:
        headline = printable(self.headline)
        headline = headline if len(headline) <= SHOWN else f"{headline[: SHOWN - 1]}…"
        return f"{type(self).__name__}({self.status}: {headline})"

    def _repr_html_(self) -> str:
        shown: str = importlib.import_module(NOTEBOOK).html_of(self)
        return shown

    def show(self) -> None:
        """Display verdict, figures and tables in a notebook; print all but figures elsewhere."""
        importlib.import_module(NOTEBOOK).show(self)

    @property
    def status(self) -> Status:
        """The verdict in one machine word, such as `not_separable`."""
        return self.evidence.status

    @property
    def methods(self) -> str:
        """How the numbers came about, for the methods section of a paper; see `methods_of`."""
        return methods_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data: numbers as numbers, missing and non-finite as None."""
        left_out = self.omit_from_json | {"plots"}
        first = ("probe", "status", "headline", "findings", "verdict")
        names = [f.name for f in dataclasses.fields(self) if f.name not in {*left_out, *first}]
        values = {name: jsonable(getattr(self, name)) for name in (*first, *names)}
        return {**values, "methods": self.methods}

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """The result's main table, one row per item."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The tables to show, the most important first."""

    def figures(self) -> list[Figure]:
        """The plots to show; the first one explains the verdict."""
        return list(self.plots)

    def write_graph(self, path: Path) -> None:
        """Write the result's graph to a file; raises InputError if it has none."""
        raise InputError(f"a {self.probe} result has no graph to write to {path}")


#: what evidence says about methods: the start of the sentence, and the fields in question
_METHODS: Sequence[tuple[str, Sequence[str]]] = (
    ("Metric: ", ("metric", "measured", "unit")),
    ("Ablated parts are replaced by ", ("ablation_value", "replaced_by")),
    ("Causal test: ", ("causal",)),
    ("Basis: ", ("basis",)),
    ("Selection: ", ("rule",)),
    ("Null: ", ("null", "copies")),
    ("Models or circuits compared with: ", ("random_layers", "nulls", "rivals")),
    ("Effect-size threshold: ", ("least_effect", "least_rise", "least")),
    ("Equivalence bound: ", ("equivalent_within",)),
    ("Significance level: ", ("level",)),
    ("Error control: ", ("error", "correction", "adjusted")),
)
_SIZES = ("n_layers", "n_heads", "d_model", "d_mlp", "d_vocab")
_HASH = 16  # characters of a hash that identify a file


def methods_of(result: Result) -> str:
    """How a result's numbers came about, made of its record alone, for a paper.

    Model, prompts and their number, settings, metric, ablation value, nulls, thresholds, error
    control, seed, versions and what to cite; what the record lacks is left out.

    Examples:
        >>> import interp_toolkit as it
        >>> "seed 0" in methods_of(it.analyze("toy:xor-2head", "xor")).lower()
        True
    """
    about, evidence = result.provenance, jsonable(result.evidence)
    model, data = jsonable(about.model), jsonable(about.data)
    versions = dict(about.versions)
    ours = " ".join(["interp-toolkit", versions.pop("interp-toolkit", "")]).strip()
    others = ", ".join(f"{name} {version}" for name, version in versions.items())
    sizes = [f"{n} {model['config'][n]}" for n in _SIZES if model.get("config", {}).get(n)]
    described = [model.get("kind"), _hashed(model.get("sha256")), *sizes]
    sentences = [
        f"Analysis {result.probe} of {ours}{f' ({others})' if others else ''}.",
        f"Model: {model.get('name') or 'unnamed'} ({', '.join(filter(None, described))}).",
    ]
    if data.get("source"):
        rows = f", {data['rows']} prompts" if data.get("rows") is not None else ""
        digest = _hashed(data.get("sha256"))
        sentences.append(f"Prompts: {data['source']}{rows}{f' ({digest})' if digest else ''}.")
    chosen = {name: _setting(value) for name, value in jsonable(about.settings).items()}
    if named := [f"{name} {value}" for name, value in chosen.items() if value]:
        sentences.append(f"Settings: {', '.join(named)}.")
    for start, fields in _METHODS:
        values = [_named(field, evidence.get(field)) for field in fields]
        if any(values):
            sentences.append(f"{start}{', '.join(filter(None, values))}.")
    if about.seed is not None:
        sentences.append(f"Seed {about.seed}.")
    return " ".join([*sentences, f"Cite {ours} (CITATION.cff)."])


def _named(field: str, value: Any) -> str:
    """A value of the evidence; numbers with the name of their field, and none that is 0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{field.replace('_', ' ')} {_setting(value)}" if value else ""
    return _setting(value)


def _hashed(digest: str | None) -> str:
    return f"SHA-256 {digest[:_HASH]}…" if digest else ""


def _setting(value: Any) -> str:
    """A value of the record in a sentence; "" for what is unset, or is no number or text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        plain = [_setting(item) for item in value]
        return "[" + ", ".join(plain) + "]" if plain and all(plain) else ""
    if isinstance(value, int | float):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    return value.rstrip(".") if isinstance(value, str) else ""


def head_name(layer: int, head: int) -> str:
    """An attention head's name in results, such as L1H0."""
    return f"L{layer}H{head}"


def jsonable(value: Any) -> Any:
    """Plain JSON data from dataclasses, arrays, tensors and paths; non-finite numbers become None.

    Raises TypeError on anything else, since a `repr` in a file would be of no use to readers.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if hasattr(value, "detach"):  # a torch tensor; numpy has no bfloat16
        value = value.detach().cpu()
        value = value.double() if value.is_floating_point() else value
    if hasattr(value, "tolist"):  # a tensor, a numpy array or scalar
        return jsonable(value.tolist())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def check_results(results: Any) -> None:
    """Raise InputError for a value that is not a list of results."""
    several = isinstance(results, Sequence) and not isinstance(results, str | bytes)
    if not several or not all(isinstance(result, Result) for result in results):
        raise InputError(f"{a_kind(results)} is not a list of results, as analyze returns them")
