"""A head's place in a model."""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """An attention head: its layer, and its number in that layer, both counted from 0."""

    layer: int
    head: int
