"""Every layer's weights in one tensor, under the names `HookedTransformer` gives them.

The first axis is the layer, the second (attention) the head; grouped key and value heads are
repeated for every query head. A model without biases has zeros here. Weights that a model does not
have (`W_in` of an attention-only one, `W_pos` of a rotary one, `W_Q` where fixed matrices mix)
raise AttributeError; `W_gate` and `b_gate` are None where MLPs have none. Each access stacks anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from interp_toolkit.models.transformer.hooks import FactoredMatrix


class StackedWeights:
    """The stacked weights of a model with `cfg`, `blocks`, `embed`, `unembed`."""

    cfg: Any
    blocks: Any
    embed: Any
    pos_embed: Any
    unembed: Any

    def _stack(self, part: str, name: str) -> Tensor:
        return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])

    def _stack_biases(self, part: str, name: str, *shape: int | None) -> Tensor:
        if self.cfg.biases:
            return self._stack(part, name)
        getattr(getattr(self.blocks[0], part), name)  # the AttributeError of a model without it
        return self.W_E.new_zeros(self.cfg.n_layers, *shape)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Embedding."""
        return self.embed.W_E  # type: ignore[no-any-return]

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Learned absolute positions."""
        return self.pos_embed.W_pos  # type: ignore[no-any-return]

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Unembedding."""
        return self.unembed.W_U  # type: ignore[no-any-return]

    @property
    def b_U(self) -> Float[Tensor, "d_vocab_out"]:
        """The unembedding's bias."""
        if self.cfg.unembed_bias:
            return self.unembed.b_U  # type: ignore[no-any-return]
        return self.W_E.new_zeros(self.cfg.d_vocab_out)

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Queries."""
        return self._stack("attn", "W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Keys."""
        return self._stack("attn", "W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Values."""
        return self._stack("attn", "W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Outputs."""
        return self._stack("attn", "W_O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"]:
        """Query biases."""
        return self._stack_biases("attn", "b_Q", self.cfg.n_heads, self.cfg.d_head)

    @property
    def b_K(self) -> Float[Tensor, "layer head d_head"]:
        """Key biases."""
        return self._stack_biases("attn", "b_K", self.cfg.n_heads, self.cfg.d_head)

    @property
    def b_V(self) -> Float[Tensor, "layer head d_head"]:
        """Value biases."""
        return self._stack_biases("attn", "b_V", self.cfg.n_heads, self.cfg.d_head)

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """Output biases."""
        return self._stack_biases("attn", "b_O", self.cfg.d_model)

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        """The MLPs' first matrices."""
        return self._stack("mlp", "W_in")

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"] | None:
        """The MLPs' gates."""
        return self._stack("mlp", "W_gate") if self.cfg.gated_mlp else None

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        """The MLPs' second matrices."""
        return self._stack("mlp", "W_out")

    @property
    def b_in(self) -> Float[Tensor, "layer d_mlp"]:
        """The MLPs' first biases."""
        return self._stack_biases("mlp", "b_in", self.cfg.d_mlp)

    @property
    def b_gate(self) -> Float[Tensor, "layer d_mlp"] | None:
        """The gates' biases, where gated MLPs have a bias in each of their linear maps."""
        return self._stack("mlp", "b_gate") if self.cfg.gate_biases else None

    @property
    def mixing(self) -> Float[Tensor, "layer head query key"]:
        """The fixed mixing matrices of a model that has them instead of queries and keys."""
        return self._stack("attn", "mixing")

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """The MLPs' second biases."""
        return self._stack_biases("mlp", "b_out", self.cfg.d_model)

    @property
    def QK(self) -> FactoredMatrix:
        """`W_Q @ W_K.T` of every head, factored: scores before scaling, biases and positions."""
        from interp_toolkit.models.transformer.hooks import FactoredMatrix

        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """`W_V @ W_O` of every head, factored: what it writes for what it attends to."""
        from interp_toolkit.models.transformer.hooks import FactoredMatrix

        return FactoredMatrix(self.W_V, self.W_O)
