"""Figures of the covariance SDE: the mean diagonal along τ, and the gap against the width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp_toolkit import plots
from interp_toolkit.plots import (
    CLASS_COLORS,
    NEUTRAL,
    shade,
    translucent,
)
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
    data: list[plots.Part] = []
    for name, path, color in (
        ("diffusion, exact", sde, CLASS_COLORS[0]),
        (f"network, n = {width}, exact", network, CLASS_COLORS[1]),
    ):
        taus, means = [tau for tau, _, _ in path], [mean for _, mean, _ in path]
        low, high = [mean - sd for _, mean, sd in path], [mean + sd for _, mean, sd in path]
        data.append(plots.band(taus, low, high, translucent(color, 0.12)))
        data.append(plots.line(taus, means, color, name))
    for place, (sampler, seeds) in enumerate(samples.items()):
        x = [tau for values in seeds for tau in values["tau"]]
        y = [mean for values in seeds for mean in values["mean"]]
        name, symbol = f"draws: {sampler}", SYMBOLS[place]
        data.append(plots.markers(x, y, NEUTRAL, name, symbol=symbol, size=7))
    layout = plots.layout(plots.axis("τ = depth / width"), plots.axis("Tr Φ / m"))
    caption = (
        f"Mixing: {kind}. Lines: exact means; shaded: one standard deviation on either side, of "
        "a single draw. Points: means of draws, one a seed."
    )
    return Figure(f"The tokens' mean square along τ, {kind}", caption, data, layout)


def gap_figure(gaps: Mapping[str, Mapping[int, float]], tau: float) -> Figure:
    """The largest relative gap of a variance against the width, on logarithmic scales."""
    data = [
        plots.line(by_width, by_width.values(), shade(place, len(gaps)), kind)
        | plots.marked(SYMBOLS[place % len(SYMBOLS)], size=8)
        for place, (kind, by_width) in enumerate(gaps.items())
    ]
    widths = list(next(iter(gaps.values())))
    first = next(iter(gaps.values()))[widths[-1]]
    x, y = [widths[0], widths[-1]], [first * widths[-1] / widths[0], first]
    data.append(plots.line(x, y, NEUTRAL, "1/n", width=1.5, dash="dash"))
    layout = plots.layout(
        plots.axis("width n", "log"), plots.axis("largest relative gap of a variance", "log")
    )
    caption = (
        f"How far the variances of a network's Φ are from the diffusion's at τ = {tau:g}, both "
        "exact: the gap falls as 1/n."
    )
    return Figure("From the network to its limit", caption, data, layout)
