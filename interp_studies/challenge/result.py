"""The score card: tools side by side, weak spots first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar

from interp_studies.challenge.score import (
    Bin,
    Score,
    Scored,
    scores_by,
)
from interp_toolkit.plots import NEUTRAL, shade
from interp_toolkit.results import Evidence, Figure, Result, Table

if TYPE_CHECKING:
    import pandas as pd

GOOD = 0.9  # recall and precision whose interval lies below this are a weak spot
FEWEST = 5  # true items, or claims, that a weak spot is told of
SHOWN = 25  # weak spots in the table
LISTED = 8  # reasons of failures
COLUMNS = (
    *("tool", "models", "true items", "recall", "precision", "abstained"),
    *("AUC", "Brier", "reference", "CPU s"),
)


@dataclass(frozen=True)
class WeakSpot:
    """A group of questions on which a tool has low recall or low precision.

    Attributes:
        tool, kind, family, variant: the tool and the group.
        what: "recall" or "precision".
        right, of: numerator and denominator; low, high: the 95 % CI.
    """

    tool: str
    kind: str
    family: str
    variant: str
    what: str
    right: int
    of: int
    low: float
    high: float


@dataclass(frozen=True)
class ChallengeEvidence(Evidence):
    """Numbers of models, questions and items, and whether the seed is public."""

    models: int
    questions: int
    items: int
    public: bool


@dataclass(frozen=True)
class ChallengeResult(Result):
    """A score card.

    Attributes:
        by_kind: scores of each tool by kind of question.
        by_family: scores by family of models.
        by_variant: scores by variant of a family.
        by_strength: scores by strength of what was planted, in graded families.
        weak_spots: weak spots of each tool, worst first.
        bins: reliability of the stated probabilities.
        failures: tool, question and error message of each failure.
        answers: all answers; not in the JSON.
    """

    by_kind: Sequence[Score]
    by_family: Sequence[Score]
    by_variant: Sequence[Score]
    by_strength: Sequence[Score]
    weak_spots: Sequence[WeakSpot]
    bins: Sequence[Bin]
    failures: Sequence[tuple[str, str, str]]
    answers: Sequence[Scored] = field(repr=False)

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"answers"})

    def to_frame(self) -> pd.DataFrame:
        """One row per item: tool, model, question, truth, stated probability."""
        import pandas as pd

        shared = ("tool", "family", "variant", "strength", "seed", "kind", "about")
        rows = [
            [*(getattr(a, name) for name in shared), number, truth, stated]
            for a in self.answers
            for number, (truth, stated) in enumerate(zip(a.truths, a.stated, strict=True))
        ]
        return pd.DataFrame(rows, columns=[*shared, "item", "truth", "stated"])

    def tables(self) -> list[Table]:
        """Weak spots, then scores by kind, family, strength, and failures."""
        silent = [one for one in self.by_kind if not one.answered]
        tables = [
            _weak_table(self.weak_spots),
            *([_silent_table(silent)] if silent else []),
            _score_table("By kind of question", ["question"], self.by_kind),
            _score_table("By family of models", ["question", "family"], self.by_family),
        ]
        if self.by_strength:
            tables.append(
                _score_table(
                    "By strength of the planted effect", ["question", "strength"], self.by_strength
                )
            )
        if self.failures:
            tables.append(
                Table(
                    "No answer, since the tool raised an exception",
                    ["tool", "question", "reason"],
                    [list(f) for f in self.failures[:LISTED]],
                    f"{len(self.failures)} in all." if len(self.failures) > LISTED else "",
                )
            )
        return tables


def weak_spots(answers: Sequence[Scored]) -> list[WeakSpot]:
    """Groups of question, family and variant whose interval lies below GOOD, worst first.

    Groups that a tool abstains from entirely are not listed here; the tables show them.
    """
    found = []
    for one in scores_by(answers, lambda a: (a.kind, a.family, kind_of_variant(a.variant))):
        asked = (
            ("recall", one.right, one.true if one.answered else 0, one.recall_interval),
            ("precision", one.right, one.claimed, one.precision_interval),
        )
        kind, family, variant = one.group
        for what, right, of, interval in asked:
            if of >= FEWEST and interval is not None and interval[1] < GOOD:
                low, high = interval
                found.append(WeakSpot(one.tool, kind, family, variant, what, right, of, low, high))
    return sorted(found, key=lambda spot: (spot.high, spot.right / spot.of))


def kind_of_variant(variant: str) -> str:
    """A variant's name without its random details, which follow a semicolon."""
    return variant.partition(";")[0]


def reliability_figure(bins: Sequence[Bin]) -> Figure:
    """Fraction true against stated probability, with one line per tool."""
    tools = list(dict.fromkeys(b.tool for b in bins))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, 1],
            "y": [0, 1],
            "name": "as stated",
            "line": {"dash": "dot", "color": NEUTRAL},
            "hoverinfo": "skip",
        }
    ]
    for number, tool in enumerate(tools):
        mine, paint = [b for b in bins if b.tool == tool], shade(number, len(tools))
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": tool,
                "x": [b.stated for b in mine],
                "y": [b.true for b in mine],
                "marker": {"color": paint},
                "line": {"color": paint},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [b.interval[1] - b.true for b in mine],
                    "arrayminus": [b.true - b.interval[0] for b in mine],
                },
                "text": [f"{b.items} items" for b in mine],
            }
        )
    return Figure(
        "Reliability of stated probabilities",
        "Fraction of true items among those with about this stated probability, with 95 % "
        "interval. On the dotted line a tool is calibrated; below it, overconfident.",
        data,
        {
            "xaxis": {"title": {"text": "stated probability"}, "range": [0, 1]},
            "yaxis": {"title": {"text": "share true"}, "range": [0, 1]},
        },
    )


def _weak_table(spots: Sequence[WeakSpot]) -> Table:
    rows = [
        [s.tool, s.kind, f"{s.family}: {s.variant}", s.what, _counted(s.right, s.of, s.low, s.high)]
        for s in spots[:SHOWN]
    ]
    more = f" {len(spots) - SHOWN} more are in the JSON." if len(spots) > SHOWN else ""
    return Table(
        "Weak spots",
        ["tool", "question", "models", "measure", "value, 95 % interval"],
        rows,
        f"Groups whose interval of recall or precision lies below {GOOD:g}, the worst first.{more}"
        if rows
        else f"None: no interval of recall or precision lies below {GOOD:g}.",
    )


def _score_table(title: str, grouped: Sequence[str], scores: Sequence[Score]) -> Table:
    rows = [
        [
            *one.group,
            one.tool,
            one.models,
            f"{one.true} of {one.items}",
            _interval(one.right, one.true, one.recall_interval),
            _interval(one.right, one.claimed, one.precision_interval),
            f"{one.abstained:.0%}",
            one.auc,
            one.brier,
            one.reference,
            round(one.seconds, 1),
        ]
        for one in scores
        if one.answered
    ]
    return Table(
        title,
        [*grouped, *COLUMNS],
        rows,
        "True items: their number, of all items asked. A claim is a stated probability above 1/2. "
        "Abstentions count as missed in recall. AUC: the probability that a true item has a "
        "higher score than a false one. Brier: mean squared error of stated probabilities; "
        "reference: the Brier score of always stating the fraction of true items.",
    )


def _silent_table(silent: Sequence[Score]) -> Table:
    tools = dict.fromkeys(one.tool for one in silent)
    rows = [[tool, ", ".join(one.group[0] for one in silent if one.tool == tool)] for tool in tools]
    return Table(
        "Unanswered questions",
        ["tool", "questions"],
        rows,
        "Kinds of question that a tool does not answer; they are left out of the other tables.",
    )


def _interval(right: int, of: int, interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else _counted(right, of, *interval)


def _counted(right: int, of: int, low: float, high: float) -> str:
    return f"{right}/{of} = {right / of:.2f} [{low:.2f}, {high:.2f}]"


def as_markdown(result: ChallengeResult) -> str:
    """The tables as Markdown, for a page of documentation."""
    made = result.provenance
    version, transformer_lens = (
        made.versions[name] for name in ("interp-toolkit", "transformer-lens")
    )
    parts = [
        f"Made on {date.today().isoformat()} from seed {made.seed}, with interp-toolkit {version} "
        f"and TransformerLens {transformer_lens}, in {_minutes(result)} of processor time.",
        result.verdict,
        *result.notes,
    ]
    for table in result.tables():
        lines = [f"### {table.title}", ""]
        lines += [f"{table.caption}", ""] if table.caption else []
        if table.rows:
            lines.append("| " + " | ".join(table.columns) + " |")
            lines.append("|" + " --- |" * len(table.columns))
            lines += ["| " + " | ".join(_cell(c) for c in row) + " |" for row in table.rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _minutes(result: ChallengeResult) -> str:
    seconds = sum(one.seconds for one in result.by_kind)
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).replace("|", "\\|")
