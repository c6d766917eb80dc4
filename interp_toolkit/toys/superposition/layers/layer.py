"""One MLP layer on boolean features, and the same layer as a model.

A layer computes `act(x W_in + b_in)` of `x`, the sum of the f-vectors of the features that are on;
f-vectors are the rows of `features`, the identity where nothing is in superposition. As a model
it reads `data.composites`' rows of tokens: one head attends everywhere alike and adds up the
f-vectors of the row at its last position, the MLP is the layer, and what it writes are the gates'
readoffs, each along a residual direction of its own, which the unembedding reads as a logit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp_toolkit.errors import InputError
from interp_toolkit.formatting import Brief
from interp_toolkit.models.transformer.config import TransformerConfig
from interp_toolkit.models.transformer.transformer import Transformer
from interp_toolkit.toys.zeros import zeros

Activation = Literal["relu", "square"]
#: the place of a layer model's neurons
HOOK = "blocks.0.mlp.hook_post"


@dataclass(frozen=True, eq=False)
class FeatureLayer(Brief):
    """A layer that computes on boolean features; see the module.

    Attributes:
        W_in: what each neuron reads of the input.
        b_in: what is added.
        features: f-vectors, one a row.
        activation: "relu", or "square": x -> x^2.
    """

    W_in: Float[Tensor, "d_in neuron"]
    b_in: Float[Tensor, " neuron"]
    features: Float[Tensor, "feature d_in"]
    activation: Activation = "relu"

    def input(self, on: Bool[Tensor, "input feature"]) -> Float[Tensor, "input d_in"]:
        """The sum of the f-vectors of the features that are on."""
        summed: Tensor = torch.sparse.mm(on.to(self.features).to_sparse(), self.features)
        return summed

    def activations(self, on: Bool[Tensor, "input feature"]) -> Float[Tensor, "input neuron"]:
        """The neurons' activations on these inputs."""
        return self.neurons(self.input(on))

    def neurons(self, x: Float[Tensor, "input d_in"]) -> Float[Tensor, "input neuron"]:
        """The neurons' activations for the layer input `x`."""
        pre = x @ self.W_in + self.b_in
        return pre.square() if self.activation == "square" else pre.relu()


@torch.no_grad()
def layer_model(
    layer: FeatureLayer, readoffs: Float[Tensor, "gate neuron"], most_on: int, name: str
) -> Transformer:
    """The layer as a model (see the module), in float64; its logits are the gates' readoffs.

    A squared neuron is two neurons of a gated MLP: x^2 = relu(x) x + relu(-x) (-x).

    Args:
        layer: what the MLP computes.
        readoffs: of the gates that the model writes.
        most_on: the largest number of features that are on together.
        name: of the model.

    Raises:
        InputError: no gate, squares with a bias, which no gated MLP has, or no features that are
            on together.
    """
    (d_in, n_neurons), n_gates = layer.W_in.shape, len(readoffs)
    squared = layer.activation == "square"
    if not n_gates:
        raise InputError("a model of a layer needs at least one gate to write")
    if squared and layer.b_in.any():
        raise InputError("squared neurons with a bias cannot be made into a model")
    d_mlp = 2 * n_neurons if squared else n_neurons
    model = adding_model(layer.features, most_on, n_gates, d_in, d_mlp, name, gated=squared)
    mlp = model.blocks[0].mlp
    W_in, W_out = layer.W_in, readoffs.T
    if squared:
        W_in, W_out = torch.cat([W_in, -W_in], dim=1), torch.cat([W_out, W_out])
        mlp.W_gate[:d_in] = W_in
    else:
        mlp.b_in.copy_(layer.b_in)
    mlp.W_in[:d_in] = W_in
    mlp.W_out[:, d_in:] = W_out
    return model


@torch.no_grad()
def adding_model(
    features: Float[Tensor, "feature d_in"],
    most_on: int,
    n_out: int,
    width: int,
    d_mlp: int,
    name: str,
    *,
    n_layers: int = 1,
    gated: bool = False,
) -> Transformer:
    """A model whose first head adds up a row's f-vectors at its last position; its MLPs are zero.

    Args:
        features: the f-vectors; they take the first residual directions.
        most_on: the largest number of features that are on together.
        n_out: logits, each read along a residual direction of its own, the last ones.
        width: how many residual directions are before these.
        d_mlp: neurons of a block.
        name: of the model.
        n_layers: blocks; only the first one's head writes anything.
        gated: whether the MLPs are gated.

    Raises:
        InputError: no features that are on together, or more than there are.
    """
    n_features, d_in = features.shape
    if not 1 <= most_on <= n_features:
        raise InputError(f"{most_on} features are to be on at most; there are {n_features}")
    config = TransformerConfig(
        n_layers=n_layers,
        d_model=width + n_out,
        n_ctx=most_on + 1,
        d_head=d_in,
        n_heads=1,
        d_vocab=n_features + 2,
        d_vocab_out=n_out,
        attn_only=False,
        d_mlp=d_mlp,
        act_fn="relu",
        gated_mlp=gated,
        biases=True,
        normalization_type=None,
        positional_embedding_type="none",
        dtype=torch.float64,
        model_name=name,
    )
    model = zeros(config)
    model.embed.W_E[:n_features, :d_in] = features
    attn = model.blocks[0].attn
    attn.W_V[0, :d_in] = (most_on + 1) * torch.eye(d_in)
    attn.W_O[0, :, :d_in] = torch.eye(d_in)
    model.unembed.W_U[width:] = torch.eye(n_out)
    return model


def layer_task(layer: FeatureLayer, most_on: int, **further: object) -> dict[str, object]:
    """The task record of such a model: what `data.composites` needs to make its inputs."""
    return {
        "function": "uand",
        "n_features": len(layer.features),
        "most_on": most_on,
        **further,
    }
