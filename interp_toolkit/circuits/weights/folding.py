"""Norms folded into the weights beside them, as far as a norm is linear.

A norm in front of a head centres (LN only), divides by a number that depends on the whole residual
stream, multiplies by `w` and adds `b`. Centring and `w` are linear and move into the weights; the
division is one positive number per position, which no ratio of weights sees; `b` is a constant and
belongs to the biases. The same holds for a norm behind the heads (Gemma 2): what a head adds to the
residual stream is its output times the weights given here, up to that one number.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from interp_toolkit.models.weights.parts import NormWeights
from interp_toolkit.models.weights.precision import at_least_single


def read_through(
    norm: NormWeights, W: Float[Tensor, "*head d_model out"]
) -> Float[Tensor, "*head d_model out"]:
    """Weights that read the residual stream itself, up to the norm's scale: `C diag(w) W`."""
    W = at_least_single(W)
    W = W if norm.w is None else W * norm.w.to(W.dtype)[:, None]
    return W - W.mean(-2, keepdim=True) if norm.kind == "LN" else W


def written_through(
    norm: NormWeights, W: Float[Tensor, "*head into d_model"]
) -> Float[Tensor, "*head into d_model"]:
    """Weights that write to the residual stream behind a norm, up to its scale: `W C diag(w)`."""
    W = at_least_single(W)
    W = W - W.mean(-1, keepdim=True) if norm.kind == "LN" else W
    return W if norm.w is None else W * norm.w.to(W.dtype)


def seen_by(
    norm: NormWeights, W: Float[Tensor, "*head into d_model"]
) -> Float[Tensor, "*head into d_model"]:
    """What a norm lets through of what is written: without the mean over the stream, for LN."""
    return W - W.mean(-1, keepdim=True) if norm.kind == "LN" else W


def seen_dimensions(norm: NormWeights, d_model: int) -> int:
    """Dimensions of the residual stream that a norm lets through: LN's centring takes one."""
    return d_model - 1 if norm.kind == "LN" else d_model
