"""One MLP, computed from its weights: what it reads, and what its neurons hold."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights.parts import MLPWeights

_NO_PLAIN_FUNCTION = ("solu_ln", "xielu")  # with parameters, or a norm, of their own


def plain_activation(act_fn: str) -> Callable[[Tensor], Tensor] | None:
    """The activation as a function of its input alone; None where it is none."""
    return None if act_fn in _NO_PLAIN_FUNCTION else SUPPORTED_ACTIVATIONS.get(act_fn)


def residual_hook(model: Model, layer: int, w: MLPWeights) -> str:
    """Where the residual stream stands that the MLP's norm reads."""
    if w.residual_norm.kind is not None:
        return f"blocks.{layer}.hook_attn_out"  # on bridges the normalised stream
    parallel = bool(getattr(model.cfg, "parallel_attn_mlp", False))
    return f"blocks.{layer}.hook_resid_{'pre' if parallel else 'mid'}"


def neurons(w: MLPWeights, x: Float[Tensor, "*n d_model"]) -> Float[Tensor, "*n d_mlp"]:
    """What the neurons hold (`mlp.hook_post`) for `x = w.norm(residual)`.

    Raises InputError for an activation with parameters of its own.
    """
    act = plain_activation(w.act_fn)
    if act is None:
        raise InputError(f"the activation {w.act_fn} has parameters of its own, which are not read")
    linear = x @ w.W_in + w.b_in
    if w.W_gate is None or w.b_gate is None:
        return act(linear)
    return act(x @ w.W_gate + w.b_gate) * linear + w.b_post
