"""A uniform view of TransformerLens models' weights, in HookedTransformer's conventions.

`weights(model)` hides the differences between `HookedTransformer`, `TransformerBridge` and the
toolkit's own transformer: key and value heads are repeated for every query head, absent biases are
zero, scores are divided by scales, and activations are multiplied by norm weights. Layers are read
on request; nothing is stacked.

Conventions on a bridge depend on the architecture, of which there are about a hundred. The view
therefore checks itself on creation: one tiny forward pass is compared with the same pass computed
from the view (`check`). Access to a part that does not agree raises InputError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.models.model import Model
from interp_toolkit.models.weights import read
from interp_toolkit.models.weights.check import check
from interp_toolkit.models.weights.parts import LayerWeights as LayerWeights
from interp_toolkit.models.weights.parts import MLPWeights as MLPWeights
from interp_toolkit.models.weights.parts import NormWeights as NormWeights
from interp_toolkit.models.weights.parts import OutputWeights as OutputWeights
from interp_toolkit.models.weights.parts import OVWeights as OVWeights
from interp_toolkit.models.weights.positions import positions

Branch = TypeVar("Branch", bound=OutputWeights)


class ModelWeights:
    """The weights of a model; see `weights`.

    Attributes:
        n_layers, n_heads, d_model, d_head, d_vocab: sizes.

    Examples:
        >>> import interp_toolkit as it
        >>> from interp_toolkit.models.weights.view import weights
        >>> view = weights(it.load("toy:induction"))
        >>> view.n_layers, view.n_heads
        (2, 2)
    """

    def __init__(
        self,
        model: Model,
        problems: Mapping[tuple[str, int], str],
        scales: Mapping[tuple[str, int], float],
        variants: Mapping[int, read.Variant],
    ):
        self._model, self._problems = model, problems
        self._scales, self._variants = scales, variants
        cfg = model.cfg
        self.n_layers, self.n_heads = int(cfg.n_layers), int(cfg.n_heads)
        self.d_model, self.d_head = int(cfg.d_model), int(cfg.d_head)
        self.d_vocab = int(cfg.d_vocab)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """The token embeddings, including an embedding scale (Gemma).

        If there is an `embed_norm`, they are the contribution before that norm; see `embed`.
        """
        self._refuse("embedding")
        return self._scaled("embedding", read.embedding(self._model))

    @property
    def W_pos(self) -> Float[Tensor, "pos d_model"] | None:
        """The position embeddings; None without learned positions."""
        self._refuse("embedding")
        return positions(self._model)

    @property
    def token_type(self) -> Float[Tensor, " d_model"] | None:
        """The embedding of the first token type (BERT); None without token types."""
        self._refuse("embedding")
        return read.token_type(self._model)

    @property
    def embed_norm(self) -> NormWeights:
        """The norm after the sum of the embeddings (Bloom, BERT); usually kind None."""
        self._refuse("embedding")
        return read.embedding_norm(self._model)

    def embed(
        self, tokens: Int[Tensor, "*n"], positions: Int[Tensor, "*n"] | None = None
    ) -> Float[Tensor, "*n d_model"]:
        """The residual stream that enters block 0.

        Args:
            tokens: the tokens.
            positions: positions of the tokens; None takes the mean position embedding if the model
                has learned positions, an approximation that is exact for no position.

        Raises:
            InputError: tokens or positions that do not exist, or an embedding that this view
                cannot represent exactly.
        """
        W_E, W_pos, token_type = self.W_E, self.W_pos, self.token_type
        residual = W_E[_within(tokens, self.d_vocab, "token").to(W_E.device)]
        if positions is not None:
            end = None if W_pos is None else len(W_pos)
            positions = _within(positions, end, "position").to(W_E.device)
        if W_pos is not None:
            residual = residual + (W_pos.mean(0) if positions is None else W_pos[positions])
        return self.embed_norm(residual if token_type is None else residual + token_type)

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """`logits = final_norm(x) @ W_U + b_U`, then `logit_soft_cap`.

        A multiplier of the logits (Granite, Cohere) is included.
        """
        self._refuse("unembedding")
        return self._scaled("unembedding", read.unembedding(self._model)[0])

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"]:
        """The unembedding's bias, zero where absent."""
        self._refuse("unembedding")
        return self._scaled("unembedding", read.unembedding(self._model)[1])

    @property
    def final_norm(self) -> NormWeights:
        """The normalization before the unembedding."""
        self._refuse("unembedding")
        return read.final_norm(self._model)

    @property
    def logit_soft_cap(self) -> float | None:
        """The cap in `cap * tanh(logits / cap)` (Gemma 2); None without one."""
        return read.positive(getattr(self._model.cfg, "output_logits_soft_cap", None))

    def layer(self, layer: int) -> LayerWeights:
        """The attention weights of a layer.

        Raises InputError for a layer that does not exist or that this view cannot represent
        exactly, and for one without queries and keys (fixed mixing); `ov` has its values and
        outputs.
        """
        self._refuse("attention", checked_layer(self._model, layer))
        return self._branch(read.layer(self._model, layer, self._variants[layer]), layer)

    def ov(self, layer: int) -> OVWeights:
        """The value and output weights of a layer, also without queries and keys.

        Raises InputError for a layer that does not exist or that the view cannot represent exactly.
        """
        self._refuse("ov", checked_layer(self._model, layer))
        return self._branch(read.ov(self._model, layer), layer)

    def outputs(self, layer: int) -> OutputWeights:
        """What a layer makes of its heads' outputs. Raises InputError as `ov` does."""
        self._refuse("outputs", checked_layer(self._model, layer))
        return self._branch(read.outputs(self._model, layer), layer)

    def mlp(self, layer: int) -> MLPWeights | None:
        """The MLP weights of a layer; None without MLPs. Raises InputError as `ov` does."""
        self._refuse("mlp", checked_layer(self._model, layer))
        w = read.mlp(self._model, layer)
        if w is None or ("mlp", layer) not in self._scales:
            return w
        W_out, b_out = (self._scaled("mlp", x, layer) for x in (w.W_out, w.b_out))
        return replace(w, W_out=W_out, b_out=b_out)

    def _branch(self, w: Branch, layer: int) -> Branch:
        """Attention weights with the layer's multipliers."""
        factor = self._scales.get(("added", layer), 1.0)
        scale = factor * self._scales.get(("outputs", layer), 1.0)
        if scale == factor == 1.0:
            return w
        if w.post_norm.kind is not None:
            raise InputError(f"layer {layer} multiplies the output of a norm, which no view holds")
        return replace(w, W_O=w.W_O * scale, b_O=w.b_O * scale, factor=factor)

    def _scaled(self, part: str, x: Tensor, layer: int = -1) -> Tensor:
        scale = self._scales.get((part, layer))
        return x if scale is None else x * scale

    def _refuse(self, part: str, layer: int = -1) -> None:
        if (part, layer) in self._problems:
            raise InputError(self._problems[part, layer])


def weights(model: Model) -> ModelWeights:
    """One view of the weights of any TransformerLens model, checked against its forward pass.

    Raises InputError for a model without embedding or blocks. Access to a part that is missing or
    cannot be represented exactly (mixtures of experts, clipped or sparse attention, ...)
    raises it later.
    """
    return ModelWeights(model, *check(model))


def checked_layer(model: Model, layer: int) -> int:
    """The layer's index; raises InputError if the model does not have it."""
    n_layers = int(model.cfg.n_layers)
    if not 0 <= layer < n_layers:
        raise InputError(f"there is no layer {layer}; the model has layers 0 to {n_layers - 1}")
    return layer


def _within(index: Tensor, end: int | None, what: str) -> Tensor:
    """The index; raises InputError if an entry is negative or past the end."""
    low, high = (int(index.min()), int(index.max())) if index.numel() else (0, 0)
    if low >= 0 and (end is None or high < end):
        return index
    wrong = low if low < 0 else high
    hint = f"; the model has {what}s 0 to {end - 1}" if end is not None else "; the first is 0"
    raise InputError(f"there is no {what} {wrong}{hint}")
