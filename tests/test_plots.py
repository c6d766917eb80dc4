"""Parts of figures: known to plotly by name, and where they should be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp_toolkit import plots
from interp_toolkit.plots import CLASS_COLORS, NEUTRAL

BLUE = CLASS_COLORS[0]
XY = [1, 2], [3.0, None]
TRACES = {
    "line": plots.line(*XY, BLUE, "a", width=1.5, dash="dot"),
    "marked line": plots.line(*XY, BLUE) | plots.marked("x", 8, NEUTRAL),
    "dashed": plots.dashed(*XY, "known"),
    "markers": plots.markers(*XY, BLUE, "a", symbol=["x", "diamond"], size=9),
    "labels": plots.markers(*XY, BLUE, size=9) | plots.labels(["a", "b"], "top center"),
    "strokes": plots.strokes(*XY, "line-ns", "a", size=14),
    "bars": plots.bars(*XY, BLUE, "a") | {"error_y": plots.spread([1, 2], [0, 1])},
    "band": plots.band([1, 2], [0, 1], [2, 3], "rgba(1, 2, 3, 0.5)")
    | plots.grouped("g", listed=True),
    "map": plots.heatmap(["a", "b"], [0], [[1, None]], "score", low=-1, high=1) | plots.TILES,
    "bare map": plots.heatmap(None, None, [[1, 2]], "score"),
    "hover": plots.line(*XY, BLUE) | plots.hover("%{x}", [1, 2], box="b"),
    "quiet": plots.line(*XY, BLUE) | plots.NO_HOVER | plots.NO_LEGEND,
}
AXES = {
    "log": plots.axis("step", "log") | plots.whole(3),
    "category": plots.axis("token", "category") | plots.BARE | plots.DOWNWARD,
    "ticks": plots.axis("head") | plots.FROM_ZERO | plots.ticks(range(2), ["a", "b"]),
}


@pytest.mark.parametrize("name", TRACES)
def test_plotly_knows_every_name_of_a_trace(name: str) -> None:
    shapes = [plots.at_x(0.5), plots.at_y(1.0)]
    for axis in AXES.values():
        go.Figure(data=[TRACES[name]], layout=plots.layout(axis, axis) | {"shapes": shapes})


def test_plotly_finds_a_name_that_is_wrong() -> None:
    with pytest.raises(ValueError, match="colour"):
        go.Figure(data=[plots.line(*XY, BLUE) | {"colour": BLUE}])


def test_what_is_not_given_is_not_written() -> None:
    assert plots.line(*XY, BLUE) == {
        "type": "scatter",
        "mode": "lines",
        "x": [1, 2],
        "y": [3.0, None],
        "line": {"color": BLUE, "width": 2},
    }
    assert plots.marked() == {"mode": "lines+markers"}
    assert plots.axis("step") == {"title": {"text": "step"}}
    assert not {"x", "y", "zmin", "zmax"} & set(TRACES["bare map"])
    assert plots.heatmap(None, None, [[1]], "score", low=0)["zmin"] == 0  # 0 is given


def test_arrays_and_tensors_are_lists_of_pythons_own_numbers() -> None:
    for values in (np.array([1.5, 2.0]), torch.tensor([1.5, 2.0]), iter([1.5, 2.0])):
        drawn = plots.bars(["a", "b"], values, BLUE)["y"]
        assert drawn == [1.5, 2.0]
        assert all(type(value) is float for value in drawn)


def test_a_band_goes_along_the_upper_line_and_back_along_the_lower() -> None:
    band = plots.band([1, 2, 3], [-1, -2, -3], [1, 2, 3], NEUTRAL)
    assert list(zip(band["x"], band["y"], strict=True)) == [
        *((1, 1), (2, 2), (3, 3)),
        *((3, -3), (2, -2), (1, -1)),
    ]


def test_lines_across_stand_at_their_value() -> None:
    upright, level = plots.at_x(0.25), plots.at_y(0.5)
    assert (upright["x0"], upright["x1"], upright["yref"]) == (0.25, 0.25, "paper")
    assert (level["y0"], level["y1"], level["xref"]) == (0.5, 0.5, "paper")


@given(n=st.integers(1, 30), per_row=st.integers(1, 6), share=st.floats(0.3, 1.0))
def test_panels_lie_in_the_figure_and_apart(n: int, per_row: int, share: float) -> None:
    panels = plots.beside(n, per_row, share)
    assert [panel.number for panel in panels] == list(range(n))
    for one in panels:
        assert 0 <= one.x[0] < one.x[1] <= 1
        assert 0 <= one.y[0] < one.y[1] <= 1
        for other in panels[one.number + 1 :]:
            in_a_row = one.number // per_row == other.number // per_row
            assert in_a_row or other.y[1] <= one.y[0] + 1e-9
            assert not in_a_row or one.x[1] < other.x[0]
    first = {panel.number for panel in panels if panel.leftmost}
    assert first == set(range(0, n, per_row))
    below = {panel.number for panel in panels if panel.number + per_row < n}
    assert {panel.number for panel in panels if not panel.lowest} == below


def test_panels_have_axes_and_headings_of_their_own() -> None:
    panels = plots.beside(3, 2)
    layout: dict[str, Any] = {"annotations": [panel.heading("<i>") for panel in panels]}
    for panel in panels:
        layout |= panel.layout(plots.axis(f"x {panel.number}"), plots.axis(f"y {panel.number}"))
    drawn = go.Figure(
        data=[plots.line(*XY, BLUE) | panel.trace for panel in panels], layout=layout
    ).to_dict()
    assert [trace["xaxis"] for trace in drawn["data"]] == ["x", "x2", "x3"]
    assert drawn["layout"]["yaxis3"]["title"]["text"] == "y 2"
    assert drawn["layout"]["yaxis3"]["anchor"] == "x3"
    assert tuple(drawn["layout"]["xaxis2"]["domain"]) == panels[1].x
    for heading, panel in zip(drawn["layout"]["annotations"], panels, strict=True):
        assert (heading["x"], heading["y"]) == (panel.x[0], panel.y[1])


def test_markers_come_round_again() -> None:
    assert [plots.symbol(place) for place in range(7)] == [*plots.SYMBOLS, "circle"]


def test_numbers_are_rounded_to_digits_that_count() -> None:
    values = [[123456.0, 0.000123456], [math.nan, -math.inf], [None, 7]]
    expected = [[123500.0, 0.0001235], [None, None], [None, 7.0]]
    assert plots.rounded(values) == expected
    numbers = np.array([[1.23456, np.nan]])
    assert plots.rounded(numbers, 3) == [[1.23, None]]
    assert plots.rounded(torch.from_numpy(numbers), 3) == [[1.23, None]]


@given(st.floats(-1e300, 1e300), st.integers(1, 15))
def test_rounding_keeps_so_many_digits(value: float, digits: int) -> None:
    [rounded] = plots.rounded([value], digits)
    assert plots.rounded([rounded], digits) == [rounded]
    if abs(value) > 1e-300:  # below, floats have fewer digits themselves
        assert abs(rounded - value) <= 0.51 * 10.0 ** (1 - digits) * abs(value)
