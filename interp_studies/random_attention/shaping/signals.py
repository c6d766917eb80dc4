"""How hidden states and gradients propagate through depth, at initialization.

`through_layers`: the paper's recursion of attention layers alone, without norm, skip connection or
MLP. Each layer has its own W_V with variance 1/n, W_O is the identity, and tokens have independent
N(0, 1) entries. At depth L:

    size        log10 of the root mean square of h_L over that of h_0
    gradient    log10 of |∂⟨u, h_L⟩/∂h_0| over |u|, for a random u
    likeness    mean squared cosine between tokens: 1/n if independent, 1 if all are collinear
    dimensions  participation ratio of the eigenvalues of hhᵀ
    spread      log10 of the largest over the smallest mean square of a token

A product of many layers exceeds any floating-point range, so each layer's output is rescaled and
the logarithms of the factors are summed.

`through_model`: a whole untrained model of the toolkit on random tokens: the mean cosine of hidden
states of different tokens after the last block and norm (`circuits.collapse`), and the norm of the
next-token loss's gradient with respect to every block's W_V.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_studies.random_attention.covariance.samples import bare_mixing_layer
from interp_studies.random_attention.depth.models import DepthSizes, untrained
from interp_toolkit.circuits.similarity import similarity_by_depth
from interp_toolkit.data import FeatureData
from interp_toolkit.models.transformer.attention import MixingAttention
from interp_toolkit.models.transformer.config import MixingVariance

MEASURES = ("size", "gradient", "likeness", "dimensions", "spread")


def through_layers(
    mixing: MixingVariance,
    *,
    causal: bool,
    n_heads: int,
    width: int,
    n_pos: int,
    depths: Sequence[int],
    seed: int,
) -> dict[str, list[float]]:
    """Every measure at every depth, for one sample of weights and tokens."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(1, n_pos, width, generator=generator, dtype=torch.float64)
    start = start / start.square().mean().sqrt()
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    logs = [0.0]
    h, measures = start, {name: list[float]() for name in MEASURES}
    for depth in range(1, max(depths) + 1):
        inputs.append(h.requires_grad_())
        out = _layer(width, n_pos, n_heads, causal, mixing, generator)(h)
        outputs.append(out)
        scale = out.detach().square().mean().sqrt()
        logs.append(float(scale.log10()))
        h = (out / scale).detach()
        if depth in depths:
            measures["size"].append(math.fsum(logs))
            u = torch.randn(h.shape, generator=generator, dtype=torch.float64)
            measures["gradient"].append(_gradient(inputs, outputs, u))
            for name, value in _geometry(h[0]).items():
                measures[name].append(value)
    return measures


def _layer(
    width: int,
    n_pos: int,
    n_heads: int,
    causal: bool,
    mixing: MixingVariance,
    generator: torch.Generator,
) -> MixingAttention:
    """A fresh attention layer of the toolkit, W_O the identity."""
    layer = bare_mixing_layer(width, n_pos, n_heads, causal, mixing)
    layer.W_V.normal_(0, 1 / math.sqrt(width), generator=generator)
    layer.draw_mixing(generator)
    return layer


def _gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], u: Tensor) -> float:
    """log10 of the gradient's norm at the first input over that of u, from the last layer back."""
    g, log = u / u.norm(), 0.0
    for x, out in zip(reversed(inputs), reversed(outputs), strict=True):
        (g,) = torch.autograd.grad(out, x, g, retain_graph=True)
        norm = g.norm()
        log += float(norm.log10())
        g = g / norm
    return log


def _geometry(h: Float[Tensor, "pos width"]) -> dict[str, float]:
    sizes = h.norm(dim=-1)
    units = h / sizes[:, None]
    cosines = (units @ units.T)[~torch.eye(len(h), dtype=torch.bool)]
    eigenvalues = torch.linalg.eigvalsh(h @ h.T)
    return {
        "likeness": float(cosines.square().mean()),
        "dimensions": float(eigenvalues.sum() ** 2 / eigenvalues.square().sum()),
        "spread": float(2 * (sizes.max() / sizes.min()).log10()),
    }


def through_model(
    mixing: MixingVariance | None, depth: int, sizes: DepthSizes, start: str, seed: int
) -> dict[str, float | list[float]]:
    """The cosine, and the gradient's norm by block.

    Args:
        mixing: mixing of MixiT; None: the random transformer, with its softmax.
        depth: number of blocks.
        sizes: sizes of model and prompts.
        start: initialization, one of `depth.models.INITIALISATIONS`.
        seed: random seed of weights and tokens.
    """
    shape = (sizes.rows, sizes.n_ctx)
    tokens = np.random.default_rng(seed).integers(sizes.d_vocab, size=shape)
    if mixing is None:
        model = untrained("random", depth, sizes, start, seed)
    else:
        model = untrained("mixit", depth, sizes, start, seed, mixing)
    loss = model(torch.from_numpy(tokens), return_type="loss")
    torch.autograd.backward(loss)
    gradients = [float(block.attn.W_V.grad.norm()) for block in model.blocks]
    data = FeatureData(tokens, np.zeros((sizes.rows, 0), bool), (), source="random tokens")
    similarity = similarity_by_depth(model, data)
    return {"cosine": float(similarity.cosines[-1].mean()), "gradients": gradients}
