"""Activations, features, labels and options of a fit, checked.

Activations, features and labels come from lists, arrays or tensors.

Torch is not needed: a tensor is recognized by its `detach`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp_toolkit.errors import InputError


def checked_rows(X: Any) -> Float[np.ndarray, "batch d_model"]:
    """Activations as an array of float32 or float64, on the CPU.

    Args:
        X: [n, d] real numbers, an array or a tensor; narrower floats become float32, all other
            numbers float64.

    Raises:
        InputError: another shape, an empty one, text, complex numbers, NaN or infinity.
        TypeError: a sparse matrix, or objects that are not numbers.
    """
    if hasattr(X, "detach"):  # a torch tensor; numpy has no bfloat16
        X = X.detach().cpu()
        X = (X.float() if X.is_floating_point() and X.itemsize < 4 else X).numpy()
    if getattr(X, "dtype", None) == np.float16:
        X = X.astype(np.float32)
    from sklearn.utils.validation import check_array  # takes long to import

    try:
        rows = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False)
    except ValueError as error:
        first, *_, last = str(error).splitlines() * 2  # the lines in between show the data
        row_range = first if first == last else f"{first} {last}"
        raise InputError(f"the activations must be numbers [n, d]: {row_range}") from error
    if not np.isfinite(rows).all():
        raise InputError("the activations contain NaN or infinity; leave those rows out")
    return np.asarray(rows)


def as_booleans(
    columns: Any, what: str = "features", hint: str = ""
) -> Bool[np.ndarray, "batch column"]:
    """Features or labels as booleans; InputError unless they are 2-dimensional, of 0s and 1s.

    The hint says what to give in place of a 1-dimensional array.
    """
    if hasattr(columns, "detach"):  # a torch tensor; numpy has no bfloat16
        columns = columns.detach().cpu()
        columns = columns.float() if columns.is_floating_point() else columns
    values = np.asarray(columns)
    if values.ndim != 2:
        remedy = f": {hint}" if hint and values.ndim == 1 else ""
        raise InputError(f"the {what} must be [rows, {what}], got shape {values.shape}{remedy}")
    if values.dtype != bool:
        if values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all():
            raise InputError(f"the {what} must be booleans, or numbers that are 0 or 1")
        values = values.astype(bool)
    return values


def check_options(C: float, tol: float, max_iter: int) -> None:
    """Raise InputError for an invalid option of the fit."""
    if not 0 < C < np.inf:
        raise InputError(f"C must be positive and finite, got {C}")
    if not 0 < tol < 1:
        raise InputError(f"tol must lie between 0 and 1, got {tol}")
    if max_iter < 1:
        raise InputError(f"max_iter must be at least 1, got {max_iter}")
