"""Two results made by hand: XOR read from the two-head construction, and from one head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import e, sqrt
from typing import Any

import pandas as pd
import pytest

from interp_toolkit.plots import (
    CLASS_COLORS,
    CLASS_SYMBOLS,
    NEUTRAL,
    translucent,
)
from interp_toolkit.results import Evidence, Figure, Provenance, Result, Table

SITE_COLUMNS = ("hook", "position", "function", "status", "margin", "accuracy")


@dataclass(frozen=True)
class HandMadeEvidence(Evidence):
    hyperplane: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    null: str | None = None
    heads: dict[str, Any] | None = None
    theorem: str | None = None


@dataclass(frozen=True)
class HandMade(Result):
    sites: Sequence[Sequence[Any]] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """To make another from."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.sites, columns=SITE_COLUMNS)

    def tables(self) -> list[Table]:
        caption = "The verdict is about the row in bold."
        return [Table("Sites", SITE_COLUMNS, self.sites, caption, highlight={1})]


def provenance(model: str, n_heads: int) -> Provenance:
    return Provenance(
        model={
            "name": model,
            "kind": "toy",
            "path": None,
            "sha256": None,
            "assumptions": ["no normalisation", "attention scale sqrt(d_head)"],
            "config": {"n_layers": 1, "n_heads": n_heads, "d_model": 3, "dtype": "float64"},
        },
        data={"source": "truth table", "rows": 4, "sha256": "9f2c" * 16},
        settings={"table": "0110", "hooks": ["blocks.*.hook_resid_post"], "position": 2},
        seed=0,
        versions={"interp-toolkit": "0.1.0", "torch": "2.13.0", "transformer_lens": "3.9.0"},
    )


def points(names: Sequence[str], xy: Sequence[Sequence[float]], cls: int) -> list[dict[str, Any]]:
    """A class: its hull, filled, and its labeled points."""
    x, y = zip(*xy, strict=True)
    label = ("a = b", "a ≠ b")[cls]
    color = CLASS_COLORS[cls]
    hull = {"type": "scatter", "mode": "lines", "fill": "toself", "hoverinfo": "skip"}
    return [
        {
            **hull,
            "x": [*x, x[0]],
            "y": [*y, y[0]],
            "line": {"color": color, "width": 2},
            "fillcolor": translucent(color),
            "showlegend": False,
        },
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": label,
            "x": x,
            "y": y,
            "text": names,
            "textposition": ("bottom left", "top right")[cls],
            "marker": {"color": color, "symbol": CLASS_SYMBOLS[cls], "size": 12},
        },
    ]


PLANE = {
    "xaxis": {"title": {"text": "written by head 0"}},
    "yaxis": {"title": {"text": "written by head 1"}, "scaleanchor": "x"},
}


@pytest.fixture
def separable() -> HandMade:
    """The two-head construction at s = 1; its gap along (1, 1)/√2 in closed form."""
    same, mixed = 2 * e / (2 * e + 1), e / (e + 2)
    gap = (2 * mixed - same) / sqrt(2)
    middle = (2 * mixed + same) / 2
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "separating line",
        "x": [-0.1, middle + 0.1],
        "y": [middle + 0.1, -0.1],
        "line": {"color": NEUTRAL, "dash": "dash", "width": 2},
    }
    plane = Figure(
        "The four attention updates in their plane",
        "The dashed line has both inputs with a = b on one side and both with a ≠ b on the other; "
        "01 and 10 write the same update.",
        [
            *points(["00", "11"], [(same, 0.0), (0.0, same)], 0),
            *points(["01, 10", ""], [(mixed, mixed), (mixed, mixed)], 1),
            line,
        ],
        PLANE,
    )
    return HandMade(
        probe="xor",
        verdict="XOR is linearly separable at blocks.0.hook_resid_post (position 2): "
        f"gap {gap:.4f}, verified on 4 points",
        evidence=HandMadeEvidence(
            status="separable",
            hyperplane={
                "direction": [1 / sqrt(2), 1 / sqrt(2), 0.0],
                "threshold": middle / sqrt(2),
                "gap": gap,
                "residual": 1.1e-16,
            },
            null="every labeling of these four points is separable",
            heads={"score of head 0": 0.5, "score of head 1": 0.5, "XOR left without": False},
        ),
        provenance=provenance("toy:xor-2head", 2),
        sites=[
            ("blocks.0.hook_resid_pre", 2, "XOR", "not_separable", None, 0.5),
            ("blocks.0.hook_resid_post", 2, "XOR", "separable", gap, 1.0),
            ("blocks.0.hook_resid_post", 2, "AND", "not_separable", None, 0.75),
            ("blocks.0.hook_resid_post", 1, "XOR", "undecided", 2e-13, float("nan")),
        ],
        plots=[plane],
    )


@pytest.fixture
def not_separable() -> HandMade:
    """One head: the two classes' hulls are segments that cross at (0.5, 0.1)."""
    meet = {
        "type": "scatter",
        "mode": "markers",
        "name": "where the hulls meet",
        "x": [0.5],
        "y": [0.1],
        "marker": {"color": NEUTRAL, "symbol": "x", "size": 11},
    }
    plane = Figure(
        "The four attention updates and the point where their hulls meet",
        "No line has one class on each side: the cross is an average of both.",
        [
            *points(["00", "11"], [(0.0, 0.0), (1.0, 0.2)], 0),
            *points(["01", "10"], [(0.3, -0.5), (0.7, 0.7)], 1),
            meet,
        ],
        PLANE,
    )
    losses = Figure(
        "Training loss of one head and its floor",
        "One head with positions cannot fall below ln 2 / 2.",
        [
            {
                "type": "scatter3d",
                "mode": "markers",
                "x": [0, 1, 2],
                "y": [0, 1, 0],
                "z": [0, 1, 2],
                "marker": {"color": CLASS_COLORS[1], "size": 5},
            }
        ],
    )
    return HandMade(
        probe="xor",
        verdict="XOR is not linearly separable at blocks.0.hook_resid_post (position 2): "
        "the hulls of the two classes meet, residual 2.8e-17",
        evidence=HandMadeEvidence(
            status="not_separable",
            certificate={
                "positive_weights": [0.5, 0.5],
                "negative_weights": [0.5, 0.5],
                "residual": 2.8e-17,
            },
            theorem="one attention head, query without the bits: no readout can separate XOR",
        ),
        provenance=provenance("toy:xor-1head", 1),
        sites=[
            ("blocks.0.hook_resid_pre", 2, "XOR", "not_separable", None, 0.5),
            ("blocks.0.hook_resid_post", 2, "XOR", "not_separable", None, 0.75),
        ],
        plots=[plane, losses],
    )
