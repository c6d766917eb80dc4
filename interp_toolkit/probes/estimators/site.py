"""The activations at one site, turned into their principal axes for the solver.

A logistic fit penalises |w|^2 and not the intercept. So the rows may be shifted (the intercept
takes it up) and rotated (|w| is kept) without changing the problem, but not rescaled. In the
principal axes of the rows the Hessian at w = 0 is diagonal, which is what
`probes.estimators.solver` starts from. With fewer rows than dimensions the rows' own span is
enough: the optimal w is in it.

Nothing here is fitted to labels, so one `Site` serves all targets and all folds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError

Rows = Float[np.ndarray, "batch d_model"] | Float[Tensor, "batch d_model"]
Labels = Bool[np.ndarray, "batch target"] | Bool[Tensor, "batch target"]
Device = str | torch.device | None
ROW_CHUNK = 8192


class Site:
    """Activations at one site, shared by every target solved there.

    Attributes:
        fit_intercept: whether probes here have an intercept.
        device: where the products run.
        natural: float32 for activations of at most 32 bits, else float64.
        n_rows: number of rows.
        penalty: [param] 1, and 0 for the intercept, which is last when there is one.
    """

    def __init__(self, X: Rows, *, fit_intercept: bool, device: Device = None) -> None:
        activations = as_tensor(X, device)
        if not bool(torch.isfinite(activations).all()):
            raise InputError("the activations contain NaN or infinity; leave those rows out")
        self._activations = activations
        self.fit_intercept = fit_intercept
        self.device = activations.device
        self.natural = torch.float64 if activations.dtype == torch.float64 else torch.float32
        self.n_rows = len(activations)
        self._mean = self._column_means()
        self._axes = self._principal_axes()
        self.penalty = self._axes.new_ones(self._axes.shape[1] + fit_intercept)
        if fit_intercept:
            self.penalty[-1] = 0
        self._rows: dict[torch.dtype, Tensor] = {}

    def rows(self, dtype: torch.dtype) -> Float[Tensor, "batch param"]:
        """The rows in their principal axes, and a column of ones when an intercept is fitted."""
        if dtype not in self._rows:
            rows = self._axes.new_ones(self.n_rows, len(self.penalty), dtype=dtype)
            for part in self._chunks():
                rows[part, : self._axes.shape[1]] = (self._centred(part) @ self._axes).to(dtype)
            self._rows[dtype] = rows
        return self._rows[dtype]

    def to_coefficients(
        self, params: Float[Tensor, "target param"]
    ) -> tuple[Float[Tensor, "target d_model"], Float[Tensor, " target"]]:
        """Coefficients and intercepts on the activations as given."""
        params = params.double()
        coef = params[:, : self._axes.shape[1]] @ self._axes.T
        if not self.fit_intercept:
            return coef, coef.new_zeros(len(coef))
        return coef, params[:, -1] - coef @ self._mean

    def margins(
        self, coef: Float[Tensor, "target d_model"], intercept: Float[Tensor, " target"]
    ) -> Float[Tensor, "batch target"]:
        """The decision values of linear probes on this site's rows, in float64."""
        parts = [
            torch.addmm(intercept + coef @ self._mean, self._centred(part), coef.T)
            for part in self._chunks()
        ]
        return torch.cat(parts)

    def _chunks(self) -> list[slice]:
        return [slice(at, at + ROW_CHUNK) for at in range(0, self.n_rows, ROW_CHUNK)]

    def _centred(self, part: slice) -> Float[Tensor, "batch d_model"]:
        return self._activations[part].double() - self._mean

    def _column_means(self) -> Float[Tensor, " d_model"]:
        if not self.fit_intercept:  # then a shift would change the problem
            return torch.zeros(self._activations.shape[1], dtype=torch.float64, device=self.device)
        return self._activations.mean(0, dtype=torch.float64)

    def _principal_axes(self) -> Float[Tensor, "d_model axis"]:
        """Orthonormal columns that span the rows, along the eigenvectors of their Gram matrix."""
        n_row, d_model = self._activations.shape
        span: Tensor | None = None
        if n_row < d_model:
            span = torch.linalg.qr(self._centred(slice(None)).T).Q
        size = d_model if span is None else n_row
        gram = torch.zeros(size, size, dtype=torch.float64, device=self.device)
        for part in self._chunks():
            rows = self._centred(part) if span is None else self._centred(part) @ span
            gram.addmm_(rows.T, rows)
        axes: Tensor = torch.linalg.eigh(gram).eigenvectors
        return axes if span is None else span @ axes


def as_tensor(X: Any, device: Device = None) -> Float[Tensor, "batch d_model"]:
    """Activations as a float32 or float64 tensor on `device` (default: where they are).

    Raises InputError unless they are a table of numbers with rows and columns.
    """
    try:
        tensor = X.detach() if isinstance(X, Tensor) else torch.from_numpy(np.array(X))
    except TypeError as error:
        raise InputError(f"the activations are not numbers: {error}") from error
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise InputError(f"the activations must be [rows, dimensions], got {tuple(tensor.shape)}")
    if tensor.is_complex():
        raise InputError("the activations are complex numbers; give their real parts")
    narrow = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(device=device, dtype=torch.float32 if narrow else torch.float64)
