"""Panels beside each other in one plotly figure, and numbers as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

GAP = 0.09  # between panels, of the figure's width
SHARE = 0.72  # of a row's height; names and ticks stand in the rest
DIGITS = 4  # significant ones, of what is drawn


class Panel(NamedTuple):
    """Where a panel lies in its figure.

    Attributes:
        suffix: of its axes' names.
        x, y: its part of the figure's width and height.
        title: as an annotation.
    """

    suffix: str
    x: tuple[float, float]
    y: tuple[float, float]
    title: Mapping[str, Any]

    @property
    def axes(self) -> dict[str, str]:
        """Which axes a trace in it has."""
        return {"xaxis": f"x{self.suffix}", "yaxis": f"y{self.suffix}"}


def panel(number: int, columns: int, rows: int, title: str) -> Panel:
    """The number-th of panels that fill rows of so many columns."""
    width = (1 - GAP * (columns - 1)) / columns
    left = (number % columns) * (width + GAP)
    top = 1 - (number // columns) / rows
    bottom = top - (SHARE if rows > 1 else 1.0) / rows
    return Panel(
        "" if number == 0 else str(number + 1),
        (left, min(left + width, 1.0)),
        (max(bottom, 0.0), top),
        {
            "text": f"<b>{title}</b>",
            "x": left,
            "y": top,
            "xref": "paper",
            "yref": "paper",
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
        },
    )


def axis(
    title: str,
    domain: tuple[float, float] | None = None,
    anchor: str | None = None,
    *,
    kind: str | None = None,
) -> dict[str, Any]:
    """An axis of a figure."""
    made: dict[str, Any] = {"title": {"text": title}, "zeroline": False}
    if kind is not None:
        made |= {"type": kind, "showgrid": False}
    if domain is not None:
        made |= {"domain": list(domain), "anchor": anchor}
    return made


def numbers(values: Tensor | np.ndarray | Sequence[Any]) -> list[Any]:
    """Nested lists of rounded numbers; None where one is not finite."""
    plain = values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
    return [
        numbers(value) if isinstance(value, list | tuple) else _number(value) for value in plain
    ]


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")
