"""What a terminal shows of results, and texts without what changes from run to run."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HEX = r"(?=[0-9a-f]*[a-f])(?=[a-f]*\d)(?:[0-9a-f]{12,}…?|[0-9a-f]{8,}…)"
#: what may differ between two runs of the same code, and what stands for it
MASKS = [
    (re.compile(r"(?:/[\w.+-]+)*/site-packages/"), "…/"),
    (re.compile(re.escape(str(ROOT)) + "/?"), "…/"),
    (re.compile(rf"\b{HEX}|\b0x[0-9a-f]+\b"), "HASH"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]?[\d:.+]*"), "DATE"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|ms|min)\b|\b\d+\.\d+(?:s|ms)\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)?e-(?:0[6-9]|[1-9]\d+)\b"), "TINY"),
    (
        re.compile(r"\b(python|torch|numpy|transformer-lens|interp-toolkit) \d[\w.+]*"),
        r"\1 VERSION",
    ),
]


def page(*results: Any) -> list[str]:
    """The lines that a terminal of 100 columns shows."""
    from rich.console import Console

    from interp_toolkit.report import render

    shown = io.StringIO()
    render(results, Console(file=shown, width=100, force_terminal=False, no_color=True))
    return shown.getvalue().splitlines()


def steady(text: str) -> str:
    """A text without places, hashes, dates, times, rounding errors and versions."""
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text
