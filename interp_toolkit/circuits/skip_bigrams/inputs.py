"""What `skip_bigrams_of` is given, checked: a form, unit features, their names, memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.circuits.skip_bigrams.form import Form
from interp_toolkit.circuits.skip_bigrams.scores import least_memory
from interp_toolkit.errors import InputError
from interp_toolkit.models.running.memory import format_size, parse_memory

Directions = Tensor | np.ndarray


def read_form(W: Directions | tuple[Directions, Directions]) -> tuple[Form, int]:
    """The form and its rank at most."""
    factors = W if isinstance(W, tuple) else (W, None)
    left = _matrix(factors[0], "W")
    right = torch.eye(len(left), dtype=left.dtype) if factors[1] is None else factors[1]
    right = _matrix(right, "W_K")
    if left.shape != right.shape:
        raise InputError(
            f"W is [d_model d_model] or (W_Q, W_K), both [d_model d_head]; got {tuple(left.shape)} "
            f"and {tuple(right.shape)}"
        )
    return Form(left, right), left.shape[1]


def _matrix(values: Directions, what: str) -> Float[Tensor, "row column"]:
    matrix = torch.as_tensor(values).detach().cpu().double()
    if matrix.ndim != 2 or not bool(matrix.isfinite().all()):
        raise InputError(f"{what} is a matrix of finite numbers; got one of {tuple(matrix.shape)}")
    return matrix


def read_unit(values: Directions, d_model: int, side: str) -> Float[Tensor, "feature d_model"]:
    """Rows of length 1; rows of zeros stay."""
    rows = _matrix(values, f"{side} features")
    if rows.shape[1] != d_model or len(rows) < 2:
        raise InputError(
            f"{side} features are two or more directions of {d_model} numbers, one a row; got "
            f"{tuple(rows.shape)}"
        )
    return torch.nn.functional.normalize(rows, dim=1)


def read_names(names: Sequence[str] | None, features: Tensor, side: str) -> Sequence[str]:
    """As many different names as features; f0, f1, ... where none are given."""
    if names is None:
        return [f"f{i}" for i in range(len(features))]
    if len(names) != len(features) or len(set(names)) < len(names):
        raise InputError(f"{side} features need {len(features)} different names")
    return names


def read_limit(memory: int | str | None, n_query: int, n_key: int) -> int:
    """Bytes, enough for the smallest tile of scores."""
    limit, least = parse_memory(memory), least_memory(n_query, n_key)
    if limit < least:
        raise InputError(
            f"scores are made in tiles that need {format_size(least)} at least, more than the "
            f"{format_size(limit)} of memory allowed; raise the limit"
        )
    return limit
