"""Power laws: the exponent of a seed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

LEAST = 1e-12  # what a value of 0 is taken for on a logarithmic scale


def exponent(x: Iterable[float | int], y: Iterable[float]) -> float:
    """The k of y ~ x^k, least squares on logarithms; x positive, y at least LEAST."""
    logs = (
        np.log(np.array(list(x), dtype=float)),
        np.log(np.maximum(np.array(list(y), dtype=float), LEAST)),
    )
    return float(np.polyfit(*logs, 1)[0])
