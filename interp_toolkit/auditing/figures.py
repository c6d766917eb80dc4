"""The figure of an audit: every interval beside the bound that it is held against."""

from __future__ import annotations

from collections.abc import Sequence

from interp_toolkit import plots
from interp_toolkit.auditing.parts import ASKED, Answer
from interp_toolkit.auditing.result import AuditedClaim
from interp_toolkit.palette import CLASS_COLORS, NEUTRAL
from interp_toolkit.results import Figure

MOST = 40  # rows that a figure can show
_LOOKS: tuple[tuple[Answer, str, str], ...] = (
    ("confirmed", CLASS_COLORS[0], "circle"),
    ("refuted", CLASS_COLORS[1], "diamond"),
    ("undecided", NEUTRAL, "square"),
)


def interval_figure(claims: Sequence[AuditedClaim]) -> list[Figure]:
    """Estimates with their intervals, and bounds; nothing where no part is a number."""
    rows = [
        (f"{claim.about}: {ASKED[part.question]}", part)
        for claim in claims
        for part in claim.parts
        if part.asserted and part.low is not None and part.bound is not None
    ][:MOST]
    if not rows:
        return []
    deviations = any(claim.kind == "pair" for claim in claims)
    traces = []
    for answer, color, symbol in _LOOKS:
        chosen = [(i, part) for i, (_, part) in enumerate(rows) if part.answer == answer]
        if not chosen:
            continue
        found = [(i, part.value or 0.0, part.low or 0.0, part.high or 0.0) for i, part in chosen]
        marks = plots.markers(
            [value for _, value, _, _ in found],
            [i for i, _, _, _ in found],
            color,
            name=answer,
            symbol=symbol,
            size=10,
        )
        ends = plots.spread([h - v for _, v, _, h in found], [v - low for _, v, low, _ in found])
        traces.append(marks | {"error_x": ends})
    bounds = plots.markers(
        [part.bound for _, part in rows],
        list(range(len(rows))),
        NEUTRAL,
        name="bound of the claim",
        symbol="line-ns-open",
        size=18,
    )
    names = plots.ticks(range(len(rows)), [name for name, _ in rows])
    return [
        Figure(
            "What each claim rests on",
            "Estimates with their intervals, corrected for all claims together. A claim is "
            "confirmed where all its intervals lie right of their bounds, refuted where one lies "
            "wholly left of it; a circuit that keeps far more than the model has is refuted too.",
            [bounds, *traces],
            plots.layout(
                plots.axis("share (of pairs: standard deviations)" if deviations else "share"),
                plots.axis("") | names | plots.DOWNWARD,
            )
            | {"height": 160 + 44 * len(rows), "margin": {"l": 320}},
        )
    ]
