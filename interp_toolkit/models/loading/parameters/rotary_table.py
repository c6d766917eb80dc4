"""Rotary settings read from a saved table: dimensions, pairing and base.

`HookedTransformer` stores the sines and cosines of every position as buffers. With pairs of
frequency f_i = base^(-2i / rotary_dim), row p holds each angle p·f_i twice: next to each other
(adjacent pairs, GPT-J) or in two halves (GPT-NeoX, Llama). The base is determined from row 1 and
then checked by recomputing the whole table; a table that no base reproduces (NTK, YaRN or linear
scaling) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp_toolkit.errors import InputError

DEFAULT_BASE = 10000.0  # HookedTransformer's


@dataclass(frozen=True)
class RotaryTable:
    """The parameters of a rotary table.

    Attributes:
        dim: number of rotated dimensions per head.
        base: base of the frequencies.
        adjacent_pairs: pairs (0, 1), (2, 3), ... rather than (0, dim/2), (1, dim/2 + 1), ...;
            this and `base` are None if they make no difference: one pair, or one position.
        n_ctx: number of positions in the table.
    """

    dim: int
    base: float | None
    adjacent_pairs: bool | None
    n_ctx: int


def read_rotary_table(
    sin: Float[Tensor, "pos rotary_dim"], cos: Float[Tensor, "pos rotary_dim"], name: str
) -> RotaryTable:
    """Read the parameters of a rotary table; `name` is the tensor's, for messages.

    Raises InputError for a table that no base reproduces.
    """
    n_ctx, dim = sin.shape
    if dim < 2 or dim % 2:
        raise InputError(f"{name} has {dim} columns; a rotary table has an even number")
    if n_ctx < 2:
        return RotaryTable(dim, None, None, n_ctx)
    angles = torch.atan2(sin[1].double(), cos[1].double())
    adjacent = dim > 2 and bool(torch.isclose(angles[0], angles[1], rtol=1e-3))
    frequencies = angles[::2] if adjacent else angles[: dim // 2]
    for base in _candidates(frequencies):
        if _matches(sin, cos, base, adjacent):
            if dim == 2:
                return RotaryTable(dim, None, None, n_ctx)
            return RotaryTable(dim, base, adjacent, n_ctx)
    raise InputError(
        f"{name} is not an unscaled rotary table (NTK, YaRN or linear scaling?); scaled ones are "
        "not supported"
    )


def _candidates(frequencies: Float[Tensor, "half"]) -> list[float]:
    """Candidate bases, the roundest first."""
    half = len(frequencies)
    if half < 2:
        return [DEFAULT_BASE]
    slowest = float(frequencies[-1])
    if not 0 < slowest < 1:
        return [DEFAULT_BASE]
    estimate = slowest ** (-half / (half - 1))
    rounded = [float(f"{estimate:.{digits}g}") for digits in (1, 2, 3, 4, 6, 8, 12)]
    return [DEFAULT_BASE, *rounded, estimate]


def _matches(
    sin: Float[Tensor, "pos rotary_dim"],
    cos: Float[Tensor, "pos rotary_dim"],
    base: float,
    adjacent: bool,
) -> bool:
    n_ctx, dim = sin.shape
    precise = sin.dtype == torch.float64
    working = torch.float64 if precise else torch.float32
    position = torch.arange(n_ctx, dtype=working)
    period = base ** (torch.arange(dim // 2, dtype=working) / (dim / 2))
    period = period.repeat_interleave(2) if adjacent else period.repeat(2)
    angles = position[:, None] / period[None, :]
    rounding = 2 * torch.finfo(sin.dtype).eps
    drift = 1e-14 if precise else 1e-6  # of the angle, which grows with the position
    allowed = (rounding + drift * position)[:, None].double()
    return all(
        bool(((ours.to(stored.dtype) - stored).double().abs() <= allowed).all())
        for ours, stored in ((torch.sin(angles), sin), (torch.cos(angles), cos))
    )
