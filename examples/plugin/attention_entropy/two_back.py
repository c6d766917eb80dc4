"""A detector: heads that attend to the token two positions before."""

from __future__ import annotations

import numpy as np

from interp_toolkit.circuits import Detector


def two_back(tokens: np.ndarray, sought: np.ndarray) -> np.ndarray:
    """Whether a key stands two positions before a query, [query key], for tokens [pos]."""
    return np.eye(len(tokens), k=-2, dtype=np.bool_)


TWO_BACK = Detector("two-back", "attends two tokens back", two_back, by_token=False)
