"""A detector: heads that attend to the token two before."""

from __future__ import annotations

import numpy as np

from interp_toolkit.circuits import Detector


def two_back(tokens: np.ndarray, sought: np.ndarray) -> np.ndarray:
    """The key two before the query: of tokens [pos], booleans [query key]."""
    return np.eye(len(tokens), k=-2, dtype=np.bool_)


TWO_BACK = Detector("two-back", "attends two tokens back", two_back, by_token=False)
