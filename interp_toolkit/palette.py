"""The colours of figures: the same in every analysis, readable on light and dark paper.

Two classes differ in colour and in marker shape. The colours are near Okabe & Ito's blue and
vermillion, which every common form of colour blindness tells apart, with a contrast of at least
3.5 to 1 against both pages of the HTML report. Figures use them as literal values; the report's
theme changes only what is behind and around the traces (paper, font, grid, axes).
"""

from __future__ import annotations

#: of the class where the function is false, and of the class where it is true
CLASS_COLORS = ("#1f7fc0", "#d95f0e")
CLASS_SYMBOLS = ("circle", "diamond")  # known to plotly's 2-D and 3-D traces alike
#: of everything that is neither class: separating lines, reference marks, null distributions
NEUTRAL = "#7d8590"


def translucent(color: str, alpha: float = 0.16) -> str:
    """A `#rrggbb` colour as CSS `rgba(...)`: for filled hulls and bands behind the points."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha:g})"


def shade(place: int, n: int) -> str:
    """The colour of the `place`-th of n ordered things, from the one class colour to the other."""
    share = place / max(1, n - 1)
    ends = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in CLASS_COLORS]
    mixed = [round(a + share * (b - a)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
