"""Files of directions: one matrix [feature d_model], read as data and never as code.

`.npy` holds the matrix; `.npz` holds `directions` and optionally `names`; `.safetensors` holds one
matrix under any name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.files import read_npy, read_npz
from interp_toolkit.models.loading.formats.files import read_file

SUFFIXES = (".npy", ".npz", ".safetensors")
_NPZ_ARRAYS = ("directions", "names")


def read_directions(
    path: Path, *, one: bool = False
) -> tuple[Shaped[Tensor, "feature d"], list[str]]:
    """The matrix in a file and the features' names, by default f0, f1, ...

    With `one`, a vector is read as a matrix of one row.

    Raises InputError if the file is missing, empty, damaged, needs code to be read, or does not
    hold exactly one matrix of real numbers.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    if path.suffix.lower() == ".safetensors":
        return _read_safetensors(path, one=one)
    npy = path.suffix.lower() == ".npy"
    arrays = {"directions": read_npy(path)} if npy else read_npz(path)
    if "directions" not in arrays:
        raise InputError(f"{path}: there is no array 'directions'")
    unknown = [name for name in arrays if name not in _NPZ_ARRAYS]
    if unknown:
        raise InputError(f"{path}: unknown array {unknown[0]!r}; known: {', '.join(_NPZ_ARRAYS)}")
    matrix = arrays["directions"]
    matrix = matrix[None] if one and matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: directions must be numbers [feature d_model], not {matrix.dtype} "
            f"{list(matrix.shape)}"
        )
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize > 8:
        matrix = matrix.astype(np.float64)
    values = torch.from_numpy(np.ascontiguousarray(matrix, matrix.dtype.newbyteorder("=")))
    return values, _names(path, arrays.get("names"), len(matrix))


def direction_names(n_features: int) -> list[str]:
    """Default feature names: f0, f1, ..."""
    return [f"f{k}" for k in range(n_features)]


def _read_safetensors(path: Path, *, one: bool) -> tuple[Shaped[Tensor, "feature d"], list[str]]:
    tensors = read_file(path).data
    matrices = [t for t in tensors.values() if isinstance(t, Tensor)] if len(tensors) == 1 else []
    matrices = [t[None] if one and t.ndim == 1 else t for t in matrices]
    if len(matrices) != 1 or matrices[0].ndim != 2:
        raise InputError(f"{path}: it must hold one matrix of directions [feature d_model]")
    return matrices[0], direction_names(len(matrices[0]))


def _names(path: Path, names: np.ndarray | None, n_features: int) -> list[str]:
    if names is None:
        return direction_names(n_features)
    if names.dtype.kind != "U" or names.shape != (n_features,):
        raise InputError(
            f"{path}: names must be text [{n_features}], not {names.dtype} {list(names.shape)}"
        )
    texts = [str(name) for name in names]
    if len(set(texts)) < n_features or not all(texts):
        raise InputError(f"{path}: names must differ and not be empty")
    return texts
