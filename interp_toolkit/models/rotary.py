"""Rotary positions: pairs of coordinates turned by angles (Su et al. 2021, arXiv 2104.09864)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def turned(
    x: Float[Tensor, "... d_head"], cos: Tensor, sin: Tensor, *, adjacent: bool
) -> Float[Tensor, "... d_head"]:
    """Queries or keys, turned by the angles that belong to each.

    Args:
        x: what is turned, in its first coordinates, as many as there are angles.
        cos: of the angles, a coordinate each, [... rotary_dim] as far as they broadcast.
        sin: likewise.
        adjacent: pairs are (0, 1), (2, 3), ... (GPT-J) rather than (0, dim/2), ... (Llama).
    """
    dim = cos.shape[-1]
    turning, rest = x[..., :dim], x[..., dim:]
    out = turning * cos + quarter_turn(turning, adjacent=adjacent) * sin
    return torch.cat([out, rest], dim=-1) if rest.shape[-1] else out


def quarter_turn(x: Float[Tensor, "... dim"], *, adjacent: bool) -> Float[Tensor, "... dim"]:
    """Each pair (a, b) becomes (-b, a)."""
    if adjacent:
        return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
