"""Power laws y ~ x^k and exponentials y ~ g^x, by least squares on logarithms."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

LEAST = 1e-12  # what a value of 0 is taken for on a logarithmic scale


def exponent(x: Iterable[float | int], y: Iterable[float]) -> float:
    """The exponent k of y ~ x^k; x must be positive, and y at least LEAST."""
    return float(np.polyfit(np.log(_array(x)), _log(y), 1)[0])


def power_residual(x: Iterable[float | int], y: Iterable[float]) -> float:
    """Root mean square residual of ln y for the best y ~ x^k."""
    return _residual(np.log(_array(x)), _log(y))


def exponential_residual(x: Iterable[float | int], y: Iterable[float]) -> float:
    """Root mean square residual of ln y for the best y ~ g^x."""
    return _residual(_array(x), _log(y))


def _residual(x: np.ndarray, log_y: np.ndarray) -> float:
    left = log_y - np.polyval(np.polyfit(x, log_y, 1), x)
    return float(np.sqrt(np.mean(left**2)))


def _array(values: Iterable[float | int]) -> np.ndarray:
    return np.array(list(values), dtype=float)


def _log(values: Iterable[float]) -> np.ndarray:
    return np.asarray(np.log(np.maximum(_array(values), LEAST)))
