"""Activations as estimators take them; what is none is refused in scikit-learn's words."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_array

from interp_toolkit.errors import InputError


def checked_rows(X: Any) -> Float[np.ndarray, "batch d_model"]:
    """Activations as an array of float32 or float64, on the CPU.

    Args:
        X: [n, d] real numbers, an array or a tensor; narrower floats become float32, all other
            numbers float64.

    Raises:
        InputError: another shape, an empty one, text, complex numbers, NaN or infinity.
        TypeError: a sparse matrix, or objects that are no numbers.
    """
    if hasattr(X, "detach"):  # a torch tensor; numpy has no bfloat16
        X = X.detach().cpu()
        X = (X.float() if X.is_floating_point() and X.itemsize < 4 else X).numpy()
    if getattr(X, "dtype", None) == np.float16:
        X = X.astype(np.float32)
    try:
        rows = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False)
    except ValueError as error:
        first, *_, last = str(error).splitlines() * 2  # what is between is the data
        row_range = first if first == last else f"{first} {last}"
        raise InputError(f"the activations must be numbers [n, d]: {row_range}") from error
    if not np.isfinite(rows).all():
        raise InputError("the activations contain NaN or infinity; leave those rows out")
    return np.asarray(rows)
