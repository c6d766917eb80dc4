"""What the QK and OV analyses return: a table of all heads, or one head taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from interp_toolkit.palette import CLASS_COLORS
from interp_toolkit.results import Figure, Result, Table, head_name

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05  # of the adjusted p-value, for a head to be said to copy or match

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class CircuitResult(Result):
    """A circuit of every head, or of one.

    Attributes:
        layer, head: the head taken apart; None for all heads.
        heads: one record per head looked at: layer, head, effective_rank and the scores of
            `weight_scores`.
        singular_values: of the head's circuit, the largest first; empty for all heads.
        components: of the head, its largest singular components with the tokens at either side.
        pairs: of the head, the token pairs with the largest scores.
        notes: what was left out, and what is approximate.
    """

    layer: int | None
    head: int | None
    heads: Records
    singular_values: Sequence[float]
    components: Records
    pairs: Records
    notes: Sequence[str]
    plots: Sequence[Figure] = field(repr=False, default=())

    omit_from_json: ClassVar[frozenset[str]] = frozenset({"plots"})
    #: prefix of the scores, and what the two sides and the score are called
    words: ClassVar[tuple[str, str, str, str]] = ("ov", "copying", "source", "logit")

    def to_frame(self) -> pd.DataFrame:
        """One row per head, or per component of the one head."""
        import pandas as pd

        return pd.DataFrame(list(self.heads if self.head is None else self.components))

    def tables(self) -> list[Table]:
        """The heads, or the one head's scores, pairs and components."""
        if self.head is None:
            return [self._head_table()]
        return [self._pair_table(), self._component_table(), self._head_table()]

    def figures(self) -> list[Figure]:
        """Pictures of what the tables say."""
        return list(self.plots)

    def _head_table(self) -> Table:
        circuit, name, *_ = self.words
        keys = ["effective_rank"]
        keys += [f"{circuit}_{key}" for key in (name, "diagonal", "z", "p", "p_adjusted")]
        rows = [[head_name(h["layer"], h["head"]), *(h[key] for key in keys)] for h in self.heads]
        found = [
            i for i, h in enumerate(self.heads) if (h[f"{circuit}_p_adjusted"] or 1.0) <= LEVEL
        ]
        return Table(
            "Heads" if self.head is None else "The head among all",
            ["head", "effective rank", f"{name} (eigenvalues)", "diagonal", "z", "p", "adjusted p"],
            rows,
            "Effective rank: of the circuit's squared singular values. Eigenvalues: their sum over "
            "the sum of their sizes. Diagonal: a token's own entry less the others, in root mean "
            "squares. z and p: of the trace, under random rotations; adjusted over all heads.",
            highlight=found,
        )

    def _pair_table(self) -> Table:
        _, _, left, right = self.words
        rows = [[p[left], p[right], p["score"]] for p in self.pairs]
        return Table("Token pairs", [left, right, "score"], rows, "The largest scores.")

    def _component_table(self) -> Table:
        _, _, left, right = self.words
        keys = ("component", "singular_value", "share", "sign", left, right)
        rows = [[c[key] for key in keys] for c in self.components]
        return Table(
            "Components",
            ["component", "singular value", "share", "sign", left, right],
            rows,
            "Singular components, and the tokens that stand out most on either side; a component "
            "raises scores where both sides have the same sign. Share: of the squared singular "
            "values.",
        )


@dataclass(frozen=True)
class OVResult(CircuitResult):
    """What heads write for the tokens they attend to; see `CircuitResult`."""


@dataclass(frozen=True)
class QKResult(CircuitResult):
    """Which tokens heads attend to from which; see `CircuitResult`."""

    words: ClassVar[tuple[str, str, str, str]] = ("qk", "matching", "query", "key")


def head_map(heads: Records, key: str, title: str, caption: str) -> Figure:
    """Layers by heads, coloured by an eigenvalue score."""
    layers = sorted({h["layer"] for h in heads})
    columns = sorted({h["head"] for h in heads})
    by_place = {(h["layer"], h["head"]): h for h in heads}
    prefix = key.split("_")[0]
    hover = ("effective_rank", f"{prefix}_z", f"{prefix}_p_adjusted")
    trace = {
        "type": "heatmap",
        "x": columns,
        "y": layers,
        "z": [[by_place[layer, column][key] for column in columns] for layer in layers],
        "customdata": [
            [[_short(by_place[layer, column][name]) for name in hover] for column in columns]
            for layer in layers
        ],
        "hovertemplate": "head %{y}.%{x}<br>score %{z:.3g}<br>effective rank %{customdata[0]}"
        "<br>z %{customdata[1]}<br>adjusted p %{customdata[2]}<extra></extra>",
        "hoverongaps": False,
        "zmin": -1,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"title": {"text": "score"}, "outlinewidth": 0},
    }
    layout = {
        "xaxis": {"title": {"text": "head"}, "dtick": 1 if len(columns) <= 16 else 4},
        "yaxis": {"title": {"text": "layer"}, "dtick": 1 if len(layers) <= 16 else 4},
    }
    return Figure(title, caption, [trace], layout)


def spectrum(values: Sequence[float], what: str) -> Figure:
    """The singular values of a circuit."""
    trace = {
        "type": "bar",
        "x": list(range(len(values))),
        "y": list(values),
        "marker": {"color": CLASS_COLORS[0]},
        "showlegend": False,
    }
    layout = {
        "xaxis": {"title": {"text": "component"}},
        "yaxis": {"title": {"text": "singular value"}, "rangemode": "tozero"},
    }
    return Figure("Spectrum", f"Singular values of {what}, the largest first.", [trace], layout)


def pair_map(
    rows: Sequence[str],
    columns: Sequence[str],
    scores: Sequence[Sequence[float]],
    words: tuple[str, str],
) -> Figure:
    """Scores between the tokens of the top pairs."""
    largest = max((abs(value) for row in scores for value in row), default=1.0)
    trace = {
        "type": "heatmap",
        "x": list(columns),
        "y": list(rows),
        "z": [[float(f"{value:.4g}") for value in row] for row in scores],
        "zmin": -largest,
        "zmax": largest,
        "hovertemplate": f"{words[0]} %{{y}}<br>{words[1]} %{{x}}<br>"
        "score %{z:.4g}<extra></extra>",
        "colorbar": {"title": {"text": "score"}, "outlinewidth": 0},
    }
    layout = {
        "xaxis": {"title": {"text": words[1]}, "type": "category"},
        "yaxis": {"title": {"text": words[0]}, "type": "category", "autorange": "reversed"},
    }
    caption = f"Scores of the top pairs' tokens: {words[0]} (rows) by {words[1]} (columns)."
    return Figure("Token pairs", caption, [trace], layout)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")
