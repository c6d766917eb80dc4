"""Figures of the covariance SDE: the mean diagonal along τ, and the gap against the width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit.palette import CLASS_COLORS, NEUTRAL, shade, translucent
from interp_toolkit.results import Figure

SYMBOLS = ("circle", "square", "diamond")
Path = Sequence[tuple[float, float, float]]  # τ, mean, standard deviation


def path_figure(
    kind: str,
    sde: Path,
    network: Path,
    width: int,
    samples: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Figure:
    """Tr Φ/m along τ: exact means and spreads, and draws, a point a seed."""
    data: list[dict[str, Any]] = []
    for name, path, color in (
        ("diffusion, exact", sde, CLASS_COLORS[0]),
        (f"network, n = {width}, exact", network, CLASS_COLORS[1]),
    ):
        data += [_band(path, color), _mean(name, path, color)]
    for place, (sampler, seeds) in enumerate(samples.items()):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"draws: {sampler}",
                "x": [tau for values in seeds for tau in values["tau"]],
                "y": [mean for values in seeds for mean in values["mean"]],
                "marker": {"symbol": SYMBOLS[place], "size": 7, "color": NEUTRAL},
            }
        )
    layout = {
        "xaxis": {"title": {"text": "τ = depth / width"}},
        "yaxis": {"title": {"text": "Tr Φ / m"}},
    }
    caption = (
        f"Mixing: {kind}. Lines: exact means; shaded: one standard deviation on either side, of "
        "a single draw. Points: means of draws, one a seed."
    )
    return Figure(f"The tokens' mean square along τ, {kind}", caption, data, layout)


def gap_figure(gaps: Mapping[str, Mapping[int, float]], tau: float) -> Figure:
    """The largest relative gap of a variance against the width, on logarithmic scales."""
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": kind,
            "x": list(by_width),
            "y": list(by_width.values()),
            "line": {"color": shade(place, len(gaps)), "width": 2},
            "marker": {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8},
        }
        for place, (kind, by_width) in enumerate(gaps.items())
    ]
    widths = list(next(iter(gaps.values())))
    first = next(iter(gaps.values()))[widths[-1]]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "1/n",
            "x": [widths[0], widths[-1]],
            "y": [first * widths[-1] / widths[0], first],
            "line": {"color": NEUTRAL, "dash": "dash", "width": 1.5},
        }
    )
    layout = {
        "xaxis": {"title": {"text": "width n"}, "type": "log"},
        "yaxis": {"title": {"text": "largest relative gap of a variance"}, "type": "log"},
    }
    caption = (
        f"How far the variances of a network's Φ are from the diffusion's at τ = {tau:g}, both "
        "exact: the gap falls as 1/n."
    )
    return Figure("From the network to its limit", caption, data, layout)


def _band(path: Path, color: str) -> dict[str, Any]:
    taus = [tau for tau, _, _ in path]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": taus + taus[::-1],
        "y": [m + s for _, m, s in path] + [m - s for _, m, s in path[::-1]],
        "fill": "toself",
        "fillcolor": translucent(color, 0.12),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _mean(name: str, path: Path, color: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [tau for tau, _, _ in path],
        "y": [mean for _, mean, _ in path],
        "line": {"color": color, "width": 2},
    }
