"""Figures of roles: what every head writes at once, and what the named ones attend to."""

from __future__ import annotations

from interp_toolkit import plots
from interp_toolkit.circuits.roles.find import PARKED, Roles
from interp_toolkit.circuits.roles.result import HeadRole
from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.results import Figure

MOST_PANELS, PER_ROW = 9, 3
PANEL_HEIGHT = 190  # pixels


def direct_map(roles: Roles) -> Figure:
    """Layers by heads: the direct effect on the preference for the answer, with its sign."""
    mean = roles.direct.mean
    n_layers, n_heads = mean.shape
    labels: dict[tuple[int, int], list[str]] = {}
    for head in roles.heads:
        if head.named:
            labels.setdefault((head.layer, head.head), []).append(head.kind)
    texts = [
        [_hover(roles, layer, head, labels.get((layer, head), [])) for head in range(n_heads)]
        for layer in range(n_layers)
    ]
    axes = list(range(n_heads)), list(range(n_layers))
    cells = plots.signed_heatmap(*axes, plots.rounded(mean), "logits")
    cells |= {"text": texts} | plots.hover("%{text}")
    data = [cells]
    moving = sorted({(h.layer, h.head) for h in roles.heads if h.named and h.kind not in PARKED})
    if moving:
        layers, heads = zip(*moving, strict=True)
        marks = plots.markers(heads, layers, "#000000", symbol="diamond-open", size=9)
        data.append(marks | plots.NO_HOVER | plots.NO_LEGEND)
    layout = plots.layout(
        plots.axis("head") | plots.whole(n_heads) | plots.BARE,
        plots.axis("layer") | plots.whole(n_layers) | plots.BARE,
    )
    caption = (
        "What each head writes at the asked place for the answer (above 0) or against it (below), "
        "in logits, through the final norm as it stands. Diamonds: heads that are named, but those "
        "that park."
    )
    return Figure("Direct effects", caption, data, layout | {"height": 140 + 16 * n_layers})


def _hover(roles: Roles, layer: int, head: int, kinds: list[str]) -> str:
    direct = roles.direct
    ends = f"{direct.low[layer, head]:.3g} to {direct.high[layer, head]:.3g}"
    kind = f"<br>{', '.join(kinds)}" if kinds else ""
    return f"L{layer}H{head}: {direct.mean[layer, head]:.3g} ({ends}){kind}"


def attention_panels(roles: Roles) -> list[Figure]:
    """The named heads' mean attention from the asked place, over places."""
    named = [head for head in roles.heads if head.named and head.kind not in PARKED]
    chosen: dict[tuple[int, int], HeadRole] = {}
    for head in named:
        chosen.setdefault((head.layer, head.head), head)
    heads = list(chosen.values())[:MOST_PANELS]
    if not heads:
        return []
    panels = plots.beside(len(heads), PER_ROW)
    data: list[plots.Part] = []
    layout: plots.Part = {
        "annotations": [
            p.heading(f"{h.name}, {h.kind}") for p, h in zip(panels, heads, strict=True)
        ],
        "height": 60 + PANEL_HEIGHT * -(-len(heads) // PER_ROW),
        "showlegend": False,
        "margin": {"t": 50},
    }
    for panel, head in zip(panels, heads, strict=True):
        paid = roles.attention[head.layer, head.head]
        order = list(range(len(paid)))
        data.append(plots.bars(order, plots.rounded(paid), CLASS_COLORS[0]) | panel.trace)
        layout |= panel.layout(
            plots.axis("place" if panel.lowest else ""),
            plots.axis("attention" if panel.leftmost else "") | {"range": [0, 1]},
        )
    caption = "Mean attention of the named heads from the asked place to every place of the row."
    return [Figure("What named heads attend to", caption, data, layout)]
