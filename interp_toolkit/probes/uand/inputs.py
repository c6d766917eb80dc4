"""What the readoffs are given, checked where it comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.errors import InputError
from interp_toolkit.probes.estimators.rows import checked_rows
from interp_toolkit.probes.uand.errors import Pairs


def checked(
    X: Any, features: Any, like: tuple[int, int] | None = None
) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n m"]]:
    """Activations as float32 or float64, and features as booleans.

    Args:
        X: [n, d] finite numbers.
        features: [n, m] booleans, or the numbers 0 and 1, of at least two features.
        like: d and m that they must have, those of the rows fitted on.

    Raises:
        InputError: anything else.
    """
    X = numbers(X, like[0] if like else None)
    on = np.asarray(_array(features))
    if on.ndim != 2 or on.shape[1] < 2:
        raise InputError(f"features must be [n, m] of two features or more, not {list(on.shape)}")
    if on.dtype != np.bool_:
        if on.dtype.kind not in "iuf" or not np.isin(on, (0, 1)).all():
            raise InputError("features must be booleans: threshold them first")
        on = on.astype(bool)
    if len(on) != len(X):
        raise InputError(f"{len(X)} rows of activations and {len(on)} of features")
    if like and on.shape[1] != like[1]:
        raise InputError(f"there are {on.shape[1]} features; the readoffs are of {like[1]}")
    return X, on


def numbers(X: Any, width: int | None = None) -> Float[np.ndarray, "n d"]:
    """Activations as float32 or float64. Raises InputError for anything else."""
    rows = checked_rows(X)
    if width is not None and rows.shape[1] != width:
        has = f"X has {rows.shape[1]} features"
        raise InputError(f"{has}, but UANDReadoff is expecting {width} features as input")
    return rows


def checked_pairs(pairs: Any, n_features: int) -> Pairs:
    """Pairs of different features. Raises InputError for others, or none."""
    chosen = np.asarray(pairs)
    if chosen.ndim != 2 or chosen.shape[1] != 2 or not len(chosen) or chosen.dtype.kind not in "iu":
        raise InputError(f"pairs must be features by number, [pair, 2], not {list(chosen.shape)}")
    if chosen.min() < 0 or chosen.max() >= n_features or (chosen[:, 0] == chosen[:, 1]).any():
        raise InputError(f"a pair is two different features out of 0 to {n_features - 1}")
    return chosen.astype(np.int64)


def checked_gate(gate: Sequence[int], n_features: int) -> list[int]:
    """One feature or more, all different. Raises InputError for others."""
    chosen = [int(k) for k in gate]
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= k < n_features for k in chosen):
        raise InputError(f"gate {chosen}: give different features out of 0 to {n_features - 1}")
    return chosen


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # a torch tensor; numpy has no bfloat16
        values = values.detach().cpu()
        values = (
            values.float() if "16" in str(values.dtype) and values.is_floating_point() else values
        )
        values = values.numpy()
    return np.asarray(values)
