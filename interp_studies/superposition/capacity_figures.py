"""Figures of the capacity study: N against d, the loss against n, norms that are free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp_studies.superposition.packing import random_capacity, welch_capacity
from interp_toolkit import plots
from interp_toolkit.plots import (
    CLASS_COLORS,
    NEUTRAL,
    shade,
    translucent,
)
from interp_toolkit.results import Figure

EPSILON = 0.5  # of the random construction's line: a readout within it of the truth decides

Values = Mapping[str, Any]


def capacity_figure(by_power: Mapping[int, Mapping[int, float]], *, relu: bool) -> Figure:
    """N against d, a line a power, on logarithmic scales, with what is known."""
    data = [
        plots.line(by_d, by_d.values(), shade(place, len(by_power)), f"p = {power}")
        | plots.marked(plots.symbol(place), size=8)
        for place, (power, by_d) in enumerate(by_power.items())
    ]
    dimensions = sorted({d for by_d in by_power.values() for d in by_d})
    largest = max(n for by_d in by_power.values() for n in by_d.values())
    random = [(d, random_capacity(d, EPSILON)) for d in dimensions]
    lines = [(f"random directions, ε = {EPSILON:g}", [(d, n) for d, n in random if n <= largest])]
    if relu:
        lines.append(("d ln d", [(d, d * math.log(d)) for d in dimensions]))
    else:
        lines += [
            (f"Welch, p = {p}", [(d, welch_capacity(d, p)) for d in by_d])
            for p, by_d in by_power.items()
            if p % 2 == 0
        ]
    dashes = ("dash", "dot", "dashdot", "longdash", "longdashdot")
    data += [
        plots.line(
            [d for d, _ in points],
            [n for _, n in points],
            NEUTRAL,
            name,
            width=1.5,
            dash=dashes[place % len(dashes)],
        )
        for place, (name, points) in enumerate(lines)
    ]
    layout = plots.layout(
        plots.axis("dimensions d", "log"), plots.axis("inputs worth keeping, N", "log")
    )
    output = "with a ReLU" if relu else "without a ReLU"
    known = (
        "d ln d: what the source observes at p = 2"
        if relu
        else "Welch: where the lower bound on the interference turns"
    )
    caption = (
        f"Median over starts, {output}. {known}. Random directions: how many have all cosines "
        f"within {EPSILON:g}, in expectation, from the exact distribution of a cosine; it grows "
        "exponentially in d."
    )
    return Figure(f"How many features d dimensions store, {output}", caption, data, layout)


def loss_figure(starts: Sequence[Values]) -> Figure:
    """The loss against how many are kept, a line a start."""
    data = [
        plots.line(
            values["n"],
            values["loss"],
            CLASS_COLORS[place % 2],
            f"start {values['seed']}: N = {values['N']}",
            width=1.5,
        )
        | plots.marked()
        for place, values in enumerate(starts)
    ]
    first = starts[0]
    layout = plots.layout(plots.axis("inputs kept, n"), plots.axis("interference - n"))
    caption = (
        f"p = {first['power']}, d = {first['d']}, with a ReLU: each input kept saves 1 and "
        "interferes with the others; N is where the sum is least. It is flat there."
    )
    return Figure("The loss against how many are kept", caption, data, layout)


def norms_figure(trained: Sequence[Values], d: int, n: int) -> Figure:
    """The norms of autoencoders that are free to choose them, a histogram a power."""
    data = [
        {
            "type": "histogram",
            "name": f"p = {values['power']}",
            "x": values["norms"],
            "xbins": {"start": 0, "end": 1.2, "size": 0.05},
            "marker": {"color": translucent(CLASS_COLORS[place % 2], 0.7)},
        }
        for place, values in enumerate(trained)
    ]
    norm = plots.axis("norm of an input's direction") | {"range": [0, 1.2]}
    layout = plots.layout(norm, plots.axis("inputs")) | {"barmode": "overlay"}
    caption = (
        f"{n} inputs in {d} dimensions, with a ReLU, norms trained too. Two separate groups, kept "
        "and not kept, would make N a count; where the norms spread out or are all alike, there is "
        "no such number, which is why N is defined with norms held at 1."
    )
    return Figure("Norms, where they are free", caption, data, layout)
